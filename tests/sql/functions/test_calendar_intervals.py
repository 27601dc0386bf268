"""make_interval and try_make_interval beside times: where they are refused, and how they are computed."""

from __future__ import annotations

import datetime as dt
import re

import pyarrow as pa
import pytest

from headrace.errors import HeadraceError
from headrace.exec.kernels import KERNELS
from tests.sql.functions.harness import FAILED, TIME_ZONE, Duck, plan_expressions

_KINDS = ("TIMESTAMP", "INT", "STRING", "DATE")


def _evaluated(text: str, zone: str = TIME_ZONE) -> object:
    (planned,) = plan_expressions(_KINDS, [text], time_zone=zone)
    assert not isinstance(planned, HeadraceError), planned
    row = pa.table(
        {
            "a": pa.array([dt.datetime(2024, 1, 31, 12, tzinfo=dt.UTC)], pa.timestamp("us", "UTC")),
            "b": pa.array([1], pa.int32()),
            "c": pa.array(["2"]),
            "d": pa.array([dt.date(2024, 1, 31)]),
        }
    )
    (value,) = Duck(row, zone).evaluate(*planned).values
    return value


@pytest.mark.parametrize(
    "text",
    [
        "make_interval(b)",
        "CAST(make_interval(b) AS STRING)",
        "a - -make_interval(b)",
        "make_interval(b) - a",
        "a + make_interval(b) * 2",
        "make_interval(b) + make_interval(b)",
        "make_interval(b) = make_interval(1)",
        "a + if(b > 1, make_interval(b), make_interval(2))",
        "a + coalesce(try_make_interval(b), make_interval(2))",
        "try_add(a, make_interval(b))",
        "array(make_interval(b))",
        "try_make_interval(b) IS NULL",
        "a + make_interval(DISTINCT b)",
    ],
)
def test_a_calendar_interval_that_is_not_beside_a_time_is_refused(text: str) -> None:
    (planned,) = plan_expressions(_KINDS, [text])
    assert isinstance(planned, HeadraceError) and planned.code == "UNSUPPORTED_ON_SHARED"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("c + make_interval(b)", "TYPE_MISMATCH"),
        ("b + make_interval(b)", "TYPE_MISMATCH"),
        ("a + make_interval(d)", "TYPE_MISMATCH"),
        ("a + make_interval(true)", "TYPE_MISMATCH"),
        ("a + make_interval(1, 2, 3, 4, 5, 6, 7, 8)", "WRONG_ARGUMENTS"),
        ("a + try_make_interval()", "WRONG_ARGUMENTS"),
    ],
)
def test_what_spark_refuses_or_makes_a_string_of_is_refused(text: str, code: str) -> None:
    (planned,) = plan_expressions(_KINDS, [text])
    assert isinstance(planned, HeadraceError) and planned.code == code


def test_each_operand_is_written_once_however_deep_the_sums_are() -> None:
    text = "a"
    for _ in range(12):
        text = f"({text} + make_interval(b, length(c), 0, b))"
    (planned,) = plan_expressions(_KINDS, [text])
    assert not isinstance(planned, HeadraceError)
    assert len(re.findall("hr_add_interval|hr_interval_later", planned[1])) == 12
    assert (
        planned[1].count("length(") == 12 and planned[1].count("hr_interval_later") == 1
    )  # which writes a column twice


def test_no_overflow_is_looked_for_beside_a_null() -> None:
    assert _evaluated("a + make_interval(2147483647, 0, 0, 0, 0, 0, nullif(b, 1))") is None
    assert _evaluated("nullif(a, a) - make_interval(2147483647 * b)") is None
    assert _evaluated("d + make_interval(0, 0, nullif(b, 1), 0, b)") is None
    assert _evaluated("a + make_ym_interval(2147483647, nullif(b, 1))") is None


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_a_day_time_interval_does_not_overflow_beside_a_null(zone: str) -> None:
    for days in (106751992, 2147483647):
        made = f"make_dt_interval({days} * b, 0, 0, nullif(b, 1))"
        for text in (f"timestamp_micros(0L) + {made}", f"a - {made}", f"{made} > INTERVAL 1 DAY"):
            assert _evaluated(text, zone) is None, text
            assert _evaluated(text.replace("nullif(b, 1)", "0"), zone) == FAILED, text
    assert _evaluated("a + make_dt_interval(nullif(b, 1), 2147483647, 2147483647, 1)", zone) is None


def test_an_overflow_fails_and_is_null_with_try_but_the_negative_of_the_smallest_number_always_fails() -> None:
    assert _evaluated("a + make_interval(178956971 * b, -100)") == FAILED
    assert _evaluated("a + try_make_interval(178956971 * b, -100)") is None
    assert _evaluated("a - try_make_interval(0, 0, 0, -2147483647 - b)") == FAILED


def test_only_the_last_of_the_three_sums_must_be_a_timestamp() -> None:
    assert _evaluated("a + make_interval(300000 * b, -3600000)") == _evaluated("a")
    assert _evaluated("a + make_interval(300000 * b, 0, -15653000)") == 1_857_902_400_000_000


def test_hours_that_cancel_out_may_be_added_to_a_date() -> None:
    assert _evaluated("d + make_interval(0, b, 0, 0, b, -60)") == _evaluated("DATE '2024-02-29'")
    assert _evaluated("d + make_interval(0, b, 0, 0, 24)") == FAILED


def test_the_kernels_take_a_batch_without_rows() -> None:
    for name in ("hr_add_interval", "hr_date_add_interval"):
        kernel = KERNELS[name]
        kinds = {"BIGINT": pa.int64(), "INTEGER": pa.int32(), "BOOLEAN": pa.bool_(), "VARCHAR": pa.string()}
        assert len(kernel.function(*(pa.array([], kinds[param]) for param in kernel.params))) == 0
