"""What a user reads about a failed expression."""

from __future__ import annotations

import duckdb
import pytest

from headrace.errors import EvaluationFailed
from headrace.exec.failures import coded


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
