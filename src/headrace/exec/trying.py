"""Finds the rows on which an expression fails.

DuckDB's TRY is NULL for a row that fails. The value is put into a struct, which is never NULL otherwise. DuckDB
evaluates a vector of 2,048 rows one by one if it fails: 5 us a row, and 140 us if a kernel takes part (2026-11-17, one
loaded core).
"""

from __future__ import annotations

import re

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.exec import duck
from headrace.exec.failures import said
from headrace.model.program import Meaning

ROW = "_row"
VECTOR = 2048
_ERROR = re.compile(r"\berror\(|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")  # a call, or a text that may look like one
_PARENTHESES = re.compile(r"[()]|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")
_FAILING_CALL = f"list_extract([NULL], CAST('no' || {ROW} AS INTEGER))"


def failing_rows(meaning: Meaning, sql: str, rows: pa.Table) -> npt.NDArray[np.int64]:
    """The values of the column ROW of the rows on which `sql` fails. Raises duckdb.Error if DuckDB cannot try it."""
    found = duck.run(meaning, f"SELECT {ROW} AS r FROM rows WHERE {fails(sql)}", {"rows": rows})
    return found.column("r").to_numpy().astype(np.int64)


def first_failing(meaning: Meaning, sql: str, rows: pa.Table) -> int | None:
    """The first row on which `sql` fails. None if there is none, or if DuckDB cannot try it."""
    numbered = rows.append_column(ROW, pa.array(np.arange(rows.num_rows)))
    for start in range(0, rows.num_rows, VECTOR):
        try:
            found = failing_rows(meaning, sql, numbered.slice(start, VECTOR))
        except duckdb.Error:
            return None
        if len(found):
            return int(found.min())
    return None


def reason(meaning: Meaning, sql: str, row: pa.Table) -> str | None:
    """Why `sql` fails on a row, a table of one row. None if DuckDB does not say."""
    try:
        duck.run(meaning, f"SELECT {sql} AS v FROM rows", {"rows": row})
    except duckdb.OutOfMemoryException:
        return None
    except duckdb.Error as problem:
        return said(problem)
    return None


def fails(sql: str) -> str:
    """A condition that is true on the rows on which `sql` fails. The rows have a column ROW."""
    return f"TRY(struct_pack(v := {_triable(sql)})) IS NULL"


def tried(sql: str) -> str:
    """`sql`, or NULL on the rows on which it fails. The rows have a column ROW."""
    return f"TRY({_triable(sql)})"


def _triable(sql: str) -> str:
    """`sql` with another call in place of error(), which DuckDB does not allow in TRY. It fails too, and is NULL for
    the type checker. It reads ROW, so that it is no constant, which would fail when DuckDB plans."""
    parts, done = [], 0
    while (call := next((m for m in _ERROR.finditer(sql, done) if m[0] == "error("), None)) is not None:
        parts += [sql[done : call.start()], _FAILING_CALL]
        done = _closed(sql, call.end())
    return "".join([*parts, sql[done:]])


def _closed(sql: str, start: int) -> int:
    """The end of the call whose arguments begin at `start`.

    >>> _closed("error(concat(')', x)) + 1", 6)
    21
    """
    depth = 1
    for found in _PARENTHESES.finditer(sql, start):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if depth == 0:
            return found.end()
    return len(sql)
