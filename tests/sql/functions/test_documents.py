"""JSON without Spark: schemas that are inferred or refused."""

from __future__ import annotations

import pytest

from headrace.errors import HeadraceError
from headrace.exec.kernels.json_schemas import schema_of_json
from tests.sql.functions.harness import plan_expressions


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        ("[1,2.5]", "ARRAY<DOUBLE>"),
        ('{"a b":[],"c":{}, "A":null}', "STRUCT<A: STRING, `a b`: ARRAY<STRING>>"),
        ("12345678901234567890", "DECIMAL(20,0)"),
        ("null", "STRING"),
        ('[1,"a"]', "ARRAY<STRING>"),
        ('[{"a":1},{"b":2}]', "ARRAY<STRUCT<a: BIGINT, b: BIGINT>>"),
        ('[{"a":[1]},{"a":["x"]}]', "ARRAY<STRUCT<a: ARRAY<STRING>>>"),
        ("[12345678901234567890,1]", "ARRAY<DECIMAL(20,0)>"),
        ("{}", "STRUCT<>"),
        ('{"a":', None),
    ],
)
def test_the_schema_of_a_json_text_is_that_of_spark(text: str, schema: str | None) -> None:
    assert schema_of_json(text) == schema


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ("from_json(a, a)", "TYPE_MISMATCH"),
        ("from_json(a, 'nonsense')", "TYPE_MISMATCH"),
        ("from_json(a, 'a INT, A INT')", "UNSUPPORTED_ON_SHARED"),
        ("from_json(a, 'a BINARY')", "UNSUPPORTED_ON_SHARED"),
        ("from_json(a, 'a INT', map('mode', 'FAILFAST'))", "UNSUPPORTED_ON_SHARED"),
        ("schema_of_json(a)", "TYPE_MISMATCH"),
        ("to_json(map(1.5D, 1))", "UNSUPPORTED_ON_SHARED"),
    ],
)
def test_what_cannot_be_read_or_written_is_refused(expression: str, code: str) -> None:
    (planned,) = plan_expressions(("STRING",), [expression])
    assert isinstance(planned, HeadraceError) and planned.code == code
