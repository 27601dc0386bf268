"""Finds declarations by name. An unknown name is an error that lists the known ones and suggests the closest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.base.unknown import unknown
from headrace.errors import HeadraceError, InUse, Span, UnknownPipeline, UnknownSink, UnknownStream, UnknownView
from headrace.hub.redeclaring import stream_in_use
from headrace.model.definitions import SinkDef
from headrace.state.catalog import Catalog, PipelineRecord


def is_declared(catalog: Catalog, kind: str, name: str) -> bool:
    """True if there is a stream, sink, pipeline or view of this name."""
    kinds = {"stream": catalog.stream, "sink": catalog.sink, "pipeline": catalog.pipeline, "view": catalog.view}
    return kinds[kind](name) is not None


def require(catalog: Catalog, kind: str, name: str, span: Span) -> None:
    """Raise UnknownStream, UnknownSink, UnknownPipeline or UnknownView unless there is one."""
    if kind == "stream" and catalog.stream(name) is None:
        raise unknown(UnknownStream, kind, name, catalog.stream_names(), span=span)
    if kind == "view" and catalog.view(name) is None:
        raise unknown(UnknownView, kind, name, catalog.view_names(), span=span)
    if kind == "sink":
        require_sink(catalog, name, span)
    if kind == "pipeline":
        require_pipeline(catalog, name, span)


def require_sink(catalog: Catalog, name: str, span: Span) -> SinkDef:
    """The sink of this name. Raises UnknownSink."""
    sink = catalog.sink(name)
    if sink is None:
        raise unknown(UnknownSink, "sink", name, catalog.sink_names(), span=span)
    return sink


def require_pipeline(catalog: Catalog, name: str, span: Span) -> PipelineRecord:
    """The pipeline of this name. Raises UnknownPipeline."""
    record = catalog.pipeline(name)
    if record is None:
        raise unknown(UnknownPipeline, "pipeline", name, catalog.pipeline_names(), span=span)
    return record


def statement_of(catalog: Catalog, kind: str, name: str) -> str:
    """The statement that declared something; empty if there is none."""
    if kind == "pipeline":
        record = catalog.pipeline(name)
        return record.definition.sql if record else ""
    if kind == "view":
        view = catalog.view(name)
        return view.sql if view else ""
    found = catalog.stream(name) if kind == "stream" else catalog.sink(name)
    return found.sql if found else ""


def refuse_stream_in_use(catalog: Catalog, name: str, span: Span) -> None:
    """Raise InUse if pipelines or views read a stream."""
    users, stream = [p.definition.name for p in catalog.of_stream(name)], catalog.stream(name)
    users += [f"view {view}" for view in catalog.views_over(name)]
    if users and stream is not None:
        raise stream_in_use(stream, users, span)


def refuse_view_in_use(catalog: Catalog, name: str, span: Span) -> None:
    """Raise InUse if views or pipelines read a view."""
    users = catalog.users_of_view(name)
    if users:
        raise InUse(
            f"view {name} is read by {', '.join(users)}",
            advice="Drop those views and pipelines first.",
            span=span,
            name=name,
            users=users,
        )


def refuse_sink_in_use(catalog: Catalog, name: str, span: Span) -> None:
    """Raise InUse if pipelines or streams write to a sink."""
    users = catalog.users_of_sink(name)
    if users:
        raise InUse(
            f"sink {name} is written by {', '.join(users)}",
            advice="Drop those pipelines and streams first.",
            span=span,
            name=name,
            users=users,
        )


@contextmanager
def at(span: Span) -> Iterator[None]:
    """Let an error in the block that has no position point to the statement."""
    try:
        yield
    except HeadraceError as problem:
        if problem.span is None:
            problem.span = span
        raise
