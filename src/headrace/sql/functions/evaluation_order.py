"""In which order Spark evaluates the operands of a function, and which of them it skips.

Most functions evaluate their operands from left to right and stop at one that is NULL: the result is NULL then, and an
operand to the right of it is never evaluated and cannot fail. `tests/sql/functions/test_evaluation_order.py` compares
every entry with Spark.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.model.schema import DataType, Decimal
from headrace.sql.functions.casts import cast_throws
from headrace.sql.functions.overload import Overload
from headrace.sql.plan.expr import Call, CaseWhen, Expr, Lambda, Literal
from headrace.sql.plan.types import as_decimal, type_class

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

# Spark knows that their result is never NULL.
_NEVER_NULL = frozenset([
    "<=>", "array", "collation", "hash", "isnan", "isnotnull", "isnull", "map", "named_struct", "struct", "typeof",
    "xxhash64",
])  # fmt: skip
# It is never NULL if some operand is not.
_ANY_OPERAND = frozenset(["coalesce", "greatest", "least"])
# It is never NULL if these operands are not.
_SOME_OPERANDS: dict[str, tuple[int, ...]] = {
    "array_append": (0,), "array_prepend": (0,), "array_repeat": (1,), "concat_ws": (0,), "filter": (0,),
    "format_string": (0,), "map_filter": (0,), "map_zip_with": (0, 1), "transform": (0,), "transform_keys": (0,),
    "transform_values": (0,), "zip_with": (0, 1),
}  # fmt: skip
# It is never NULL if no operand is. Spark takes the result of all other functions for one that may be NULL.
_ALL_OPERANDS = frozenset([
    "!=", "&", "*", "+", "-", "<", "<=", "=", ">", ">=", "^", "abs", "add_months", "and", "array_compact",
    "array_distinct", "array_except", "array_intersect", "array_join", "array_position", "array_remove",
    "array_size", "array_sort", "array_union", "arrays_zip", "ascii", "atan2", "base64", "bin", "bit_count",
    "bit_get", "bit_length", "bitmap_bit_position", "bitmap_bucket_number", "bitmap_count", "btrim", "chr",
    "concat", "contains", "convert_timezone", "crc32", "date_add", "date_format", "date_from_unix_date", "date_sub",
    "datediff", "day", "dayname", "dayofweek", "dayofyear", "endswith", "extract dow_iso", "extract second",
    "extract yearofweek", "find_in_set", "from_utc_timestamp", "getbit", "hex", "hour", "hypot", "ilike", "in",
    "initcap", "instr", "interval divided", "interval seconds", "interval text", "last_day", "left", "length",
    "levenshtein", "like", "lower", "lpad", "ltrim", "make_date", "make_dt_interval", "make_timestamp",
    "make_timestamp_ltz", "make_timestamp_ntz", "make_ym_interval", "map_concat", "map_entries", "map_from_arrays",
    "map_keys", "map_values", "md5", "minute", "month", "monthname", "months_between", "nanvl", "negative", "not",
    "octet_length", "or", "overlay", "positive", "power", "quarter", "regexp_count", "regexp_extract",
    "regexp_extract_all", "regexp_instr", "regexp_replace", "repeat", "replace", "reverse", "rlike", "rpad",
    "rtrim", "second", "sequence", "sha1", "shiftleft", "shiftright", "shiftrightunsigned", "size", "slice",
    "sort_array", "soundex", "space", "split", "startswith", "str_to_map", "substring", "substring_index",
    "timestamp_micros", "timestamp_millis", "time minus make_interval", "time plus make_interval", "timestampadd",
    "timestampdiff", "to_base32", "to_date", "to_timestamp", "to_timestamp_ltz", "to_timestamp_ntz",
    "to_unix_timestamp", "to_utc_timestamp", "translate", "trim", "unbase64", "unix_date", "unix_micros",
    "unix_millis", "unix_seconds", "unix_timestamp", "upper", "weekday", "weekofyear", "year", "|", "||", "~"
])  # fmt: skip

# Spark knows that no element of the array that they return is NULL.
_FULL_ARRAYS = frozenset(["map_entries", "map_keys", "arrays_zip", "array_compact", "sequence", "json_object_keys"])

# Their SQL is a CASE that may leave an operand unevaluated that Spark evaluates.
_SKIPPING = frozenset(["array_repeat", "log", "replace", "overlay", "timestampdiff"])

# Their result is NULL only if an operand is.
_STRICT = frozenset([
    "+", "-", "*", "/", "%", "div", "=", "!=", "<", "<=", ">", ">=", "not", "negative", "positive", "abs", "&", "|",
    "^", "~", "||", "concat", "length", "upper", "lower", "reverse", "trim", "ltrim", "rtrim", "replace", "substring",
    "left", "right", "repeat", "shiftleft", "shiftright", "shiftrightunsigned", "pmod",
    "year", "month", "day", "hour", "minute", "date_add", "date_sub", "datediff",
])  # fmt: skip

# Their result is NULL if any operand is, although Spark's optimizer does not say so.
_NULL_BESIDE_ANY = frozenset(["concat", "||", "array_join", "arrays_zip", "map_concat", "regexp_count", "sequence"])

# Pairs of types that TRY_CAST cannot turn into NULL.
_HOLDING = frozenset([
    ("STRING", "BINARY"), ("BINARY", "STRING"), ("DATE", "TIMESTAMP"), ("DATE", "TIMESTAMP_NTZ"),
    ("BIGINT", "TIMESTAMP"), ("TIMESTAMP", "BIGINT"), ("TIMESTAMP", "TIMESTAMP_NTZ"), ("TIMESTAMP_NTZ", "TIMESTAMP"),
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


def is_null_beside(overload: Overload, nulls: Sequence[int]) -> bool:
    """True if the result is NULL because the operands at `nulls` are."""
    always = is_strict(overload) or overload.name in _NULL_BESIDE_ANY
    return always or is_null_beside_null(overload, nulls)


def is_never_null(overload: Overload, inside: Sequence[bool]) -> bool:
    """True if Spark knows that the result is never NULL, given which operands it knows that of. It does not evaluate
    an operand to ask whether it is NULL then."""
    if overload.name in _NEVER_NULL:
        return True
    if overload.name in _ANY_OPERAND:
        return any(inside)
    places = _SOME_OPERANDS.get(overload.name)
    if places is not None:
        return all(inside[place] for place in places)
    return overload.name in _ALL_OPERANDS and all(inside)


def element_is_never_null(overload: Overload, inside: Sequence[bool]) -> bool:
    """True if Spark knows that no element of the array that a function returns is NULL."""
    return overload.name in _FULL_ARRAYS or (overload.name == "array" and all(inside))


def cast_is_never_null(source: DataType, target: DataType) -> bool:
    """True if Spark knows that a cast without TRY is NULL only for NULL."""
    a, b = type_class(source), type_class(target)
    if a == b != "DECIMAL" or b == "STRING":
        return True
    if a == "STRING":
        return b == "BINARY"
    if b == "DATE" or a == "DATE":
        return (a, b) in (("TIMESTAMP", "DATE"), ("DATE", "TIMESTAMP"))
    if b == "DECIMAL":
        return not cast_throws(source, target) and a not in ("FLOAT", "DOUBLE")
    whole = b in ("TINYINT", "SMALLINT", "INT")
    if a == "TIMESTAMP":
        return not whole
    return not (a in ("FLOAT", "DOUBLE", "DECIMAL") and (whole or b == "BIGINT")) and not (
        a in ("FLOAT", "DOUBLE") and b == "TIMESTAMP"
    )


def try_cast_is_never_null(source: DataType, target: DataType) -> bool:
    """True if Spark knows that TRY_CAST is NULL only for NULL: between types that hold all values of the other."""
    a, b = type_class(source), type_class(target)
    if source == target or b == "STRING" or (a, b) in _HOLDING:
        return True
    if isinstance(target, Decimal):
        given = as_decimal(source)
        if given is None:
            return False
        return target.scale >= given.scale and target.precision - target.scale >= given.precision - given.scale
    order = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE")
    return a in order and b in order and order.index(a) <= order.index(b)


def skips(overload: Overload, args: Sequence[Expr]) -> bool:
    """True if the SQL of the function may leave an operand unevaluated that Spark evaluates: DuckDB's optimizer drops
    all operands beside a literal NULL. That NULL is the value of a constant expression: `fold_constants` has replaced
    the calls in which NULL is written."""
    nulls = [i for i, arg in enumerate(args) if isinstance(arg, Literal) and arg.value is None]
    dropped = bool(nulls) and stops_at_null(overload)
    return overload.name in _SKIPPING or dropped


def is_dropped_beside(overload: Overload, args: Sequence[Expr], place: int) -> bool:
    """True if DuckDB's optimizer may drop an operand, because it finds out that one which Spark evaluates later is
    NULL, such as array_append(NULL, a). For Spark that is no written NULL."""
    order = _ORDER.get(overload.name, ())
    places = list(order if len(order) == len(args) else range(len(args)))
    return stops_at_null(overload) and any(_may_be_folded_to_null(args[i]) for i in places[places.index(place) + 1 :])


def _may_be_folded_to_null(expr: Expr) -> bool:
    """True if DuckDB's optimizer may replace an expression by NULL, because NULL is written in it."""
    if isinstance(expr, Literal):
        return expr.value is None
    if isinstance(expr, CaseWhen):
        values = [value for _, value in expr.branches] + ([] if expr.otherwise is None else [expr.otherwise])
        return all(map(_may_be_folded_to_null, values))
    if isinstance(expr, Call) and expr.name in _NEVER_NULL:
        return False
    if isinstance(expr, Call) and expr.name == "nullif":
        return _may_be_folded_to_null(expr.args[0])
    return any(map(_may_be_folded_to_null, expr.children))


def begins_later(overload: Overload, args: Sequence[Expr]) -> bool:
    """True if Spark does not begin with the first operand. DuckDB skips the others where all values of the first that
    it sees at once are NULL."""
    known = isinstance(args[0], Literal) and args[0].value is not None
    return len(_ORDER.get(overload.name, ())) == len(args) and not known


def is_strict(overload: Overload) -> bool:
    """True if the result is NULL only if an operand is."""
    return overload.name in _STRICT and not {"ARRAY", "MAP", "STRUCT", "ANY"} & set(overload.params)
