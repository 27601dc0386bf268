"""Cases for from_json, to_json and their kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

JSON = "SMALL STRING   "  # the type of a column of JSON texts

_TEXTS = (
    '{"a":1,"b":"x"}', '{"a":"1","b":2}', '{"a":1.5,"b":{"c": 1 }}', "", "  ", "nope", '[{"a":1},{"a":2}]', "[]",
    '{"a":1}x', '{"a":1,"b":', '{"a":1,"b":tru', '{"b":[1, 2]}', "null", '"s"', '{"a":99999999999}',
    '{"a":true,"b":true}', '{"a":null,"b":null}', "{}", "[1]", "{'a':1,'b':'q'}", '{"a":1 "b":2}', '{"A":1}',
    '{"b":1.50}', '{"b":NaN}', '{"a":01}', '{"b":"a\\u00e9\\n/"}', '{"a":1,,"b":"x"}', '[{"a":"z"},{"a":2}]',
    '[1,{"a":2}]', '{"a":-0}', '{"a":1e2}', '{"b":1e400}', '{"b":-INF}', '{"b":.5}', '{"a":"NaN"}', '{"a":"-Infinity"}',
    '{"a":300}', '{"a":12.345,"b":"é日😀"}', '{"a":"2024-01-31"}', '{"a":"2024-01-31 10:00:00.123456"}', '{"a":"foo"}',
    '{"a":"2024-07-01T10:00:00Z"}', '{"a":1709999999}', '{"a":"12.5"}', '{"a":""}', '{"a":[1,null,"x"]}',
    '{"a":{"x":1,"y":null,"z":"q"}}', '{"a":{"x":"bad"}}', '{"a":[{"x":1},{"x":2,"y":3}]}', '{"a":[[1],[2,3]]}',
    '{"a":"2024-03-10 02:30:00"}', '{"a":1e40}', '{"a":"300"}', '{"a":false}', '{"a":"abc","b":"\\ud83d"}',
)  # fmt: skip
EDGES: dict[str, list[Any]] = {JSON: [None, *_TEXTS]}

_SCHEMAS = (
    "a INT, b STRING", "a DOUBLE, b STRING", "a STRING", "STRUCT<a: BIGINT>", "a BOOLEAN", "a FLOAT", "a TINYINT",
    "a DECIMAL(5,2), b STRING", "a DATE", "a TIMESTAMP", "a TIMESTAMP_NTZ", "a ARRAY<INT>", "a ARRAY<STRING>",
    "a STRUCT<x: INT, y: STRING>", "a MAP<STRING, INT>", "a ARRAY<STRUCT<x: INT, y: BIGINT>>", "MAP<STRING, STRING>",
    "ARRAY<STRUCT<a: INT>>", "ARRAY<INT>", "a ARRAY<ARRAY<INT>>", "MAP<STRING, ARRAY<STRING>>", "a ARRAY<DATE>",
    "`A` INT, b MAP<STRING, DOUBLE>",
)  # fmt: skip
_POINT = "STRUCT<x: INT, y: STRING>"
_WRITTEN = (
    "BOOLEAN", "TINYINT", "BIGINT", "FLOAT", "DECIMAL(10,2)", "STRING", "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ",
    "SMALL DOUBLE",
)  # fmt: skip


def _cases() -> Iterator[tuple[str, tuple[str, ...], str]]:
    for schema in _SCHEMAS:
        yield "from_json(STRING, STRING)", (JSON,), f"from_json(a, '{schema}')"
    yield "from_json(STRING, STRING)", (JSON,), "from_json(a, 'a INT, b STRING').b"
    yield "from_json(STRING, STRING)", (JSON,), """from_json(concat('{"a":1,"a":2', left(a, 0), '}'), 'a INT')"""
    yield "from_json(STRING, STRING)", (JSON,), """from_json(a, schema_of_json('{"a":1,"b":[0.5],"c d":{"e":null}}'))"""
    for kind in _WRITTEN:
        yield "to_json(STRUCT)", (kind,), "to_json(struct(a))"
        yield "to_json(ARRAY)", (kind,), "to_json(array(a, NULL, a))"
        yield "to_json(MAP)", (kind,), "to_json(map('k\"', a))"
    yield "to_json(STRUCT)", (_POINT,), "to_json(a)"
    yield "to_json(STRUCT)", (_POINT, "INT"), "to_json(named_struct('a b', a, 'é\"', b, 'l', array(a), 'n', array()))"
    yield "from_json(STRING, STRING)", (JSON,), "to_json(from_json(a, 'a INT, b STRING'))"
    yield "to_json(ARRAY)", (f"ARRAY<{_POINT}>",), "to_json(a)"
    yield "to_json(ARRAY)", ("ARRAY<STRING>",), "to_json(a)"
    yield "to_json(MAP)", ("MAP<STRING, INT>",), "to_json(a)"
    yield "to_json(MAP)", ("MAP<INT, STRING>",), "to_json(a)"


# The entry, the types of the columns a, b, ..., and the expression.
CASES: list[tuple[str, tuple[str, ...], str]] = list(_cases())
