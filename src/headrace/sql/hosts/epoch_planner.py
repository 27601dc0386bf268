"""Plans a query for the epoch host: a query of the rings that stages rows, and a query of Spark over these rows.

A stateless query is Spark's as a whole. The rings only filter rows and keep the columns that it needs: those that
Spark's optimizer asks of the relation, and the conditions that it pushes down to it, as far as they are on the verified
list. The groups of an aggregate are the rings', and its select list is Spark's (`headrace.sql.hosts.select_split`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.errors import (
    HeadraceError,
    NonDeterministic,
    Span,
    SparkRefused,
    SqlError,
    UnboundedSort,
    UnknownStream,
    UnsupportedOnEpoch,
    UnsupportedStateful,
)
from headrace.model.definitions import StreamDef
from headrace.model.program import Meaning, PipelineProgram, SparkQuery
from headrace.model.schema import Schema
from headrace.sql.bind.binder import names_in
from headrace.sql.hosts.clock_calls import ClockCall, clock_calls, clock_edits
from headrace.sql.hosts.host_choice import RESOLVABLE
from headrace.sql.hosts.query_tokens import blocker_in, declared_by_with, may_need, named, names_read
from headrace.sql.hosts.select_split import GROUPS, SplitSelect, is_aggregate, split_select
from headrace.sql.hosts.spark_checker import Blocker, SparkChecker, SparkFindings
from headrace.sql.hosts.text_edits import edited
from headrace.sql.names import Names
from headrace.sql.parse.dialect import Token, tokenize
from headrace.sql.parse.script import parse_script
from headrace.sql.parse.statements import CreatePipeline, Select
from headrace.sql.parse.syntax import ForeignQuery
from headrace.sql.plan.context import PlanContext

if TYPE_CHECKING:
    from headrace.sql.planner import Planned

# Two times for the check of a query with a clock: a condition that is the same for both does not read the clock.
_TIMES = (0, 86_400_000_000 * 3653 + 12_345_678)
_ADVICE = {
    "stateful": "No host keeps this kind of state yet. Use GROUP BY window(...) with aggregates of docs/functions.md, "
    "or write the rows to a sink and query them there.",
    "join": "Join the stream with a static table: the stream must be on the side that is kept, and be read once.",
    "sort": "A stream has no end, so it cannot be sorted or cut. Sort and limit the rows when you read the sink.",
    "random": "An epoch that is run again after a crash would give other rows. Use a hash of a column, such as "
    "xxhash64(...), or a value of the source.",
}


@dataclass(frozen=True, slots=True)
class EpochHostPlan:
    """A query on the epoch host: the plan of the rings, the whole program, and what Spark says about its part. Without
    `findings` Spark has not checked it: the output is not known then."""

    rings: Planned
    program: PipelineProgram
    findings: SparkFindings | None


@dataclass(frozen=True, slots=True)
class EpochHostPlanner:
    """Plans one statement. `plan_rings` plans a query for the shared host. `because` is why the shared host refused the
    statement, None if the user chose the epoch host."""

    statement: CreatePipeline | Select
    names: Names
    spark: SparkChecker | None
    plan_rings: Callable[[Select], Planned]
    because: SqlError | None
    meaning: Meaning

    def plan(self) -> EpochHostPlan:
        """Raises a coded error that says what cannot run."""
        tokens = self._tokens()
        if not isinstance(self.statement.query, ForeignQuery) and is_aggregate(self.statement.query):
            return self._aggregate(tokens)
        computed = self._whole(tokens)
        if computed is not None and computed[0].program.ring1 is not None:  # ranks over groups, DISTINCT
            return self._over_groups(*computed)
        if self.statement.emit is not None:
            raise self._error(Blocker("stateful", "EMIT without an aggregate", at=tokens_range(tokens)))
        blocker = blocker_in(tokens)
        if blocker is not None:
            raise self._error(blocker)
        return self._stateless(self._stream(tokens), tokens)

    # --- stateless queries ------------------------------------------------------------------------

    def _stateless(self, stream: StreamDef, tokens: list[Token]) -> EpochHostPlan:
        start = tokens[0].start
        clocks = clock_calls(tokens, stream.schema.names, start)
        sql = self._text()[start : tokens[-1].start]
        findings, steady = self._check(sql=sql, relation=stream.name, schema=stream.schema, clocks=clocks, start=start)
        if findings is None:
            columns = may_need(tokens, stream.schema)
        else:
            # Every epoch analyzes the query again, so a name must resolve even if the optimizer drops the column, as
            # in typeof(price).
            columns = tuple(sorted({*findings.columns, *named(tokens, stream.schema)}))
        chosen = ", ".join(_quoted(stream.schema[i].name) for i in columns) or "true AS _row"
        base = f"SELECT {chosen} FROM {_quoted(stream.name)}"
        conditions: list[str] = []
        if findings is not None:
            base += f" AS {_quoted(findings.qualifier)}" if findings.qualifier else ""
            conditions = [c for c in findings.conditions if c in steady and self._runs(f"{base} WHERE {c}")]
        rings = self._rings(base + (f" WHERE {' AND '.join(f'({c})' for c in conditions)}" if conditions else ""))
        return self._finish(rings=rings, sql=sql, relation=stream.name, clocks=clocks, findings=findings)

    def _stream(self, tokens: list[Token]) -> StreamDef:
        """The one stream that the query reads."""
        read = {t.text.lower(): t for t in names_read(tokens) if self.names.stream(t.text) is not None}
        hidden = declared_by_with(tokens)
        if len(read) > 1:
            read = {name: t for name, t in read.items() if name not in hidden} or read
        if not read:
            if isinstance(self.because, RESOLVABLE):
                raise self.because
            known = ", ".join((*self.names.stream_names(), *self.names.view_names()))
            raise UnknownStream(
                "the query reads no stream",
                advice=f"Name a stream in FROM. There are: {known}." if known else "Create a stream first.",
                span=Span(self._text(), *tokens_range(tokens), self.statement.span.statement),
            )
        if len(read) > 1:
            second = list(read.values())[1]
            raise self._error(
                Blocker("stateful", "a query over two streams", second.text, (second.start, second.end)),
                advice="A pipeline reads one stream. Join it with a static table, or write one pipeline per stream.",
            )
        stream = self.names.stream(next(iter(read)))
        assert stream is not None
        return stream

    def _runs(self, sql: str) -> bool:
        try:
            self._rings(sql)
        except HeadraceError:  # the condition is not on the verified list: Spark evaluates it
            return False
        return True

    # --- aggregates -------------------------------------------------------------------------------

    def _aggregate(self, tokens: list[Token]) -> EpochHostPlan:
        query = self.statement.query
        streams = [stream for token in tokens if (stream := self.names.stream(token.text)) is not None]
        columns = {field.name.lower() for stream in streams for field in stream.schema}
        split = None
        if not isinstance(query, ForeignQuery):
            names = names_in(query, self.names, PlanContext(self.meaning, self._text()))
            split = split_select(query, self._text(), tokens, names=names, columns=columns)
        found = (None if split is None else self._split_groups(split)) or self._whole(tokens)
        if found is None:
            raise self._not_split()
        return self._over_groups(*found)

    def _over_groups(self, rings: Planned, sql: str) -> EpochHostPlan:
        """The plan of a query of Spark over the rows that the rings compute."""
        parsed = tokenize(sql)
        clocks = clock_calls(parsed, ())
        findings, _ = self._check(sql=sql, relation=GROUPS, schema=rings.program.output, clocks=clocks, start=None)
        return self._finish(rings=rings, sql=sql, relation=GROUPS, clocks=clocks, findings=findings)

    def _split_groups(self, split: SplitSelect) -> tuple[Planned, str] | None:
        """The groups, and the query of Spark over them. None if the rings cannot compute the groups."""
        for groups, select in ((split.groups_having, split.select), (split.groups, split.select_having)):
            with suppress(HeadraceError):  # HAVING may need Spark, too
                return self._groups(groups), select
        return None

    def _whole(self, tokens: list[Token]) -> tuple[Planned, str] | None:
        """The rings compute everything, and Spark passes the rows on: for a query that the shared host runs and whose
        select list cannot be cut off, such as GROUP BY ALL or ranks over groups. None if it cannot run there."""
        if self.because is not None:
            return None
        try:
            rings = self._groups(self._text()[tokens[0].start : tokens[-1].start])
        except HeadraceError:
            return None
        chosen = ", ".join(_quoted(name) for name in rings.program.output.names)
        return rings, f"SELECT {chosen} FROM {GROUPS}"

    def _groups(self, sql: str) -> Planned:
        emit = {None: "", "changes": " EMIT CHANGES", "close": " EMIT ON CLOSE"}[self.statement.emit]
        return self._rings(sql + emit)

    def _not_split(self) -> SqlError:
        """The error for an aggregate whose groups the rings cannot compute."""
        if self.because is None:
            return UnsupportedOnEpoch(
                "the groups of this query cannot be computed apart from its select list",
                advice="Remove the option host.",
                span=self.statement.span,
            )
        what = self.because.message.removesuffix(" cannot run on the shared host")
        return UnsupportedStateful(
            f"{what} is not supported in the groups of a stream",
            advice=f"{self.because.advice} Expressions over the groups may use any Spark function.".strip(),
            span=self.because.span,
        )

    # --- both -------------------------------------------------------------------------------------

    def _check(
        self, sql: str, relation: str, schema: Schema, clocks: tuple[ClockCall, ...], start: int | None
    ) -> tuple[SparkFindings | None, frozenset[str]]:
        """What Spark says, None without a checker, and the conditions that do not depend on the clock. `start` is the
        position of the text in the script, None if it was made from the script."""
        if self.spark is None:
            return None, frozenset()
        found: list[SparkFindings] = []
        for now in _TIMES if clocks else _TIMES[:1]:
            checked = edited(sql, clock_edits(clocks, now, self.meaning.time_zone))
            place = _ScriptPlace(self.statement.span, start, checked.original)
            try:
                found.append(self.spark.check(checked.text, relation, schema))
            except SparkRefused as problem:
                problem.span = place.span(problem.params.get("at"))
                raise
            blocker = found[0].blocker
            if blocker is not None:
                refused = self._error(replace(blocker, at=place.at(blocker.at)))
                refused.params["resolved"] = True  # Spark knows every name in it
                raise refused
        tables = tuple(replace(t, at=(checked.original(t.at[0]), checked.original(t.at[1]))) for t in found[-1].tables)
        steady = frozenset.intersection(*(frozenset(f.conditions) for f in found))
        return replace(found[0], tables=tables), steady

    def _finish(
        self, rings: Planned, sql: str, relation: str, clocks: tuple[ClockCall, ...], findings: SparkFindings | None
    ) -> EpochHostPlan:
        output = Schema(()) if findings is None else findings.output
        tables = (
            ()
            if findings is None
            else tuple((*t.at, t.name, "" if t.aliased else _last_part(t.name)) for t in findings.tables)
        )
        query = SparkQuery(sql=sql, relation=relation, staged=rings.program.output, clocks=clocks, tables=tables)
        return EpochHostPlan(rings, replace(rings.program, spark=query, output=output), findings)

    def _rings(self, sql: str) -> Planned:
        (parsed,) = parse_script(sql)
        assert isinstance(parsed, Select)
        return self.plan_rings(parsed)

    def _text(self) -> str:
        return self.statement.span.text

    def _tokens(self) -> list[Token]:
        """The tokens of the query, with positions in the script, and an end token."""
        start, end = self.statement.query_start, self.statement.query_end
        found = [t for t in tokenize(self._text()) if start <= t.start < end]
        return [*found, Token("end", "", found[-1].end, found[-1].end)]

    def _error(self, blocker: Blocker, advice: str = "") -> SqlError:
        span = self.statement.span
        if blocker.at is not None:
            span = Span(span.text, *blocker.at, span.statement)
        elif self.because is not None and self.because.span is not None:
            span = self.because.span
        facts: dict[str, Any] = {
            "advice": advice or blocker.advice or _ADVICE[blocker.kind],
            "span": span,
            "expression": blocker.expression,
        }
        if blocker.kind == "sort":
            return UnboundedSort(f"{blocker.what} is refused on a stream", **facts)
        if blocker.kind == "random":
            return NonDeterministic(f"{blocker.what} gives other rows when an epoch is run again", **facts)
        kind = UnsupportedOnEpoch if self.because is None else UnsupportedStateful
        return kind(f"{blocker.what} needs state over several epochs", **facts)


@dataclass(frozen=True, slots=True)
class _ScriptPlace:
    """Where a range of the checked text is in the script."""

    statement: Span
    start: int | None
    original: Callable[[int], int]

    def at(self, found: object) -> tuple[int, int] | None:
        if self.start is None or not isinstance(found, tuple):
            return None
        return self.start + self.original(found[0]), self.start + self.original(found[1])

    def span(self, found: object) -> Span:
        at = self.at(found)
        return self.statement if at is None else Span(self.statement.text, *at, self.statement.statement)


def tokens_range(tokens: list[Token]) -> tuple[int, int]:
    """The range of a query."""
    return tokens[0].start, tokens[-1].end


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _last_part(name: str) -> str:
    parts = [t.text for t in tokenize(name) if t.kind in ("word", "quoted")]
    return parts[-1] if parts else name
