"""Sinks: where a pipeline writes its rows. `SINKS` is the registry; the interface is in `headrace.sinks.sink_kind`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headrace.base.plugins import Registry
from headrace.base.unknown import unknown
from headrace.errors import ExternalError, UnknownSinkKind
from headrace.model.definitions import SinkDef
from headrace.sinks.console import CONSOLE
from headrace.sinks.delta import DELTA
from headrace.sinks.feed_sink import FEED
from headrace.sinks.http_sink import HTTP_SINK
from headrace.sinks.jsonl import JSONL
from headrace.sinks.kafka_sink import KAFKA_SINK
from headrace.sinks.memory import MEMORY
from headrace.sinks.mqtt_sink import MQTT_SINK
from headrace.sinks.nats_sink import NATS_SINK
from headrace.sinks.noop import NOOP
from headrace.sinks.parquet import PARQUET
from headrace.sinks.postgres import POSTGRES
from headrace.sinks.sink_kind import DriverSink, SinkKey, SinkKind, Staged, TaskSink
from headrace.stores.store_options import absolute

SINKS: Registry[SinkKind[Any]] = Registry(
    "headrace.sinks",
    SinkKind,
    (CONSOLE, MEMORY, PARQUET, JSONL, NOOP, POSTGRES, DELTA, KAFKA_SINK, MQTT_SINK, NATS_SINK, HTTP_SINK),
    internal=(FEED,),
)


def settle_sink(sink: SinkDef, known: bool = False) -> SinkDef:
    """Check a sink as CREATE SINK does (kind, options, a writable path) and return it with absolute paths. Paths become
    absolute because tasks and later runs may have another working directory. Changes nothing on disk. A
    server that cannot be reached now is no reason to reject a sink that is `known` already."""
    if sink.kind not in SINKS:
        raise unknown(UnknownSinkKind, "sink type", sink.kind, sorted(SINKS))
    kind = SINKS[sink.kind]
    try:
        kind.check(sink.options)
    except ExternalError as problem:
        if not (known and problem.retry_helps):
            raise
    return with_absolute_paths(sink)


def with_absolute_paths(sink: SinkDef) -> SinkDef:
    """`sink` as it is declared."""
    paths = SINKS[sink.kind].paths
    settled = {name: absolute(value) if name.lower() in paths else value for name, value in sink.options.items()}
    return replace(sink, options=settled)


__all__ = ["SINKS", "DriverSink", "SinkKey", "SinkKind", "Staged", "TaskSink", "settle_sink", "with_absolute_paths"]
