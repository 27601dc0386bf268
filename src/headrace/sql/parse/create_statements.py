"""CREATE STREAM, SINK, VIEW and PIPELINE."""

from __future__ import annotations

from headrace.errors import BadName, DuplicateName, SyntaxProblem
from headrace.sql.parse.clauses import Clauses
from headrace.sql.parse.statements import (
    CreateDerivedStream,
    CreatePipeline,
    CreateSink,
    CreateStream,
    CreateView,
    DropKind,
    Statement,
)
from headrace.sql.parse.stream_columns import parse_columns, skip_comment
from headrace.sql.parse.watermarks import parse_derived_watermark, resolve_watermark

MAX_NAME_BYTES = 255
KINDS: dict[str, DropKind] = {"STREAM": "stream", "SINK": "sink", "PIPELINE": "pipeline", "VIEW": "view"}


def parse_create(clauses: Clauses) -> Statement:
    """Parses the statement after the word CREATE."""
    cursor = clauses.cursor
    or_replace = cursor.accept("OR", "REPLACE")
    for word in ("GLOBAL", "TEMPORARY", "TEMP"):
        if cursor.at(word):
            cursor.fail(f"a view of the hub is not {word}", advice="Write CREATE VIEW. DROP VIEW removes it.")
    kind = cursor.one_of("STREAM, SINK, PIPELINE or VIEW after CREATE", *KINDS)
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    if or_replace and if_not_exists:
        cursor.fail("OR REPLACE and IF NOT EXISTS cannot be combined")
    place = cursor.token
    name = cursor.name(f"the name of the {kind.lower()}")
    if len(name.encode()) > MAX_NAME_BYTES:
        raise BadName(
            f"the name of the {kind.lower()} has {len(name.encode())} bytes",
            advice=f"Use at most {MAX_NAME_BYTES} bytes.",
            span=cursor.span((place.start, place.end)),
            name=name,
        )
    if kind == "STREAM":
        if _is_derived(clauses):
            return _create_derived_stream(clauses, name, or_replace, if_not_exists)
        return _create_stream(clauses, name, or_replace, if_not_exists)
    if kind == "SINK":
        options, spans = clauses.options()
        return CreateSink(
            sql=clauses.sql(),
            span=clauses.whole(),
            name=name,
            options=options,
            or_replace=or_replace,
            if_not_exists=if_not_exists,
            spans=spans,
        )
    if kind == "VIEW":
        return _create_view(clauses, name, or_replace, if_not_exists)
    return _create_pipeline(clauses, name, or_replace, if_not_exists)


def _create_view(clauses: Clauses, name: str, or_replace: bool, if_not_exists: bool) -> CreateView:
    cursor = clauses.cursor
    columns = _view_columns(clauses)
    skip_comment(cursor)
    cursor.expect("AS", "before the query")
    query_start = cursor.token.start
    query, query_sql, _, emit = clauses.query()
    if emit is not None:
        raise SyntaxProblem(
            "a view has no EMIT clause", advice="Write EMIT in the pipelines that read the view.", span=emit
        )
    return CreateView(
        sql=clauses.sql(),
        span=clauses.whole(),
        name=name,
        columns=columns,
        query=query,
        query_sql=query_sql,
        query_start=query_start,
        or_replace=or_replace,
        if_not_exists=if_not_exists,
    )


def _view_columns(clauses: Clauses) -> tuple[str, ...]:
    """The names in parentheses after the name of a view. Empty if there are none."""
    cursor = clauses.cursor
    columns: list[str] = []
    if not cursor.accept("("):
        return ()
    while True:
        place = cursor.span((cursor.token.start, cursor.token.end))
        columns.append(cursor.word("the name of a column"))
        if columns[-1].lower() in [c.lower() for c in columns[:-1]]:
            raise DuplicateName(
                f"column '{columns[-1]}' is named twice",
                advice="Names ignore case. Rename one of the columns.",
                span=place,
                name=columns[-1],
            )
        skip_comment(cursor)
        if not cursor.accept(","):
            break
    cursor.expect(")", "after the names of the columns")
    return tuple(columns)


def _create_stream(clauses: Clauses, name: str, or_replace: bool, if_not_exists: bool) -> CreateStream:
    cursor = clauses.cursor
    declared = parse_columns(cursor)
    event_time, delay = resolve_watermark(cursor, name, declared.schema, declared.watermark)
    options, spans = clauses.options()
    return CreateStream(
        sql=clauses.sql(),
        span=clauses.whole(),
        name=name,
        schema=declared.schema,
        event_time=event_time,
        delay_us=delay,
        options=options,
        or_replace=or_replace,
        if_not_exists=if_not_exists,
        spans=spans,
        computed=declared.computed,
        padded=declared.padded,
        metadata=declared.metadata,
    )


def _is_derived(clauses: Clauses) -> bool:
    """True if AS PIPELINE follows, or only a watermark in parentheses and then that."""
    cursor = clauses.cursor
    if cursor.at("AS"):
        return True
    tokens = [t.upper for t in cursor.tokens[cursor.position :]]
    return tokens[:3] == ["(", "WATERMARK", "FOR"] and tokens[_closed(tokens) + 1 : _closed(tokens) + 2] == ["AS"]


def _closed(tokens: list[str]) -> int:
    """The place of the parenthesis that closes the one at the start; the last token if none does."""
    depth = 0
    for place, token in enumerate(tokens):
        depth += {"(": 1, ")": -1}.get(token, 0)
        if depth == 0:
            return place
    return len(tokens) - 1


def _create_derived_stream(clauses: Clauses, name: str, or_replace: bool, if_not_exists: bool) -> CreateDerivedStream:
    cursor = clauses.cursor
    watermark = parse_derived_watermark(cursor)
    cursor.expect("AS", "before PIPELINE")
    if not cursor.accept("PIPELINE"):
        cursor.fail(
            "expected PIPELINE and the name of the pipeline that feeds the stream",
            advice=f"For the rows of a query, write CREATE PIPELINE ... INTO STREAM {name} AS SELECT ...",
        )
    place = cursor.span((cursor.token.start, cursor.token.end))
    pipeline = cursor.name("the name of the pipeline")
    options, spans = clauses.options() if cursor.at("WITH") else ({}, {})
    return CreateDerivedStream(
        sql=clauses.sql(),
        span=clauses.whole(),
        name=name,
        pipeline=pipeline,
        pipeline_span=place,
        watermark=watermark,
        options=options,
        or_replace=or_replace,
        if_not_exists=if_not_exists,
        spans=spans,
    )


def _create_pipeline(clauses: Clauses, name: str, or_replace: bool, if_not_exists: bool) -> CreatePipeline:
    cursor = clauses.cursor
    cursor.expect("INTO", "and the names of the sinks")
    start = cursor.token.start
    outlets = clauses.outlets()
    into = cursor.span((start, cursor.previous_end))
    options, places = clauses.options() if cursor.at("WITH") else ({}, {})
    cursor.expect("AS", "before the query")
    query_start = cursor.token.start
    query, query_sql, emit, emit_span = clauses.query()
    return CreatePipeline(
        sql=clauses.sql(),
        span=clauses.whole(),
        name=name,
        sinks=outlets.sinks,
        query=query,
        query_sql=query_sql,
        emit=emit,
        or_replace=or_replace,
        if_not_exists=if_not_exists,
        sink_spans=outlets.spans,
        emit_span=emit_span,
        options=options,
        spans=places,
        query_start=query_start,
        streams=outlets.streams,
        into=into,
        reader=outlets.reader,
    )
