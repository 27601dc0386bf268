"""Sinks: where a pipeline's rows go. `SINKS` is the registry; `headrace.sinks.base` says what a sink promises."""

from __future__ import annotations

from headrace.errors import UnknownSinkKind
from headrace.options import closest
from headrace.program import SinkDef
from headrace.sinks.base import DriverSink, SinkKey, SinkKind, Staged, TaskSink
from headrace.sinks.console import CONSOLE
from headrace.sinks.jsonl import JSONL
from headrace.sinks.memory import MEMORY
from headrace.sinks.parquet import PARQUET

SINKS: dict[str, SinkKind] = {kind.name: kind for kind in (CONSOLE, MEMORY, PARQUET, JSONL)}


def check_sink(sink: SinkDef) -> None:
    """Everything that CREATE SINK can refuse: an unknown kind, unknown or bad options, a path that cannot be written.
    Changes nothing."""
    kind = SINKS.get(sink.kind)
    if kind is None:
        hint = closest(sink.kind, SINKS)
        raise UnknownSinkKind(
            f"there is no kind of sink '{sink.kind}'",
            advice=(f"Did you mean '{hint}'? " if hint else "") + f"Kinds: {', '.join(sorted(SINKS))}.",
            name=sink.kind,
            did_you_mean=hint,
        )
    kind.check(sink.options)


__all__ = ["SINKS", "DriverSink", "SinkKey", "SinkKind", "Staged", "TaskSink", "check_sink"]
