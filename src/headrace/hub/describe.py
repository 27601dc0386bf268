"""SHOW and DESCRIBE: tables made from status objects, so they show what really happened."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from headrace.hub.observed import ObservedStreams, pipeline_status
from headrace.hub.results import Result, table_result
from headrace.model.schema import field_at
from headrace.model.status import PipelineStatus
from headrace.sinks import SINKS
from headrace.sinks.secret_options import secret_options
from headrace.sources.read_description import describe_read
from headrace.sql.parse.intervals import show_interval
from headrace.state.catalog import Catalog, PipelineRecord
from headrace.state.sealing import HIDDEN
from headrace.state.secrets import secrets_of

Facts = list[list[object]]
_TIME = pa.timestamp("us", tz="UTC")


def show(streams: ObservedStreams, catalog: Catalog, kind: str) -> Result:
    """SHOW STREAMS | SINKS | PIPELINES. `catalog` is the draft of the script, which may be ahead of `streams`."""
    if kind == "streams":
        names = ["name", "state", "source", "format", "columns", "decoding", "rows", "rejected", "dropped", "watermark"]
        found = [_stream_row(streams, catalog, name) for name in catalog.streams]
        kinds: dict[str, pa.DataType] = {
            **dict.fromkeys(("columns", "rows", "rejected", "dropped"), pa.int64()),
            "watermark": _TIME,
        }
        return table_result(names, [row for row, _ in found], [w for _, warnings in found for w in warnings], kinds)
    if kind == "sinks":
        rows: Facts = [[s.name, s.kind, SINKS[s.kind].guarantee] for s in catalog.sinks.values()]
        return table_result(["name", "type", "guarantee"], rows)
    counters = ["rows_out", "late", "bad", "rejected", "missed", "epoch_ms", "state_bytes"]
    names = ["name", "stream", "state", *counters, "sinks", "error"]
    pipelines = [_pipeline_row(streams, record) for record in catalog.pipelines.values()]
    columns: dict[str, pa.DataType] = {name: pa.float64() if name == "epoch_ms" else pa.int64() for name in counters}
    return table_result(
        names, [row for row, _ in pipelines], [w for _, warnings in pipelines for w in warnings], columns
    )


def _stream_row(streams: ObservedStreams, catalog: Catalog, name: str) -> tuple[list[object], list[str]]:
    """The row of SHOW STREAMS for one stream, and its warnings."""
    stream = catalog.streams[name]
    if streams.catalog.stream(name) is None:  # declared by this very script
        return [stream.name, "stopped", stream.source, stream.format, len(stream.schema), "", 0, 0, 0, None], []
    status = streams.runtime(name).status()
    row: list[object] = [
        stream.name,
        status.state,
        stream.source,
        stream.format,
        len(stream.schema),
        ", ".join(status.decoding_columns),
        status.rows,
        status.rejected,
        status.dropped,
        status.watermark,
    ]
    return row, status.warnings


def _pipeline_row(streams: ObservedStreams, record: PipelineRecord) -> tuple[list[object], list[str]]:
    """The row of SHOW PIPELINES for one pipeline, and its warnings."""
    definition = record.definition
    sinks = ", ".join(s.name for s in definition.sinks)
    status = _status(streams, definition.name)
    if status is None or status.instance != definition.instance:  # declared by this very script
        return [definition.name, definition.program.stream, "starting", 0, 0, 0, 0, 0, None, 0, sinks, ""], []
    lost = [status.late, status.bad, status.rejected, status.missed_rows]
    counters = [status.rows_out, *lost, status.epoch_ms, status.state_bytes]
    row: list[object] = [status.name, status.stream, status.state, *counters, sinks, status.error.split("\n")[0]]
    return row, status.warnings


def _status(streams: ObservedStreams, pipeline: str) -> PipelineStatus | None:
    known = streams.catalog.pipeline(pipeline)
    return None if known is None else pipeline_status(known, streams.runtime(known.definition.program.stream))


def describe(streams: ObservedStreams, catalog: Catalog, kind: str, name: str) -> Result:
    """DESCRIBE: one fact per line."""
    facts = {"sink": _sink_facts, "stream": _stream_facts, "pipeline": _pipeline_facts}[kind](streams, catalog, name)
    return table_result(["fact", "value"], facts)


def _sink_facts(streams: ObservedStreams, catalog: Catalog, name: str) -> Facts:
    sink = catalog.sinks[name.lower()]
    facts: Facts = [["name", sink.name], ["type", sink.kind], ["guarantee", SINKS[sink.kind].guarantee]]
    secret = secret_options(sink)
    return facts + [[f"option {k}", HIDDEN if k in secret else v] for k, v in sink.options.items()]


def _stream_facts(streams: ObservedStreams, catalog: Catalog, name: str) -> Facts:
    stream = catalog.streams[name.lower()]
    secret, access = secrets_of(stream), describe_read(stream)
    facts: Facts = [["name", stream.name], ["source", stream.source], ["format", stream.format]]
    if stream.event_time is not None:
        facts += [["event time", field_at(stream.schema, stream.event_time).name]]
        facts += [["watermark delay", show_interval(stream.delay_us)]]
    computed = {c.index: f" AS {c.text}" for c in stream.computed}
    facts += [[f"column {i}", f"{f.name} {f.type}{computed.get(i, '')}"] for i, f in enumerate(stream.schema)]
    facts += [[f"option {k}", HIDDEN if k in secret else v] for k, v in stream.options.items()]
    facts += [["indexer", access.indexer], ["fields", access.fields], ["read", access.sharing]]
    if streams.catalog.stream(name) is not None:
        runtime = streams.runtime(name)
        status = runtime.status()
        facts += [fact for fact in _fields(status) if fact[0] not in ("subscribers", "bad_files")]
        facts += [[f"bad file {path}", why] for path, why in status.bad_files.items()]
        facts += [["warning", warning] for warning in status.warnings]
        facts += _ingress(runtime.ingress())
        facts += [[f"subscriber {p}", ", ".join(columns) or "none"] for p, columns in status.subscribers.items()]
    return facts


def _pipeline_facts(streams: ObservedStreams, catalog: Catalog, name: str) -> Facts:
    definition = catalog.pipelines[name.lower()].definition
    facts: Facts = [["sql", definition.sql], ["view", _view(catalog, definition.name)]]
    status = _status(streams, name)
    if status is not None:
        facts += [fact for fact in _fields(status) if fact[0] != "changes"]
        facts += [["warning", warning] for warning in status.warnings]
        facts += [[f"{c.state} since {_moment(c.at)}", c.reason.split("\n")[0]] for c in status.changes]
    return facts


def _ingress(found: dict[str, Any]) -> Facts:
    """What the gateway counts for a stream: a line for each class of origins."""
    classes = found.pop("classes", {})
    facts: Facts = [[f"ingress {k}", ", ".join(v) if k == "addresses" else v] for k, v in found.items()]
    return facts + [[f"ingress {kind}", counters] for kind, counters in classes.items()]


def _fields(status: object) -> Facts:
    """The fields of a status, in words that need no Python: no empty ones, dictionaries and lists as text."""
    found = [(f.name, getattr(status, f.name)) for f in dataclasses.fields(status)]  # type: ignore[arg-type]
    return [[name, _plain(value)] for name, value in found if value not in (None, "", [], {}) and value is not False]


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_plain(v)}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(str(_plain(v)) for v in value)
    if isinstance(value, float):
        return round(value, 1)
    return value


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(sep=" ", timespec="seconds")


def _view(catalog: Catalog, pipeline: str) -> str:
    """The names of the columns that a pipeline needs."""
    program = catalog.pipelines[pipeline.lower()].definition.program
    stream = catalog.streams[program.stream.lower()]
    if program.view.kind != "SOME":
        return program.view.kind
    return ", ".join(field_at(stream.schema, i).name for i in program.view.indexes(len(stream.schema)))
