"""Prints calls and operators as Spark does in the names of columns, given the printed arguments."""

from __future__ import annotations

from headrace.sql.functions.interval_functions import CALENDAR_MAKERS
from headrace.sql.parse.syntax import Apply

VARIABLE = "namedlambdavariable()"
CASTS = (
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "string", "date", "timestamp",
    "binary",
)  # fmt: skip
_PREFIX = {"not": "NOT ", "negative": "- ", "positive": "+ "}
# Spark's own spelling of some functions, and the arguments that it adds.
_CAPITAL = frozenset([
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "cos", "cosh", "cot", "csc", "degrees",
    "e", "exp", "expm1", "floor", "hypot", "log10", "log1p", "log2", "pi", "power", "radians", "regexp", "regexp_like",
    "rlike", "sec", "signum", "sin", "sinh", "sqrt", "tan", "tanh",
])  # fmt: skip
_TIME = "yyyy-MM-dd HH:mm:ss"
_IDENTITY = f"lambdafunction({VARIABLE}, {VARIABLE})"
_COMPARATOR = (
    f"lambdafunction((IF((({VARIABLE} IS NULL) AND ({VARIABLE} IS NULL)), 0, (IF(({VARIABLE} IS NULL), 1, "
    f"(IF(({VARIABLE} IS NULL), -1, (IF(({VARIABLE} < {VARIABLE}), -1, "
    f"(IF(({VARIABLE} > {VARIABLE}), 1, 0)))))))))), {VARIABLE}, {VARIABLE})"
)
_ADDED: dict[tuple[str, int], tuple[str, ...]] = {
    ("round", 1): ("0",), ("bround", 1): ("0",), ("split", 2): ("-1",), ("locate", 2): ("1",), ("position", 2): ("1",),
    ("overlay", 3): ("-1",), ("percentile", 2): ("1",), ("percentile_approx", 2): ("10000",),
    ("approx_percentile", 2): ("10000",), ("unix_timestamp", 0): ("current_timestamp()", _TIME),
    ("unix_timestamp", 1): (_TIME,), ("to_unix_timestamp", 1): (_TIME,),
    ("from_unixtime", 1): (_TIME,), ("replace", 2): ("",), ("hmac", 2): ("SHA-256",), ("months_between", 2): ("true",),
    ("regexp_instr", 2): ("0",), ("regexp_extract", 2): ("1",), ("regexp_extract_all", 2): ("1",),
    ("regexp_replace", 3): ("1",), ("mask", 1): ("X", "x", "n", "NULL"), ("mask", 2): ("x", "n", "NULL"),
    ("mask", 3): ("n", "NULL"), ("mask", 4): ("NULL",), ("substring", 2): ("2147483647",),
    ("substr", 2): ("2147483647",), ("str_to_map", 1): (",", ":"), ("str_to_map", 2): (":",), ("lpad", 2): (" ",),
    ("rpad", 2): (" ",), ("sort_array", 1): ("true",), ("vector_norm", 1): ("2.0",), ("vector_normalize", 1): ("2.0",),
    ("make_dt_interval", 0): ("0", "0", "0", "0.000000"), ("make_dt_interval", 1): ("0", "0", "0.000000"),
    ("make_dt_interval", 2): ("0", "0.000000"), ("make_dt_interval", 3): ("0.000000",),
    ("aggregate", 3): (_IDENTITY,), ("reduce", 3): (_IDENTITY,), ("array_sort", 1): (_COMPARATOR,),
    ("make_ym_interval", 0): ("0", "0"), ("make_ym_interval", 1): ("0",), ("listagg", 1): ("NULL",),
    ("string_agg", 1): ("NULL",),
    **{(f, n): (*("0",) * (6 - n), "0.000000") for f in CALENDAR_MAKERS for n in range(7)},
}  # fmt: skip
_TRIMS = {"trim": "BOTH", "ltrim": "LEADING", "rtrim": "TRAILING"}
_SAME = {"dateadd": "date_add", "array_agg": "collect_list", "curdate": "current_date"}


