"""Groups that an epoch has to read back: aggregates that emit on change, distinct rows, and sessions, which may merge.

The groups of a window, or of a pipeline without windows, are a hash *table* of chunks (`headrace.ring1.chunks`). An
epoch reads the chunks that its groups fall in, merges once, and writes them back. For sessions the header also has the
earliest end in each chunk, so that closing reads only chunks with a session that is closed.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headrace.exec import duck
from headrace.exec.aggregates import BOUNDS, finish, is_closed, merge, split_closed
from headrace.model.program import Meaning, Ring1Program
from headrace.ring1.chunks import Chunks
from headrace.ring1.lane_state import (
    NO_END,
    LaneHeader,
    LaneStep,
    Outcome,
    Store,
    TableEntry,
    outcome,
    require_group_limit,
)
from headrace.ring1.split import by_window

ALL_TIME = (0, 0)


def advance(program: Ring1Program, meaning: Meaning, store: Store, header: LaneHeader, step: LaneStep) -> Outcome:
    """Merge the epoch's groups into their chunks. Emits the groups that changed, or the sessions that closed."""
    session = program.window is not None and program.window.kind == "session"
    delta, late = step.events, 0
    if program.window is not None:
        delta, late = split_closed(delta, header.floor)
    lane = _Tables(program=program, meaning=meaning, store=store, header=header, max_values=step.max_values)
    emitted: list[pa.Table] = []
    if delta.num_rows:
        spaces = by_window(delta) if program.window is not None and not session else iter([(ALL_TIME, delta)])
        emitted = [lane.fold(bounds, part) for bounds, part in spaces]
    if session:
        emitted = lane.close_sessions(step.watermark, step.flush)
    elif program.window is not None:
        lane.drop_closed(step.watermark, step.flush)
    lane.settle()
    require_group_limit(header.size.rows, step.max_groups)
    output = finish(program, meaning, pa.concat_tables(emitted)) if emitted else None
    return outcome(output, late, lane.closed, header)


class _Tables:
    """The tables of one lane during one epoch."""

    def __init__(
        self, program: Ring1Program, meaning: Meaning, store: Store, header: LaneHeader, max_values: int | None
    ) -> None:
        self.program, self.meaning, self.store, self.header = program, meaning, store, header
        self.max_values = max_values
        self.closed = 0
        self._open: dict[tuple[int, int], Chunks] = {}

    def fold(self, bounds: tuple[int, int], delta: pa.Table) -> pa.Table:
        """Merge `delta` into the table at `bounds`. Returns the groups to emit, as they are now."""
        chunks = self._chunks(bounds)
        old = chunks.take(delta)
        merged = merge(self.program, self.meaning, [old, delta], self.max_values)
        chunks.put(merged)
        if self.program.emit == "close" or not old.num_rows:
            return merged
        return self._to_emit(merged, delta, old, chunks.exact)

    def close_sessions(self, watermark: int | None, flush: bool) -> list[pa.Table]:
        """Remove and return the sessions that are closed."""
        window, limit = self.program.window, NO_END if flush else watermark
        if window is None or limit is None or ALL_TIME not in self.header.tables:
            return []
        closed = self._chunks(ALL_TIME).take_closed(window, limit)
        self.closed += closed.num_rows
        if flush and closed.num_rows:
            self.header.raise_floor(int(pc.max(closed.column("window_end")).as_py()))
        return [closed] if closed.num_rows else []

    def drop_closed(self, watermark: int | None, flush: bool) -> None:
        """Delete windows that are closed. Their last change was already emitted."""
        window = self.program.window
        for bounds in [b for b in self.header.tables if window and (flush or is_closed(window, b[1], watermark))]:
            self._chunks(bounds).drop()
            del self._open[bounds], self.header.tables[bounds]
            self.closed += 1
            if flush:
                self.header.raise_floor(bounds[1])

    def settle(self) -> None:
        """Write the changed chunks."""
        for bounds, chunks in self._open.items():
            chunks.settle()
            if chunks.entry.groups == 0:
                del self.header.tables[bounds]

    def _chunks(self, bounds: tuple[int, int]) -> Chunks:
        if bounds not in self._open:
            session = self.program.window is not None and self.program.window.kind == "session"
            entry = self.header.tables.setdefault(bounds, TableEntry.empty(session))
            self._open[bounds] = Chunks(self.program, self.store, bounds, entry)
        return self._open[bounds]

    def _to_emit(self, merged: pa.Table, delta: pa.Table, old: pa.Table, exact: bool) -> pa.Table:
        """The groups that this epoch changed, or those that are new in it. `exact` says that nothing else was
        merged."""
        if not pc.any(pc.greater(delta.column("p0"), pa.scalar(0))).as_py():
            return merged.slice(0, 0)  # only the row of an end of input, which counts no rows
        first = self.program.emit == "first"
        if exact and not first:
            return merged
        names = [*(BOUNDS if self.program.window else ()), *(f"k{i}" for i in range(len(self.program.keys)))]
        if not names:
            return merged.slice(0, 0)  # emit is "first", and the one global group is not new
        on = " AND ".join(f"m.{n} IS NOT DISTINCT FROM d.{n}" for n in names)
        sql = f"SELECT m.* FROM merged m {'ANTI' if first else 'SEMI'} JOIN other d ON {on}"
        found = duck.run(self.meaning, sql, {"merged": merged, "other": old if first else delta})
        return duck.conform(found, merged.schema)
