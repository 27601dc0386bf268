"""Evaluates the computed columns of a stream on decoded rows.

A row on which an expression fails has a bad value there, as if the format had found it: it is NULL, and the stream's
`on_error` decides what that does. The same holds for a row in which the expression reads a bad value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import ValueTooLarge
from headrace.exec import duck
from headrace.exec.sizing import in_pieces
from headrace.exec.trying import ROW, failing_rows
from headrace.formats.bad import BadRecords
from headrace.formats.columns import status_of
from headrace.formats.kernels.numbers import FINE, REASON_BASE
from headrace.model.bad_reasons import STRUCTURE_REASONS
from headrace.model.definitions import ComputedColumn
from headrace.model.schema import DataType, Schema

Status = npt.NDArray[np.uint8]
# A failing set of rows is cut into so many parts, until single rows are left.
PARTS = 8


def evaluate(
    computed: Sequence[ComputedColumn], schema: Schema, rows: int, columns: Mapping[int, Any], bad: BadRecords
) -> tuple[dict[int, Any], list[tuple[int, Status]]]:
    """The computed columns over decoded `columns`, and the status of the cells of those that have bad values. `bad` are
    the bad values in `columns`, by row."""
    arrays: dict[int, Any] = {}
    found: list[tuple[int, Status]] = []
    for column in computed:
        status = np.full(rows, FINE, np.uint8)
        if len(bad.rows):
            read = np.isin(bad.columns, column.reads)
            status[bad.rows[read]] = bad.codes[read] - np.uint8(len(STRUCTURE_REASONS) - REASON_BASE)
        table = pa.table({ROW: pa.array(np.arange(rows)), **{f"c{i}": columns[i] for i in column.reads}})
        fine = np.flatnonzero(status == FINE)
        values = _values(column, schema[column.index].type, table if len(fine) == rows else table.take(fine))
        status[fine[values.failed]] = status_of("bad_computed")
        arrays[column.index] = values.array if len(fine) == rows else _spread(values.array, fine, rows)
        if (status != FINE).any():
            found.append((column.index, status))
    return arrays, found


class _Computation:
    """An array with NULL where the expression failed, and the indexes of these rows."""

    def __init__(self, array: Any, failed: npt.NDArray[np.int64]) -> None:
        self.array, self.failed = array, failed


def _values(column: ComputedColumn, kind: DataType, table: pa.Table) -> _Computation:
    array = _run(column, kind, table)
    if array is not None:
        return _Computation(array, np.empty(0, np.int64))
    failed = _null_rows(column, table) if column.lenient else None
    kept = np.arange(table.num_rows) if failed is None else np.setdiff1d(np.arange(table.num_rows), failed)
    array = None if failed is None else _run(column, kind, table.take(kept))
    if failed is None or array is None:  # the lenient form fails too, or does not see every failure
        failed = _failing(column, kind, table)
        kept = np.setdiff1d(np.arange(table.num_rows), failed)
        array = _run(column, kind, table.take(kept))
    assert array is not None, "every failing row was found"
    return _Computation(_spread(array, kept, table.num_rows), failed)


def _null_rows(column: ComputedColumn, table: pa.Table) -> npt.NDArray[np.int64] | None:
    """The rows on which the lenient form is NULL although no operand is. None if it fails itself."""
    try:
        found = duck.run(column.meaning, f"SELECT ({column.lenient}) IS NULL AS f FROM rows", {"rows": table})
    except (duckdb.OutOfMemoryException, duckdb.InternalException, duckdb.IOException):
        raise  # not about a value
    except duckdb.Error:
        return None
    failed = found.column(0).to_numpy()
    for i in column.reads:
        failed = failed & pc.is_valid(table.column(f"c{i}")).to_numpy()
    return np.flatnonzero(failed)


def _failing(column: ComputedColumn, kind: DataType, table: pa.Table) -> npt.NDArray[np.int64]:
    """The rows of `table` on which the expression fails."""
    try:
        return _untried(column, kind, table)
    except (duckdb.OutOfMemoryException, duckdb.InternalException, duckdb.IOException):
        raise  # not about a value
    except (duckdb.Error, ValueTooLarge):  # a value is too large, or DuckDB cannot try this expression
        return _halved(column, kind, table)


def _untried(column: ComputedColumn, kind: DataType, table: pa.Table) -> npt.NDArray[np.int64]:
    """The rows that fail, in one pass."""
    sql = f"CAST(({column.sql}) AS {kind.duckdb})"
    numbered = table.set_column(table.schema.get_field_index(ROW), ROW, pa.array(np.arange(table.num_rows)))
    found = [
        failing_rows(column.meaning, sql, piece) for piece in in_pieces(column.growth, column.meaning, "rows", numbered)
    ]
    return np.sort(np.concatenate(found)) if found else np.empty(0, np.int64)


def _halved(column: ComputedColumn, kind: DataType, table: pa.Table) -> npt.NDArray[np.int64]:
    """The rows that fail, by trying smaller and smaller parts of the rows."""
    failing: list[int] = []
    waiting = [np.arange(table.num_rows)]
    while waiting:
        rows = waiting.pop()
        if not len(rows) or _run(column, kind, table.take(rows)) is not None:
            continue
        if len(rows) == 1:
            failing.append(int(rows[0]))
        else:
            waiting += np.array_split(rows, min(PARTS, len(rows)))
    return np.array(sorted(failing), np.int64)


def _run(column: ComputedColumn, kind: DataType, table: pa.Table) -> Any | None:
    """The values over all rows of `table`, or None if the expression fails on some row."""
    sql = f"SELECT CAST(({column.sql}) AS {kind.duckdb}) AS v FROM rows"
    schema = pa.schema([pa.field("v", kind.arrow)])
    try:
        parts = [
            duck.conform(duck.run(column.meaning, sql, {"rows": piece}), schema)
            for piece in in_pieces(column.growth, column.meaning, "rows", table)
        ]
    except (duckdb.OutOfMemoryException, duckdb.InternalException, duckdb.IOException):
        raise  # not about a value
    except (duckdb.Error, ValueTooLarge):
        return None
    array: Any = pa.concat_tables(parts).column(0).combine_chunks()
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _spread(array: Any, places: npt.NDArray[np.int64], rows: int) -> Any:
    """`array` at `places` of a longer array that is NULL elsewhere."""
    order = np.zeros(rows, np.int64)
    order[places] = np.arange(len(places))
    absent = np.ones(rows, bool)
    absent[places] = False
    return array.take(pa.array(order, mask=absent))
