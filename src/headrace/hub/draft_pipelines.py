"""CREATE PIPELINE in a draft: planning, its sinks, and the streams that it feeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.errors import SqlError
from headrace.hub.chains import (
    feed_of,
    outlet_stream,
    reader_feed,
    refuse_cycle,
    refuse_other_stream,
    unchecked_input,
    unchecked_stream,
)
from headrace.hub.draft_state import DraftState
from headrace.hub.lookup import (
    at,
    require_sink,
)
from headrace.hub.redeclaring import (
    as_declared,
    exists,
    kept,
    replaced_pipeline,
    same_pipeline,
)
from headrace.hub.results import Result
from headrace.model.definitions import PipelineDef, StreamDef
from headrace.sinks import SINKS
from headrace.sql import (
    CreatePipeline,
    Planned,
    implicit_cast_warnings,
    parse_script,
    plan_pipeline,
)
from headrace.state.catalog import PipelineRecord


def create_pipeline(draft: DraftState, statement: CreatePipeline) -> Result:
    old = draft.catalog.pipeline(statement.name)
    answer = Result(f"created pipeline {statement.name}")
    if old is not None and statement.if_not_exists:
        answer = kept("pipeline", old.definition.name, _declares(draft, statement, old.definition))
        return _noting_stopped(old, answer)
    if draft.spark is None and unchecked_input(statement, draft.catalog) is not None:
        for outlet in statement.streams:
            draft.catalog = draft.catalog.with_stream(unchecked_stream(outlet.name, statement.name))
        return answer
    planned = draft.plan(statement)
    streams = _outlet_streams(draft, statement, planned)
    new = _definition(draft, statement, planned, streams)
    if old is not None:
        if same_pipeline(new, old.definition):
            return _resume(draft, old)
        if not statement.or_replace:
            same_text = statement.sql == old.definition.sql
            raise exists("pipeline", statement.name, statement.span, same_text=same_text)
        if old.desired == "running" and new.inherits(old.definition):
            before = old.definition
            new = replace(new, heir_of=before.lane, buckets=before.buckets, pooled=before.pooled, spread=before.spread)
            answer = replaced_pipeline(new, kept_state=True)
        else:
            draft.leave(old)
            answer = replaced_pipeline(new, kept_state=False)
    for made in streams:
        draft.catalog = draft.catalog.with_stream(made)
    draft.catalog = draft.catalog.with_pipeline(PipelineRecord(new).to("starting", "CREATE PIPELINE"))
    for stream in new.streams:
        draft.touch(stream, wait=True)
    return replace(answer, warnings=(*answer.warnings, *implicit_cast_warnings(planned, statement.span.text)))


def _declares(draft: DraftState, statement: CreatePipeline, declared: PipelineDef) -> bool:
    """True if a statement declares this pipeline. A statement that cannot be planned does not."""
    try:
        return same_pipeline(planned_pipeline(draft, statement), declared)
    except SqlError:
        return False


def planned_pipeline(draft: DraftState, statement: CreatePipeline) -> PipelineDef:
    """The pipeline that a statement declares, as a new instance."""
    planned = draft.plan(statement)
    return _definition(draft, statement, planned, _outlet_streams(draft, statement, planned))


def _definition(
    draft: DraftState, statement: CreatePipeline, planned: Planned, streams: Sequence[StreamDef]
) -> PipelineDef:
    """The pipeline that a statement declares, as a new instance that feeds `streams`."""
    program, options = planned.program, planned.options
    named = zip(statement.sinks, statement.sink_spans, strict=True)
    stateful = program.ring1 is not None and bool(program.ring1.keys)
    feeds = [feed_of(stream, planned, statement.span) for stream in streams]
    if statement.reader is not None:
        feeds.append(reader_feed(planned, statement.reader))
    made = PipelineDef(
        name=statement.name,
        instance=draft.catalog.next_instance,
        sinks=(*(require_sink(draft.catalog, name, span) for name, span in named), *feeds),
        program=program,
        buckets=draft.buckets if stateful else 1,
        pooled=True,
        spread=True,
        sql=statement.sql,
        max_groups=options.max_groups,
        max_group_values=options.max_group_values,
        late=options.late,
        views=planned.views,
    )
    with at(statement.span):
        for sink, output in made.outlets:
            SINKS[sink.kind].require_output(sink, output)
    return made


def _outlet_streams(draft: DraftState, statement: CreatePipeline, planned: Planned) -> list[StreamDef]:
    """The streams that a pipeline feeds: those that its statement names, and those that are declared already."""
    found = {stream.name.lower(): stream for stream in draft.catalog.fed_by(statement.name)}
    for outlet in statement.streams:
        draft.refuse_taken("view", outlet.name, outlet.span)
        refuse_other_stream(draft.catalog, outlet.name, statement.name, outlet.span)
        old, new = found.get(outlet.name.lower()), outlet_stream(outlet, statement, planned)
        if old is not None and outlet.watermark is not None and not _same_time(old, new):
            raise exists("stream", old.name, outlet.span)
        found[outlet.name.lower()] = old or new
    for stream in found.values():
        refuse_cycle(draft.catalog, stream, planned.program.streams, statement.span)
    return list(found.values())


def planned_again(draft: DraftState, record: PipelineRecord) -> Planned:
    """The plan of a declared pipeline, with the views as they were."""
    (statement,) = parse_script(record.definition.sql)
    assert isinstance(statement, CreatePipeline)
    catalog = draft.catalog.with_views(record.definition.views)
    planned = plan_pipeline(statement, catalog, draft.meaning, draft.spark)
    return replace(planned, program=record.definition.program)


def _resume(draft: DraftState, record: PipelineRecord) -> Result:
    """CREATE of a pipeline as it is declared: one that failed is started again, without state."""
    if record.desired == "failed":
        draft.start(record)
        return Result(f"restarted pipeline {record.definition.name}")
    return _noting_stopped(record, as_declared("pipeline", record.definition.name))


def _noting_stopped(record: PipelineRecord, answer: Result) -> Result:
    """The answer to a CREATE that leaves a pipeline as it is. If it is stopped, nothing of it will run."""
    if record.desired != "stopped":
        return answer
    name = record.definition.name
    return replace(answer, warnings=(*answer.warnings, f"pipeline {name} is stopped; START PIPELINE {name} runs it"))


def _same_time(old: StreamDef, new: StreamDef) -> bool:
    """True if two streams have the same event time and watermark."""
    return (old.event_time, old.delay_us) == (new.event_time, new.delay_us)