def call_text(node: Apply, args: list[str]) -> str:
    """A call of a function, without FILTER."""
    special = _call_of_its_own_form(node, args)
    if special is not None:
        return special
    if node.name == "approx_count_distinct":
        args = args[:1]
    args = [*args, *_ADDED.get((node.name, len(args)), ())]
    name = node.name.upper() if node.name in _CAPITAL else _SAME.get(node.name, node.name)
    if node.name == "string_agg" and node.order:
        name = "listagg"
    return f"{name}({'DISTINCT ' if node.distinct else ''}{'1' if node.star else ', '.join(args)})"


def _call_of_its_own_form(node: Apply, args: list[str]) -> str | None:
    name, count = node.name, len(args)
    if name in ("window", "session_window"):
        return name
    if count == 2 and (node.written == "extract" or name == "datepart"):
        return f"{node.written or name}({args[0]} FROM {args[1]})"
    if node.written in ("BOTH", "LEADING", "TRAILING"):
        return f"TRIM({node.written} {args[0]} FROM {args[1]})"
    if node.written == "locate":
        return f"locate({args[0]}, {args[1]}, 1)"
    if name == "div" and count == 2:
        return f"({args[0]} div {args[1]})"
    if name in ("isnull", "isnotnull") and count == 1:
        return f"({args[0]} IS {'NOT ' if name == 'isnotnull' else ''}NULL)"
    if name == "like" and count > 1:
        return _like(args)
    if name == "ilike" and count > 1:
        return f"ilike({args[0]}, {args[1]})"
    if name == "positive" and count == 1:
        return f"(+ {args[0]})"
    if name in _TRIMS and count == 2:
        return f"TRIM({_TRIMS[name]} {args[0]} FROM {args[1]})"
    if name == "convert_timezone" and count == 2:
        return f"convert_timezone(current_timezone(), {', '.join(args)})"
    if name == "raise_error" and count == 1:
        return f"raise_error(USER_RAISED_EXCEPTION, map(errorMessage, {args[0]}))"
    if name == "assert_true" and count == 1:
        return f"assert_true({args[0]}, '{args[0]}' is not true!)"
    if name == "from_json" and count == 2:
        return "entries" if args[1].strip().upper().startswith("MAP<") else f"from_json({args[0]})"
    if name in CASTS and count == 1:
        return args[0]
    if name == "if":
        return f"(IF({', '.join(args)}))"
    if name == "try_make_timestamp" and count == 7:
        return f"{name}({', '.join(args[:6])})"
    if name in ("to_char", "to_varchar") and count == 2:
        return _to_char(name, args)
    if name == "log":
        return f"LOG({', '.join(['E()', *args] if count == 1 else args)})"
    if name in ("first", "last", "first_value", "last_value", "any_value") and args:
        return f"{name.removesuffix('_value') if node.ignore_nulls and name != 'any_value' else name}({args[0]})"
    return None


def _like(args: list[str]) -> str:
    escape = f" ESCAPE '{args[2]}'" if len(args) > 2 and args[2] != "\\" else ""  # a backslash is the default
    return f"{args[0]} LIKE {args[1]}{escape}"


def _to_char(name: str, args: list[str]) -> str:
    """Spark prints the function that to_char stands for."""
    word = args[1].lower()
    if word in ("hex", "base64"):
        return f"{word if name == 'to_char' else name}({args[0]})"
    if word == "utf-8":
        return f"{'decode' if name == 'to_char' else name}({args[0]}, {args[1]})"
    return f"date_format({args[0]}, {args[1]})"


def operator_text(node: Apply, args: list[str]) -> str:
    """An operator over columns that are no times and intervals."""
    name = node.name
    if node.written in ("<<", ">>", ">>>"):
        return f"({args[0]} {node.written} {args[1]})"
    if name == "!=":
        return f"(NOT ({args[0]} = {args[1]}))"
    if name == "||":
        return f"concat({args[0]}, {args[1]})"
    if name == "~":
        return f"~{args[0]}"
    if name == "like":
        return _like(args)
    if name == "ilike":
        return f"ilike({args[0]}, {args[1]})"
    if name == "rlike":
        return f"RLIKE({args[0]}, {args[1]})"
    if name in _PREFIX and len(args) == 1:
        return f"({_PREFIX[name]}{args[0]})"
    if name == "isnull":
        return f"({args[0]} IS NULL)"
    if name == "in":
        return f"({args[0]} IN ({', '.join(args[1:])}))"
    word = name if name == "div" else name.upper()
    return f"({f' {word} '.join(args)})"
