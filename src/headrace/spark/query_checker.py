"""Asks Spark's analyzer and optimizer about the query of a pipeline on the epoch or dedicated host. Nothing is run.

The query is analyzed over a relation without rows that Spark takes for a stream. So every node of the plan says whether
it reads the stream, and a node that does must be one that works row by row. The optimizer then shows which columns of
the relation the query needs, and which conditions it can push down to it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headrace.errors import DuplicateName, SparkRefused, UnknownType, UnsupportedStateful
from headrace.model.program import OutputMode
from headrace.model.schema import Field, Schema, parse_type
from headrace.spark.jvm_plans import (
    OFFSET,
    distinct_input,
    parse_query,
    query_over,
    query_over_all,
    refuse_streaming,
    seq,
)
from headrace.spark.output_times import keeps_state, output_times
from headrace.spark.passed_columns import passed_columns
from headrace.spark.plan_blockers import epoch_blocker, streaming_blocker
from headrace.spark.plan_needs import (
    conditions_by_relation,
    needed_columns,
    pushed_conditions,
    session_variables,
    with_parents,
)
from headrace.spark.query_failures import condition_of, is_of_spark, spark_says
from headrace.spark.query_log import muted
from headrace.spark.staged_input import spark_schema
from headrace.sql.hosts.spark_checker import Blocker, SparkFindings, StaticTable, StreamingFindings, StreamRelation

# What these rules do depends on the rows of static tables, and those may change after the pipeline is created. The last
# one adds conditions that the user did not write.
_CONTENT_RULES = ",".join(
    f"org.apache.spark.sql.catalyst.optimizer.{rule}"
    for rule in ("PropagateEmptyRelation", "ConvertToLocalRelation", "InferFiltersFromConstraints")
)
_WRONG_MODE = "STREAMING_OUTPUT_MODE"  # the conditions of queries that another output mode may allow
_STREAMING_ADVICE = (
    "Joins of streams need a watermark on both sides and a condition on event time for outer rows; windows need the "
    "event time; groups without a window need EMIT CHANGES."
)
# What to write instead, by a word of Spark's message.
_INSTEAD = (
    ("Sampling", "Filter by a hash of a column: WHERE pmod(xxhash64(id), 10) = 0."),
    ("Intersect", "Write it as a LEFT SEMI JOIN of the streams."),
    (
        "Except on",
        "Write it as a LEFT JOIN with a condition on event times, and keep the rows WHERE the other is NULL.",
    ),
    ("LeftAnti", "Write it as a LEFT JOIN with a condition on event times, and keep the rows WHERE the other is NULL."),
    (
        "NON_TIME_WINDOW",
        "Rank the groups of a window as docs/sql.md says, or write the rows to a sink and query them there.",
    ),
)


class QueryChecker:
    """Checks queries on a session. `session` returns it, and may start Spark first."""

    def __init__(self, session: Callable[[], SparkSession], at_hand: bool) -> None:
        self._session, self.at_hand = session, at_hand
        self._lock = threading.Lock()

    def check(self, sql: str, relation: str, schema: Schema) -> SparkFindings:
        """See `headrace.sql.hosts.spark_checker.SparkChecker`."""
        with self._lock, muted():
            return _Check(self._session(), sql, relation, schema).findings()

    def check_streaming(
        self, sql: str, relations: Sequence[StreamRelation], modes: Sequence[OutputMode]
    ) -> StreamingFindings:
        """See `headrace.sql.hosts.spark_checker.SparkChecker`."""
        with self._lock, muted():
            return _StreamingCheck(self._session(), sql, relations).findings_in(modes)


class _Check:
    """The check of one query."""

    def __init__(self, spark: SparkSession, sql: str, relation: str, schema: Schema) -> None:
        self.spark, self.sql, self.schema = spark, sql, schema
        self.jvm: Any = spark._jvm
        self.relation, self.start = relation, OFFSET

    def findings(self) -> SparkFindings:
        try:
            self.parsed = parse_query(self.spark, self.sql)
            rows = _endless(self.spark, spark_schema(self.schema))
            frame = query_over(self.spark, self.parsed, self.relation, rows)
            analyzed: Any = frame._jdf.queryExecution().analyzed()
            output = self._output(frame.schema)
            blocker = epoch_blocker(analyzed, self._range)
            if blocker is not None:
                return SparkFindings(
                    output,
                    tuple(range(len(self.schema))),
                    conditions=(),
                    qualifier="",
                    tables=(),
                    blocker=blocker,
                    plan="",
                )
            plan = self._optimized(analyzed)
            # a variable may have another value in a later epoch
            conditions, qualifier = ((), "") if session_variables(analyzed) else pushed_conditions(plan)
            text = str(plan.toString()).rstrip()
            passed = passed_columns(plan)
            return SparkFindings(
                output,
                needed_columns(plan),
                conditions=conditions,
                qualifier=qualifier,
                tables=self._tables(),
                blocker=None,
                plan=text,
                passed=passed,
            )
        except (AnalysisException, ParseException) as problem:
            if condition_of(problem) == "INVALID_SUBQUERY_EXPRESSION.STREAMING_QUERY":
                blocker = Blocker("join", "a subquery over the stream", "", self._at_context(problem))
                return SparkFindings(Schema(()), (), conditions=(), qualifier="", tables=(), blocker=blocker, plan="")
            raise self._refused(problem) from None
        except (PySparkException, Py4JJavaError) as problem:  # such as a literal with too many digits
            if is_of_spark(problem):
                raise
            raise self._refused(problem) from None

    def _refused(self, problem: Exception) -> SparkRefused:
        return SparkRefused(
            spark_says(problem),
            advice="Spark checks the names and types of this query. Tables, views and functions must exist in the "
            "hub's session: headrace.connect(spark=...).",
            condition=condition_of(problem),
            at=self._at_context(problem),
        )

    def _at_context(self, problem: Exception) -> tuple[int, int] | None:
        """The range of the user's text that Spark points at."""
        try:
            contexts = problem.getQueryContext()  # type: ignore[attr-defined]
            first = next((c for c in contexts if c.startIndex() >= self.start), None)
        except Exception:  # a context of a call without text
            return None
        if first is None:
            return None
        begin = first.startIndex() - self.start
        return begin, min(len(self.sql), first.stopIndex() - self.start + 1)

    def _output(self, found: StructType) -> Schema:
        fields: list[Field] = []
        for field in found.fields:
            if field.name.lower() in [f.name.lower() for f in fields]:
                raise DuplicateName(
                    f"two output columns are named '{field.name}'",
                    advice="Give one of them another name with AS.",
                    name=field.name,
                )
            try:
                fields.append(Field(field.name, parse_type(field.dataType.simpleString())))
            except UnknownType:
                raise SparkRefused(
                    f"the output column '{field.name}' has the type {field.dataType.simpleString()}, which no sink can "
                    "store",
                    advice="Cast it, for example to STRING.",
                ) from None
        return Schema(tuple(fields))

    def _range(self, node: Any) -> tuple[int, int] | None:
        """The range of a node in the user's text."""
        origin = node.origin()
        if origin.startIndex().isEmpty() or origin.stopIndex().isEmpty():
            return None
        begin, end = int(origin.startIndex().get()) - self.start, int(origin.stopIndex().get()) - self.start + 1
        return (begin, min(end, len(self.sql))) if 0 <= begin < len(self.sql) else None

    def _optimized(self, analyzed: Any) -> Any:
        """The plan after Spark's optimizer, without the rules that read the rows of static tables. The rules to leave
        out are a setting, so a copy of the session has them."""
        sessions = self.jvm.org.apache.spark.sql.classic.SparkSession
        own: Any = self.spark._jsparkSession
        copy = own.cloneSession()
        copy.conf().set("spark.sql.optimizer.excludedRules", _CONTENT_RULES)
        sessions.setActiveSession(copy)
        try:
            return copy.sessionState().optimizer().execute(analyzed)
        finally:
            sessions.setActiveSession(own)

    def _tables(self) -> tuple[StaticTable, ...]:
        """The tables, views and paths that the text names, beside the stream and the names of WITH."""
        found: list[StaticTable] = []
        hidden = {self.relation.lower(), *(str(name).lower() for name in _declared(self.parsed))}
        for parents, node in with_parents(self.parsed, subqueries=True):
            if node.nodeName() != "UnresolvedRelation":
                continue
            parts = [str(p) for p in seq(node.multipartIdentifier())]
            at = self._range(node)
            if at is None or (len(parts) == 1 and parts[0].lower() in hidden):
                continue
            aliased = bool(parents) and parents[-1].nodeName() == "SubqueryAlias"
            name = ".".join("`" + p.replace("`", "``") + "`" for p in parts)
            if aliased:  # the origin of a relation with an alias includes the alias
                at = (at[0], at[0] + _name_length(self.sql[at[0] : at[1]], len(parts)))
            found.append(StaticTable(name, at, aliased))
        return tuple(found)


