"""Literals: the value and the type that Spark gives them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from headrace.errors import BadLiteral, UnsupportedOnShared
from headrace.model.program import Meaning
from headrace.sql.parse.intervals import parse_interval
from headrace.sql.plan.expr import Literal
from headrace.sql.plan.logical import Project
from tests.sql.support import plan


def literal(text: str, meaning: Meaning = Meaning()) -> Literal:  # noqa: B008
    bound = plan(f"SELECT {text} AS x FROM s", meaning).bound
    assert isinstance(bound, Project)
    (output,) = bound.outputs
    assert isinstance(output.expr, Literal)
    return output.expr


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("1", "INT", 1),
        ("-2147483648", "INT", -(2**31)),
        ("2147483648", "BIGINT", 2**31),
        ("9223372036854775808", "DECIMAL(19,0)", Decimal(2**63)),
        ("5Y", "TINYINT", 5),
        ("5S", "SMALLINT", 5),
        ("5L", "BIGINT", 5),
        ("1.50", "DECIMAL(3,2)", Decimal("1.50")),
        ("0.001", "DECIMAL(3,3)", Decimal("0.001")),
        (".5", "DECIMAL(1,1)", Decimal("0.5")),
        ("1e3", "DOUBLE", 1000.0),
        ("2D", "DOUBLE", 2.0),
        ("2F", "FLOAT", 2.0),
        ("1.5BD", "DECIMAL(2,1)", Decimal("1.5")),
        ("'it''s'", "STRING", "it's"),
        ("'a' 'b'", "STRING", "ab"),
        ("'tab\\t'", "STRING", "tab\t"),
        ("r'raw\\t'", "STRING", "raw\\t"),
        ('"double"', "STRING", "double"),
        ("TRUE", "BOOLEAN", True),
        ("X'00ff'", "BINARY", b"\x00\xff"),
        ("DATE '2024-2-9'", "DATE", dt.date(2024, 2, 9)),
        ("TIMESTAMP_NTZ '2024-01-01 00:00:01.5'", "TIMESTAMP_NTZ", 1704067201500000),
        ("TIMESTAMP '2024-01-01T00:00:00+02:00'", "TIMESTAMP", 1704060000000000),
    ],
)
def test_a_literal_has_sparks_type_and_value(text: str, kind: str, value: Any) -> None:
    found = literal(text)
    assert (found.type.ddl, found.value) == (kind, value)


@pytest.mark.parametrize("text", ["1e999", "-1e999D", "1.7976931348623158e308", "3.5e38F"])
def test_a_fraction_beyond_its_type_is_refused_and_no_infinity(text: str) -> None:
    with pytest.raises(BadLiteral):
        literal(text)


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2024-03-10 01:30:00", "2024-03-10T06:30:00"),
        ("2024-03-10 02:30:00", "2024-03-10T07:30:00"),  # the clock skips this hour: Java moves on by as much
        ("2024-11-03 01:30:00", "2024-11-03T05:30:00"),  # this one comes twice: the first is meant
        ("2024-07-01 12:00:00 Europe/Paris", "2024-07-01T10:00:00"),
    ],
)
def test_a_timestamp_is_read_in_the_sessions_time_zone(text: str, instant: str) -> None:
    found = literal(f"TIMESTAMP '{text}'", Meaning(time_zone="America/New_York"))
    moment = dt.datetime.fromisoformat(instant).replace(tzinfo=dt.UTC)
    assert found.value == int(moment.timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10 seconds", (0, 10_000_000)),
        ("interval 1 hour 30 minutes", (0, 5_400_000_000)),
        ("-1 day", (0, -86_400_000_000)),
        ("0.5 seconds", (0, 500_000)),
        ("2 years 3 months", (27, 0)),
        ("1 week", (0, 604_800_000_000)),
    ],
)
def test_an_interval_text_is_months_and_microseconds(text: str, expected: tuple[int, int]) -> None:
    assert parse_interval(text) == expected


@pytest.mark.parametrize("text", ["", "soon", "1", "1 fortnight", "0.5 days", "1 hour and 2 minutes"])
def test_a_text_that_is_not_an_interval_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_interval(text)


def test_a_time_zone_that_duckdb_does_not_know_is_refused() -> None:
    with pytest.raises(UnsupportedOnShared):
        plan("SELECT id FROM s", Meaning(time_zone="Mars/Base"))
