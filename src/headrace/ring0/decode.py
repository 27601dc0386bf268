"""Bytes of a chunk to the relation `rows`: the union of the wanted columns, decoded once for all pipelines.

When every pipeline has a filter, the columns that the filters read are parsed first and the rest only for the rows
that some filter keeps (late materialisation). What a pipeline gets does not depend on which way was taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace import duck
from headrace.aggregates import where
from headrace.formats.base import BadRecord, Decoded
from headrace.formats.columns import cells_parsed
from headrace.program import PlanVersion
from headrace.ring0.batch import to_rows
from headrace.ring0.projection import projection_of
from headrace.sources.base import RawChunk

# A filter that keeps more than this share of a task's first chunk is not tried on the others.
WORTH_WHILE = 0.5


@dataclass(frozen=True, slots=True)
class Batch:
    """One decoded chunk. `rows` is the relation, `cells` the bad values in it, `rejected` the records that are no row
    for anyone: bad structure, bad event time.

    `records` counts all records, also those that are rejected or whose rows nobody wants. `top`, the highest event
    time, and `untimed`, the rows without one, are of all rows too. Rows beyond the task's time limit do not count for
    `top`: they are `future`. `values` is the number of cells that the kernels were given to parse.
    """

    rows: pa.Table
    rejected: Sequence[BadRecord]
    cells: Sequence[BadRecord]
    records: int
    values: int
    top: int | None
    untimed: int
    future: int


class Decoder:
    """Decodes the chunks of one task. Deterministic: the same chunks in the same order give the same batches."""

    def __init__(self, plan: PlanVersion, limit: int | None = None) -> None:
        """`limit` is the highest event time, in microseconds, that may move the watermark."""
        projection = projection_of(plan)
        self._stream, self._limit = plan.stream, limit
        self.format = projection.format
        self._wanted, self._first = projection.wanted, projection.first
        self._filters, self._meaning = projection.filters, projection.meaning
        self._late = projection.selective

    @property
    def columns(self) -> int:
        """How many columns are decoded."""
        return len(self._wanted)

    def decode(self, chunk: RawChunk) -> Batch:
        """Decode one chunk. Raises only what concerns the whole stream."""
        before = cells_parsed()
        found = self._decode_late(chunk) if self._late else None
        found = self._decode_all(chunk) if found is None else found
        return replace(found, values=cells_parsed() - before)

    def _decode_all(self, chunk: RawChunk) -> Batch:
        decoded = self.format.decode(chunk.data, self._wanted, chunk.origin, chunk.offset)
        rejected, cells = self._sorted((*chunk.bad, *decoded.bad))
        untimed = {b.row for b in rejected if b.row >= 0}
        rows = to_rows(decoded, self._stream.schema, self._stream.event_time)
        top, missing, future = self._times(rows.column("_t"), untimed)
        if untimed:
            kept = np.setdiff1d(np.arange(decoded.rows), np.fromiter(untimed, np.int64))
            rows, cells = rows.take(kept), _renumbered(cells, kept)
        return Batch(rows, rejected, cells, decoded.rows + _rowless(rejected), 0, top, missing, future)

    def _decode_late(self, chunk: RawChunk) -> Batch | None:
        """Filter columns first, the rest for the rows that are kept. None when that cannot be told: then a filter fails
        on some row, and whose it is shows when each pipeline runs on all of them."""
        indexed = self.format.index(chunk.data, self._first, chunk.origin, chunk.offset)
        head = indexed.parse(self._first)
        rows = to_rows(head, self._stream.schema, self._stream.event_time)
        rejected, first = self._sorted((*chunk.bad, *indexed.bad, *head.bad))
        untimed = {b.row for b in rejected if b.row >= 0}
        kept = self._kept(rows, untimed, {b.row for b in first})
        if kept is None:
            return None
        self._late = len(kept) <= WORTH_WHILE * rows.num_rows
        top, missing, future = self._times(rows.column("_t"), untimed)
        rest = tuple(c for c in self._wanted if c not in self._first)
        tail = indexed.parse(rest, kept)
        columns: dict[int, pa.Array[Any]] = {c: a.take(kept) for c, a in head.columns.items()}
        selected = Decoded(len(kept), columns | dict(tail.columns))
        return Batch(
            to_rows(selected, self._stream.schema, self._stream.event_time),
            rejected,
            _renumbered((*first, *tail.bad), kept),
            head.rows + _rowless(rejected),
            0,
            top,
            missing,
            future,
        )

    def _kept(self, rows: pa.Table, untimed: set[int], unclear: set[int]) -> npt.NDArray[np.int64] | None:
        """The rows that some filter keeps, in order, and those that filters cannot judge because a value that they
        read is bad."""
        assert self._meaning is not None
        numbered = rows.append_column("_row", pa.array(np.arange(rows.num_rows)))
        anyone = " OR ".join(f"({f})" for f in self._filters)
        try:
            found = duck.run(self._meaning, f"SELECT _row FROM rows{where(anyone)} ORDER BY _row", {"rows": numbered})
        except Exception:  # a filter's failure is its pipeline's, and is met there again
            return None
        kept: npt.NDArray[np.int64] = found.column(0).to_numpy().astype(np.int64)
        if unclear:
            kept = np.union1d(kept, np.fromiter(unclear, np.int64))
        return np.setdiff1d(kept, np.fromiter(untimed, np.int64)) if untimed else kept

    def _sorted(self, bad: Sequence[BadRecord]) -> tuple[list[BadRecord], list[BadRecord]]:
        """What is rejected for all (bad structure, bad event time), and the other bad values."""
        rejected = [b for b in bad if b.column is None or b.column == self._stream.event_time]
        return rejected, [b for b in bad if b.column is not None and b.column != self._stream.event_time]

    def _times(self, times: pa.ChunkedArray[Any], untimed: set[int]) -> tuple[int | None, int, int]:
        """The highest event time that is not beyond the limit, how many rows have none without being bad, and how many
        are beyond."""
        if self._stream.event_time is None:
            return None, 0, 0
        missing, top, future = times.null_count - len(untimed), pc.max(times).as_py(), 0
        if top is not None and self._limit is not None and top > self._limit:
            near = times.filter(pc.less_equal(times, pa.scalar(self._limit)))
            top, future = pc.max(near).as_py(), len(times) - times.null_count - len(near)
        return None if top is None else int(top), missing, future


def _rowless(rejected: Sequence[BadRecord]) -> int:
    """How many of the rejected records have no row: their structure is bad."""
    return sum(record.row < 0 for record in rejected)


def _renumbered(cells: Sequence[BadRecord], kept: npt.NDArray[np.int64]) -> list[BadRecord]:
    """What is known of the kept rows, under their new numbers."""
    moved = []
    for record in cells:
        at = int(np.searchsorted(kept, record.row))
        if at < len(kept) and kept[at] == record.row:
            moved.append(replace(record, row=at))
    return moved
