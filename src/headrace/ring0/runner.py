"""One pipeline inside one task: rows in, partial aggregates or staged output out.

A runner belongs to one task of one epoch. Whatever it raises is the pipeline's own failure. The task catches it, sends
an `error` message and continues with the other pipelines.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from headrace.bridge.merge_form import merge_form
from headrace.bridge.merging import CannotMerge
from headrace.bridge.packs import PackEntry
from headrace.bridge.rows import MAX_PAYLOAD, decode_rows
from headrace.bridge.spark_rows import RowsForSpark, stage_rows
from headrace.exec.aggregates import (
    Aggregated,
    aggregate_nothing,
    aggregate_rows,
    late_rows,
    merge,
    schema_of,
)
from headrace.exec.generate import made_rows, over_made_rows
from headrace.exec.sizing import in_pieces, pieces_of, require_list_limit, require_memory
from headrace.model.definitions import PipelineDef, SinkDef
from headrace.model.program import Ring0Program
from headrace.ring0.copying import project
from headrace.ring0.cuts import CutRule, PartialsCut, cutting
from headrace.ring0.encoded_pieces import BucketEntry, EncodedPieces
from headrace.ring0.filters import using
from headrace.sinks import SINKS
from headrace.sinks.delivery import stage
from headrace.sinks.sink_kind import SinkKey, Staged

# Output of a stateless pipeline is staged in pieces of about this size. That bounds a task's memory.
STAGE_BYTES = 32 * 1024 * 1024
# Partial aggregates of several passes are merged when they take this many bytes together.
MERGE_BYTES = 64 * 1024 * 1024
_NONE: Mapping[str, str] = {}


@dataclass(slots=True)
class Runner:
    """Runs one pipeline on the batches of a task, and keeps the result until the task sends it."""

    pipeline: PipelineDef
    key: SinkKey
    watermark: int | None
    staging: str = ""  # the directory for rows that Spark reads
    late: int = 0
    bad: int = 0
    seconds: float = 0.0
    staged: dict[str, list[Staged]] = field(default_factory=dict)
    for_spark: list[RowsForSpark] = field(default_factory=list)  # rows for the pipeline's Spark query
    lost: dict[str, str] = field(default_factory=dict)  # sinks that could not be written to, with the reason
    _tables: list[pa.Table] = field(default_factory=list)
    _bytes: int = 0
    _limit: int = field(default_factory=lambda: MERGE_BYTES)
    _cut: PartialsCut | None = None  # of the only table, if it is known
    _pieces: EncodedPieces = field(default_factory=EncodedPieces)  # partials in the form that is sent

    def feed(self, rows: pa.Table, known: Mapping[str, str] = _NONE) -> None:
        """Run the Ring 0 program on one batch. `known` maps filters to columns of the batch that hold their result."""
        began = time.perf_counter()
        program = self.pipeline.program
        ring0 = using(program.ring0, known)
        if ring0.generators:
            late = 0
            for made in made_rows(ring0, program.meaning, rows):
                late += self._run(over_made_rows(ring0), made)
            self._write_late(late, ring0, rows)
        else:
            self._write_late(self._run(ring0, rows), ring0, rows)
        self.seconds += time.perf_counter() - began

    def _run(self, ring0: Ring0Program, rows: pa.Table) -> int:
        """Run a program without generators, in pieces that fit into memory. Returns how many rows are late."""
        program, late = self.pipeline.program, 0
        for piece in in_pieces(ring0.growth, program.meaning, "rows", rows):
            if program.ring1 is None:
                self.take_projected(project(ring0, program.meaning, piece))
            else:
                late += self._fold(aggregate_rows(ring0, program.meaning, piece, self.watermark))
        return late

    def take_projected(self, table: pa.Table) -> None:
        """Keep output rows of one batch."""
        self._keep(table)
        if self._bytes >= STAGE_BYTES:
            self._stage()

    def take(self, folded: Aggregated, rows: pa.Table, cut: PartialsCut | None = None) -> None:
        """Keep the partial aggregates of one batch, and write its late rows to the sink for them. `cut` says how the
        partials are to be cut, if they are ordered for that."""
        self._cut = cut if not self._tables else None
        self._write_late(self._fold(folded), self.pipeline.program.ring0, rows)

    def take_encoded(self, entries: list[BucketEntry], late: int, rows: pa.Table) -> None:
        """As `take`, with partials that are cut and encoded. They stay so unless DuckDB has to aggregate a batch."""
        self.late += late
        if entries and (self._tables or (self._pieces and merge_form(self.pipeline.program.ring0) is None)):
            self._keep(self._decoded(entries))
            if self._bytes > self._limit:
                self._merge()
        elif entries:
            self._pieces.add(entries)
            if self._pieces.bytes > self._limit and self._merge_pieces():
                self._require_memory(self._pieces.bytes)
        self._write_late(late, self.pipeline.program.ring0, rows)

    def _merge_pieces(self) -> bool:
        """Merge the encoded partials of several batches. False if only DuckDB can: then they are a table."""
        form = merge_form(self.pipeline.program.ring0)
        try:
            if form is not None:
                self._pieces.merge(form)
            return True
        except CannotMerge:
            self._decode()
            self._merge()
            return False

    def _decode(self) -> None:
        """Turn encoded partials into a table, to merge them with others."""
        if self._pieces:
            entries, self._pieces = self._pieces.entries(), EncodedPieces()
            self._keep(self._decoded(entries))

    def _decoded(self, entries: list[BucketEntry]) -> pa.Table:
        return decode_rows([entry.payload for _, entry in entries], schema_of(self.pipeline.program.ring0))

    def _fold(self, folded: Aggregated) -> int:
        """Keep the partial aggregates of one batch. Returns how many rows are late."""
        self.late += folded.late
        self._keep(folded.partials)
        if self._bytes > self._limit:
            self._merge()
        return folded.late

    def _write_late(self, count: int, ring0: Ring0Program, rows: pa.Table) -> None:
        """Write the late rows of the stream to the sink for them, if there are any."""
        late = self.pipeline.late
        if count and late is not None and self.watermark is not None:
            meaning = self.pipeline.program.meaning
            found = [
                late_rows(late.outputs, ring0, meaning, piece, watermark=self.watermark)
                for piece in pieces_of(ring0, meaning, rows)
            ]
            self._write(late.sink, pa.concat_tables(found))

    def end_of_input(self, nothing: pa.Table) -> None:
        """Add the row of a global aggregate over no input, as Spark has it. `nothing` is an empty batch."""
        program = self.pipeline.program
        if program.ring1 is not None and program.ring0.window is None and not program.ring0.keys:
            if program.ring0.generators:
                (nothing,) = made_rows(program.ring0, program.meaning, nothing)
            self._keep(aggregate_nothing(program.ring0, program.meaning, nothing))

    def finish(self, max_rows: int) -> list[tuple[int, PackEntry]]:
        """The partial aggregates of the whole task, encoded and by bucket. A stateless pipeline has none, and stages
        its last rows."""
        began = time.perf_counter()
        try:
            if self.pipeline.program.ring1 is None:
                self._stage()
                return []
            if self._pieces and self._merge_pieces():
                self._require_memory(self._pieces.bytes)
                entries = self._pieces.entries()
                if all(e.rows <= max_rows and len(e.payload) <= MAX_PAYLOAD for _, e in entries):
                    return entries
                self._decode()
            if not self._tables:
                return []
            if len(self._tables) > 1:
                self._merge()
            table, cut = self._tables[0], self._cut
            require_list_limit(table, self.pipeline.max_group_values)
            if cut is None or cut.rows != table.num_rows:
                order, cut = cutting(table, CutRule.of(self.pipeline))
                table = table if order is None else table.take(order)
            return cut.entries(self.pipeline.lane, table, max_rows)
        finally:
            self.seconds += time.perf_counter() - began

    def _merge(self) -> None:
        """Merge the partial aggregates, which changes their order. Raises OutOfMemory when they still take more bytes
        than a task may hold."""
        program, self._cut = self.pipeline.program, None
        self._tables = [merge(program.ring0, program.meaning, self._tables, self.pipeline.max_group_values)]
        self._bytes = self._tables[0].nbytes
        self._require_memory(self._bytes)

    def _require_memory(self, size: int) -> None:
        """Raise OutOfMemory if merged partial aggregates of `size` bytes are too many. Otherwise double the limit: each
        partial is merged once or twice, however many there are."""
        require_memory("the groups of the pipeline take", size)
        self._limit = max(MERGE_BYTES, 2 * size)

    def _keep(self, table: pa.Table) -> None:
        if table.num_rows:
            self._decode()
            self._cut = None if self._tables else self._cut
            self._tables.append(table)
            self._bytes += table.nbytes

    def _stage(self) -> None:
        if not self._tables:
            return
        table = pa.concat_tables(self._tables)
        self._tables, self._bytes = [], 0
        if self.pipeline.program.spark is not None:
            self.for_spark += stage_rows(self.pipeline.instance, table, self.staging)
            return
        for sink in self.pipeline.sinks:
            self._write(sink, table)

    def _write(self, sink: SinkDef, table: pa.Table) -> None:
        for _, receipt in stage([sink], table, self.key, self.lost):
            before = self.staged.get(sink.name, [])
            self.staged[sink.name] = SINKS[sink.kind].condense(sink, [*before, receipt])
