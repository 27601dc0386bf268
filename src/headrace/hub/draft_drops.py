"""DROP in a draft, and CASCADE."""

from __future__ import annotations

from dataclasses import dataclass, field

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
    dropped = _Dropped()
    if statement.cascade:
        _drop_readers(draft, kind, name, dropped)
    _drop_one(draft, kind, name, span=span, dropped=dropped)
    also = [thing for thing in dropped.things if thing != f"{kind} {name}"]
    text = f"dropped {kind} {name}" + (f" and {', '.join(also)}" if also else "")
    return Result(text, warnings=tuple(dropped.warnings))


@dataclass(frozen=True, slots=True)
class _Dropped:
    """What one statement has removed so far, in words and in order, and the warnings about it."""

    things: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def _drop_one(draft: DraftState, kind: DropKind, name: str, *, span: Span, dropped: _Dropped) -> None:
    """Remove one declaration, and the output streams of a pipeline."""
    dropped.things.append(f"{kind} {name}")
    if kind == "pipeline":
        refuse_read_output(draft.catalog, name, span)
        for stream in draft.catalog.fed_by(name):
            dropped.warnings.extend(draft.drop_stream(stream))
            dropped.things.append(f"stream {stream.name}")
        draft.leave(require_pipeline(draft.catalog, name, span))
    elif kind == "stream":
        refuse_stream_in_use(draft.catalog, name, span)
        stream = draft.catalog.streams[name.lower()]
        producer = None if stream.fed_by is None else draft.catalog.pipeline(stream.fed_by)
        if producer is not None:
            refuse_last_outlet(producer.definition, stream, span)
            draft.redefine(producer, without_feed(producer.definition, stream))
        dropped.warnings.extend(draft.drop_stream(stream))
        return
    elif kind == "view":
        refuse_view_in_use(draft.catalog, name, span)
    else:
        refuse_sink_in_use(draft.catalog, name, span)
    draft.catalog = draft.catalog.without(kind, name)


def _drop_readers(draft: DraftState, kind: DropKind, name: str, dropped: _Dropped) -> None:
    """Remove everything that reads a stream, a view, or the output of a pipeline, the last in a chain first."""
    readers: list[tuple[DropKind, str]] = []
    if kind == "pipeline":
        for stream in draft.catalog.fed_by(name):
            _drop_readers(draft, "stream", stream.name, dropped)
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
            _drop_readers(draft, reader, found, dropped)
            _drop_one(draft, reader, found, span=NOWHERE, dropped=dropped)
