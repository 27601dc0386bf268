"""Which output columns of a plan are an event time: of these, the watermark of the stream below says what is to come.

A stream that a pipeline feeds inherits its event time from such a column, and its watermark follows that of the stream
that the pipeline reads. So its windows close even if the pipeline's filter lets nothing through.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from headrace.model.definitions import StreamDef
from headrace.model.program import Window
from headrace.model.schema import TIMESTAMP, TIMESTAMP_NTZ
from headrace.sql.plan.expr import ColumnRef, Expr, FieldOf
from headrace.sql.plan.shape import Shape

TimeOrigin = Literal["end of the window", "start of the window", "event time"]
# Of several columns a stream inherits the first of these.
_PREFERRED: tuple[TimeOrigin, ...] = ("end of the window", "start of the window", "event time")


@dataclass(frozen=True, slots=True)
class EventTime:
    """An output column that is an event time.

    When the watermark of the stream below is W, the column has reached W + `shift_us`: later rows have a greater value
    minus `delay_us`, except for rows that were late themselves. For a query on the dedicated host W is the watermark of
    its output.
    """

    column: int
    origin: TimeOrigin
    shift_us: int
    delay_us: int


TimePath = tuple[int, str]  # an output column, and the field of it if it is a window: 'start' or 'end'


def event_times(shape: Shape) -> dict[TimePath, EventTime]:
    """The event times in the output of a plan on the shared host. A column that holds a whole window has two."""
    found: dict[TimePath, EventTime] = {}
    for index, output in enumerate(shape.outputs):
        for field in ("", "start", "end"):
            time = _time_of(shape, index, output.expr, field)
            if time is not None:
                found[index, field] = time
    return found


def passed_times(times: dict[TimePath, EventTime], passed: dict[int, TimePath]) -> dict[TimePath, EventTime]:
    """The event times in the output of a query over a relation whose columns have `times`. `passed` names, for columns
    of the output, the column of the relation, or the field of one, that it passes on."""
    found: dict[TimePath, EventTime] = {}
    for index, (column, field) in passed.items():
        for inner in ("", "start", "end"):
            time = times.get((column, field or inner)) if not (field and inner) else None
            if time is not None:
                found[index, inner] = EventTime(index, time.origin, time.shift_us, time.delay_us)
    return found


def stream_times(stream: StreamDef) -> dict[TimePath, EventTime]:
    """The event time among the columns of a stream."""
    if stream.event_time is None:
        return {}
    return {(stream.event_time, ""): EventTime(stream.event_time, "event time", stream.delay_us, stream.delay_us)}


def streaming_times(found: Mapping[int, TimeOrigin]) -> dict[TimePath, EventTime]:
    """The event times in the output of a streaming query of Spark, by column. Spark says how far its output has come,
    so there is neither a shift nor a delay."""
    return {(column, ""): EventTime(column, origin, shift_us=0, delay_us=0) for column, origin in found.items()}


def inherited(times: dict[TimePath, EventTime]) -> EventTime | None:
    """The event time that a stream of these rows has if it declares none."""
    plain = [time for (_, field), time in sorted(times.items()) if not field]
    return min(plain, key=lambda time: _PREFERRED.index(time.origin), default=None)


def _time_of(shape: Shape, index: int, expr: Expr, field: str) -> EventTime | None:
    """The event time that an output is, or that its field is."""
    if isinstance(expr, FieldOf) and not field:
        field, expr = expr.name.lower(), expr.input
    if not isinstance(expr, ColumnRef):
        return None
    if shape.aggregate is None:
        return _passed(shape.scan.stream, index, expr) if not field else None
    if expr.index >= len(shape.aggregate.keys):
        return None
    key = shape.aggregate.keys[expr.index].expr
    if isinstance(key, FieldOf) and not field:
        field, key = key.name.lower(), key.input
    if not isinstance(key, ColumnRef):
        return None
    if shape.window is None or key.index < shape.window.width:
        time = _passed(shape.scan.stream, index, key) if not field else None
        if time is None or shape.window is None:
            return time
        # A row of the group comes when its window closes, and that began at most one size before.
        return _of_window(shape.window.window, index, "start")
    if shape.window.flat:
        field = ("start", "end")[key.index - shape.window.width] if not field else ""
    return _of_window(shape.window.window, index, field)


def _passed(stream: StreamDef, index: int, expr: ColumnRef) -> EventTime | None:
    if stream.event_time is None or expr.index != stream.event_time or expr.type not in (TIMESTAMP, TIMESTAMP_NTZ):
        return None
    return EventTime(index, "event time", stream.delay_us, stream.delay_us)


def _of_window(window: Window, index: int, side: str) -> EventTime | None:
    """Windows that are not closed end after the watermark. How long a session has lasted is not known."""
    if side == "end":
        return EventTime(index, "end of the window", 0, 0)
    if side == "start" and window.kind != "session":
        return EventTime(index, "start of the window", -window.size, 0)
    return None
