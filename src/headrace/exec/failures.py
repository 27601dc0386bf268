"""The failure of a pipeline as the text in its status: always with a code, and with advice if there is any."""

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
    StateUnavailable,
    kind_of,
)

# Errors that the whole stream waits for. It then runs the epoch again, and no row is lost.
WAITED_FOR = (DiskFull, SinkUnavailable, StateUnavailable)

_KIND = re.compile(r"^(?:[A-Za-z]+ )+Error: (?:Python exception occurred while executing the UDF: KernelError: )?")
# DuckDB names the expression as it was rewritten, and settings that users of headrace do not have.
_COLUMN = re.compile(r" when casting from source column \w+$")
_ZERO = re.compile(r"^Division by zero in expression .*")


def failure_text(problem: Exception) -> str:
    """The failure as a user reads it. An error of DuckDB about a value is the data's fault, any other is ours."""
    return coded(problem).render()


def waited_for(text: str) -> HeadraceError | None:
    """The error that this text was made from, if the whole stream waits for it: a full disk, or a sink or a state
    directory that is unavailable."""
    kind = kind_of(text)
    return kind(text.split("] ", 1)[1]) if kind in WAITED_FOR and kind is not None else None


def said(problem: duckdb.Error) -> str:
    """What DuckDB or a kernel says about a value, without the words around it."""
    text = _KIND.sub("", str(problem).strip().split("\n", 1)[0])
    return _COLUMN.sub("", _ZERO.sub("division by zero", text))


def coded(problem: Exception) -> HeadraceError:
    """`problem` as one of our errors."""
    if isinstance(problem, HeadraceError):
        return problem
    if isinstance(problem, duckdb.OutOfMemoryException | MemoryError | pa.ArrowMemoryError):
        return OutOfMemory(
            f"the pipeline needs more memory than a task may use: {str(problem).strip().split(chr(10), 1)[0]}",
            advice="Group by fewer or shorter values, use shorter windows, or reduce max_epoch_bytes of the stream. "
            "Then start the pipeline again.",
        )
    if isinstance(problem, duckdb.IOException) and "No space left on device" in str(problem):
        return DiskFull(
            f"a task cannot write its temporary files: {str(problem).strip().split(chr(10), 1)[0]}",
            advice="Free space on the disk of the temporary directory. The stream then continues by itself.",
        )
    if isinstance(problem, duckdb.Error) and not isinstance(problem, duckdb.InternalException):
        return EvaluationFailed(
            f"an expression failed on some row: {said(problem)}",
            advice="Filter such rows out, or guard the expression (TRY_CAST, try_divide, CASE). "
            "Then CREATE OR REPLACE the pipeline.",
            said=said(problem),
        )
    return InternalError(
        f"{type(problem).__name__}: {problem}", advice="This is a defect of headrace. Please report it with the query."
    )
