"""DROP in a draft, and CASCADE."""

from __future__ import annotations

from headrace.errors import (
    Span,
)
from headrace.hub.chains import (
    refuse_last_outlet,
    refuse_read_output,
    without_feed,
)
from headrace.hub.draft_state import DraftState
from headrace.hub.lookup import (
    is_declared,
    refuse_sink_in_use,
    refuse_stream_in_use,
    refuse_view_in_use,
    require,
    require_pipeline,
)
from headrace.hub.results import Result
from headrace.sql import (
    Drop,
)
from headrace.sql.parse.statements import DropKind

NOWHERE = Span("", 0, 0)


def drop(draft: DraftState, statement: Drop) -> Result:
    kind, name, span = statement.kind, statement.name, statement.span
    if not is_declared(draft.catalog, kind, name):
        if statement.if_exists:
            return Result(f"there is no {kind} {name}")
        require(draft.catalog, kind, name, span)
    also = _drop_readers(draft, kind, name) if statement.cascade else []
    warnings = _drop_one(draft, kind, name, span)
    return Result(f"dropped {kind} {name}" + (f" and {', '.join(also)}" if also else ""), warnings=warnings)


def _drop_one(draft: DraftState, kind: DropKind, name: str, span: Span) -> tuple[str, ...]:
    """Remove one declaration. Returns the warnings."""
    warnings: tuple[str, ...] = ()
    if kind == "pipeline":
        refuse_read_output(draft.catalog, name, span)
        for stream in draft.catalog.fed_by(name):
            warnings += draft.drop_stream(stream)
        draft.leave(require_pipeline(draft.catalog, name, span))
    elif kind == "stream":
        refuse_stream_in_use(draft.catalog, name, span)
        stream = draft.catalog.streams[name.lower()]
        producer = None if stream.fed_by is None else draft.catalog.pipeline(stream.fed_by)
        if producer is not None:
            refuse_last_outlet(producer.definition, stream, span)
            draft.redefine(producer, without_feed(producer.definition, stream))
        return draft.drop_stream(stream)
    elif kind == "view":
        refuse_view_in_use(draft.catalog, name, span)
    else:
        refuse_sink_in_use(draft.catalog, name, span)
    draft.catalog = draft.catalog.without(kind, name)
    return warnings


def _drop_readers(draft: DraftState, kind: DropKind, name: str) -> list[str]:
    """Remove everything that reads a stream, a view, or the output of a pipeline, the last in a chain first.
    Returns what was removed, in words."""
    dropped: list[str] = []
    readers: list[tuple[DropKind, str]] = []
    if kind == "pipeline":
        for stream in draft.catalog.fed_by(name):
            dropped += _drop_readers(draft, "stream", stream.name)
    if kind in ("stream", "view"):
        readers += [("view", view) for view in draft.catalog.views_over(name)]
    if kind == "stream":
        readers += [("pipeline", record.definition.name) for record in draft.catalog.of_stream(name)]
    if kind == "view":
        records = draft.catalog.pipelines.values()
        using = [r.definition for r in records if name.lower() in (v.name.lower() for v in r.definition.views)]
        readers += [("pipeline", definition.name) for definition in using]
    for reader, found in readers:
        if is_declared(draft.catalog, reader, found):  # it may have gone with another one
            dropped += _drop_readers(draft, reader, found)
            _drop_one(draft, reader, found, NOWHERE)
            dropped.append(f"{reader} {found}")
    return dropped
