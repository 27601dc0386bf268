"""CREATE STREAM, of records or of a pipeline's output, and CREATE SINK in a draft."""

from __future__ import annotations

from dataclasses import replace

from headrace.errors import BadOption, BrokerDenied, ExternalError, StoreDenied, UnknownTopic
from headrace.hub.chains import (
    derived_stream,
    feed_of,
    refuse_cycle,
    without_feed,
)
from headrace.hub.draft_pipelines import planned_again
from headrace.hub.draft_state import DraftState
from headrace.hub.lookup import (
    at,
    refuse_sink_in_use,
    refuse_stream_in_use,
    require_pipeline,
    require_sink,
)
from headrace.hub.observed import query_trouble
from headrace.hub.redeclaring import (
    changed_options,
    exists,
    kept,
    replaced,
    stream_exists,
)
from headrace.hub.results import Result
from headrace.model.definitions import DEAD_LETTER, SinkDef, StreamDef
from headrace.sinks import SINKS, settle_sink, with_absolute_paths
from headrace.sources import SOURCES, keeps_progress
from headrace.sql import (
    CreateDerivedStream,
    CreateSink,
    CreateStream,
    define_sink,
    define_stream,
)
from headrace.state.sealing import seal_sink, seal_stream, supply, supply_sink
from headrace.stores.store_options import absolute


def create_stream(draft: DraftState, statement: CreateStream) -> Result:
    draft.refuse_taken("view", statement.name, statement.span)
    new = _with_dead_letters(draft, _with_absolute_path(define_stream(statement, draft.meaning)), statement)
    with draft.paths(), at(statement.spans.get("path", statement.span)):
        _check_source(draft, new)
    new = seal_stream(new, draft.vault)
    old = draft.catalog.stream(new.name)
    if old is None:
        draft.catalog = draft.catalog.with_stream(new)
        return Result(f"created stream {new.name}")
    new = supply(old, new, draft.vault)
    same = _is_same(old, new)
    if statement.if_not_exists or same:
        return kept("stream", old.name, same)
    continues = keeps_progress(old, new)
    if not statement.or_replace:
        raise stream_exists(old, continues, statement.span)
    return _change_options(draft, old, new) if continues else _replace_stream(draft, old, new, statement)


def _check_source(draft: DraftState, stream: StreamDef) -> None:
    """Raise what CREATE STREAM should reject. A broker that cannot be reached now is no reason to reject a stream
    that is declared already: its query tries again by itself. Nor is a permission that is missing now, if the
    declaration is the same: a changed one may be the reason."""
    try:
        SOURCES[stream.source].check(stream)
    except (ExternalError, UnknownTopic) as problem:  # a deleted topic is up to `on_data_loss`
        known = draft.catalog.stream(stream.name) is not None
        if not known or not problem.retry_helps:
            raise
    except (BrokerDenied, StoreDenied):
        old = draft.catalog.stream(stream.name)
        if old is None or not _is_same(old, supply(old, seal_stream(stream, draft.vault), draft.vault)):
            raise


def _is_same(old: StreamDef, new: StreamDef) -> bool:
    """True if two declarations differ at most in their text."""
    return replace(old, sql="") == replace(new, sql="")


def _with_dead_letters(draft: DraftState, stream: StreamDef, statement: CreateStream) -> StreamDef:
    name = stream.options.get("dead_letter_sink")
    if name is None:
        return stream
    span = statement.spans.get("dead_letter_sink", statement.span)
    sink = require_sink(draft.catalog, name, span)
    with at(span):
        SINKS[sink.kind].require_output(sink, DEAD_LETTER)
    return replace(stream, dead_letters=sink)


def _change_options(draft: DraftState, old: StreamDef, new: StreamDef) -> Result:
    """Replace a stream that keeps its progress."""
    draft.catalog = draft.catalog.with_stream(new)
    if draft.catalog.running(new.name):
        # A query that is dead or retrying may have needed this very change.
        draft.touch(new.name, wait=True, revive=bool(query_trouble(draft.streams, new.name)))
    return changed_options(old, new)


def _replace_stream(draft: DraftState, old: StreamDef, new: StreamDef, statement: CreateStream) -> Result:
    """Replace a stream by one that starts from the beginning."""
    refuse_stream_in_use(draft.catalog, old.name, statement.span)
    draft.dropped.append(old.name)
    draft.catalog = draft.catalog.without("stream", old.name).with_stream(new)
    return replaced(old)


def create_derived_stream(draft: DraftState, statement: CreateDerivedStream) -> Result:
    draft.refuse_taken("view", statement.name, statement.span)
    record = require_pipeline(draft.catalog, statement.pipeline, statement.pipeline_span)
    old = draft.catalog.stream(statement.name)
    planned = planned_again(draft, record)
    new = derived_stream(statement, planned)
    if old is not None:
        same = replace(old, sql="") == replace(new, sql="")
        if statement.if_not_exists or same:
            return kept("stream", old.name, same)
        continues = old.fed_by is not None and keeps_progress(old, new)
        if not (statement.or_replace and continues):
            raise stream_exists(old, continues, statement.span)
    refuse_cycle(draft.catalog, new, record.definition.streams, statement.span)
    feed = feed_of(new, planned, statement.span)
    definition = without_feed(record.definition, new)
    draft.redefine(record, replace(definition, sinks=(*definition.sinks, feed)))
    if old is not None:
        return _change_options(draft, old, new)
    draft.catalog = draft.catalog.with_stream(new)
    return Result(f"created stream {new.name}, the output of pipeline {record.definition.name}")


def create_sink(draft: DraftState, statement: CreateSink) -> Result:
    new = define_sink(statement)
    with draft.paths(), at(statement.spans.get("path", statement.span)):
        new = _settled_sink(draft, new)
    new = seal_sink(new, draft.vault)
    old = draft.catalog.sink(new.name)
    if old is not None:
        new = supply_sink(old, new, draft.vault)
        same = replace(old, sql="") == replace(new, sql="")
        if statement.if_not_exists or same:
            return kept("sink", old.name, same)
        if not statement.or_replace:
            raise exists("sink", old.name, statement.span)
        refuse_sink_in_use(draft.catalog, old.name, statement.span)
    draft.catalog = draft.catalog.with_sink(new)
    return Result(f"created sink {new.name}")


def _settled_sink(draft: DraftState, sink: SinkDef) -> SinkDef:
    """`sink` as it is declared. Raises what CREATE SINK should reject. A sink that is declared already is not rejected
    if its declaration is the same, and a permission is missing now or an earlier version allowed its options."""
    old = draft.catalog.sink(sink.name)
    try:
        return settle_sink(sink, known=old is not None)
    except (BadOption, BrokerDenied, StoreDenied):
        if old is None:
            raise
        new = with_absolute_paths(sink)
        sealed = supply_sink(old, seal_sink(new, draft.vault), draft.vault)
        if replace(old, sql="") != replace(sealed, sql=""):
            raise
        return new


def _with_absolute_path(stream: StreamDef) -> StreamDef:
    """`stream` with absolute paths: the planning process and later runs may have another working directory."""
    settled = {k: absolute(v) if k.lower() == "path" else v for k, v in stream.options.items()}
    return replace(stream, options=settled)
