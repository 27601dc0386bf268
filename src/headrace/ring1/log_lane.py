"""Windows that emit once, when they close: tumbling, hopping, cumulating.

An open window is a *log*. Each epoch appends its partial aggregates as one segment and reads nothing, so the cost of an
epoch does not depend on the size of the window. Eight segments of one level are merged into one of the next level, so a
window has at most eight per level. Closing reads all segments, merges them once, and emits one row per group.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headrace.bridge.rows import decode_counted, encode_rows
from headrace.errors import InternalError, StateDamaged
from headrace.exec.aggregates import is_closed, merge, merge_and_finish, schema_of, split_closed
from headrace.model.program import Meaning, Ring1Program, Window
from headrace.ring1.split import by_window
from headrace.ring1.state import (
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

# A merge takes a DuckDB call (1-2 ms) and reads its segments. With 8, a segment is rewritten log8(epochs) times.
FAN_IN = 8


def advance(program: Ring1Program, meaning: Meaning, store: Store, header: LaneHeader, step: LaneStep) -> Outcome:
    """Append segments, close windows, emit their rows. Changes `header` in place; the caller stores it."""
    window = _window(program)
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
            _append(program, meaning, store, header.logs.setdefault(bounds, LogEntry()), bounds, part)
    for bounds in sorted(due):
        log = header.logs.pop(bounds)
        due_parts.append(_take(program, store, bounds, log))
        if step.flush:
            header.raise_floor(bounds[1])
    if step.share is not None and header.rows > step.share:
        _compact(program, meaning, store, header)
    require_group_limit(header.groups, step.max_groups)
    output = merge_and_finish(program, meaning, due_parts) if due_parts else None
    return outcome(output, late, closed, header)


def _window(program: Ring1Program) -> Window:
    if program.window is None:
        raise StateDamaged("a log lane needs a window")
    return program.window


def _append(
    program: Ring1Program, meaning: Meaning, store: Store, log: LogEntry, bounds: tuple[int, int], part: pa.Table
) -> None:
    level = 0
    same = [s for s in log.segments if s.level == level]
    while len(same) >= FAN_IN - 1:
        part = merge(program, meaning, [_read(program, store, bounds, same), part])
        for segment in same:
            store.remove(BlobKey(*bounds, segment.part))
            log.segments.remove(segment)
        level += 1
        same = [s for s in log.segments if s.level == level]
    _put(store, log, bounds, part, level)


def _put(store: Store, log: LogEntry, bounds: tuple[int, int], part: pa.Table, level: int) -> None:
    data = encode_rows(part)
    store.put(BlobKey(*bounds, log.next), data)
    log.segments.append(Segment(log.next, level, part.num_rows, len(data)))
    log.next += 1


def _take(program: Ring1Program, store: Store, bounds: tuple[int, int], log: LogEntry) -> pa.Table:
    """Remove the segments of a log from the store, and return their rows."""
    table = _read(program, store, bounds, log.segments)
    for segment in log.segments:
        store.remove(BlobKey(*bounds, segment.part))
    return table


def _compact(program: Ring1Program, meaning: Meaning, store: Store, header: LaneHeader) -> None:
    """Merge every window into one segment, in which each group counts once. Then the number of groups is exact."""
    for bounds, log in header.logs.items():
        if len(log.segments) > 1:
            level = max(s.level for s in log.segments)
            part = merge(program, meaning, [_take(program, store, bounds, log)])
            log.segments.clear()
            _put(store, log, bounds, part, level)


def _read(program: Ring1Program, store: Store, bounds: tuple[int, int], segments: Sequence[Segment]) -> pa.Table:
    keys = [BlobKey(*bounds, segment.part) for segment in segments]
    found: list[bytes] = []
    for key, data in zip(keys, store.get_many(keys), strict=True):
        if data is None:
            raise StateDamaged(f"the segment {tuple(key)} of a window is missing", key=tuple(key))
        found.append(data)
    try:
        table, counts = decode_counted(found, schema_of(program))
    except InternalError as problem:
        raise StateDamaged(f"a segment of the window {bounds} is damaged: {problem.message}") from problem
    if counts.tolist() != [segment.rows for segment in segments]:
        raise StateDamaged(f"segments of the window {bounds} have another number of rows than the header says")
    return table
