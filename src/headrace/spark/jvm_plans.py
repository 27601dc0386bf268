"""Spark queries over rows that come from Python, by the shortest way through Spark's own classes.

PySpark's public way for a small table is a temporary view, `spark.sql` and `toArrow`. The view is a command, and
`toArrow` is a job with a socket. Here the parsed query gets the rows as a common table expression, and the result of a
plan without a job is converted in the driver. docs/design/2026-11-17-epoch-host.md has figures. The classes are
internal to Spark 4; `tests/e2e/test_epoch_host.py` fails when one of them changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headrace.model.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

OFFSET = 2  # the position of the user's text in what is parsed
_BATCH_ROWS, _BATCH_BYTES = 1 << 20, 64 << 20
_LATE = "numRowsDroppedByWatermark"


def parse_query(spark: SparkSession, sql: str) -> Any:
    """The parsed plan of a query. Only a query can stand in parentheses, so a command is a ParseException."""
    state: Any = _inner(spark).sessionState()
    return state.sqlParser().parsePlan(f"(\n{sql}\n)")


def query_over(spark: SparkSession, parsed: Any, relation: str, rows: DataFrame) -> DataFrame:
    """The analyzed query, in which the name `relation` means `rows`. Raises AnalysisException."""
    return query_over_all(spark, parsed, {relation: rows})


def query_over_all(spark: SparkSession, parsed: Any, relations: Mapping[str, DataFrame]) -> DataFrame:
    """The analyzed query over relations with these names. They are common table expressions, which hide tables and
    views of the same name. Raises AnalysisException."""
    jvm: Any = spark._jvm
    plans = jvm.org.apache.spark.sql.catalyst.plans.logical
    alias = module(jvm, "org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias")
    declared = jvm.java.util.ArrayList()
    for name, rows in relations.items():
        named = alias.apply(name, rows._jdf.queryExecution().analyzed())
        declared.add(jvm.scala.Tuple3(name, named, jvm.scala.Option.empty()))
    whole = plans.UnresolvedWith(parsed, jvm.scala.jdk.javaapi.CollectionConverters.asScala(declared).toSeq(), False)
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(_inner(spark), whole), spark)


def frame_of(spark: SparkSession, plan: Any) -> DataFrame:
    """A plan of the JVM as a data frame."""
    jvm: Any = spark._jvm
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(_inner(spark), plan), spark)


def distinct_input(frame: DataFrame) -> DataFrame | None:
    """The rows of a query of which it returns the distinct ones; None if it is not such a query."""
    spark, analyzed = frame.sparkSession, frame._jdf.queryExecution().analyzed()
    if str(analyzed.nodeName()) == "Distinct":
        return frame_of(spark, analyzed.child())
    if str(analyzed.nodeName()) != "WithCTE" or str(analyzed.plan().nodeName()) != "Distinct":
        return None
    jvm: Any = spark._jvm  # the relations of the query are common table expressions
    plans = jvm.org.apache.spark.sql.catalyst.plans.logical
    return frame_of(spark, plans.WithCTE(analyzed.plan().child(), analyzed.cteDefs()))


def reads_nothing_else(frame: DataFrame, rows: DataFrame) -> bool:
    """True if `frame`, a query over `rows`, reads no other relation. Scalar subqueries do not
    count."""
    return _relations(frame) == _relations(rows)


def _relations(frame: DataFrame) -> int:
    analyzed: Any = frame._jdf.queryExecution().analyzed()
    return sum(str(leaf.nodeName()) != "CTERelationRef" for leaf in seq(analyzed.collectLeaves()))


def refuse_streaming(frame: DataFrame, mode: str) -> None:
    """Raise AnalysisException if Spark refuses the query as a streaming query with this output mode."""
    jvm: Any = frame.sparkSession._jvm
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    wanted = modes.Update() if mode == "update" else modes.Append()
    checker = module(jvm, "org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker")
    checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), wanted)


def late_rows(query: StreamingQuery) -> int:
    """How many rows the stateful operators of a streaming query dropped as late in its newest batch, from the metrics
    of the plan. Right inside foreachBatch, when the rows of the batch were read."""
    inner: Any = query
    execution: Any = inner._jsq.streamingQuery().lastExecution()
    found = (node.metrics().get(_LATE) for node in walk_tree(execution.executedPlan()))
    return sum(int(metric.get().value()) for metric in found if metric.isDefined())


def output_watermark(query: StreamingQuery) -> int | None:
    """How far the event time of the output of a streaming query has come with its newest batch, in milliseconds: rows
    of later batches have a greater one. Spark computes the same for a stateful operator that reads the output of
    another one. None while it is not known. Right inside foreachBatch."""
    inner: Any = query
    execution: Any = inner._jsq.streamingQuery().lastExecution()
    reached = _reached(execution.executedPlan(), int(execution.offsetSeqMetadata().batchWatermarkMs()))
    return None if reached is None or reached <= 0 else reached  # a query without any event time has 0


def _reached(node: Any, watermark: int) -> int | None:
    """The watermark of the rows that an operator emits. `watermark` is that of the whole query."""
    if str(node.nodeName()) == "EventTimeWatermark":
        return watermark
    below = [reached for child in seq(node.children()) if (reached := _reached(child, watermark)) is not None]
    least = min(below, default=None)
    if least is None or node.metrics().get(_LATE).isEmpty():  # only stateful operators have the metric
        return least
    emitted: Any = node.produceOutputWatermark(least)
    return int(emitted.get()) if emitted.isDefined() else None


def fetch(frame: DataFrame, output: Schema) -> pa.Table:
    """The rows of a small result, with the columns of `output`. A plan without tasks runs without a job."""
    spark = frame.sparkSession
    jvm: Any = spark._jvm
    execution: Any = frame._jdf.queryExecution()
    rows = jvm.scala.collection.immutable.ArraySeq.unsafeWrapArray(execution.executedPlan().executeCollect())
    batches = module(jvm, "org.apache.spark.sql.execution.arrow.ArrowConverters").toBatchWithSchemaIterator(
        rows.iterator(), execution.analyzed().schema(), _BATCH_ROWS, _BATCH_BYTES, "UTC", False, False
    )
    tables = []
    while batches.hasNext():
        tables.append(pa.ipc.open_stream(batches.next()).read_all())
    found = pa.concat_tables(tables) if tables else output.arrow.empty_table()
    return as_output(found, output)


def as_output(table: pa.Table, output: Schema) -> pa.Table:
    """A table of Spark with the names and Arrow types of `output`. Spark writes timestamps in the session's zone."""
    renamed = table.rename_columns(list(output.names))
    return renamed if renamed.schema.equals(output.arrow) else renamed.cast(output.arrow)


def seq(found: Any) -> list[Any]:
    """The elements of a Scala sequence."""
    return [found.apply(i) for i in range(found.size())]


def walk_tree(node: Any) -> Iterator[Any]:
    """The nodes of a plan or an expression, parents first."""
    yield node
    for child in seq(node.children()):
        yield from walk_tree(child)


def _inner(spark: SparkSession) -> Any:
    return spark._jsparkSession


def module(jvm: Any, name: str) -> Any:
    """A Scala object."""
    return jvm.java.lang.Class.forName(f"{name}$").getField("MODULE$").get(None)
