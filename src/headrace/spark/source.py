"""The stream as Spark sees it: a Python data source whose offsets carry the plan version.

Spark keeps one process per query for planning (`latestOffset`, `partitions`, `commit`). `read` runs in the tasks, on a
pickled copy. They share no memory: the planning process reads plans from the state directory, and tasks get them by
value inside the partition.

Before the first epoch Spark also loads this module in short-lived processes that only ask for the schema. It therefore
imports almost nothing; `headrace.spark.epochs` does the work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from headrace.spark.epochs import EpochPlanner

NAME = "headrace_stream"


class StreamDataSource(DataSource):
    """`spark.readStream.format("headrace_stream")`. Options: directory, checkpoint, port, token, parallelism."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        from headrace.bridge.messages import SPARK_DDL

        return SPARK_DDL

    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(dict(self.options))


class StreamReader(DataSourceStreamReader):
    """Plans epochs in the planning process, and runs Ring 0 in the tasks."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options

    @cached_property
    def planner(self) -> EpochPlanner:
        from headrace.spark.epochs import EpochPlanner

        return EpochPlanner(self.options)

    def initialOffset(self) -> dict[str, Any]:
        return self.planner.initial()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return self.planner.latest(start)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self.planner.partitions(start, end)

    def commit(self, end: dict[str, Any]) -> None:
        self.planner.commit(end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from headrace.spark.epochs import EpochPartition, NothingPlanned, read_partition

        assert isinstance(partition, EpochPartition | NothingPlanned)
        return read_partition(partition)
