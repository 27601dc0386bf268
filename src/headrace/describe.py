"""SHOW and DESCRIBE on a hub: tables made from status objects, so they say what really happened."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headrace.results import Result, table_result
from headrace.schema import View
from headrace.sealing import HIDDEN, secrets_of
from headrace.sinks import SINKS
from headrace.sources.access import access_to
from headrace.sql import LiveStream
from headrace.streams.catalog import Catalog
from headrace.streams.progress import read_applied

if TYPE_CHECKING:
    from headrace.hub import Hub
    from headrace.runtime import StreamRuntime


def show(hub: Hub, catalog: Catalog, kind: str) -> Result:
    """SHOW STREAMS | SINKS | PIPELINES."""
    if kind == "streams":
        names = ["name", "state", "source", "format", "columns", "decoding", "rows", "rejected", "dropped", "watermark"]
        streams = [_stream_row(hub, catalog, name) for name in catalog.streams]
        return table_result(names, [row for row, _ in streams], [w for _, warnings in streams for w in warnings])
    if kind == "sinks":
        rows: list[list[object]] = [[s.name, s.kind, SINKS[s.kind].guarantee] for s in catalog.sinks.values()]
        return table_result(["name", "type", "guarantee"], rows)
    counters = ["rows_out", "late", "bad", "rejected", "missed", "epoch_ms", "state_bytes"]
    names = ["name", "stream", "state", *counters, "sinks", "error"]
    pipelines = [_pipeline_row(hub, catalog, name) for name in catalog.pipelines]
    return table_result(names, [row for row, _ in pipelines], [w for _, warnings in pipelines for w in warnings])


def _stream_row(hub: Hub, catalog: Catalog, name: str) -> tuple[list[object], list[str]]:
    """What SHOW STREAMS says of one stream, and what to warn of."""
    stream = catalog.streams[name]
    known = hub.catalog.stream(name)
    if known is None:  # declared by this very script
        return [stream.name, "stopped", stream.source, stream.format, len(stream.schema), "", 0, 0, 0, None], []
    status = hub.runtime(name).status()
    decoding = ", ".join(status.decoding_columns)
    row: list[object] = [
        stream.name,
        status.state,
        stream.source,
        stream.format,
        len(stream.schema),
        decoding,
        status.rows,
        status.rejected,
        status.dropped,
        status.watermark,
    ]
    return row, status.warnings


def _pipeline_row(hub: Hub, catalog: Catalog, name: str) -> tuple[list[object], list[str]]:
    """What SHOW PIPELINES says of one pipeline, and what to warn of."""
    record = catalog.pipelines[name]
    sinks = ", ".join(s.name for s in record.definition.sinks)
    known = hub.catalog.pipeline(name)
    if known is None or known.definition.instance != record.definition.instance:
        definition = record.definition
        return [definition.name, definition.program.stream, "starting", 0, 0, 0, 0, 0, None, 0, sinks, ""], []
    status = hub.pipelines[record.definition.name].status()
    lost = [status.late, status.bad, status.rejected, status.missed_rows]
    counters = [status.rows_out, *lost, status.epoch_ms, status.state_bytes]
    row: list[object] = [status.name, status.stream, status.state, *counters, sinks, status.error.split("\n")[0]]
    return row, status.warnings


def describe(hub: Hub, catalog: Catalog, kind: str, name: str) -> Result:
    """DESCRIBE: a fact a line."""
    facts: list[list[object]] = []
    if kind == "sink":
        sink = catalog.sinks[name.lower()]
        facts = [["name", sink.name], ["type", sink.kind], ["guarantee", SINKS[sink.kind].guarantee]]
        facts += [[f"option {k}", v] for k, v in sink.options.items()]
    elif kind == "stream":
        stream = catalog.streams[name.lower()]
        facts = [[f"column {i}", f"{f.name} {f.type}"] for i, f in enumerate(stream.schema)]
        secret = secrets_of(stream)
        facts += [[f"option {k}", HIDDEN if k in secret else v] for k, v in stream.options.items()]
        access = access_to(stream)
        facts += [["indexer", access.indexer], ["fields", access.fields], ["read", access.sharing]]
        if hub.catalog.stream(name) is not None:
            status = hub.runtime(name).status()
            facts += [fact for fact in _fields(status) if fact[0] not in ("subscribers", "bad_files")]
            facts += [[f"bad file {path}", why] for path, why in status.bad_files.items()]
            facts += [["warning", warning] for warning in status.warnings]
            facts += _ingress(hub.runtime(name).ingress())
            facts += [[f"subscriber {p}", ", ".join(columns) or "none"] for p, columns in status.subscribers.items()]
    else:
        record = catalog.pipelines[name.lower()]
        facts = [["sql", record.definition.sql], ["view", _view(catalog, record.definition.name)]]
        if hub.catalog.pipeline(name) is not None:
            pipeline = hub.pipelines[record.definition.name].status()
            facts += [fact for fact in _fields(pipeline) if fact[0] != "changes"]
            facts += [["warning", warning] for warning in pipeline.warnings]
            facts += [[f"{c.state} since {_moment(c.at)}", c.reason.split("\n")[0]] for c in pipeline.changes]
    return table_result(["fact", "value"], facts)


def live_stream(runtime: StreamRuntime, catalog: Catalog) -> LiveStream | None:
    """What EXPLAIN may say about a stream as it runs: only what an epoch has really applied."""
    applied = read_applied(runtime.directory)
    if applied is None or runtime.state != "running":
        return None
    names = {p.instance: p for p in catalog.running(runtime.stream.name)}
    plan = runtime.plans.load(applied.version)
    programs = {p.name: p.program for p in plan.pipelines if p.instance in names and p.instance not in applied.out}
    return LiveStream(applied.version, View.some(applied.columns), programs, runtime.status())


def _ingress(found: dict[str, Any]) -> list[list[object]]:
    """What the gateway takes for a stream, and from how many: a line for each class of origins."""
    classes = found.pop("classes", {})
    facts: list[list[object]] = [[f"ingress {k}", ", ".join(v) if k == "addresses" else v] for k, v in found.items()]
    return facts + [[f"ingress {kind}", counters] for kind, counters in classes.items()]


def _fields(status: object) -> list[list[object]]:
    return [[f.name, getattr(status, f.name)] for f in dataclasses.fields(status)]  # type: ignore[arg-type]


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def _view(catalog: Catalog, pipeline: str) -> str:
    """Which columns a pipeline needs, by name."""
    program = catalog.pipelines[pipeline.lower()].definition.program
    stream = catalog.streams[program.stream.lower()]
    if program.view.kind != "SOME":
        return program.view.kind
    return ", ".join(stream.schema[i].name for i in program.view.indexes(len(stream.schema)))
