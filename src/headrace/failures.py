"""A pipeline's failure as the text its status keeps: always with a code, and with advice where there is any."""

from __future__ import annotations

import re

import duckdb
import pyarrow as pa

from headrace.errors import (
    DiskFull,
    EvaluationFailed,
    HeadraceError,
    InternalError,
    OutOfMemory,
    SinkUnavailable,
    kind_of,
)

_KIND = re.compile(r"^(?:[A-Z][A-Za-z]* ?)+ Error: ")


def describe(problem: Exception) -> str:
    """The failure as a user reads it. What DuckDB says about a value is the data's fault; anything else is ours."""
    return coded(problem).render()


def waited_for(text: str) -> HeadraceError | None:
    """The error that `describe` made this text of, if it is one that the whole stream waits for: there is no room."""
    kind = kind_of(text)
    return kind(text.split("] ", 1)[1]) if kind in (DiskFull, SinkUnavailable) and kind is not None else None


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
    if isinstance(problem, duckdb.IOException) and "No space left on device" in str(problem):
        return DiskFull(
            f"a task has no room for its temporary files: {str(problem).strip().split(chr(10), 1)[0]}",
            advice="Make room on the disk of the temporary directory. The stream goes on by itself then.",
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
