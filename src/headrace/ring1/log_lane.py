"""Windows that emit once, when they close: tumbling, hopping, cumulating.

An open window is a *log*. Each epoch appends its partial aggregates as one segment and reads nothing, so the cost of an
epoch does not depend on the size of the window. Eight segments of one level are merged into one of the next level, so a
window has at most eight per level. Closing reads all segments, merges them once, and emits one row per group.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headrace.bridge.merge_form import merge_form
from headrace.bridge.merging import CannotMerge
from headrace.bridge.rows import decode_counted, encode_rows
from headrace.errors import InternalError, StateDamaged
from headrace.exec.aggregates import is_closed, merge, merge_and_finish, schema_of, split_closed
from headrace.model.program import Meaning, Ring1Program, Window
from headrace.ring1.lane_state import (
    BlobKey,
    LaneHeader,
    LaneStep,
    LogEntry,
    Outcome,
    Segment,
    Store,
    outcome,
    require_group_limit,
)
from headrace.ring1.split import by_window

# A merge takes a DuckDB call (1-2 ms) and reads its segments. With 8, a segment is rewritten log8(epochs) times.
FAN_IN = 8
Bounds = tuple[int, int]  # start and end of a window


def advance(program: Ring1Program, meaning: Meaning, store: Store, header: LaneHeader, step: LaneStep) -> Outcome:
    """Append segments, close windows, emit their rows. Changes `header` in place; the caller stores it."""
    window, lane = (
        _window(program),
        Logs(program=program, meaning=meaning, store=store, header=header, max_values=step.max_values),
    )
    events, late = split_closed(step.events, header.floor)
    due_parts: list[pa.Table] = []
    due = {bounds for bounds in header.logs if step.flush or is_closed(window, bounds[1], step.watermark)}
    closed = len(due)
    for bounds, part in by_window(events):
        if step.flush or is_closed(window, bounds[1], step.watermark):
            due_parts.append(part)
            closed += bounds not in due
            if step.flush:
                header.raise_floor(bounds[1])
        else:
            lane.append(bounds, part)
    for bounds in sorted(due):
        due_parts.append(lane.take(bounds, header.logs.pop(bounds)))
        if step.flush:
            header.raise_floor(bounds[1])
    if step.share is not None and header.size.rows > step.share:
        lane.compact()
    require_group_limit(header.size.groups, step.max_groups)
    output = merge_and_finish(program, meaning, due_parts, step.max_values) if due_parts else None
    return outcome(output, late, closed, header)


def _window(program: Ring1Program) -> Window:
    if program.window is None:
        raise StateDamaged("a log lane needs a window")
    return program.window


class Logs:
    """The logs of one lane during one epoch."""

    def __init__(
        self, program: Ring1Program, meaning: Meaning, store: Store, header: LaneHeader, max_values: int | None
    ) -> None:
        self.program, self.meaning, self.store, self.header = program, meaning, store, header
        self.max_values = max_values

    def append(self, bounds: Bounds, part: pa.Table) -> None:
        """Add a segment to a window's log. Merges it with those of its level while there are FAN_IN of them."""
        log, level = self.header.logs.setdefault(bounds, LogEntry()), 0
        same = [s for s in log.segments if s.level == level]
        while len(same) >= FAN_IN - 1:
            part = merge(self.program, self.meaning, [self._read(bounds, same), part], self.max_values)
            for segment in same:
                self.store.remove(BlobKey(*bounds, segment.part))
                log.segments.remove(segment)
            level += 1
            same = [s for s in log.segments if s.level == level]
        self._put(bounds, log, part, level)

    def append_encoded(self, bounds: Bounds, payloads: Sequence[tuple[int, bytes]]) -> None:
        """Add what each task sent for a window as a segment, without reading it: the number of rows, and the rows. The
        tasks of an epoch count as one when segments are merged."""
        log = self.header.logs.setdefault(bounds, LogEntry())
        for rows, data in payloads:
            self._put_encoded(bounds=bounds, log=log, data=data, level=0, rows=rows)
        fan_in, level = FAN_IN * len(payloads), 0
        if len(log.segments) < fan_in:
            return
        while len(same := [s for s in log.segments if s.level == level]) >= fan_in:
            rows, data = self._merged(bounds, self._fetch(bounds, same))
            for segment in same:
                self.store.remove(BlobKey(*bounds, segment.part))
                log.segments.remove(segment)
            fan_in, level = FAN_IN, level + 1
            self._put_encoded(bounds=bounds, log=log, data=data, level=level, rows=rows)

    def take(self, bounds: Bounds, log: LogEntry) -> pa.Table:
        """Remove the segments of a log from the store, and return their rows."""
        return self._decoded(bounds, self.take_encoded(bounds, log))

    def take_encoded(self, bounds: Bounds, log: LogEntry) -> list[tuple[int, bytes]]:
        """Remove the segments of a log from the store, and return them: the number of rows, and the rows."""
        found = self._fetch(bounds, log.segments)
        for segment in log.segments:
            self.store.remove(BlobKey(*bounds, segment.part))
        return found

    def compact(self) -> None:
        """Merge every window into one segment, in which each group counts once. Then the number of groups is exact."""
        for bounds, log in self.header.logs.items():
            if len(log.segments) > 1:
                level = max(s.level for s in log.segments)
                rows, data = self._merged(bounds, self.take_encoded(bounds, log))
                log.segments.clear()
                self._put_encoded(bounds=bounds, log=log, data=data, level=level, rows=rows)

    def _merged(self, bounds: Bounds, segments: list[tuple[int, bytes]]) -> tuple[int, bytes]:
        """One segment of several: the number of rows, and the rows."""
        form = merge_form(self.program)
        if form is not None:
            try:
                return form.merge(segments)
            except CannotMerge:
                pass  # DuckDB merges, and shows what is wrong
        part = merge(self.program, self.meaning, [self._decoded(bounds, segments)], self.max_values)
        return part.num_rows, encode_rows(part)

    def _put(self, bounds: Bounds, log: LogEntry, part: pa.Table, level: int) -> None:
        self._put_encoded(bounds=bounds, log=log, data=encode_rows(part), level=level, rows=part.num_rows)

    def _put_encoded(self, bounds: Bounds, log: LogEntry, data: bytes, level: int, rows: int) -> None:
        self.store.put(BlobKey(*bounds, log.next), data)
        log.segments.append(Segment(log.next, level, rows, len(data)))
        log.next += 1

    def _read(self, bounds: Bounds, segments: Sequence[Segment]) -> pa.Table:
        return self._decoded(bounds, self._fetch(bounds, segments))

    def _fetch(self, bounds: Bounds, segments: Sequence[Segment]) -> list[tuple[int, bytes]]:
        keys = [BlobKey(*bounds, segment.part) for segment in segments]
        found: list[tuple[int, bytes]] = []
        for segment, key, data in zip(segments, keys, self.store.get_many(keys), strict=True):
            if data is None:
                raise StateDamaged(f"the segment {tuple(key)} of a window is missing", key=tuple(key))
            found.append((segment.rows, data))
        return found

    def _decoded(self, bounds: Bounds, found: list[tuple[int, bytes]]) -> pa.Table:
        return decode_segments(f"the window {bounds}", found, schema_of(self.program))


def decode_segments(where: str, found: Sequence[tuple[int, bytes]], schema: pa.Schema) -> pa.Table:
    """The rows of segments, which must have as many rows as the header says. Raises StateDamaged."""
    try:
        table, counts = decode_counted([data for _, data in found], schema)
    except InternalError as problem:
        raise StateDamaged(f"a segment of {where} is damaged: {problem.message}") from problem
    if counts.tolist() != [rows for rows, _ in found]:
        raise StateDamaged(f"segments of {where} have another number of rows than the header says")
    return table
