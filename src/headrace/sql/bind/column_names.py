"""Names output columns without an alias like Spark: by the text of the expression."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from decimal import Decimal
from typing import Any

from headrace.model.schema import DATE, INT
from headrace.sql.functions.interval_functions import CALENDAR_MAKERS
from headrace.sql.parse.intervals import interval_text
from headrace.sql.parse.syntax import (
    Aliased,
    Apply,
    Case,
    CastTo,
    Constant,
    Dot,
    IntervalCast,
    IntervalConstant,
    LambdaFunction,
    Name,
    Node,
    Ranking,
    Star,
    Subscript,
)
from headrace.sql.plan.expr import Call, Expr, FieldOf

_PREFIX = {"not": "NOT ", "negative": "- ", "positive": "+ "}
# Spark's own spelling of some functions, and the arguments that it adds.
_CAPITAL = frozenset([
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "cos", "cosh", "cot", "csc", "degrees",
    "e", "exp", "expm1", "floor", "hypot", "log10", "log1p", "log2", "pi", "power", "radians", "regexp", "regexp_like",
    "rlike", "sec", "signum", "sin", "sinh", "sqrt", "tan", "tanh",
])  # fmt: skip
_TIME = "yyyy-MM-dd HH:mm:ss"
_VARIABLE = "namedlambdavariable()"
_IDENTITY = f"lambdafunction({_VARIABLE}, {_VARIABLE})"
_COMPARATOR = (
    f"lambdafunction((IF((({_VARIABLE} IS NULL) AND ({_VARIABLE} IS NULL)), 0, (IF(({_VARIABLE} IS NULL), 1, "
    f"(IF(({_VARIABLE} IS NULL), -1, (IF(({_VARIABLE} < {_VARIABLE}), -1, "
    f"(IF(({_VARIABLE} > {_VARIABLE}), 1, 0)))))))))), {_VARIABLE}, {_VARIABLE})"
)
_ADDED: dict[tuple[str, int], tuple[str, ...]] = {
    ("round", 1): ("0",), ("bround", 1): ("0",), ("split", 2): ("-1",), ("locate", 2): ("1",), ("position", 2): ("1",),
    ("overlay", 3): ("-1",), ("percentile", 2): ("1",), ("percentile_approx", 2): ("10000",),
    ("approx_percentile", 2): ("10000",), ("unix_timestamp", 1): (_TIME,), ("to_unix_timestamp", 1): (_TIME,),
    ("from_unixtime", 1): (_TIME,), ("replace", 2): ("",), ("hmac", 2): ("SHA-256",), ("months_between", 2): ("true",),
    ("regexp_instr", 2): ("0",), ("regexp_extract", 2): ("1",), ("regexp_extract_all", 2): ("1",),
    ("regexp_replace", 3): ("1",), ("mask", 1): ("X", "x", "n", "NULL"), ("mask", 2): ("x", "n", "NULL"),
    ("mask", 3): ("n", "NULL"), ("mask", 4): ("NULL",), ("substring", 2): ("2147483647",),
    ("substr", 2): ("2147483647",), ("str_to_map", 1): (",", ":"), ("str_to_map", 2): (":",), ("lpad", 2): (" ",),
    ("rpad", 2): (" ",), ("sort_array", 1): ("true",), ("vector_norm", 1): ("2.0",), ("vector_normalize", 1): ("2.0",),
    ("make_dt_interval", 0): ("0", "0", "0", "0.000000"), ("make_dt_interval", 1): ("0", "0", "0.000000"),
    ("make_dt_interval", 2): ("0", "0.000000"), ("make_dt_interval", 3): ("0.000000",),
    ("aggregate", 3): (_IDENTITY,), ("reduce", 3): (_IDENTITY,), ("array_sort", 1): (_COMPARATOR,),
    ("make_ym_interval", 0): ("0", "0"), ("make_ym_interval", 1): ("0",),
    **{(f, n): (*("0",) * (6 - n), "0.000000") for f in CALENDAR_MAKERS for n in range(7)},
}  # fmt: skip
_TRIMS = {"trim": "BOTH", "ltrim": "LEADING", "rtrim": "TRAILING"}
_SAME = {"dateadd": "date_add"}
_CASTS = (
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "string", "date", "timestamp",
    "binary",
)  # fmt: skip


def column_name(node: Node) -> str:
    """The output name of an unaliased select item."""
    if isinstance(node, Name):
        return node.parts[-1]
    if isinstance(node, Dot) and _is_path(node):
        return node.field
    if isinstance(node, CastTo | IntervalCast) and _is_path(node.input):
        return column_name(node.input)
    if isinstance(node, Apply) and node.name in _CASTS and _is_path(node.args[0]):
        return column_name(node.args[0])
    return pretty(node)


def _is_path(node: Node) -> bool:
    """True if `node` names a column, or a field of one."""
    return isinstance(node, Name) or (isinstance(node, Dot) and _is_path(node.input))


def typed_name(node: Node, expr: Expr) -> str:
    """As `column_name`, for an item whose type Spark prints: a field of a STRUCT, and a DATE and days."""
    if isinstance(node, Subscript) and isinstance(expr, FieldOf):
        return f"{pretty(node.input)}.{pretty(node.index)}"
    if not isinstance(node, Apply) or not isinstance(expr, Call) or expr.name not in ("+", "-") or expr.type != DATE:
        return column_name(node)
    if expr.args[1].type != INT or _is_interval(node.args[1]):
        return column_name(node)
    return f"{'date_add' if expr.name == '+' else 'date_sub'}({', '.join(map(pretty, node.args))})"


def pretty(node: Node) -> str:
    """An expression as Spark prints it."""
    if isinstance(node, Name):
        return ".".join(node.parts)
    if isinstance(node, Constant):
        return _constant(node)
    if isinstance(node, Apply):
        return _apply(node)
    if isinstance(node, CastTo):
        return f"{'TRY_CAST' if node.attempt else 'CAST'}({pretty(node.input)} AS {node.type})"
    if isinstance(node, IntervalCast):
        return f"{'TRY_CAST' if node.attempt else 'CAST'}({pretty(node.input)} AS {f'INTERVAL {node.unit}'.strip()})"
    if isinstance(node, Dot):
        return f"{pretty(node.input)}.{node.field}"
    if isinstance(node, LambdaFunction):
        body = pretty(renamed(node.body, {p.lower(): _VARIABLE for p in node.params}))
        return f"lambdafunction({body}{f', {_VARIABLE}' * len(node.params)})"
    if isinstance(node, Aliased):
        return f"{pretty(node.value)} AS {node.alias}"
    if isinstance(node, Subscript):
        return f"{pretty(node.input)}[{pretty(node.index)}]"
    if isinstance(node, Case):
        branches = "".join(f" WHEN {pretty(c)} THEN {pretty(v)}" for c, v in node.branches)
        return f"CASE{branches}" + (f" ELSE {pretty(node.otherwise)}" if node.otherwise else "") + " END"
    if isinstance(node, IntervalConstant):
        return _interval(node)
    if isinstance(node, Ranking):
        return _ranking(node)
    assert isinstance(node, Star)
    return ".".join((*node.qualifier, "*"))


def _ranking(node: Ranking) -> str:
    keys = ", ".join(
        f"{pretty(k.value)} {'DESC' if k.descending else 'ASC'} NULLS {'FIRST' if k.nulls_first else 'LAST'}"
        for k in node.order
    )
    by = f"PARTITION BY {', '.join(map(pretty, node.partition))} " if node.partition else ""
    frame = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    return f"{node.name}() OVER ({by}ORDER BY {keys} {frame})"


def renamed(node: Node, names: dict[str, str]) -> Node:
    """`node` with other names for the variables of a lambda."""
    if isinstance(node, Name):
        first = names.get(node.parts[0].lower())
        return node if first is None else replace(node, parts=(first, *node.parts[1:]))
    changed = {f.name: _renamed_part(getattr(node, f.name), names) for f in fields(node) if f.name != "at"}
    return replace(node, **changed)


def _renamed_part(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, Node):
        return renamed(value, names)
    return tuple(_renamed_part(v, names) for v in value) if isinstance(value, tuple) else value


def _constant(node: Constant) -> str:
    if node.kind in ("date", "timestamp", "timestamp_ntz"):
        return f"{node.kind.upper()} '{node.text}'"
    if node.kind == "binary":
        return f"X'{node.text.upper()}'"
    if node.kind != "number":
        return {"null": "NULL", "boolean": node.text.lower()}.get(node.kind, node.text)
    digits = node.text.lower().removesuffix("bd")
    if digits[-1] in "df" or "e" in digits:
        return double_text(float(digits.rstrip("df")))
    return digits.rstrip("lsy")


def double_text(value: float) -> str:
    """A DOUBLE in Java's spelling."""
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value and not 1e-3 <= abs(value) < 1e7:
        head, _, power = f"{Decimal(repr(value)).normalize():E}".partition("E")
        return f"{head if '.' in head else head + '.0'}E{int(power)}"
    return repr(value)


