"""The SQL that exercises functions on arrays, maps and structs: each entry over several types of elements."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.sql.functions.overload import Overload

Given = tuple[str, tuple[str, ...], str]

_PLAIN = (
    "BOOLEAN", "TINYINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10,2)", "STRING", "BINARY", "DATE", "TIMESTAMP",
    "TIMESTAMP_NTZ",
)  # fmt: skip
_POINT = "STRUCT<x: INT, y: STRING>"
_FEW = ("INT", "DOUBLE", "STRING", _POINT)
_WITH_NESTED = (*_PLAIN, "ARRAY<INT>", _POINT)

# The entries over one array, by the element types to try.
_ONE_ARRAY: dict[str, tuple[str, ...]] = {
    "isnull": _FEW,
    "isnotnull": _FEW,
    "size": _FEW,
    "array_size": _FEW,
    "array_compact": _FEW,
    "reverse": _FEW,
    "array_distinct": _WITH_NESTED,
    "sort_array": _WITH_NESTED,
    "array_sort": _WITH_NESTED,
    "array_max": _WITH_NESTED,
    "array_min": _WITH_NESTED,
}
# over an array and a value
_WITH_VALUE: dict[str, tuple[str, ...]] = {
    "array_contains": _WITH_NESTED,
    "array_position": _WITH_NESTED,
    "array_remove": _WITH_NESTED,
    "array_append": _FEW,
    "array_prepend": _FEW,
}
# over two arrays
_TWO_ARRAYS: dict[str, tuple[str, ...]] = {
    "array_union": _WITH_NESTED,
    "array_intersect": _WITH_NESTED,
    "array_except": _WITH_NESTED,
    "arrays_overlap": _WITH_NESTED,
}
_INDEXED = ("element", "element_at", "try_element_at", "get")
_MAPS = ("MAP<STRING, INT>", "MAP<INT, STRING>", "MAP<DOUBLE, DATE>")

# name, types of the columns, SQL. No map has a bad key here: after a failure, Spark's own map builder fails again on
# the next row, because it is not emptied. `tests/sql/functions/test_nested.py` has bad keys.
_OTHERS: tuple[Given, ...] = (
    ("array()", ("ARRAY<INT>",), "coalesce(a, array())"),
    ("array()", ("ARRAY<STRING>",), "size(concat(a, array()))"),
    ("array(ANY...)", ("INT", "INT"), "array(a, b, NULL)"),
    ("array(ANY...)", ("INT", "BIGINT"), "array(a, b)"),
    ("array(ANY...)", ("DATE", "TIMESTAMP"), "array(a, b)"),
    ("array(ANY...)", ("STRING", "STRING"), "array(a, b)"),
    ("array(ANY...)", ("ARRAY<INT>", "ARRAY<BIGINT>"), "array(a, b)"),
    # more elements than are compared in pairs
    ("array_distinct(ARRAY)", ("ARRAY<INT>",), "array_distinct(concat(sequence(1, 70), a, array(NULL, 5), a))"),
    ("array_union(ARRAY, ARRAY)", ("ARRAY<DOUBLE>",) * 2, "array_union(concat(a, array_repeat(-0D, 70)), b)"),
    ("array_intersect(ARRAY, ARRAY)", ("ARRAY<INT>",) * 2, "array_intersect(concat(a, array_repeat(3, 70)), b)"),
    ("array_except(ARRAY, ARRAY)", ("ARRAY<INT>",) * 2, "array_except(concat(sequence(-40, 40), a), b)"),
    ("element(ARRAY, INT)", ("ARRAY<INT>", "SMALL INT"), "a[b]"),
    ("element(ARRAY, INT)", ("ARRAY<STRING>", "INT"), "a[b]"),
    ("element(ARRAY, INT)", ("ARRAY<STRING>", "TINYINT"), "a[b]"),
    ("array_append(ARRAY, ANY)", ("ARRAY<INT>", "BIGINT"), "array_append(a, b)"),
    ("array_append(ARRAY, ANY)", ("ARRAY<INT>",), "array_append(a, NULL)"),
    ("array_contains(ARRAY, ANY)", ("ARRAY<INT>", "DOUBLE"), "array_contains(a, b)"),
    ("array_position(ARRAY, ANY)", ("ARRAY<INT>",), "array_position(a, NULL)"),
    ("slice(ARRAY, INT, INT)", ("ARRAY<INT>", "SMALL INT", "SMALL INT"), "slice(a, b, c)"),
    ("slice(ARRAY, INT, INT)", ("ARRAY<STRING>", "INT", "INT"), "slice(a, b, c)"),
    ("array_insert(ARRAY, INT, ANY)", ("ARRAY<INT>", "SMALL INT", "INT"), "array_insert(a, b, c)"),
    ("array_insert(ARRAY, INT, ANY)", ("ARRAY<STRING>",), "array_insert(a, -1, 'x')"),
    ("array_insert(ARRAY, INT, ANY)", ("ARRAY<STRING>", "TINYINT"), "array_insert(a, b, 'x')"),
    ("array_insert(ARRAY, INT, ANY)", ("ARRAY<INT>", "BIGINT"), "array_insert(a, 2, b)"),
    ("array_repeat(ANY, INT)", ("STRING", "SMALL INT"), "array_repeat(a, b)"),
    ("array_repeat(ANY, INT)", ("ARRAY<INT>", "SMALL INT"), "array_repeat(a, b)"),
    ("array_repeat(ANY, INT)", ("INT",), "array_repeat(a, 2)"),
    ("array_join(ARRAY, STRING)", ("ARRAY<STRING>", "STRING"), "array_join(a, b)"),
    ("array_join(ARRAY, STRING)", ("ARRAY<INT>",), "array_join(a, ', ')"),
    ("array_join(ARRAY, STRING, STRING)", ("ARRAY<STRING>", "STRING"), "array_join(a, ',', b)"),
    ("array_join(ARRAY, STRING, STRING)", ("ARRAY<STRING>",), "array_join(a, ',', NULL)"),
    ("flatten(ARRAY)", ("ARRAY<ARRAY<INT>>",), "flatten(a)"),
    ("flatten(ARRAY)", ("ARRAY<ARRAY<STRING>>",), "flatten(a)"),
    ("concat(ARRAY...)", ("ARRAY<INT>", "ARRAY<INT>"), "concat(a, b)"),
    ("concat(ARRAY...)", ("ARRAY<INT>", "ARRAY<BIGINT>"), "concat(a, b, a)"),
    ("concat(ARRAY...)", ("ARRAY<STRING>",), "concat(a)"),
    ("arrays_zip(ARRAY...)", ("ARRAY<INT>", "ARRAY<STRING>"), "arrays_zip(a, b)"),
    ("arrays_zip(ARRAY...)", ("ARRAY<INT>",), "arrays_zip(a, array(1, 2), array('x'))"),
    ("sort_array(ARRAY, BOOLEAN)", ("ARRAY<DOUBLE>",), "sort_array(a, false)"),
    ("sort_array(ARRAY, BOOLEAN)", ("ARRAY<DOUBLE>",), "sort_array(a, true)"),
    ("sort_array(ARRAY, BOOLEAN)", ("ARRAY<ARRAY<INT>>",), "sort_array(a, false)"),
    ("sort_array(ARRAY, BOOLEAN)", (f"ARRAY<{_POINT}>",), "sort_array(a, false)"),
    ("map()", ("MAP<STRING, INT>",), "coalesce(a, map())"),
    ("map(ANY, ANY...)", ("STRING", "INT"), "map(coalesce(a, 'none'), b)"),
    ("map(ANY, ANY...)", ("INT", "INT"), "map(1, a, 2, b)"),
    ("map(ANY, ANY...)", ("DOUBLE", "INT"), "map(coalesce(nullif(a, 1.5D), 9D), b, 1.5D, 7)"),
    ("map_from_arrays(ARRAY, ARRAY)", ("ARRAY<INT>",), "map_from_arrays(slice(a, 2, 0), slice(a, 1, 0))"),
    ("map_from_arrays(ARRAY, ARRAY)", ("INT", "STRING"), "map_from_arrays(array(1, 2), array(b, 'x'))"),
    ("map_from_arrays(ARRAY, ARRAY)", ("DOUBLE", "INT"), "map_from_arrays(array(coalesce(a, 9D)), array(b))"),
    ("map_from_entries(ARRAY)", (f"ARRAY<{_POINT}>",), "map_from_entries(filter(slice(a, 1, 1), e -> e.x > 0))"),
    ("map_from_entries(ARRAY)", ("DOUBLE", "INT"), "map_from_entries(array(struct(coalesce(a, 9D), b)))"),
    ("map_from_entries(ARRAY)", ("MAP<STRING, INT>",), "map_from_entries(map_entries(a))"),
    ("map_concat(MAP...)", ("MAP<STRING, INT>",) * 2, "map_concat(a, transform_keys(b, (k, v) -> '!' || k))"),
    ("map_concat(MAP...)", ("MAP<INT, STRING>",), "map_concat(a, map(100, 'x'))"),
    ("map_concat(MAP...)", ("MAP<DOUBLE, DATE>",), "map_concat(a)"),
    ("map_concat(MAP...)", ("DOUBLE",), "map_concat(map_from_arrays(array(coalesce(a, 9D)), array(1)))"),
    ("transform_keys(MAP, LAMBDA)", ("DOUBLE",), "transform_keys(map(1, 2), (k, v) -> coalesce(a, 9D))"),
    ("map_contains_key(MAP, ANY)", ("MAP<STRING, INT>", "STRING"), "map_contains_key(a, b)"),
    ("map_contains_key(MAP, ANY)", ("MAP<DOUBLE, INT>", "DOUBLE"), "map_contains_key(a, b)"),
    ("map_contains_key(MAP, ANY)", ("MAP<INT, INT>", "BIGINT"), "map_contains_key(a, b)"),
    ("element(MAP, ANY)", ("MAP<STRING, INT>", "STRING"), "a[b]"),
    ("element(MAP, ANY)", ("MAP<INT, STRING>", "TINYINT"), "a[b]"),
    ("element(MAP, ANY)", ("MAP<DOUBLE, INT>", "DOUBLE"), "a[b]"),
    ("element_at(MAP, ANY)", ("MAP<STRING, INT>", "STRING"), "element_at(a, b)"),
    ("element_at(MAP, ANY)", ("MAP<INT, ARRAY<INT>>", "INT"), "element_at(a, b)"),
    ("try_element_at(MAP, ANY)", ("MAP<STRING, INT>", "STRING"), "try_element_at(a, b)"),
    ("str_to_map(STRING, STRING, STRING)", ("STRING",), "str_to_map(a)"),
    ("str_to_map(STRING, STRING, STRING)", ("STRING",), "str_to_map(concat('a', '=', a, '&b=2=3&c'), '&', '=')"),
    ("str_to_map(STRING, STRING, STRING)", ("STRING",), "str_to_map(concat('x:', a), ', ')"),
    ("str_to_map(STRING, STRING, STRING)", ("STRING",), "str_to_map(a, '_', '%')"),
    ("struct(ANY...)", ("INT", "STRING"), "struct(a, b, 1, 'x' AS z)"),
    ("struct(ANY...)", (_POINT,), "struct(a.x, a)"),
    ("named_struct(ANY...)", ("INT", "STRING"), "named_struct('p', a, 'q r', b)"),
    ("named_struct(ANY...)", ("ARRAY<INT>", "DATE"), "named_struct('p', a, 'q', b).q"),
    ("coalesce(ARRAY...)", ("ARRAY<INT>", "ARRAY<BIGINT>"), "coalesce(a, b)"),
    ("coalesce(MAP...)", ("MAP<STRING, INT>", "MAP<STRING, INT>"), "coalesce(a, b)"),
    ("coalesce(STRUCT...)", (_POINT, _POINT), "coalesce(a, b)"),
    ("coalesce(ARRAY...)", ("ARRAY<INT>", "BOOLEAN"), "CASE WHEN b THEN a ELSE array(1) END"),
    ("coalesce(STRUCT...)", (_POINT, "BOOLEAN"), "if(b, a, NULL)"),
    ("greatest(ARRAY, ARRAY...)", ("ARRAY<INT>", "ARRAY<INT>"), "greatest(a, b, array(1, NULL))"),
    ("least(ARRAY, ARRAY...)", ("ARRAY<DOUBLE>", "ARRAY<DOUBLE>"), "least(a, b)"),
    ("greatest(STRUCT, STRUCT...)", (_POINT, _POINT), "greatest(a, b)"),
    ("least(STRUCT, STRUCT...)", (_POINT, _POINT), "least(a, b)"),
    ("isnull(MAP)", ("MAP<STRING, INT>",), "isnull(a)"),
    ("isnotnull(MAP)", ("MAP<STRING, INT>",), "isnotnull(a)"),
    ("isnull(STRUCT)", (_POINT,), "isnull(a)"),
    ("isnotnull(STRUCT)", (_POINT,), "isnotnull(a)"),
    *((f"sequence({k}, {k})", (f"{k}",), "sequence(a, a)") for k in ("TINYINT", "SMALLINT", "INT", "BIGINT")),
    ("sequence(TINYINT, TINYINT)", ("TINYINT", "TINYINT"), "sequence(a, b)"),
    ("sequence(INT, INT)", ("SMALL INT", "TINYINT"), "sequence(a, b)"),
    ("sequence(TINYINT, TINYINT, TINYINT)", ("TINYINT", "TINYINT", "TINYINT"), "sequence(a, b, c)"),
    ("sequence(SMALLINT, SMALLINT, SMALLINT)", ("SMALLINT", "TINYINT", "SMALLINT"), "sequence(a, b, c)"),
    ("sequence(INT, INT, INT)", ("SMALL INT", "TINYINT", "SMALL INT"), "sequence(a, b, c)"),
    ("sequence(BIGINT, BIGINT, BIGINT)", ("SMALL INT", "TINYINT", "BIGINT"), "sequence(a, b, c)"),
    ("sequence(DATE, DATE)", ("SMALL INT",), "sequence(DATE '2024-02-01', date_add(DATE '2024-02-01', a))"),
    *(
        (f"sequence({k}, {k}, INTERVAL {u})", ("SMALL INT",), f"sequence({x}, {x} + INTERVAL {n}, INTERVAL {step})")
        for k, x in (
            ("DATE", "date_add(DATE '2024-03-07', a)"),
            ("TIMESTAMP", "CAST(date_add(DATE '2024-03-07', a) AS TIMESTAMP)"),
            ("TIMESTAMP_NTZ", "CAST(date_add(DATE '2024-10-30', a) AS TIMESTAMP_NTZ)"),
        )
        for u, n, step in (
            ("SECOND", "7 DAYS", "2 DAYS"),
            ("SECOND", "-7 DAYS", "-1 DAYS"),
            ("SECOND", "7 DAYS", "-1 DAYS"),
            ("MONTH", "14 MONTHS", "1 MONTH"),
            ("MONTH", "-14 MONTHS", "-3 MONTHS"),
        )
    ),
    *(
        ("sequence(TIMESTAMP, TIMESTAMP, INTERVAL SECOND)", ("TIMESTAMP",), f"sequence(a, a + {n}, {step})")
        for n, step in (
            ("INTERVAL 5 DAYS", "INTERVAL 1 DAY"),
            ("INTERVAL 30 HOURS", "INTERVAL 5 HOURS"),
            ("INTERVAL -60 HOURS", "INTERVAL -11 HOURS"),
        )
    ),
    ("sequence(TIMESTAMP, TIMESTAMP)", ("TIMESTAMP",), "sequence(a, a + INTERVAL 50 HOURS)"),
    ("sequence(TIMESTAMP_NTZ, TIMESTAMP_NTZ)", ("TIMESTAMP_NTZ",), "sequence(a, a + INTERVAL -50 HOURS)"),
    ("cast(ARRAY -> ARRAY)", ("ARRAY<INT>",), "CAST(a AS ARRAY<STRING>)"),
    ("cast(ARRAY -> ARRAY)", ("ARRAY<STRING>",), "CAST(a AS ARRAY<INT>)"),
    ("cast(ARRAY -> ARRAY)", ("ARRAY<STRING>",), "TRY_CAST(a AS ARRAY<INT>)"),
    ("cast(ARRAY -> ARRAY)", ("ARRAY<ARRAY<INT>>",), "CAST(a AS ARRAY<ARRAY<DECIMAL(12,1)>>)"),
    ("cast(ARRAY -> ARRAY)", (f"ARRAY<{_POINT}>",), "CAST(a AS ARRAY<STRUCT<p: BIGINT, q: STRING>>)"),
    ("cast(ARRAY -> STRING)", ("ARRAY<INT>",), "CAST(a AS STRING)"),
    ("cast(ARRAY -> STRING)", ("ARRAY<ARRAY<STRING>>",), "CAST(a AS STRING)"),
    ("cast(ARRAY -> STRING)", ("ARRAY<DATE>",), "CAST(a AS STRING)"),
    ("cast(MAP -> MAP)", ("MAP<INT, STRING>",), "CAST(a AS MAP<BIGINT, STRING>)"),
    ("cast(MAP -> MAP)", ("MAP<INT, STRING>",), "TRY_CAST(a AS MAP<STRING, DATE>)"),
    ("cast(MAP -> STRING)", ("MAP<STRING, INT>",), "CAST(a AS STRING)"),
    ("cast(STRUCT -> STRUCT)", (_POINT,), "CAST(a AS STRUCT<p: STRING, q: BINARY>)"),
    ("cast(STRUCT -> STRUCT)", (_POINT,), "TRY_CAST(a AS STRUCT<p: TINYINT, q: INT>)"),
    ("cast(STRUCT -> STRING)", (_POINT,), "CAST(a AS STRING)"),
    ("cast(STRUCT -> STRING)", ("STRUCT<x: ARRAY<INT>, m: MAP<STRING, INT>, b: BOOLEAN>",), "CAST(a AS STRING)"),
)  # fmt: skip

_LAMBDAS: tuple[Given, ...] = (
    ("transform(ARRAY, LAMBDA)", ("ARRAY<INT>",), "transform(a, x -> x + 1)"),
    ("transform(ARRAY, LAMBDA)", ("ARRAY<INT>", "INT"), "transform(a, (x, i) -> concat(x, ':', i, ':', b))"),
    ("transform(ARRAY, LAMBDA)", ("ARRAY<STRING>",), "transform(a, x -> if(x = '', 'none', reverse(x)))"),
    ("transform(ARRAY, LAMBDA)", ("ARRAY<ARRAY<INT>>",), "transform(a, x -> transform(x, (y, x) -> x > 0))"),
    ("transform(ARRAY, LAMBDA)", ("ARRAY<ARRAY<INT>>",), "transform(a, x -> size(filter(x, y -> y > size(x))))"),
    ("transform(ARRAY, LAMBDA)", (f"ARRAY<{_POINT}>",), "a.y"),
    ("transform(ARRAY, LAMBDA)", (f"ARRAY<{_POINT}>", "ARRAY<STRING>"), "transform(a, x -> array_contains(b, x.y))"),
    ("transform(ARRAY, LAMBDA)", ("ARRAY<INT>",), "transform(sort_array(a), x -> CAST(x AS STRING))"),
    ("transform(ARRAY, LAMBDA)", ("ARRAY<INT>",), "transform(a, (x, i) -> element_at(sort_array(a), i + 1))"),
    ("transform(ARRAY, LAMBDA)", ("ARRAY<INT>",), "transform(a, x -> struct(x, x IS NULL AS n))"),
    ("filter(ARRAY, LAMBDA)", ("ARRAY<INT>",), "filter(a, x -> x > 0)"),
    ("filter(ARRAY, LAMBDA)", ("ARRAY<STRING>",), "filter(a, (x, i) -> i % 2 = 0)"),
    ("filter(ARRAY, LAMBDA)", ("ARRAY<DOUBLE>",), "filter(a, x -> x IS NOT NULL AND x = 0)"),
    ("exists(ARRAY, LAMBDA)", ("ARRAY<INT>",), "exists(a, x -> x = 3)"),
    ("exists(ARRAY, LAMBDA)", ("ARRAY<INT>",), "exists(a, x -> 100 DIV x > 10)"),
    ("exists(ARRAY, LAMBDA)", ("ARRAY<INT>",), "exists(a, x -> x IS NULL)"),
    ("exists(ARRAY, LAMBDA)", ("ARRAY<INT>",), "exists(filter(a, x -> x >= 0), x -> x + 1 > 1)"),
    ("forall(ARRAY, LAMBDA)", ("ARRAY<INT>",), "forall(a, x -> x > 0)"),
    ("forall(ARRAY, LAMBDA)", ("ARRAY<INT>",), "forall(a, x -> 100 DIV x > 10)"),
    ("aggregate(ARRAY, ANY, LAMBDA)", ("ARRAY<INT>",), "aggregate(a, 0L, (s, x) -> s + x)"),
    ("aggregate(ARRAY, ANY, LAMBDA)", ("ARRAY<INT>",), "aggregate(a, 0, (s, x) -> s + x)"),
    ("aggregate(ARRAY, ANY, LAMBDA)", ("ARRAY<INT>", "INT"), "reduce(a, b, (s, x) -> coalesce(greatest(s, x), s))"),
    ("aggregate(ARRAY, ANY, LAMBDA)", ("ARRAY<STRING>",), "aggregate(a, CAST(NULL AS STRING), (s, x) -> x)"),
    ("aggregate(ARRAY, ANY, LAMBDA, LAMBDA)", ("ARRAY<DOUBLE>",), "aggregate(a, 0D, (s, x) -> s + x, s -> s IS NULL)"),
    ("aggregate(ARRAY, ANY, LAMBDA, LAMBDA)", ("ARRAY<INT>",), "aggregate(a, 7, (s, x) -> x, s -> concat('is ', s))"),
    ("zip_with(ARRAY, ARRAY, LAMBDA)", ("ARRAY<INT>", "ARRAY<STRING>"), "zip_with(a, b, (x, y) -> concat(x, y))"),
    ("zip_with(ARRAY, ARRAY, LAMBDA)", ("ARRAY<INT>",) * 2, "zip_with(a, b, (x, y) -> coalesce(y, x))"),
    ("map_filter(MAP, LAMBDA)", ("MAP<STRING, INT>",), "map_filter(a, (k, v) -> v > 0)"),
    ("map_filter(MAP, LAMBDA)", ("MAP<DOUBLE, DATE>",), "map_filter(a, (k, v) -> k > 1 OR v IS NULL)"),
    ("transform_keys(MAP, LAMBDA)", ("MAP<STRING, INT>",), "transform_keys(a, (k, v) -> concat(k, '#'))"),
    ("transform_keys(MAP, LAMBDA)", ("MAP<STRING, INT>",), "transform_keys(a, (k, v) -> coalesce(v, 50))"),
    ("transform_values(MAP, LAMBDA)", ("MAP<STRING, INT>",), "transform_values(a, (k, v) -> concat(k, '=', v))"),
    ("transform_values(MAP, LAMBDA)", ("MAP<INT, STRING>",), "transform_values(a, (k, v) -> v IS NULL)"),
)  # fmt: skip


def is_nested(overload: Overload) -> bool:
    """True if the cases of an entry are in this module."""
    if overload.name in ("sequence", "str_to_map", "array", "map"):
        return True
    return bool({"ARRAY", "MAP", "STRUCT", "ANY", "LAMBDA"} & set(overload.params))


def nested_cases() -> Iterator[Given]:
    """The key, column types and SQL of each case."""
    for name, kinds in _ONE_ARRAY.items():
        yield from ((f"{name}(ARRAY)", (f"ARRAY<{k}>",), f"{name}(a)") for k in kinds)
    for name, kinds in _WITH_VALUE.items():
        yield from ((f"{name}(ARRAY, ANY)", (f"ARRAY<{k}>", k), f"{name}(a, b)") for k in kinds)
    for name, kinds in _TWO_ARRAYS.items():
        yield from ((f"{name}(ARRAY, ARRAY)", (f"ARRAY<{k}>",) * 2, f"{name}(a, b)") for k in kinds)
    for name in _INDEXED:
        place = "BIGINT" if name == "element" else "INT"
        text = "a[b]" if name == "element" else f"{name}(a, b)"
        for kind in ("INT", _POINT):
            yield f"{name}(ARRAY, {place})", (f"ARRAY<{kind}>", f"SMALL {place}"), text
            yield f"{name}(ARRAY, {place})", (f"ARRAY<{kind}>", place), text
    for kind in _MAPS:
        for name in ("map_entries", "map_keys", "map_values", "size"):
            yield f"{name}(MAP)", (kind,), f"{name}(a)"
    for name in ("=", "!=", "<", "<=", ">", ">=", "<=>"):
        for kind in ("INT", "DOUBLE", "STRING", "ARRAY<INT>", _POINT):
            yield f"{name}(ARRAY, ARRAY)", (f"ARRAY<{kind}>",) * 2, f"(a {name} b)"
        for kind in (_POINT, "STRUCT<x: DOUBLE, y: ARRAY<INT>>"):
            yield f"{name}(STRUCT, STRUCT)", (kind,) * 2, f"(a {name} b)"
    for kind, name in (("ARRAY<INT>", "ARRAY"), (_POINT, "STRUCT")):
        yield f"in({name}, {name}...)", (kind,) * 3, "(a IN (b, c))"
        yield f"nullif({name}, {name})", (kind,) * 2, "nullif(a, b)"
    for kind in (*_PLAIN, "ARRAY<INT>", _POINT, "MAP<STRING, DECIMAL(10,2)>"):
        yield "typeof(ANY)", (kind,), "typeof(a)"
    yield from _OTHERS
    yield from _LAMBDAS
