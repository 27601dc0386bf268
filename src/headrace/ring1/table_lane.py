"""Groups that are read back: aggregates that emit on change, distinct rows, and sessions, which may grow together.

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
from headrace.ring1.state import BlobKey, Header, Outcome, Step, Store, TableEntry, outcome, require_room

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
    require_room(header.rows, step.max_groups)
    output = finish(program, meaning, pa.concat_tables(emitted)) if emitted else None
    return outcome(output, late, lane.closed, header)


class _Tables:
    """The tables of one lane during one epoch."""

    def __init__(self, program: Ring1Program, meaning: Meaning, store: Store, header: Header) -> None:
        self.program, self.meaning, self.store, self.header = program, meaning, store, header
        self.closed = 0
        self._sizes: dict[BlobKey, int] = {}  # of the chunks that were read or written in this epoch

    def fold(self, bounds: tuple[int, int], delta: pa.Table) -> pa.Table:
        """Merge `delta` into the table at `bounds`; returns the groups that speak now, as they are now."""
        entry = self.header.tables.setdefault(bounds, TableEntry([0], [None]))
        touched = np.unique(self._chunks(delta, len(entry.rows)))
        old = [self._read(bounds, c) for c in touched.tolist() if entry.rows[c]]
        merged = merge(self.program, self.meaning, [*old, delta])
        self._write(bounds, entry, touched, merged)
        spoken = self._spoken(merged, delta, old) if old and self.program.emit != "close" else merged
        if entry.groups > CHUNK_GROUPS * len(entry.rows):
            self._grow(bounds, entry)
        return spoken

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
            self.closed += closed[-1].num_rows
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
            self.closed += 1
            for chunk, rows in enumerate(entry.rows):
                if rows:
                    self.store.remove(BlobKey(*bounds, chunk))
            if flush:
                self.header.raise_floor(bounds[1])

    def _chunks(self, table: pa.Table, count: int) -> npt.NDArray[np.int64]:
        keys = [table.column(f"k{i}") for i in range(len(self.program.keys))]
        # The low bits chose the bucket, so they are alike here: use high ones.
        return ((hashes(keys, table.num_rows) >> np.uint64(32)) % np.uint64(count)).astype(np.int64)

    def _spoken(self, merged: pa.Table, delta: pa.Table, old: list[pa.Table]) -> pa.Table:
        """The groups that this epoch changed, or those that it saw first."""
        if not pc.any(pc.greater(delta.column("p0"), pa.scalar(0))).as_py():
            return merged.slice(0, 0)  # the end of input says that there was no row in it
        names = [*(BOUNDS if self.program.window else ()), *(f"k{i}" for i in range(len(self.program.keys)))]
        if not names:
            return merged
        first = self.program.emit == "first"
        on = " AND ".join(f"m.{n} IS NOT DISTINCT FROM d.{n}" for n in names)
        sql = f"SELECT m.* FROM merged m {'ANTI' if first else 'SEMI'} JOIN other d ON {on}"
        other = pa.concat_tables(old) if first else delta
        return duck.conform(duck.run(self.meaning, sql, {"merged": merged, "other": other}), merged.schema)

    def _read(self, bounds: tuple[int, int], chunk: int) -> pa.Table:
        key = BlobKey(*bounds, chunk)
        data = self.store.get(key)
        if data is None:
            raise StateDamaged(f"the chunk {tuple(key)} of a table is missing", key=tuple(key))
        self._sizes[key] = len(data)
        return decode_table(data)

    def _write(
        self, bounds: tuple[int, int], entry: TableEntry, touched: npt.NDArray[np.int64], table: pa.Table
    ) -> None:
        parts = dict(by_number(table, self._chunks(table, len(entry.rows))))
        for chunk in touched.tolist():
            self._put(bounds, entry, chunk, parts.get(chunk, table.slice(0, 0)))

    def _put(self, bounds: tuple[int, int], entry: TableEntry, chunk: int, table: pa.Table) -> None:
        key = BlobKey(*bounds, chunk)
        entry.bytes -= self._sizes.pop(key, 0)  # a chunk that has rows was read in this epoch
        if table.num_rows:
            data = encode_table(table)
            self.store.put(key, data)
            self._sizes[key] = len(data)
            entry.bytes += len(data)
        elif entry.rows[chunk]:
            self.store.remove(key)
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
        self._sizes.clear()
        entry.rows, entry.ends, entry.bytes = [0] * count, [None] * count, 0
        self._write(bounds, entry, np.arange(count), everything)
