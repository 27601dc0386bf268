"""Binds operators, conditional functions, casts by function and parts of dates."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.model.schema import BINARY, BOOLEAN, DOUBLE, STRING, Array, Map, Struct, parse_type
from headrace.sql.bind.collection_calls import bind_collection
from headrace.sql.bind.interval_calls import INTERVALS, bind_interval_part, is_computed, negated
from headrace.sql.bind.literals import is_untyped_null
from headrace.sql.bind.operand_types import ARITHMETIC, bind_binary, bind_round
from headrace.sql.bind.overload_choice import bind_overload
from headrace.sql.parse.syntax import Apply, TextRange
from headrace.sql.plan.expr import CaseWhen, Expr, Literal
from headrace.sql.plan.types import INTERVAL_MICROS, INTERVAL_MONTHS, VOID, compared, is_numeric, tightest

if TYPE_CHECKING:
    from headrace.sql.bind.expression_binder import ExprBinder

_COMPARISONS = ("=", "!=", "<", "<=", ">", ">=", "<=>")
_BITS = ("&", "|", "^")
CAST_FUNCTIONS = {
    "boolean": "BOOLEAN", "tinyint": "TINYINT", "smallint": "SMALLINT", "int": "INT", "bigint": "BIGINT",
    "float": "FLOAT", "double": "DOUBLE", "decimal": "DECIMAL(10,0)", "string": "STRING", "date": "DATE",
    "timestamp": "TIMESTAMP", "binary": "BINARY", "to_date": "DATE", "try_to_date": "DATE",
    "to_timestamp": "TIMESTAMP", "try_to_timestamp": "TIMESTAMP", "to_timestamp_ltz": "TIMESTAMP",
    "to_timestamp_ntz": "TIMESTAMP_NTZ",
}  # fmt: skip
_DATE_PARTS = {
    name: part
    for part, names in {
        "year": "year y years yr yrs", "extract yearofweek": "yearofweek", "quarter": "quarter qtr",
        "month": "month mon mons months", "weekofyear": "week w weeks", "day": "day d days",
        "dayofweek": "dayofweek dow", "extract dow_iso": "dayofweek_iso dow_iso", "dayofyear": "doy",
        "hour": "hour h hours hr hrs", "minute": "minute m min mins minutes",
        "extract second": "second s sec seconds secs",
    }.items()
    for name in names.split()
}  # fmt: skip


_FIRST_OF = ("greatest", "least", "coalesce", "ifnull", "nvl")


def bind_operator(binder: ExprBinder, name: str, args: list[Expr], node: Apply) -> Expr | None:
    """Binds operators and functions whose operand types do not follow a table of types. None for all others."""
    at = node.at
    if name in (*ARITHMETIC, *_COMPARISONS, *_BITS) and len(args) == 2:
        return bind_binary(binder=binder, name=name, left=args[0], right=args[1], at=at)
    if name in ("and", "or") and node.operator:
        left, right = (binder.boolean(a, name) for a in args)
        return binder.call(name, (left, right), at)
    if name == "not" and node.operator:
        return binder.call(name, (binder.boolean(args[0], name),), at)
    if name in _FIRST_OF and args and all(map(is_untyped_null, args)):
        return args[0]  # without a type, like in Spark
    if name in ("greatest", "least") and len(args) > 1:
        return binder.call(name, tuple(binder.common(args, name.upper(), at, tightest)), at)
    if name == "nullif" and len(args) == 2:
        return _nullif(binder, args[0], args[1], at)
    if name in ("in", "coalesce") and args:
        return binder.call(name, tuple(binder.common(args, name.upper(), at)), at)
    if name in ("ifnull", "nvl") and len(args) == 2:
        return binder.call("coalesce", tuple(binder.common(args, name.upper(), at)), at)
    if name in ("if", "nvl2") and len(args) == 3:
        condition = binder.boolean(args[0], "if") if name != "nvl2" else binder.call("isnotnull", (args[0],), at)
        if all(is_untyped_null(a) for a in args[1:]):
            return args[1]
        then, otherwise = binder.common(args[1:], name.upper(), at)
        return CaseWhen(then.type, ((condition, then),), otherwise, at=at)
    if name in CAST_FUNCTIONS and len(args) == 1:
        return binder.cast(args[0], parse_type(CAST_FUNCTIONS[name]), at, name.startswith("try_"))
    if name in ("date_part", "datepart") and len(args) == 2 and isinstance(args[0], Literal):
        part = _DATE_PARTS.get(str(args[0].value).lower())
        if part is None:
            binder.unsupported(f"the part {args[0].value!r} of a date", "Use " + ", ".join(_DATE_PARTS) + ".", at)
        if args[1].type in INTERVALS:
            return bind_interval_part(binder, part, args[1], at)
        return bind_overload(binder, part, args[1:], node)
    if (name == "isnotnull" or name == "isnull") and len(args) == 1:
        return binder.call(name, (binder.coerce(args[0], BOOLEAN) if args[0].type == VOID else args[0],), at)
    if name == "round" and len(args) in (1, 2):
        return bind_round(binder, args, at)
    if name == "||":
        return _joined(binder, args, node)
    if name in ("negative", "positive") and len(args) == 1 and isinstance(args[0], Literal):
        value = args[0]
        if value.type == VOID:
            return binder.call(name, (binder.coerce(value, DOUBLE),), at)
        if value.type in (INTERVAL_MICROS, INTERVAL_MONTHS):
            return Literal(value.type, -value.value if name == "negative" else value.value, at=at)
    if name == "positive" and len(args) == 1 and is_numeric(args[0].type):
        return args[0]  # Spark removes it before it rewrites sums and products
    if name in ("negative", "positive") and len(args) == 1 and is_computed(args[0]):
        return negated(binder, args[0], at) if name == "negative" else args[0]
    return None


def _joined(binder: ExprBinder, args: list[Expr], node: Apply) -> Expr:
    """`a || b`: concat, which also takes arrays and BINARY."""
    if any(isinstance(a.type, Array) or a.type == BINARY for a in args):
        call = replace(node, name="concat", operator=False)
        return bind_collection(binder, "concat", args, call) or bind_overload(binder, "concat", args, call)
    for arg in args:
        if isinstance(arg.type, Map | Struct):
            binder.mismatch(f"|| does not take {arg.type}", "Cast it to STRING.", arg.at)
    return binder.call("||", tuple(binder.coerce(a, STRING) for a in args), node.at)


def _nullif(binder: ExprBinder, value: Expr, other: Expr, at: TextRange) -> Expr:
    """NULL where both are equal, as their common type. The result has the type of the first, as it is."""
    left, right = binder.common([value, other], "NULLIF", at, compared)
    if isinstance(value, Literal) and value.value is None:  # Spark's optimizer evaluates nothing then
        return value
    if isinstance(value, Literal) and value == other:  # and makes it a NULL as if it were written
        return Literal(value.type, None, at=at)
    if left.type == value.type:
        return binder.call("nullif", (left, right), at)
    null = Literal(value.type, None, at=at)
    return CaseWhen(value.type, ((binder.call("=", (left, right), at), null),), value, at=at)
