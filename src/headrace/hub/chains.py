"""Chains: streams that are the output of a pipeline, and so can be read by other pipelines.

    CREATE PIPELINE clean INTO STREAM good AS SELECT ts, device, temp FROM raw WHERE temp IS NOT NULL
    CREATE STREAM hourly (WATERMARK FOR t AS t - INTERVAL 1 MINUTE) AS PIPELINE per_hour

A pipeline feeds a stream for as long as both are declared. The stream has the columns of the pipeline's output. These
functions make the definitions and find what is wrong with them; `headrace.hub.draft` applies the statements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.base.unknown import unknown
from headrace.errors import (
    AlreadyExists,
    BadWatermark,
    CyclicStreams,
    InUse,
    SchemaChanged,
    Span,
    UnfinishedRows,
    UnknownColumn,
    UnsupportedStateful,
)
from headrace.model.definitions import DERIVED, SPARK_READER, PipelineDef, SinkDef, StreamDef
from headrace.model.schema import TIMESTAMP, TIMESTAMP_NTZ, Schema
from headrace.model.stream_options import STREAM_OPTIONS
from headrace.sinks.feed_sink import FEED
from headrace.sources import SOURCES
from headrace.sources.derived import DerivedSettings
from headrace.sql import CreateDerivedStream, CreatePipeline, Planned, Select
from headrace.sql.define import checked_options
from headrace.sql.parse.statements import DerivedWatermark, StreamOutlet
from headrace.sql.plan.event_times import inherited
from headrace.sql.views import tables_read
from headrace.state.catalog import Catalog
from headrace.state.state_dir import directory_name

FORMAT = "arrow"
# The options that a user may set. The hub sets the others itself, and records of such a stream are never bad.
_SETTABLE = (
    *(o for o in SOURCES[DERIVED].options if o.name not in ("pipeline", "event_time")),
    *(o for o in STREAM_OPTIONS if o.name != "dead_letter_sink"),
)


def unchecked_stream(name: str, pipeline: str) -> StreamDef:
    """A stream whose columns are not known yet."""
    options = {"pipeline": pipeline, "event_time": "rows"}
    return StreamDef(name, Schema(()), None, 0, source=DERIVED, format=FORMAT, options=options)


def derived_stream(statement: CreateDerivedStream, planned: Planned) -> StreamDef:
    """The stream that CREATE STREAM ... AS PIPELINE declares."""
    checked_options("a stream of a pipeline's output", _SETTABLE, statement, statement.options)
    return _stream(
        name=statement.name,
        pipeline=planned.name or statement.pipeline,
        planned=planned,
        watermark=statement.watermark,
        options=statement.options,
        sql=statement.sql,
        span=statement.span,
    )


def outlet_stream(outlet: StreamOutlet, statement: CreatePipeline, planned: Planned) -> StreamDef:
    """The stream that INTO STREAM of a pipeline declares."""
    return _stream(
        name=outlet.name,
        pipeline=statement.name,
        planned=planned,
        watermark=outlet.watermark,
        options={},
        sql=f"CREATE STREAM {outlet.text} AS PIPELINE {_quoted(statement.name)}",
        span=outlet.span,
    )


def _stream(
    name: str,
    pipeline: str,
    planned: Planned,
    watermark: DerivedWatermark | None,
    options: dict[str, str],
    sql: str,
    span: Span,
) -> StreamDef:
    _require_final_rows(pipeline, name, planned, span)
    output = planned.program.output
    index, delay, follows = _event_time(name, output, planned, watermark)
    given = {**options, "pipeline": pipeline, "event_time": "inherited" if follows else "rows"}
    return StreamDef(name, output, index, delay, source=DERIVED, format=FORMAT, options=given, sql=sql)


def _require_final_rows(pipeline: str, stream: str, planned: Planned, span: Span) -> None:
    ring1, query = planned.program.ring1, planned.program.dedicated
    if (ring1 is not None and ring1.emit == "changes") or (query is not None and query.mode == "update"):
        raise UnfinishedRows(
            f"pipeline {pipeline} emits a group again whenever it changes, so its output cannot be the stream {stream}",
            advice="Readers would count a group several times. Group by a window and emit it ON CLOSE.",
            span=span,
            name=stream,
        )


def _event_time(
    stream: str, output: Schema, planned: Planned, declared: DerivedWatermark | None
) -> tuple[int | None, int, bool]:
    """The event-time column of the stream, the delay of its watermark, and whether that follows the stream below."""
    if declared is None:
        found = inherited(planned.times)
        return (None, 0, False) if found is None else (found.column, found.delay_us, True)
    index = output.index(declared.column)
    if index is None and not len(output):  # Spark has not checked the query yet
        return None, 0, False
    if index is None:
        owner = f"stream '{stream}'"
        raise unknown(
            UnknownColumn, "column", declared.column, output.names, of=owner, span=declared.span, stream=stream
        )
    if output[index].type not in (TIMESTAMP, TIMESTAMP_NTZ):
        raise BadWatermark(
            f"column '{declared.column}' is {output[index].type}; event time must be TIMESTAMP or TIMESTAMP_NTZ",
            advice="Let the pipeline cast it to TIMESTAMP.",
            span=declared.span,
        )
    return index, declared.delay_us, (index, "") in planned.times


def feed_of(stream: StreamDef, planned: Planned, span: Span) -> SinkDef:
    """The sink with which a pipeline feeds a stream. Raises SchemaChanged if its output does not fit the stream."""
    output, times = planned.program.output, planned.times
    by_spark = planned.program.spark is not None or planned.program.dedicated is not None
    unchecked = by_spark and planned.spark is None
    if not unchecked and output.fields != stream.schema.fields:
        raise _changed(stream, "has other columns than the output of the pipeline", span)
    options = {"stream": directory_name(stream.name.lower())}
    settings: DerivedSettings = SOURCES[DERIVED].settings_of(stream)
    if settings.event_time == "inherited" and stream.event_time is not None:
        time = times.get((stream.event_time, ""))
        if time is None and not unchecked:
            raise _changed(stream, "has an event time that the pipeline no longer passes on", span)
        options["shift"] = str(0 if time is None else time.shift_us)
    options["strategy"] = settings.backpressure
    if settings.max_backlog is not None:
        options["limit"] = str(settings.max_backlog)
    return SinkDef(f"stream {stream.name}", FEED.name, options)


def reader_feed(planned: Planned, span: Span) -> SinkDef:
    """The sink with which a pipeline hands its rows to user code (SPARK READER)."""
    if planned.program.dedicated is not None:
        raise UnsupportedStateful(
            "SPARK READER cannot be the outlet of a pipeline on the dedicated host",
            advice="Its query is a Spark query already. Read its streams with hub.spark.readStream, and write the "
            "query there.",
            span=span,
        )
    options = {"strategy": planned.options.backpressure}
    if planned.options.feed_limit:
        options["limit"] = planned.options.feed_limit
    return SinkDef(SPARK_READER, FEED.name, options)


def _changed(stream: StreamDef, how: str, span: Span) -> SchemaChanged:
    return SchemaChanged(
        f"stream {stream.name} {how} {stream.fed_by}",
        advice=f"DROP STREAM {stream.name} first, or let the new query have the same columns.",
        span=span,
        name=stream.name,
    )


def refuse_cycle(catalog: Catalog, stream: StreamDef, reads: Sequence[str], span: Span) -> None:
    """Raise CyclicStreams if a pipeline that feeds `stream` reads `reads`, and one of these is derived
    from `stream`."""
    paths, seen = [[name] for name in reads], set[str]()
    while paths:
        path = paths.pop()
        name = path[-1].lower()
        if name == stream.name.lower():
            raise CyclicStreams(
                f"stream {stream.name} would be derived from itself: {' <- '.join(path)}",
                advice="A pipeline can only feed streams that it does not read, directly or through others.",
                span=span,
                name=stream.name,
            )
        if name not in seen:
            seen.add(name)
            paths += [[*path, below] for below in upstream_of(catalog, name)]


def upstream_of(catalog: Catalog, stream: str) -> tuple[str, ...]:
    """The streams that are read by the pipeline that feeds `stream`. Empty for a stream with a source of its own."""
    found = catalog.stream(stream)
    producer = None if found is None or found.fed_by is None else catalog.pipeline(found.fed_by)
    return () if producer is None else producer.definition.streams


def refuse_other_stream(catalog: Catalog, name: str, pipeline: str, span: Span) -> None:
    """Raise AlreadyExists if a stream of this name is not the output of `pipeline`."""
    stream = catalog.stream(name)
    if stream is not None and (stream.fed_by or "").lower() != pipeline.lower():
        owner, advice = "a stream with a source of its own", f"Use another name, or DROP STREAM {stream.name} first."
        if stream.fed_by:
            owner = f"the output of pipeline {stream.fed_by}"
            advice = f"{advice} DROP PIPELINE {stream.fed_by} drops it, too, if the pipeline writes to nothing else."
        raise AlreadyExists(
            f"stream {stream.name} exists, and is {owner}",
            advice=advice,
            span=span,
            name=stream.name,
        )


def without_feed(producer: PipelineDef, stream: StreamDef) -> PipelineDef:
    """`producer` when it no longer feeds `stream`."""
    name = f"stream {stream.name}"
    return replace(producer, sinks=tuple(s for s in producer.sinks if not (s.kind == FEED.name and s.name == name)))


def refuse_last_outlet(producer: PipelineDef, stream: StreamDef, span: Span) -> None:
    """Raise InUse if a pipeline writes to nothing but `stream`."""
    if not without_feed(producer, stream).sinks:
        raise InUse(
            f"pipeline {producer.name} writes to nothing but stream {stream.name}",
            advice=f"DROP PIPELINE {producer.name} drops the stream, too.",
            span=span,
            name=stream.name,
            users=[producer.name],
        )


def refuse_read_output(catalog: Catalog, pipeline: str, span: Span) -> None:
    """Raise InUse if others read the output of a pipeline."""
    users = [f"{user} (stream {s.name})" for s in catalog.fed_by(pipeline) for user in catalog.readers_of(s.name)]
    if users:
        raise InUse(
            f"the output of pipeline {pipeline} is read by {', '.join(users)}",
            advice=f"Drop those first, or write DROP PIPELINE {pipeline} CASCADE to drop them, too.",
            span=span,
            name=pipeline,
            users=users,
        )


def unchecked_input(statement: CreatePipeline | Select, catalog: Catalog) -> StreamDef | None:
    """A stream that a query reads and whose columns are not known: only Spark can check the pipeline that feeds it, and
    has not done so yet."""
    query = statement.query
    names = list(tables_read(query, statement.span.text, statement.query_start, statement.query_end))
    while names:
        name = names.pop()
        stream, view = catalog.stream(name), catalog.view(name)
        if stream is not None and not len(stream.schema):
            return stream
        names += view.reads if view is not None else ()
    return None


def in_order(catalog: Catalog, streams: list[str]) -> list[str]:
    """The streams, each after those that it is derived from."""

    def depth(name: str) -> int:  # there is no cycle
        return 1 + max((depth(below) for below in upstream_of(catalog, name)), default=0)

    return sorted(streams, key=depth)


def connected(catalog: Catalog, stream: str) -> set[str]:
    """The streams, in lower case, that are derived from `stream`, and those that it is derived from."""
    links = [(name.lower(), below.lower()) for name in catalog.streams for below in upstream_of(catalog, name)]
    found = {stream.lower()}
    while more := {name for link in links if found & set(link) for name in link} - found:
        found |= more
    return found


def _quoted(name: str) -> str:
    return name if name.isidentifier() else "`" + name.replace("`", "``") + "`"
