"""CREATE STREAM and CREATE SINK to definitions: kinds and options are checked against the registries, with carets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.base.options import Option, check_options, closest
from headrace.errors import (
    BadOption,
    HeadraceError,
    MissingOption,
    Span,
    UnknownFormat,
    UnknownOption,
    UnknownSinkKind,
    UnknownSource,
)
from headrace.formats import FORMATS
from headrace.model.program import SinkDef, StreamDef
from headrace.model.stream_options import STREAM_OPTIONS
from headrace.sinks import SINKS
from headrace.sources import SOURCES
from headrace.sql.parse.statements import CreateSink, CreateStream


def define_stream(statement: CreateStream) -> StreamDef:
    """The stream that the statement declares. Raises coded errors at the option that is wrong. No I/O: whether a path
    exists is for the hub to see."""
    given = dict(statement.options)
    source = _kind(given, "source", SOURCES, UnknownSource, statement.span, statement.spans)
    fmt = _kind(given, "format", FORMATS, UnknownFormat, statement.span, statement.spans)
    owner = f"source '{source}' with format '{fmt}'"
    declared = (*SOURCES[source].options, *FORMATS[fmt].options, *STREAM_OPTIONS)
    checked_options(owner, declared, given, statement.span, statement.spans)
    try:
        FORMATS[fmt].make(statement.schema, given)
        _check_dead_letters(given)
    except HeadraceError as problem:
        raise _placed(problem, statement.span, statement.spans) from None
    return StreamDef(
        statement.name, statement.schema, statement.event_time, statement.delay_us, source, fmt, given, statement.sql
    )


def _check_dead_letters(given: Mapping[str, str]) -> None:
    """`on_error = 'dead_letter'` and `dead_letter_sink` belong together."""
    wanted, sink = given.get("on_error", "").lower() == "dead_letter", given.get("dead_letter_sink")
    if wanted and not sink:
        raise MissingOption(
            "on_error = 'dead_letter' needs the option 'dead_letter_sink'",
            advice="Create a sink for the rejected records and name it.",
            option="on_error",
        )
    if sink is not None and not wanted:
        raise BadOption(
            "dead_letter_sink has no effect without on_error = 'dead_letter'",
            advice="Set on_error = 'dead_letter', or remove it.",
            option="dead_letter_sink",
            value=sink,
        )


def define_sink(statement: CreateSink) -> SinkDef:
    """The sink that the statement declares. Raises coded errors at the option that is wrong."""
    given = dict(statement.options)
    kind = _kind(given, "type", SINKS, UnknownSinkKind, statement.span, statement.spans)
    checked_options(f"sink '{kind}'", SINKS[kind].all_options, given, statement.span, statement.spans)
    return SinkDef(statement.name, kind, given, statement.sql)


def _kind(
    given: dict[str, str],
    option: str,
    registry: Mapping[str, object],
    error: type[HeadraceError],
    whole: Span,
    spans: Mapping[str, Span],
) -> str:
    """Takes the option that names the kind out of `given`."""
    known = ", ".join(sorted(registry))
    name = given.pop(option, None)
    if name is None:
        raise MissingOption(f"the option '{option}' is missing", advice=f"One of: {known}.", span=whole, option=option)
    if name.lower() not in registry:
        hint = closest(name, registry)
        raise error(
            f"there is no {'sink type' if option == 'type' else option} '{name}'",
            advice=(f"Did you mean '{hint}'? " if hint else "") + f"One of: {known}.",
            span=spans.get(option, whole),
            name=name,
            did_you_mean=hint,
        )
    return name.lower()


def checked_options(
    owner: str, declared: tuple[Option, ...], given: Mapping[str, str], whole: Span, spans: Mapping[str, Span]
) -> dict[str, Any]:
    """The values of the options; an error has the place of the option that it is about."""
    try:
        return check_options(owner, declared, given)
    except (UnknownOption, BadOption, MissingOption) as problem:
        raise _placed(problem, whole, spans) from None


def _placed(problem: HeadraceError, whole: Span, spans: Mapping[str, Span]) -> HeadraceError:
    """The same error with the place of the option it is about."""
    if problem.span is None:
        option = str(problem.params.get("option", ""))
        problem.span = spans.get(option.lower(), whole)
    return problem