class _StreamingCheck(_Check):
    """The check of a query that is to run as a streaming query."""

    def __init__(self, spark: SparkSession, sql: str, relations: Sequence[StreamRelation]) -> None:
        super().__init__(spark, sql, relations[0].name, relations[0].schema)
        self.relations = relations

    def findings_in(self, modes: Sequence[OutputMode]) -> StreamingFindings:
        """What Spark says about the query in the first of these output modes that it allows."""
        try:
            self.parsed = parse_query(self.spark, self.sql)
            bare = {r.name: _endless(self.spark, spark_schema(r.schema)) for r in self.relations}
            timed = {r.name: watermarked(bare[r.name], r.event_time, r.delay_us) for r in self.relations}
            frame = query_over_all(self.spark, self.parsed, timed)
            output = self._output(frame.schema)
            blocker = streaming_blocker(frame._jdf.queryExecution().analyzed(), self._range)
            if blocker is not None:
                return StreamingFindings(output, "append", distinct=False, conditions={}, blocker=blocker, plan="")
            rows = distinct_input(frame)
            mode = self._mode(frame if rows is None else rows.dropDuplicates(), modes)
            plan = self._optimized(query_over_all(self.spark, self.parsed, bare)._jdf.queryExecution().analyzed())
            text = str(plan.toString()).rstrip()
            analyzed = frame._jdf.queryExecution().analyzed()
            optimized = self._optimized(analyzed)
            return StreamingFindings(
                output,
                mode,
                distinct=rows is not None,
                conditions=conditions_by_relation(plan, bare),
                blocker=None,
                plan=text,
                times=output_times(self.spark, analyzed, optimized),
                stateless=not keeps_state(optimized),
                variables=session_variables(analyzed),
            )
        except (AnalysisException, ParseException) as problem:
            if condition_of(problem) == "INVALID_SUBQUERY_EXPRESSION.STREAMING_QUERY":
                blocker = Blocker("join", "a subquery over a stream", "", self._at_context(problem))
                return StreamingFindings(Schema(()), "append", distinct=False, conditions={}, blocker=blocker, plan="")
            raise self._refused(problem) from None
        except (PySparkException, Py4JJavaError) as problem:  # such as a literal with too many digits
            if is_of_spark(problem):
                raise
            raise self._refused(problem) from None

    def _mode(self, frame: DataFrame, modes: Sequence[OutputMode]) -> OutputMode:
        problems: list[AnalysisException] = []
        for mode in modes:
            try:
                refuse_streaming(frame, mode)
                return mode
            except AnalysisException as problem:
                problems.append(problem)
        # What Spark refuses in any mode says more than that a mode does not fit.
        first = next((p for p in problems if not condition_of(p).startswith(_WRONG_MODE)), problems[0])
        said = spark_says(first)
        raise UnsupportedStateful(
            f"Spark's streaming refuses the query: {said}",
            advice=next((advice for word, advice in _INSTEAD if word in said), _STREAMING_ADVICE),
            condition=condition_of(first),
            at=self._at_context(first),
            resolved=True,
        ) from None


def watermarked(rows: DataFrame, event_time: str | None, delay_us: int) -> DataFrame:
    """`rows` with the watermark of their stream, if that has one."""
    if event_time is None:
        return rows
    return rows.withWatermark(event_time, f"{delay_us} microseconds")


def _name_length(text: str, parts: int) -> int:
    """The length of the name of `parts` parts at the start of a text."""
    from headrace.sql.parse.dialect import tokenize

    return tokenize(text)[2 * parts - 2].end


def _declared(plan: Any) -> Iterator[str]:
    for _, node in with_parents(plan, subqueries=True):
        if node.nodeName() == "UnresolvedWith":
            for relation in seq(node.cteRelations()):
                yield relation._1()


def _endless(spark: SparkSession, schema: StructType) -> DataFrame:
    """A relation without rows that Spark takes for a stream."""
    empty: Any = spark.createDataFrame([], schema)._jdf
    inner: Any = spark._jsparkSession
    return DataFrame(inner.internalCreateDataFrame(empty.queryExecution().toRdd(), empty.schema(), True), spark)
