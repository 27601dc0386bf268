"""SHOW and DESCRIBE: tables made from status objects, so they show what really happened."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from headrace.base.options import Option, duration, size
from headrace.formats import FORMATS
from headrace.hub.observed import ObservedStreams, pipeline_status
from headrace.hub.results import Result, table_result
from headrace.model.schema import field_at
from headrace.model.status import PipelineStatus, StreamStatus
from headrace.model.stream_options import STREAM_OPTIONS
from headrace.sinks import SINKS
from headrace.sinks.feed_sink import FEED
from headrace.sinks.secret_options import secret_options
from headrace.sources import SOURCES
from headrace.sources.read_description import describe_read
from headrace.sql.parse.intervals import show_interval
from headrace.state.catalog import Catalog, PipelineRecord
from headrace.state.sealing import HIDDEN
from headrace.state.secrets import secrets_of

Facts = list[list[object]]
# The phases of an epoch whose names are ours.
_PHASES = {"ring0": "pipelines in the slowest task"}
# A default above this is a point in time, in microseconds: the generator's `start`.
_A_TIME = 10**14
_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_TIME = pa.timestamp("us", tz="UTC")


def show(streams: ObservedStreams, catalog: Catalog, kind: str) -> Result:
    """SHOW STREAMS | SINKS | PIPELINES | VIEWS. `catalog` is the draft of the script: it may be ahead of `streams`."""
    if kind == "streams":
        names = ["name", "state", "source", "format", "columns", "decoding", "rows", "rejected", "dropped", "watermark"]
        found = [_stream_row(streams, catalog, name) for name in catalog.streams]
        kinds: dict[str, pa.DataType] = {
            **dict.fromkeys(("columns", "rows", "rejected", "dropped"), pa.int64()),
            "watermark": _TIME,
        }
        return table_result(names, [row for row, _ in found], [w for _, warnings in found for w in warnings], kinds)
    if kind == "sinks":
        rows: Facts = [[s.name, s.kind, SINKS[s.kind].guarantee_of(s)] for s in catalog.sinks.values()]
        return table_result(["name", "type", "guarantee"], rows)
    if kind == "views":
        views: Facts = [
            [v.name, ", ".join(v.reads), len(v.output) or None, ", ".join(catalog.users_of_view(v.name))]
            for v in catalog.views.values()
        ]
        return table_result(["name", "reads", "columns", "used_by"], views, kinds={"columns": pa.int64()})
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
    kinds = {"sink": _sink_facts, "stream": _stream_facts, "pipeline": _pipeline_facts, "view": _view_facts}
    return table_result(["fact", "value"], kinds[kind](streams, catalog, name))


def _view_facts(streams: ObservedStreams, catalog: Catalog, name: str) -> Facts:
    view = catalog.views[name.lower()]
    facts: Facts = [["name", view.name], ["query", view.query], ["reads", ", ".join(view.reads)]]
    users = catalog.users_of_view(name)
    facts += [["used by", ", ".join(users)]] if users else []
    return facts + [[f"column {i}", f"{f.name} {f.type}"] for i, f in enumerate(view.output)]


def _sink_facts(streams: ObservedStreams, catalog: Catalog, name: str) -> Facts:
    sink = catalog.sinks[name.lower()]
    facts: Facts = [["name", sink.name], ["type", sink.kind], ["guarantee", SINKS[sink.kind].guarantee_of(sink)]]
    secret = secret_options(sink)
    facts += [[f"option {k}", HIDDEN if k in secret else v] for k, v in sink.options.items()]
    return facts + _by_default(SINKS[sink.kind].all_options, sink.options)


def _stream_facts(streams: ObservedStreams, catalog: Catalog, name: str) -> Facts:
    stream = catalog.streams[name.lower()]
    secret, access = secrets_of(stream), describe_read(stream)
    facts: Facts = [["name", stream.name], ["source", stream.source], ["format", stream.format]]
    if stream.fed_by is not None:
        producer = catalog.pipeline(stream.fed_by)
        state = "" if producer is None else f", which is {producer.state}"
        facts += [["made of", f"the output of pipeline {stream.fed_by}{state}"]]
    if stream.event_time is not None:
        facts += [["event time", field_at(stream.schema, stream.event_time).name]]
        facts += [["watermark delay", show_interval(stream.delay_us)]]
    computed = {c.index: f" AS {c.text}" for c in stream.computed}
    facts += [[f"column {i}", f"{f.name} {f.type}{computed.get(i, '')}"] for i, f in enumerate(stream.schema)]
    facts += [[f"option {k}", HIDDEN if k in secret else v] for k, v in stream.options.items()]
    known = (*SOURCES[stream.source].options, *FORMATS[stream.format].options, *STREAM_OPTIONS)
    facts += _by_default(known, stream.options)
    facts += [["indexer", access.indexer], ["fields", access.fields], ["read", access.sharing]]
    if streams.catalog.stream(name) is not None:
        runtime = streams.runtime(name)
        status = runtime.status()
        elsewhere = ("name", "subscribers", "bad_files", "phases", "problem")
        facts += [fact for fact in _fields(status) if fact[0] not in elsewhere]
        facts += [["reason", _reason(catalog, status)]]
        facts += [[f"newest epoch, {_PHASES.get(k, k)}", f"{v:.1f} ms"] for k, v in status.phases.items()]
        facts += [[f"bad file {path}", why] for path, why in status.bad_files.items()]
        facts += [["warning", warning] for warning in status.warnings]
        facts += _ingress(runtime.ingress())
        facts += [[f"subscriber {p}", ", ".join(columns) or "none"] for p, columns in status.subscribers.items()]
    return facts


def _by_default(known: Sequence[Option], options: Mapping[str, str]) -> Facts:
    """The options in force that the declaration does not name."""
    given = {name.lower() for name in options}
    unnamed = [o for o in known if o.name not in given and o.default is not None and not o.prefix]
    return [[f"option {o.name}", f"{_shown(o)} (by default)"] for o in unnamed]


def _shown(option: Option) -> str:
    """The default as a user would write it."""
    value = option.default
    if option.read is duration:
        return show_interval(value)
    if option.read is size:
        unit, name = next(((u, n) for u, n in _SIZES if value and value % u == 0), (1, "bytes"))
        return f"{value // unit} {name}"
    if isinstance(value, int) and value > _A_TIME:
        return _moment(value / 1e6)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _reason(catalog: Catalog, status: StreamStatus) -> str:
    """Why a stream is in its state."""
    if status.problem:
        return status.problem.split("\n")[0]
    if status.state == "running":
        return f"read by {', '.join(status.subscribers)}" if status.subscribers else "its first epoch is being planned"
    mine = list(catalog.of_stream(status.name))
    return "runs again with the next hub" if any(r.desired == "running" for r in mine) else "no pipeline reads it"


def _pipeline_facts(streams: ObservedStreams, catalog: Catalog, name: str) -> Facts:
    definition = catalog.pipelines[name.lower()].definition
    facts: Facts = [["sql", definition.sql], ["view", _view(catalog, definition.name)]]
    facts += [["feeds", f"stream {s.name}, {SINKS[FEED.name].guarantee}"] for s in catalog.fed_by(definition.name)]
    facts += [["sinks", ", ".join(s.name for s in definition.sinks) or "none"]]
    facts += [[f"column {i}", f"{f.name} {f.type}"] for i, f in enumerate(definition.program.output)]
    status = _status(streams, name)
    if status is not None:
        facts += [fact for fact in _fields(status) if fact[0] != "changes"]
        facts += [["reason", _pipeline_reason(status)]]
        facts += [["warning", warning] for warning in status.warnings]
        facts += [[f"{c.state} since {_moment(c.at)}", c.reason.split("\n")[0]] for c in status.changes]
    return facts


def _pipeline_reason(status: PipelineStatus) -> str:
    """Why a pipeline is in its state."""
    if status.error:
        return status.error.split("\n")[0]
    if status.state not in {change.state for change in status.changes[-1:]}:
        return "no hub is open on this state directory"
    return status.changes[-1].reason.split("\n")[0]


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
