"""What a user reads about a failed expression."""

from __future__ import annotations

import errno
from pathlib import Path
from unittest import mock

import duckdb
import pyarrow as pa
import pytest

from headrace.bridge.spark_rows import INLINE_BYTES, stage_rows
from headrace.errors import EvaluationFailed, HeadraceError
from headrace.exec.failures import coded, failure_text, waited_for


def problem_of(query: str) -> duckdb.Error:
    with pytest.raises(duckdb.Error) as raised:
        duckdb.connect().execute(query).fetchall()
    return raised.value


@pytest.mark.parametrize("operator", ["//", "%"])
def test_a_division_by_zero_gives_no_advice_that_only_duckdb_understands(operator: str) -> None:
    found = coded(problem_of(f"SELECT 5::HUGEINT {operator} x FROM (VALUES (0::BIGINT)) t(x)"))
    assert isinstance(found, EvaluationFailed)
    assert found.params["said"] == "division by zero"


def test_an_overflow_keeps_its_values() -> None:
    found = coded(problem_of("SELECT x + 1 FROM (VALUES (9223372036854775807)) t(x)"))
    assert "9223372036854775807" in str(found.params["said"])
    assert str(found.params["said"]).startswith("Overflow")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_stream_waits_when_a_task_cannot_write_to_the_state_directory(tmp_path: Path, number: int) -> None:
    """As the rows of a large epoch for a Spark query: the error says that streams resume by themselves."""
    rows = pa.table({"x": pa.array(range(INLINE_BYTES), pa.int64())})
    with (
        mock.patch("headrace.bridge.spark_rows.pq.write_table", side_effect=OSError(number, "refused")),
        pytest.raises(HeadraceError) as raised,
    ):
        stage_rows(1, rows, str(tmp_path))
    assert isinstance(waited_for(failure_text(raised.value)), type(raised.value))
