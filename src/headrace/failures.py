"""A pipeline's failure as the text its status keeps: always with a code, and with advice where there is any."""

from __future__ import annotations

import re

import duckdb
import pyarrow as pa

from headrace.errors import EvaluationFailed, HeadraceError, InternalError, OutOfMemory

_KIND = re.compile(r"^(?:[A-Z][A-Za-z]* ?)+ Error: ")


def describe(problem: Exception) -> str:
    """The failure as a user reads it. What DuckDB says about a value is the data's fault; anything else is ours."""
    return coded(problem).render()


def coded(problem: Exception) -> HeadraceError:
    """`problem` as one of our errors."""
    if isinstance(problem, HeadraceError):
        return problem
    if isinstance(problem, duckdb.OutOfMemoryException | MemoryError | pa.ArrowMemoryError):
        return OutOfMemory(
            f"the pipeline needs more memory than a task has: {str(problem).strip().split(chr(10), 1)[0]}",
            advice="Group by fewer or shorter values, use shorter windows, or make max_epoch_bytes of the stream "
            "smaller, then start it again.",
        )
    if isinstance(problem, duckdb.Error) and not isinstance(problem, duckdb.InternalException):
        said = _KIND.sub("", str(problem).strip().split("\n", 1)[0])
        return EvaluationFailed(
            f"an expression failed on some row: {said}",
            advice="Filter such rows out or guard the expression (TRY_CAST, try_divide, CASE), then create it again.",
            said=said,
        )
    return InternalError(
        f"{type(problem).__name__}: {problem}", advice="This is a defect of headrace: please report it with the query."
    )
