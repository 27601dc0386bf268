"""Sinks: where a pipeline writes its rows. `SINKS` is the registry; the interface is in `headrace.sinks.base`."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from headrace.base.options import closest
from headrace.errors import UnknownSinkKind
from headrace.model.program import SinkDef
from headrace.sinks.base import DriverSink, SinkKey, SinkKind, Staged, TaskSink
from headrace.sinks.console import CONSOLE
from headrace.sinks.jsonl import JSONL
from headrace.sinks.memory import MEMORY
from headrace.sinks.parquet import PARQUET

SINKS: dict[str, SinkKind[Any]] = {kind.name: kind for kind in (CONSOLE, MEMORY, PARQUET, JSONL)}


def settle_sink(sink: SinkDef) -> SinkDef:
    """Check a sink as CREATE SINK does (kind, options, a writable path) and return it with absolute paths. Paths become
    absolute because tasks and later runs may have another working directory. Changes nothing on disk."""
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
    settled = {
        name: os.path.abspath(value) if name.lower() in kind.paths else value for name, value in sink.options.items()
    }
    return replace(sink, options=settled)


__all__ = ["SINKS", "DriverSink", "SinkKey", "SinkKind", "Staged", "TaskSink", "settle_sink"]