def _interval(node: IntervalConstant) -> str:
    """An interval as Spark prints it."""
    if not node.unit:
        return f"INTERVAL {node.months} MONTHS" if node.months else f"INTERVAL {node.micros} MICROSECONDS"
    return interval_text(node.months if node.unit in ("YEAR", "MONTH", "YEAR TO MONTH") else node.micros, node.unit)


def _written(node: Apply, args: list[str]) -> str | None:
    """Calls that Spark prints in a form of their own."""
    if node.written == "between" and isinstance(node.args[0], Apply) and isinstance(node.args[1], Apply):
        value, low = (pretty(a) for a in node.args[0].args)
        return f"between({value}, {low}, {pretty(node.args[1].args[1])})"
    if node.written == "is not null" and isinstance(node.args[0], Apply):
        return f"({pretty(node.args[0].args[0])} IS NOT NULL)"
    if node.written in ("likeany", "likeall", "notlikeany", "notlikeall"):
        return f"{node.written}({_matched(node)})"
    if node.written in ("<<", ">>", ">>>"):
        return f"({args[0]} {node.written} {args[1]})"
    if node.written == "extract":
        return f"extract({args[0]} FROM {args[1]})"
    if node.written in ("BOTH", "LEADING", "TRAILING"):
        return f"TRIM({node.written} {args[0]} FROM {args[1]})"
    if node.written == "locate":
        return f"locate({args[0]}, {args[1]}, 1)"
    if node.name in ("isnull", "isnotnull") and len(args) == 1:
        return f"({args[0]} IS {'NOT ' if node.name == 'isnotnull' else ''}NULL)"
    if node.name in _TRIMS and len(args) == 2:
        return f"TRIM({_TRIMS[node.name]} {args[0]} FROM {args[1]})"
    if node.name == "convert_timezone" and len(args) == 2:
        return f"convert_timezone(current_timezone(), {', '.join(args)})"
    if node.name == "raise_error" and len(args) == 1:
        return f"raise_error(USER_RAISED_EXCEPTION, map(errorMessage, {args[0]}))"
    if node.name == "assert_true" and len(args) == 1:
        return f"assert_true({args[0]}, '{args[0]}' is not true!)"
    if node.name == "from_json" and len(args) == 2:
        return "entries" if args[1].strip().upper().startswith("MAP<") else f"from_json({args[0]})"
    if node.name in _CASTS and len(args) == 1:
        return args[0]
    if node.name == "if":
        return f"(IF({', '.join(args)}))"
    if node.name in ("timestampadd", "timestampdiff"):
        return f"{node.name}({', '.join(args)})"
    if node.name == "try_make_timestamp" and len(args) == 7:
        return f"{node.name}({', '.join(args[:6])})"
    if node.name in ("to_char", "to_varchar") and len(args) == 2:
        return _to_char(node.name, args)
    if node.name == "log":
        return f"LOG({', '.join(['E()', *args] if len(args) == 1 else args)})"
    if node.name in ("first", "last", "first_value", "last_value", "any_value"):
        return f"{node.name}({args[0]})" if args and node.where is None else None
    return None


