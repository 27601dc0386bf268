"""Decodes the bytes of a chunk into the relation `rows`: the union of the needed columns, once for all pipelines.

When every pipeline has a filter, the columns that the filters read are parsed first. The other columns are then parsed
only for rows that some filter keeps (late materialisation). Every pipeline gets the same rows either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.exec import duck
from headrace.exec.aggregates import where
from headrace.formats.bad import NOTHING_BAD, BadRecords
from headrace.formats.columns import cells_parsed
from headrace.formats.format_kind import Decoded, Indexed
from headrace.model.plan_version import PlanVersion
from headrace.ring0.batch import to_rows
from headrace.ring0.computed import evaluate
from headrace.ring0.projection import projection_of
from headrace.ring0.record_cells import RecordCells
from headrace.ring0.record_places import RecordPlaces
from headrace.ring0.validity import policy_of
from headrace.sources.source_kind import RawChunk

# Late materialisation stops for the rest of a task when the filters keep more than this share of a chunk.
WORTH_WHILE = 0.5

Rows = npt.NDArray[np.int64]  # row numbers of a batch, in ascending order


@dataclass(frozen=True, slots=True)
class Batch:
    """One decoded chunk.

    `rows` is the relation, and `cells` are the bad values in it. `rejected` are records with a bad structure or a bad
    event time. They are not rows for any pipeline, except in `mode` PERMISSIVE, where every record is a row.

    The counters are over all records, including those that are rejected or that no filter keeps. `lost` of the
    `records` are not rows. `top` is the highest event time, and `untimed` rows have none. Rows beyond the task's time
    limit do not count for `top`; they are `future`. `values` is the number of cells that the kernels parsed.
    """

    rows: pa.Table
    rejected: BadRecords
    cells: BadRecords
    records: int
    lost: int
    values: int
    top: int | None
    untimed: int
    future: int


class Decoder:
    """Decodes the chunks of one task. The same chunks in the same order always give the same batches."""

    def __init__(self, plan: PlanVersion, limit: int | None = None) -> None:
        """`limit` is the highest event time, in microseconds, that may move the watermark."""
        projection = projection_of(plan)
        self._stream, self._limit = plan.stream, limit
        self.format = projection.format
        self._wanted, self._first = projection.wanted, projection.first
        self._computed = projection.computed
        self._filters, self._meaning = projection.filters, projection.meaning
        self._late = projection.selective
        self._permissive = policy_of(plan.stream) == "permissive"
        self._layout, self._cells = projection.layout, projection.cells
        self.places = RecordPlaces() if any(p.program.ring0.fallible for p in plan.pipelines) else None

    @property
    def cells(self) -> RecordCells:
        """The values that are decoded of a record."""
        return self._cells

    def decode(self, chunk: RawChunk) -> Batch:
        """Decode one chunk. Raises only errors that concern the whole stream."""
        before = cells_parsed()
        found = self._decode_late(chunk) if self._late else None
        found = self._decode_all(chunk) if found is None else found
        return replace(found, values=cells_parsed() - before)

    def _decode_all(self, chunk: RawChunk) -> Batch:
        indexed = self._layout.index(self.format, chunk, self._wanted)
        parsed = indexed.parse(self._wanted)
        decoded = self._with_computed(chunk, indexed, replace(parsed, bad=indexed.bad.plus(parsed.bad)), self._wanted)
        rejected, cells = self._sorted(BadRecords.of(chunk.bad).plus(decoded.bad))
        untimed = _rows_of(rejected)
        places = None if self.places is None else self.places.of(chunk, indexed)
        rows = to_rows(decoded, self._stream.schema, self._stream.event_time, places)
        top, missing, future = self._times(rows.column("_t"), untimed)
        if len(untimed) and not self._permissive:
            kept = np.setdiff1d(np.arange(decoded.rows), untimed)
            rows, cells = rows.take(kept), cells.renumbered(kept)
        rowless = _rowless(rejected)
        return Batch(
            rows=rows,
            rejected=rejected,
            cells=cells,
            records=decoded.rows + rowless,
            lost=self._lost(rejected, rowless),
            values=0,
            top=top,
            untimed=missing,
            future=future,
        )

    def _with_computed(
        self, chunk: RawChunk, indexed: Indexed, decoded: Decoded, wanted: Sequence[int], kept: Rows | None = None
    ) -> Decoded:
        """`decoded` and the computed columns among `wanted`. `kept` are its rows, if they are not all; the rows of bad
        values count all rows."""
        computed = [c for c in self._computed if c.index in wanted]
        if not computed:
            return decoded
        bad = decoded.bad if kept is None else decoded.bad.renumbered(kept)
        arrays, found = evaluate(
            computed=computed, schema=self._stream.schema, rows=decoded.rows, columns=decoded.columns, bad=bad
        )
        more = self._layout.bad_values(chunk, indexed, found, kept) if found else NOTHING_BAD
        return Decoded(decoded.rows, {**decoded.columns, **arrays}, decoded.bad.plus(more))

    def _lost(self, rejected: BadRecords, rowless: int) -> int:
        """How many records are not rows for any pipeline."""
        return rowless if self._permissive else len(rejected)

    def _decode_late(self, chunk: RawChunk) -> Batch | None:
        """Parse the filter columns first, and the others for the rows that are kept. None if a filter fails on some
        row: then each pipeline runs its own filter on all rows, which shows whose filter fails."""
        indexed = self._layout.index(self.format, chunk, self._first)
        head = self._with_computed(chunk, indexed, indexed.parse(self._first), self._first)
        rows = to_rows(head, self._stream.schema, self._stream.event_time)
        rejected, first = self._sorted(BadRecords.of(chunk.bad).plus(indexed.bad).plus(head.bad))
        untimed = _rows_of(rejected)
        kept = self._kept(rows, untimed[:0] if self._permissive else untimed, _rows_of(first))
        if kept is None:
            return None
        self._late = len(kept) <= WORTH_WHILE * rows.num_rows
        top, missing, future = self._times(rows.column("_t"), untimed)
        rest = tuple(c for c in self._wanted if c not in self._first)
        tail, rowless = indexed.parse(rest, kept), _rowless(rejected)
        columns: dict[int, pa.Array[Any]] = {c: a.take(kept) for c, a in head.columns.items()}
        both = Decoded(len(kept), columns | dict(tail.columns), first.plus(tail.bad))
        selected = self._with_computed(chunk=chunk, indexed=indexed, decoded=both, wanted=rest, kept=kept)
        places = None if self.places is None else self.places.of(chunk, indexed)[kept]
        return Batch(
            rows=to_rows(selected, self._stream.schema, self._stream.event_time, places),
            rejected=rejected,
            cells=selected.bad.renumbered(kept),
            records=head.rows + rowless,
            lost=self._lost(rejected, rowless),
            values=0,
            top=top,
            untimed=missing,
            future=future,
        )

    def _kept(self, rows: pa.Table, untimed: Rows, unclear: Rows) -> Rows | None:
        """The rows that some filter keeps, and the `unclear` ones, whose filters read a bad value. In order, without
        the `untimed` ones. None if a filter fails."""
        assert self._meaning is not None
        numbered = rows.append_column("_row", pa.array(np.arange(rows.num_rows)))
        wanted = " OR ".join(f"({f})" for f in self._filters)
        try:
            found = duck.run(self._meaning, f"SELECT _row FROM rows{where(wanted)} ORDER BY _row", {"rows": numbered})
        except Exception:  # the pipeline with this filter fails again in its own pass
            return None
        kept: Rows = found.column(0).to_numpy().astype(np.int64)
        if len(unclear):
            kept = np.union1d(kept, unclear)
        return np.setdiff1d(kept, untimed) if len(untimed) else kept

    def _sorted(self, bad: BadRecords) -> tuple[BadRecords, BadRecords]:
        """Split bad records into those that are rejected for all pipelines (structure, event time) and bad values."""
        if not len(bad):
            return NOTHING_BAD, NOTHING_BAD
        for_all = bad.columns < 0
        if self._stream.event_time is not None:
            for_all |= bad.columns == self._stream.event_time
        return replace(bad.pick(for_all), extra=bad.extra), bad.pick(~for_all)

    def _times(self, times: pa.ChunkedArray[Any], untimed: Rows) -> tuple[int | None, int, int]:
        """The highest event time up to the limit, how many rows have no event time without being bad, and how many have
        one beyond the limit."""
        if self._stream.event_time is None:
            return None, 0, 0
        missing, top, future = times.null_count - len(untimed), pc.max(times).as_py(), 0
        if top is not None and self._limit is not None and top > self._limit:
            near = times.filter(pc.less_equal(times, pa.scalar(self._limit)))
            top, future = pc.max(near).as_py(), len(times) - times.null_count - len(near)
        return None if top is None else int(top), missing, future


def _rows_of(bad: BadRecords) -> Rows:
    """The rows with these bad records."""
    return np.unique(bad.rows[bad.rows >= 0]).astype(np.int64)


def _rowless(rejected: BadRecords) -> int:
    """How many of the rejected records have no row, because their structure is bad."""
    return len(rejected.extra) + int(np.count_nonzero(rejected.rows < 0))
