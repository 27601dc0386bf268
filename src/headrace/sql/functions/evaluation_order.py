"""In which order Spark evaluates the operands of a function, and which of them it skips.

Most functions evaluate their operands from left to right and stop at one that is NULL: the result is NULL then, and an
operand to the right of it is never evaluated and cannot fail. `tests/sql/functions/test_evaluation_order.py` compares
every entry with Spark.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.sql.functions.overload import Overload
from headrace.sql.plan.expr import Expr, Lambda

# They evaluate all operands, or their SQL is a CASE that evaluates the right ones by itself.
_ALL = frozenset([
    "<=>", "and", "or", "coalesce", "greatest", "least", "concat_ws", "format_string", "get_json_object", "hash",
    "xxhash64", "array", "array_repeat", "map", "struct", "named_struct", "elt", "nanvl", "locate(STRING, STRING, INT)",
])  # fmt: skip

# The order of those that do not begin with the first operand.
_ORDER: dict[str, tuple[int, ...]] = {
    "/": (1, 0),
    "%": (1, 0),
    "div": (1, 0),
    "pmod": (1, 0),
    "try_divide": (1, 0),
    "try_mod": (1, 0),
    "trim": (1, 0),
    "ltrim": (1, 0),
    "rtrim": (1, 0),
    "array_join": (2, 0, 1),
}

# Their SQL is a CASE that may leave an operand unevaluated that Spark evaluates.
_SKIPPING = frozenset(["array_repeat", "replace", "overlay"])

# Their result is NULL only if an operand is.
_STRICT = frozenset([
    "+", "-", "*", "/", "%", "div", "=", "!=", "<", "<=", ">", ">=", "not", "negative", "positive", "abs", "&", "|",
    "^", "~", "||", "concat", "length", "upper", "lower", "reverse", "trim", "ltrim", "rtrim", "replace", "substring",
    "left", "right", "repeat", "shiftleft", "shiftright", "shiftrightunsigned", "pmod",
    "year", "month", "day", "hour", "minute", "date_add", "date_sub", "datediff",
])  # fmt: skip

# They cast an argument themselves, which fails beside an argument that is NULL. Spark does not get as far as the cast.
_CAST_INSIDE = ("make_timestamp", "make_timestamp_ltz", "make_timestamp_ntz")


def casts_inside(overload: Overload) -> bool:
    """True if the function may fail although an operand is NULL."""
    return overload.name.removeprefix("try_") in _CAST_INSIDE


def stops_at_null(overload: Overload) -> bool:
    """True if Spark evaluates no operand after one that is NULL."""
    return overload.name not in _ALL and overload.key not in _ALL


def evaluated(overload: Overload, args: Sequence[Expr]) -> list[Expr]:
    """The operands in the order in which Spark evaluates them. A lambda is evaluated for each element."""
    order = _ORDER.get(overload.name, ())
    if len(order) == len(args):
        return [args[i] for i in order]
    return [arg for arg in args if not isinstance(arg, Lambda)]


def skips(overload: Overload) -> bool:
    """True if the SQL of the function may leave an operand unevaluated that Spark evaluates."""
    return overload.name in _SKIPPING


def is_strict(overload: Overload) -> bool:
    """True if the result is NULL only if an operand is."""
    return overload.name in _STRICT and not {"ARRAY", "MAP", "STRUCT", "ANY"} & set(overload.params)
