"""Sinks: where a pipeline writes its rows. `SINKS` is the registry; the interface is in `headrace.sinks.sink_kind`."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from headrace.base.unknown import unknown
from headrace.errors import UnknownSinkKind
from headrace.model.program import SinkDef
from headrace.sinks.console import CONSOLE
from headrace.sinks.delta import DELTA
from headrace.sinks.jsonl import JSONL
from headrace.sinks.memory import MEMORY
from headrace.sinks.noop import NOOP
from headrace.sinks.parquet import PARQUET
from headrace.sinks.postgres import POSTGRES
from headrace.sinks.sink_kind import DriverSink, SinkKey, SinkKind, Staged, TaskSink

SINKS: dict[str, SinkKind[Any]] = {kind.name: kind for kind in (CONSOLE, MEMORY, PARQUET, JSONL, NOOP, POSTGRES, DELTA)}


def settle_sink(sink: SinkDef) -> SinkDef:
    """Check a sink as CREATE SINK does (kind, options, a writable path) and return it with absolute paths. Paths become
    absolute because tasks and later runs may have another working directory. Changes nothing on disk."""
    kind = SINKS.get(sink.kind)
    if kind is None:
        raise unknown(UnknownSinkKind, "sink type", sink.kind, sorted(SINKS))
    kind.check(sink.options)
    settled = {
        name: os.path.abspath(value) if name.lower() in kind.paths else value for name, value in sink.options.items()
    }
    return replace(sink, options=settled)


__all__ = ["SINKS", "DriverSink", "SinkKey", "SinkKind", "Staged", "TaskSink", "settle_sink"]
