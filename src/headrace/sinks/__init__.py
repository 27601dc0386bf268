"""Sinks: where a pipeline's rows go. `SINKS` is the registry; `headrace.sinks.base` says what a sink promises."""

from __future__ import annotations

from headrace.sinks.base import DriverSink, SinkKey, SinkKind, Staged, TaskSink
from headrace.sinks.console import CONSOLE
from headrace.sinks.jsonl import JSONL
from headrace.sinks.memory import MEMORY
from headrace.sinks.parquet import PARQUET

SINKS: dict[str, SinkKind] = {kind.name: kind for kind in (CONSOLE, MEMORY, PARQUET, JSONL)}

__all__ = ["SINKS", "DriverSink", "SinkKey", "SinkKind", "Staged", "TaskSink"]
