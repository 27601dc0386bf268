"""Cuts partial aggregates into the pieces that Ring 1 gets: by bucket, and by window if windows emit on close.

Rows are ordered once and encoded run by run. The members of a family have the same keys and windows, so the order of
their common table serves all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.base.arrays import Ints
from headrace.bridge.buckets import buckets
from headrace.bridge.packs import PackEntry
from headrace.bridge.rows import MAX_PAYLOAD, encode_runs, payloads
from headrace.model.definitions import PipelineDef

CutPiece = tuple[int, int, int]  # bucket, and start and end of the window


@dataclass(frozen=True, slots=True)
class PartialsCut:
    """How a table is cut: `pieces`, and the number of the piece of each row. Rows are ordered by that."""

    pieces: tuple[CutPiece, ...]
    numbers: Ints

    @property
    def rows(self) -> int:
        return len(self.numbers)

    def of(self, kept: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> PartialsCut:
        """The cut of the rows that are `kept`."""
        return PartialsCut(self.pieces, self.numbers[kept])

    def entries(self, lane: int, table: pa.Table, max_rows: int) -> list[tuple[int, PackEntry]]:
        """The pieces of `table` that are not empty, encoded, each with its bucket."""
        counts = np.bincount(self.numbers, minlength=len(self.pieces))
        ends = np.cumsum(counts)
        found: list[tuple[int, PackEntry]] = []
        if self.rows > max_rows or table.get_total_buffer_size() > MAX_PAYLOAD:
            for (bucket, start, end), rows, until in zip(self.pieces, counts.tolist(), ends.tolist(), strict=True):
                for payload, size in _sized(table.slice(until - rows, rows), max_rows):
                    found.append((bucket, PackEntry(lane=lane, start=start, end=end, rows=size, payload=payload)))
            return found
        full = np.flatnonzero(counts)
        blobs = encode_runs(table, np.concatenate([[0], ends[full]]).astype(np.int64))
        for number, payload in zip(full.tolist(), blobs, strict=True):
            bucket, start, end = self.pieces[number]
            found.append(
                (bucket, PackEntry(lane=lane, start=start, end=end, rows=int(counts[number]), payload=payload))
            )
        return found


def _sized(table: pa.Table, max_rows: int) -> list[tuple[bytes, int]]:
    """Payloads of a large piece, with the number of rows of each."""
    found = []
    for at in range(0, table.num_rows, max_rows):
        part = table.slice(at, max_rows)
        whole = list(payloads(part))
        if len(whole) == 1:
            found.append((whole[0], part.num_rows))
        else:  # its rows take more than a payload may
            half = -(-part.num_rows // 2)
            found += _sized(part, half)
    return found


class CutRule(NamedTuple):
    """How the partials of a pipeline are cut: the keys whose hash chooses one of `buckets`, and whether by window."""

    hashed: tuple[int, ...]
    buckets: int
    windowed: bool

    @staticmethod
    def of(pipeline: PipelineDef) -> CutRule:
        ring0 = pipeline.program.ring0
        hashed = tuple(range(len(ring0.keys))) if ring0.bucket_keys is None else ring0.bucket_keys
        return CutRule(hashed, pipeline.buckets, pipeline.pooled and pipeline.program.logged)


def cutting(table: pa.Table, rule: CutRule) -> tuple[Ints | None, PartialsCut]:
    """The order in which to take the rows of `table`, None if it has none, and the cut of the ordered rows."""
    keys = [table.column(f"k{i}") for i in rule.hashed]
    numbers = buckets(keys, table.num_rows, rule.buckets).astype(np.int64)
    columns = [numbers]
    if rule.windowed:
        columns += [table.column("window_start").to_numpy(), table.column("window_end").to_numpy()]
    if table.num_rows == 0:
        return None, PartialsCut((), np.zeros(0, np.int64))
    order: Ints | None = np.lexsort(columns[::-1]) if len(columns) > 1 else np.argsort(numbers, kind="stable")
    ordered = [column[order] for column in columns]
    changes = np.zeros(table.num_rows, np.int64)
    for column in ordered:
        changes[1:] |= column[1:] != column[:-1]
    firsts = np.concatenate([[0], np.flatnonzero(changes)])
    none = [0] * len(firsts)
    bounds = [column[firsts].tolist() for column in ordered]
    pieces = tuple(zip(bounds[0], *(bounds[1:] or (none, none)), strict=True))
    return order, PartialsCut(pieces, np.cumsum(changes))
