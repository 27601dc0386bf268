"""Spark queries over rows that come from Python, by the shortest way through Spark's own classes.

PySpark's public way for a small table is a temporary view, `spark.sql` and `toArrow`. The view is a command, and
`toArrow` is a job with a socket. Here the parsed query gets the rows as a common table expression, and the result of a
plan without a job is converted in the driver. docs/design/2026-11-17-epoch-host.md has figures. The classes are
internal to Spark 4; `tests/e2e/test_epoch_host.py` fails when one of them changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headrace.model.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

OFFSET = 2  # the position of the user's text in what is parsed
_BATCH_ROWS, _BATCH_BYTES = 1 << 20, 64 << 20
_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical"
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
    triple, nothing = java_class(jvm, "scala.Tuple3"), java_class(jvm, "scala.Option").empty()
    declared = [triple(name, named_relation(name, rows), nothing) for name, rows in relations.items()]
    return frame_of(spark, java_class(jvm, f"{_LOGICAL}.UnresolvedWith")(parsed, scala_seq(spark, declared), False))


def named_relation(name: str, rows: DataFrame) -> Any:
    """The plan of `rows` under a name."""
    alias = module(rows.sparkSession._jvm, f"{_LOGICAL}.SubqueryAlias")
    return alias.apply(name, rows._jdf.queryExecution().analyzed())


def with_definitions(spark: SparkSession, plan: Any, definitions: Any) -> Any:
    """A plan with the definitions of its common table expressions, a Scala sequence."""
    return java_class(spark._jvm, f"{_LOGICAL}.WithCTE")(plan, definitions)


def frame_of(spark: SparkSession, plan: Any) -> DataFrame:
    """A plan of the JVM as a data frame."""
    datasets = java_class(spark._jvm, "org.apache.spark.sql.classic.Dataset")
    return DataFrame(datasets.ofRows(_inner(spark), plan), spark)


def distinct_input(frame: DataFrame) -> DataFrame | None:
    """The rows of a query of which it returns the distinct ones; None if it is not such a query."""
    spark, analyzed = frame.sparkSession, frame._jdf.queryExecution().analyzed()
    if str(analyzed.nodeName()) == "Distinct":
        return frame_of(spark, analyzed.child())
    if str(analyzed.nodeName()) != "WithCTE" or str(analyzed.plan().nodeName()) != "Distinct":
        return None
    # the relations of the query are common table expressions
    return frame_of(spark, with_definitions(spark, analyzed.plan().child(), analyzed.cteDefs()))


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
    modes = java_class(jvm, "org.apache.spark.sql.streaming.OutputMode")
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
    sequences = java_class(jvm, "scala.collection.immutable.ArraySeq")
    rows = sequences.unsafeWrapArray(execution.executedPlan().executeCollect())
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


def scala_seq(spark: SparkSession, found: Sequence[Any]) -> Any:
    """The elements as a Scala sequence."""
    jvm: Any = spark._jvm
    elements = java_class(jvm, "java.util.ArrayList")()
    for one in found:
        elements.add(one)
    return java_class(jvm, "scala.jdk.javaapi.CollectionConverters").asScala(elements).toSeq()


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


@lru_cache(maxsize=64)
def java_class(jvm: Any, name: str) -> Any:
    """A class of the JVM. Asked for with its whole name and once: for `jvm.org.apache...` Py4J asks for every part of
    the name, and the JVM then looks into all jars for a class that does not exist."""
    return getattr(jvm, name)


@lru_cache(maxsize=64)
def module(jvm: Any, name: str) -> Any:
    """A Scala object."""
    return java_class(jvm, "java.lang.Class").forName(f"{name}$").getField("MODULE$").get(None)
