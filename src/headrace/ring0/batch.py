"""A decoded batch in the full index space: one column per declared column, NULL where no pipeline needs the column.

Programs are compiled against the indexes of the full schema, so a batch always has all columns. After them come the
decoded fields of STRUCT columns. Columns that are not
decoded are slices of one cached NULL array per type, and cost nothing per row.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.formats.format_kind import Decoded
from headrace.model.schema import NESTED, DataType, Schema, View, field_at

PlaceOffsets = npt.NDArray[np.int64]
PLACE = "_at"  # the column of places: see `headrace.ring0.record_places`


@lru_cache(maxsize=256)
def _nulls(kind: DataType, rows: int) -> pa.Array[Any]:
    nulls: pa.Array[Any] = pa.nulls(rows, kind.arrow)  # type: ignore[call-overload]
    return nulls


def null_column(kind: DataType, rows: int) -> pa.Array[Any]:
    """A column of `rows` NULLs: a slice of a cached array whose length is the next power of two."""
    return _nulls(kind, max(1024, 1 << (rows - 1).bit_length()) if rows else 1024).slice(0, rows)


def to_rows(decoded: Decoded, schema: Schema, event_time: int | None, places: PlaceOffsets | None = None) -> pa.Table:
    """The relation `rows` of `headrace.model.program`. Rows without an event time are kept, with NULL in `_t`. With
    `places` it has them as a column, so that a row on which an expression fails can be found in the input."""
    arrays = [
        decoded.columns[i] if i in decoded.columns else null_column(f.type, decoded.rows) for i, f in enumerate(schema)
    ]
    names = [f"c{i}" for i in range(len(schema))]
    fields = {f"c{i}": array for i, array in decoded.columns.items() if i >= NESTED}
    whole = [*arrays, *fields.values(), times(decoded, event_time)]
    table = pa.Table.from_arrays(whole, names=[*names, *fields, "_t"])
    return table if places is None else table.append_column(PLACE, pa.array(places))


def no_rows(schema: Schema, view: View) -> pa.Table:
    """The relation `rows` without rows, for the columns of `view`."""
    nested = {i: null_column(field_at(schema, i).type, 0) for i in view.indexes(len(schema)) if i >= NESTED}
    return to_rows(Decoded(0, nested), schema, None)


def times(decoded: Decoded, event_time: int | None) -> pa.Array[Any]:
    """The event times in microseconds."""
    if event_time is None:
        return pa.nulls(decoded.rows, pa.int64())
    return decoded.columns[event_time].cast(pa.int64())