def _to_char(name: str, args: list[str]) -> str:
    """Spark prints the function that to_char stands for."""
    word = args[1].lower()
    if word in ("hex", "base64"):
        return f"{word if name == 'to_char' else name}({args[0]})"
    if word == "utf-8":
        return f"{'decode' if name == 'to_char' else name}({args[0]}, {args[1]})"
    return f"date_format({args[0]}, {args[1]})"


def _matched(node: Apply) -> str:
    """What LIKE ANY or LIKE ALL matches. Spark prints no patterns, and matches small letters for ILIKE."""
    first: Node = node
    while isinstance(first, Apply) and first.name not in ("like", "ilike"):
        first = first.args[0]
    assert isinstance(first, Apply)
    return f"lower({pretty(first.args[0])})" if first.name == "ilike" else pretty(first.args[0])


def _operator(node: Apply, args: list[str]) -> str | None:
    """Operators that Spark prints without parentheses, as functions, or by other operators."""
    if node.name == "!=":
        return f"(NOT ({args[0]} = {args[1]}))"
    if node.name == "||":
        return f"concat({args[0]}, {args[1]})"
    if node.name == "~":
        return f"~{args[0]}"
    if node.name == "like" and len(args) == 2:
        return f"{args[0]} LIKE {args[1]}"
    if node.name == "like" and len(args) == 3:
        return f"{args[0]} LIKE {args[1]} ESCAPE '{args[2]}'"
    if node.name == "ilike":
        return f"ilike({args[0]}, {args[1]})"
    if node.name == "rlike":
        return f"RLIKE({args[0]}, {args[1]})"
    if node.name == "+" and _is_calendar_interval(node.args[0]):
        return f"{args[1]} + {args[0]}"
    if node.name in ("+", "-") and _is_interval(node.args[-1]) and not _is_interval(node.args[0]):
        return f"{args[0]} {node.name} {args[1]}"
    if node.name == "negative" and isinstance(node.args[0], Constant):
        return f"-{args[0]}"
    return None


