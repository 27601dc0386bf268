"""Plans a query for the dedicated host: for each stream a query of Ring 0 that hands rows to a feed, and a streaming
query of Spark over these rows.

Ring 0 keeps the columns that the query names, and evaluates the conditions that Spark's optimizer pushes down to a
stream, as far as they are on the verified list. Spark runs the whole query as it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.errors import (
    HeadraceError,
    NonDeterministic,
    Span,
    SqlError,
    UnboundedSort,
    UnknownStream,
    UnsupportedStateful,
)
from headrace.model.definitions import StreamDef
from headrace.model.program import DedicatedQuery, FeedInput, OutputMode, PipelineProgram
from headrace.model.schema import Schema
from headrace.sql.hosts.query_tokens import declared_by_with, may_need, names_read, refused_everywhere
from headrace.sql.hosts.spark_checker import Blocker, SparkChecker, StreamingFindings, StreamRelation
from headrace.sql.names import Names
from headrace.sql.parse.dialect import Token, tokenize
from headrace.sql.parse.script import parse_script
from headrace.sql.parse.statements import CreatePipeline, Select

if TYPE_CHECKING:
    from headrace.sql.planner import Planned

_MODES: dict[str | None, tuple[OutputMode, ...]] = {
    None: ("append", "update"),
    "close": ("append",),
    "changes": ("update",),
}
_ADVICE = {
    "sort": "A stream has no end, so it cannot be sorted or cut. Sort and limit the rows when you read the sink.",
    "random": "A batch that is run again after a crash would give other rows. Use a hash of a column, such as "
    "xxhash64(...), or a value of the source.",
    "join": "Write it as a join of the streams.",
    "stateful": "Spark's streaming does not have it. Rank the groups of a window as docs/sql.md says, or write the "
    "rows to a sink and query them there.",
}


@dataclass(frozen=True, slots=True)
class DedicatedPlan:
    """A query on the dedicated host: the plan of Ring 0 for each stream, the whole program, and what Spark says.
    Without `findings` Spark has not checked it: the output is not known then."""

    rings: tuple[Planned, ...]
    program: PipelineProgram
    findings: StreamingFindings | None


@dataclass(frozen=True, slots=True)
class DedicatedPlanner:
    """Plans one statement. `plan_rings` plans a query for the shared host."""

    statement: CreatePipeline | Select
    names: Names
    spark: SparkChecker | None
    plan_rings: Callable[[Select], Planned]

    def plan(self) -> DedicatedPlan:
        """Raises a coded error that says what cannot run."""
        tokens = self._tokens()
        blocker = refused_everywhere(tokens)
        if blocker is not None:
            raise self._error(blocker)
        streams = self._streams(tokens)
        start = tokens[0].start
        sql = self._text()[start : tokens[-1].start]
        relations = [_relation(stream, self._columns(stream, tokens)) for stream in streams]
        findings = None if self.spark is None else self._check(self.spark, sql, relations, start)
        conditions = {} if findings is None else findings.conditions
        planned = [
            self._ring0(stream, relation, *conditions.get(stream.name, ((), "")))
            for stream, relation in zip(streams, relations, strict=True)
        ]
        inputs = tuple(_input(p, relation) for p, relation in zip(planned, relations, strict=True))
        modes = _MODES[self.statement.emit]
        query = DedicatedQuery(
            sql,
            inputs,
            mode=modes[0] if findings is None else findings.mode,
            distinct=findings is not None and findings.distinct,
            variables=() if findings is None else findings.variables,
            stateless=findings is not None and findings.stateless,
        )
        output = Schema(()) if findings is None else findings.output
        return DedicatedPlan(tuple(planned), replace(planned[0].program, output=output, dedicated=query), findings)

    def _check(self, spark: SparkChecker, sql: str, relations: list[StreamRelation], start: int) -> StreamingFindings:
        try:
            found = spark.check_streaming(sql, relations, _MODES[self.statement.emit])
        except SqlError as problem:
            at = problem.params.get("at")
            problem.span = self._span(start + at[0], start + at[1]) if isinstance(at, tuple) else self.statement.span
            raise
        if found.blocker is not None:
            at = found.blocker.at
            placed = replace(found.blocker, at=None if at is None else (start + at[0], start + at[1]))
            raise self._error(placed)
        return found

    def _ring0(self, stream: StreamDef, relation: StreamRelation, conditions: Sequence[str], qualifier: str) -> Planned:
        """The query of Ring 0 for one stream: its columns, and the conditions that it can evaluate."""
        chosen = ", ".join(_quoted(name) for name in relation.schema.names)
        base = f"SELECT {chosen} FROM {_quoted(stream.name)}" + (f" AS {_quoted(qualifier)}" if qualifier else "")
        good = [c for c in conditions if self._runs(f"{base} WHERE {c}")]
        return self._rings(base + (f" WHERE {' AND '.join(f'({c})' for c in good)}" if good else ""))

    def _runs(self, sql: str) -> bool:
        try:
            self._rings(sql)
        except HeadraceError:  # the condition is not on the verified list: Spark evaluates it
            return False
        return True

    def _rings(self, sql: str) -> Planned:
        (parsed,) = parse_script(sql)
        assert isinstance(parsed, Select)
        return self.plan_rings(parsed)

    def _columns(self, stream: StreamDef, tokens: list[Token]) -> tuple[int, ...]:
        """The columns that the query may need, and always the event time. At least one: a row needs a column."""
        needed = {*may_need(tokens, stream.schema)}
        if stream.event_time is not None:
            needed.add(stream.event_time)
        return tuple(sorted(needed or {0}))

    def _streams(self, tokens: list[Token]) -> list[StreamDef]:
        """The streams that the query reads, in the order in which it names them."""
        found = _streams_among(tokens, self.names)
        if found:
            return found
        known = ", ".join((*self.names.stream_names(), *self.names.view_names()))
        raise UnknownStream(
            "the query reads no stream",
            advice=f"Name a stream in FROM. There are: {known}." if known else "Create a stream first.",
            span=self._span(tokens[0].start, tokens[-1].end),
        )

    def _text(self) -> str:
        return self.statement.span.text

    def _tokens(self) -> list[Token]:
        return _query_tokens(self.statement)

    def _span(self, start: int, end: int) -> Span:
        return Span(self._text(), start, end, self.statement.span.statement)

    def _error(self, blocker: Blocker) -> SqlError:
        span = self.statement.span if blocker.at is None else self._span(*blocker.at)
        advice = blocker.advice or _ADVICE[blocker.kind]
        if blocker.kind == "sort":
            return UnboundedSort(f"{blocker.what} is refused on a stream", advice=advice, span=span)
        if blocker.kind == "random":
            said = f"{blocker.what} gives other rows when a batch is run again"
            return NonDeterministic(said, advice=advice, span=span, expression=blocker.expression)
        return UnsupportedStateful(f"{blocker.what} cannot run on a stream", advice=advice, span=span)


def streams_read(statement: CreatePipeline | Select, names: Names) -> list[StreamDef]:
    """The streams that a query reads, in the order in which it names them."""
    return _streams_among(_query_tokens(statement), names)


def _query_tokens(statement: CreatePipeline | Select) -> list[Token]:
    """The tokens of the query, with positions in the script, and an end token."""
    start, end = statement.query_start, statement.query_end
    found = [t for t in tokenize(statement.span.text) if start <= t.start < end]
    return [*found, Token("end", "", found[-1].end, found[-1].end)]


def _streams_among(tokens: list[Token], names: Names) -> list[StreamDef]:
    read = {t.text.lower(): t for t in names_read(tokens) if names.stream(t.text) is not None}
    hidden = declared_by_with(tokens)
    if len(read) > 1:
        read = {name: t for name, t in read.items() if name not in hidden} or read
    return [stream for name in read if (stream := names.stream(name)) is not None]


def _relation(stream: StreamDef, columns: tuple[int, ...]) -> StreamRelation:
    schema = Schema(tuple(stream.schema[i] for i in columns))
    event_time = None if stream.event_time is None else stream.schema[stream.event_time].name
    return StreamRelation(stream.name, schema, event_time, stream.delay_us)


def _input(planned: Planned, relation: StreamRelation) -> FeedInput:
    program = planned.program
    return FeedInput(
        stream=program.stream,
        relation=relation.name,
        view=program.view,
        ring0=program.ring0,
        staged=program.output,
        event_time=relation.event_time,
        delay_us=relation.delay_us,
    )


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
