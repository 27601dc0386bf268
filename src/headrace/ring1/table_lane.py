"""Groups that are read back: aggregates that emit on change, and sessions, which may grow together.

A window (or all time) is a hash *table* of chunks of about 64 groups. An epoch reads and rewrites the chunks its
groups fall in, in one merge; chunks double when they grow full. Sessions also keep the earliest end of each chunk in
the header, so closing reads only the chunks that hold a session which is over.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace import duck
from headrace.aggregates import BOUNDS, closed_among, finish, is_closed, merge, schema_of, split_closed
from headrace.bridge.buckets import hashes
from headrace.bridge.messages import decode_table, encode_table
from headrace.errors import StateDamaged
from headrace.program import Meaning, Ring1Program
from headrace.ring1.split import by_number, by_window
from headrace.ring1.state import BlobKey, Header, Outcome, Step, Store, TableEntry

# A touched group rewrites its chunk: small chunks rewrite little, large ones need fewer state calls (about 0.15 ms
# each).
CHUNK_GROUPS = 64
ALL_TIME = (0, 0)


def advance(program: Ring1Program, meaning: Meaning, store: Store, header: Header, step: Step) -> Outcome:
    """Merge the epoch's groups into their chunks; emit the changed ones, or the sessions that are over."""
    session = program.window is not None and program.window.kind == "session"
    delta = pa.concat_tables([schema_of(program).empty_table(), *step.events])
    late = 0
    if program.window is not None:
        delta, late = split_closed(delta, header.floor)
    lane = _Tables(program, meaning, store, header)
    emitted: list[pa.Table] = []
    if delta.num_rows:
        spaces = by_window(delta) if program.window is not None and not session else iter([(ALL_TIME, delta)])
        emitted = [lane.fold(bounds, part) for bounds, part in spaces]
    if session:
        emitted = lane.close_sessions(step.watermark, step.flush)
    elif program.window is not None:
        lane.drop_closed(step.watermark, step.flush)
    output = finish(program, meaning, pa.concat_tables(emitted)) if emitted else None
    has_rows = output is not None and output.num_rows > 0
    return Outcome(output if has_rows else None, late, len(header.tables), header.rows)


class _Tables:
    """The tables of one lane during one epoch."""

    def __init__(self, program: Ring1Program, meaning: Meaning, store: Store, header: Header) -> None:
        self.program, self.meaning, self.store, self.header = program, meaning, store, header

    def fold(self, bounds: tuple[int, int], delta: pa.Table) -> pa.Table:
        """Merge `delta` into the table at `bounds`; returns the groups that changed, as they are now."""
        entry = self.header.tables.setdefault(bounds, TableEntry([0], [None]))
        touched = np.unique(self._chunks(delta, len(entry.rows)))
        old = [self._read(bounds, c) for c in touched.tolist() if entry.rows[c]]
        merged = merge(self.program, self.meaning, [*old, delta])
        self._write(bounds, entry, touched, merged)
        changed = self._changed(merged, delta) if old and self.program.emit == "changes" else merged
        if entry.groups > CHUNK_GROUPS * len(entry.rows):
            self._grow(bounds, entry)
        return changed

    def close_sessions(self, watermark: int | None, flush: bool) -> list[pa.Table]:
        """Take out the sessions that are over."""
        window, entry = self.program.window, self.header.tables.get(ALL_TIME)
        if window is None or entry is None:
            return []
        limit = np.iinfo(np.int64).max if flush or watermark is None else watermark
        closed: list[pa.Table] = []
        for chunk, end in enumerate(entry.ends):
            if end is None or not (flush or is_closed(window, end, watermark)):
                continue
            table = self._read(ALL_TIME, chunk)
            over = closed_among(window, table.column("window_end"), limit)
            closed.append(table.filter(over))
            self._put(ALL_TIME, entry, chunk, table.filter(pc.invert(over)))
        if flush and closed:
            self.header.raise_floor(max(int(pc.max(t.column("window_end")).as_py()) for t in closed))
        if entry.groups == 0:
            del self.header.tables[ALL_TIME]
        return closed

    def drop_closed(self, watermark: int | None, flush: bool) -> None:
        """Forget windows that are over; their last change was already emitted."""
        window = self.program.window
        for bounds in [b for b in self.header.tables if window and (flush or is_closed(window, b[1], watermark))]:
            entry = self.header.tables.pop(bounds)
            for chunk, rows in enumerate(entry.rows):
                if rows:
                    self.store.remove(BlobKey(*bounds, chunk))
            if flush:
                self.header.raise_floor(bounds[1])

    def _chunks(self, table: pa.Table, count: int) -> npt.NDArray[np.int64]:
        keys = [table.column(f"k{i}") for i in range(len(self.program.keys))]
        # The low bits chose the bucket, so they are alike here: use high ones.
        return ((hashes(keys, table.num_rows) >> np.uint64(32)) % np.uint64(count)).astype(np.int64)

    def _changed(self, merged: pa.Table, delta: pa.Table) -> pa.Table:
        names = [*(BOUNDS if self.program.window else ()), *(f"k{i}" for i in range(len(self.program.keys)))]
        if not names:
            return merged
        on = " AND ".join(f"m.{n} IS NOT DISTINCT FROM d.{n}" for n in names)
        sql = f"SELECT m.* FROM merged m SEMI JOIN delta d ON {on}"
        return duck.conform(duck.run(self.meaning, sql, {"merged": merged, "delta": delta}), merged.schema)

    def _read(self, bounds: tuple[int, int], chunk: int) -> pa.Table:
        key = BlobKey(*bounds, chunk)
        data = self.store.get(key)
        if data is None:
            raise StateDamaged(f"the chunk {tuple(key)} of a table is missing", key=tuple(key))
        return decode_table(data)

    def _write(
        self, bounds: tuple[int, int], entry: TableEntry, touched: npt.NDArray[np.int64], table: pa.Table
    ) -> None:
        parts = dict(by_number(table, self._chunks(table, len(entry.rows))))
        for chunk in touched.tolist():
            self._put(bounds, entry, chunk, parts.get(chunk, table.slice(0, 0)))

    def _put(self, bounds: tuple[int, int], entry: TableEntry, chunk: int, table: pa.Table) -> None:
        if table.num_rows:
            self.store.put(BlobKey(*bounds, chunk), encode_table(table))
        elif entry.rows[chunk]:
            self.store.remove(BlobKey(*bounds, chunk))
        entry.rows[chunk] = table.num_rows
        session = self.program.window is not None and self.program.window.kind == "session"
        entry.ends[chunk] = pc.min(table.column("window_end")).as_py() if session and table.num_rows else None

    def _grow(self, bounds: tuple[int, int], entry: TableEntry) -> None:
        """Rewrite all chunks with room to double; happens once per doubling, so a group is moved twice on average."""
        everything = pa.concat_tables([self._read(bounds, c) for c, rows in enumerate(entry.rows) if rows])
        count = len(entry.rows)
        while entry.groups > CHUNK_GROUPS * count // 2:
            count *= 2
        for chunk, rows in enumerate(entry.rows):
            if rows:
                self.store.remove(BlobKey(*bounds, chunk))
        entry.rows, entry.ends = [0] * count, [None] * count
        self._write(bounds, entry, np.arange(count), everything)
