"""Single values that Spark returned where the shared host once returned others."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import HeadraceError
from headrace.model.schema import parse_type
from tests.sql.functions.harness import FAILED, Duck, plan_expressions


@pytest.mark.parametrize(
    ("kind", "given", "text", "value"),
    [
        ("BINARY", b"x" * 57, "to_varchar(a, 'base64')", "eHh4" * 19),
        ("BINARY", b"x" * 60, "to_varchar(a, 'base64')", "eHh4" * 19 + "\r\neHh4"),
        ("DECIMAL(19,10)", Decimal("3.9999999999"), "CAST(a AS SMALLINT)", 3),
        ("DECIMAL(28,12)", Decimal("999999.999999999999"), "CAST(a AS INT)", 1_000_000),
        ("DECIMAL(28,12)", Decimal("-999999.999999999999"), "CAST(a AS INT)", -1_000_000),
        ("DECIMAL(28,12)", Decimal("999999.999999999999"), "CAST(a AS BIGINT)", 999_999),
        ("DECIMAL(28,18)", Decimal("127.9999999999999999"), "CAST(a AS TINYINT)", FAILED),
        ("DECIMAL(28,18)", Decimal("127.9999999999999999"), "TRY_CAST(a AS TINYINT)", None),
        ("DECIMAL(18,6)", Decimal("999999.999999"), "CAST(a AS INT)", 999_999),
        (
            "TIMESTAMP",
            dt.datetime(1349, 9, 22, tzinfo=dt.UTC),
            "to_json(struct(a))",
            '{"a":"1349-09-21T19:03:58.000-04:56:02"}',
        ),
        (
            "TIMESTAMP",
            dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
            "to_json(struct(a))",
            '{"a":"2023-12-31T19:00:00.000-05:00"}',
        ),
    ],
)
def test_a_value_is_that_of_spark(kind: str, given: Any, text: str, value: Any) -> None:
    (planned,) = plan_expressions((kind,), [text])
    assert not isinstance(planned, HeadraceError), planned
    table = pa.table({"a": pa.array([given], parse_type(kind).arrow)})
    assert Duck(table).evaluate(*planned).values == [value]


@pytest.mark.parametrize("step", ["add_months({}, b)", "({} + INTERVAL 1 MONTH)"])
def test_the_text_of_nested_months_grows_with_their_number_only(step: str) -> None:
    text = "a"
    for _ in range(20):
        text = step.format(text)
    (planned,) = plan_expressions(("DATE", "INT"), [text])
    assert not isinstance(planned, HeadraceError), planned
    kind, sql = planned
    assert len(sql) < 20_000
    table = pa.table({"a": pa.array([dt.date(2024, 1, 31)]), "b": pa.array([1], pa.int32())})
    days = (dt.date(2025, 9, 28) - dt.date(1970, 1, 1)).days  # February has 29 days once, and 28 once
    assert Duck(table).evaluate(kind, sql).values == [days]
