"""In which order Spark evaluates the operands of a function, and which of them it skips.

Most functions evaluate their operands from left to right and stop at one that is NULL: the result is NULL then, and an
operand to the right of it is never evaluated and cannot fail. `tests/sql/functions/test_evaluation_order.py` compares
every entry with Spark.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.sql.functions.overload import Overload
from headrace.sql.plan.expr import Expr, Lambda, Literal

# They evaluate all operands, or their SQL is a CASE that evaluates the right ones by itself.
_ALL = frozenset([
    "<=>", "and", "or", "coalesce", "greatest", "least", "concat_ws", "format_string", "get_json_object", "hash",
    "xxhash64", "array", "array_repeat", "map", "struct", "named_struct", "elt", "nanvl", "mask", "assert_true",
    "locate(STRING, STRING, INT)",
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

# Spark's optimizer replaces all other calls by NULL if an operand is written as NULL.
_NULL_TOLERANT = frozenset([
    "<=>", "aggregate", "and", "array", "array_append", "array_compact", "array_insert", "array_join", "array_prepend",
    "array_repeat", "array_size", "array_sort", "arrays_zip", "assert_true", "bround", "btrim", "coalesce", "collation",
    "concat", "concat_ws", "date_trunc", "elt", "exists", "filter", "forall", "format_string", "get_json_object",
    "greatest", "hash", "isnan", "isnotnull", "isnull", "least", "locate", "ltrim", "map", "map_concat", "map_filter",
    "map_zip_with", "mask", "named_struct", "nanvl", "or", "raise_error", "regexp_count", "round", "rtrim", "sequence",
    "size", "struct", "to_date", "to_timestamp", "to_timestamp_ltz", "to_timestamp_ntz", "to_unix_timestamp",
    "transform", "transform_keys", "transform_values", "trim", "trunc", "try_to_date", "try_to_timestamp", "typeof",
    "unix_timestamp", "xxhash64", "zip_with", "||",
])  # fmt: skip
# Of these, it looks at some operands only.
_NULL_PLACES: dict[str, tuple[int, ...]] = {"in": (0,), "nullif": (0,), "right": (1,)}

# Their result is never NULL.
_NEVER_NULL = frozenset(["<=>", "isnull", "isnotnull", "array", "map", "struct", "named_struct", "hash", "xxhash64"])

# Spark takes their result for one that may be NULL.
_NULL_FOR_SPARK = frozenset(["/", "%", "div", "pmod"])

# Their SQL is a CASE that may leave an operand unevaluated that Spark evaluates.
_SKIPPING = frozenset(["array_repeat", "log", "replace", "overlay", "timestampdiff"])

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


def is_null_beside_null(overload: Overload, nulls: Sequence[int]) -> bool:
    """True if Spark's optimizer replaces the call by NULL when the operands at `nulls` are written as NULL, so that no
    other operand is evaluated."""
    places = _NULL_PLACES.get(overload.name)
    return overload.name not in _NULL_TOLERANT and (places is None or any(place in places for place in nulls))


def is_never_null(overload: Overload, inside: Sequence[bool]) -> bool:
    """True if Spark knows that the result is never NULL, given which operands it knows that of. It does not evaluate
    an operand to ask whether it is NULL then."""
    if overload.name in _NEVER_NULL:
        return True
    if overload.name == "coalesce":
        return any(inside)
    return is_strict(overload) and overload.name not in _NULL_FOR_SPARK and all(inside)


def skips(overload: Overload, args: Sequence[Expr]) -> bool:
    """True if the SQL of the function may leave an operand unevaluated that Spark evaluates: DuckDB's optimizer drops
    all operands beside a literal NULL."""
    nulls = [i for i, arg in enumerate(args) if isinstance(arg, Literal) and arg.value is None]
    dropped = bool(nulls) and stops_at_null(overload) and not is_null_beside_null(overload, nulls)
    return overload.name in _SKIPPING or dropped


def begins_later(overload: Overload, args: Sequence[Expr]) -> bool:
    """True if Spark does not begin with the first operand. DuckDB skips the others where all values of the first that
    it sees at once are NULL."""
    known = isinstance(args[0], Literal) and args[0].value is not None
    return len(_ORDER.get(overload.name, ())) == len(args) and not known


def is_strict(overload: Overload) -> bool:
    """True if the result is NULL only if an operand is."""
    return overload.name in _STRICT and not {"ARRAY", "MAP", "STRUCT", "ANY"} & set(overload.params)
