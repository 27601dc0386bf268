"""Turns CREATE STREAM and CREATE SINK into definitions. Checks kinds and options against the registries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.base.options import Option, check_options
from headrace.base.unknown import unknown
from headrace.errors import (
    BadOption,
    HeadraceError,
    MissingOption,
    TypeMismatch,
    UnknownFormat,
    UnknownMetadata,
    UnknownOption,
    UnknownSinkKind,
    UnknownSource,
)
from headrace.formats import FORMATS
from headrace.model.definitions import MetadataColumn, SinkDef, StreamDef
from headrace.model.program import Meaning
from headrace.model.stream_options import STREAM_OPTIONS
from headrace.sinks import SINKS
from headrace.sources import SOURCES, SourceKind
from headrace.sql.computed_columns import bind_computed_columns
from headrace.sql.parse.statements import CreateDerivedStream, CreatePipeline, CreateSink, CreateStream, Select

Declaration = CreateStream | CreateDerivedStream | CreateSink | CreatePipeline | Select
"""The statements with a WITH clause."""


def define_stream(statement: CreateStream, meaning: Meaning) -> StreamDef:
    """The stream that the statement declares. Raises a coded error at the wrong option or computed column. `meaning` is
    that of the computed columns.

    Does no I/O: the hub checks whether a path exists.
    """
    given = dict(statement.options)
    source = _kind(statement, given, "source", SOURCES)
    fmt = _kind(statement, given, "format", FORMATS)
    owner = f"source '{source}' with format '{fmt}'"
    declared = (*SOURCES[source].options, *FORMATS[fmt].options, *STREAM_OPTIONS)
    checked_options(owner, declared, statement, given)
    stream = StreamDef(
        name=statement.name,
        schema=statement.schema,
        event_time=statement.event_time,
        delay_us=statement.delay_us,
        source=source,
        format=fmt,
        options=given,
        sql=statement.sql,
        metadata=_metadata(statement, SOURCES[source]),
        computed=bind_computed_columns(statement, meaning),
        padded=tuple(sorted((i, n) for i, n in statement.padded.items() if i not in statement.computed)),
    )
    try:
        if not stream.in_records:
            raise MissingOption("a stream needs a column that its records hold", advice="Declare one.", option="format")
        FORMATS[fmt].make(stream.record_schema, given)
        _check_dead_letters(given)
    except HeadraceError as problem:
        raise _placed(problem, statement) from None
    return stream


def _metadata(statement: CreateStream, source: SourceKind[Any]) -> tuple[MetadataColumn, ...]:
    """The metadata columns. Raises UnknownMetadata and TypeMismatch, at the column."""
    for index, (key, span) in statement.metadata.items():
        allowed, column = source.metadata.get(key), statement.schema[index]
        if allowed is None:
            owner = f"source '{source.name}'"
            raise unknown(UnknownMetadata, "metadata", key, sorted(source.metadata), of=owner, span=span)
        if column.type not in allowed:
            kinds = " or ".join(kind.ddl for kind in allowed)
            raise TypeMismatch(
                f"the metadata '{key}' is {kinds}, and column '{column.name}' is {column.type.ddl}",
                advice=f"Declare it {column.name} {allowed[0].ddl} METADATA.",
                span=span,
            )
    return tuple(MetadataColumn(index, key) for index, (key, _) in sorted(statement.metadata.items()))


def _check_dead_letters(given: Mapping[str, str]) -> None:
    """Requires `on_error = 'dead_letter'` and `dead_letter_sink` together, or neither."""
    wanted, sink = given.get("on_error", "").lower() == "dead_letter", given.get("dead_letter_sink")
    if wanted and not sink:
        raise MissingOption(
            "on_error = 'dead_letter' needs the option 'dead_letter_sink'",
            advice="Create a sink for the rejected records, and set dead_letter_sink to its name.",
            option="on_error",
        )
    if sink is not None and not wanted:
        raise BadOption(
            "dead_letter_sink has no effect without on_error = 'dead_letter'",
            advice="Set on_error = 'dead_letter', or remove dead_letter_sink.",
            option="dead_letter_sink",
            value=sink,
        )


def define_sink(statement: CreateSink) -> SinkDef:
    """The sink that the statement declares. Raises a coded error at the wrong option."""
    given = dict(statement.options)
    kind = _kind(statement, given, "type", SINKS)
    checked_options(f"sink '{kind}'", SINKS[kind].all_options, statement, given)
    return SinkDef(statement.name, kind, given, statement.sql)


_UNKNOWN_KIND: dict[str, type[HeadraceError]] = {
    "source": UnknownSource,
    "format": UnknownFormat,
    "type": UnknownSinkKind,
}


def _kind(statement: Declaration, given: dict[str, str], option: str, registry: Mapping[str, object]) -> str:
    """Removes the option that names the kind from `given`, and returns its value."""
    known = ", ".join(sorted(registry))
    name = given.pop(option, None)
    if name is None:
        raise MissingOption(
            f"the option '{option}' is missing", advice=f"One of: {known}.", span=statement.span, option=option
        )
    if name.lower() not in registry:
        what = "sink type" if option == "type" else option
        span = statement.spans.get(option, statement.span)
        raise unknown(_UNKNOWN_KIND[option], what, name, sorted(registry), span=span)
    return name.lower()


def checked_options(
    owner: str, declared: tuple[Option, ...], statement: Declaration, given: Mapping[str, str]
) -> dict[str, Any]:
    """The values of the options. An error points at its option."""
    try:
        return check_options(owner, declared, given)
    except (UnknownOption, BadOption, MissingOption) as problem:
        raise _placed(problem, statement) from None


def _placed(problem: HeadraceError, statement: Declaration) -> HeadraceError:
    """The same error, pointing at its option."""
    if problem.span is None:
        option = str(problem.params.get("option", ""))
        problem.span = statement.spans.get(option.lower(), statement.span)
    return problem