def _is_interval(node: Node) -> bool:
    return isinstance(node, IntervalConstant) or (
        isinstance(node, Apply) and node.name in ("make_dt_interval", "make_ym_interval", *CALENDAR_MAKERS)
    )


def _is_calendar_interval(node: Node) -> bool:
    return isinstance(node, Apply) and node.name in CALENDAR_MAKERS


def _apply(node: Apply) -> str:
    args = [pretty(a) for a in node.args]
    special = _written(node, args) if not node.operator or node.written else _operator(node, args)
    if special is not None:
        return special
    if not node.operator:
        added = _ADDED.get((node.name, len(args)))
        args = args if added is None else [*args, *added]
        name = node.name.upper() if node.name in _CAPITAL else _SAME.get(node.name, node.name)
        inner = "1" if node.star else ", ".join(args)
        tail = _within_group(node)
        tail += f" FILTER (WHERE {pretty(node.where)})" if node.where is not None else ""
        return f"{name}({'DISTINCT ' if node.distinct else ''}{inner}){tail}"
    if node.name in _PREFIX:
        return f"({_PREFIX[node.name]}{args[0]})"
    if node.name == "isnull":
        return f"({args[0]} IS NULL)"
    if node.name == "in":
        return f"({args[0]} IN ({', '.join(args[1:])}))"
    word = node.name if node.name == "div" else node.name.upper()
    return f"({f' {word} '.join(args)})"


def _within_group(node: Apply) -> str:
    if not node.order:
        return ""
    words = ("ASC NULLS FIRST", "DESC NULLS LAST") if node.name in ("listagg", "string_agg") else ("", "DESC")
    keys = (f"{pretty(key)} {words[descending]}".rstrip() for key, descending in node.order)
    return f" WITHIN GROUP (ORDER BY {', '.join(keys)})"
