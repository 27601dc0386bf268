"""Sinks: where a pipeline's rows go. `SINKS` is the registry; `headrace.sinks.base` says what a sink promises."""

from __future__ import annotations

import os
from dataclasses import replace

from headrace.base.unknown import unknown
from headrace.errors import UnknownSinkKind
from headrace.model.program import SinkDef
from headrace.sinks.base import DriverSink, SinkKey, SinkKind, Staged, TaskSink
from headrace.sinks.console import CONSOLE
from headrace.sinks.jsonl import JSONL
from headrace.sinks.memory import MEMORY
from headrace.sinks.parquet import PARQUET

SINKS: dict[str, SinkKind] = {kind.name: kind for kind in (CONSOLE, MEMORY, PARQUET, JSONL)}


def settle_sink(sink: SinkDef) -> SinkDef:
    """`sink` as it can be stored: checked as far as CREATE SINK can (kind, options, a path that may be written), with
    absolute paths, because tasks and later runs may have another working directory. Touches nothing on disk."""
    kind = SINKS.get(sink.kind)
    if kind is None:
        raise unknown(UnknownSinkKind, "sink type", sink.kind, sorted(SINKS))
    kind.check(sink.options)
    settled = {
        name: os.path.abspath(value) if name.lower() in kind.paths else value for name, value in sink.options.items()
    }
    return replace(sink, options=settled)


__all__ = ["SINKS", "DriverSink", "SinkKey", "SinkKind", "Staged", "TaskSink", "settle_sink"]
