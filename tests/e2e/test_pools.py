"""Which tasks get a free slot first."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from headrace.spark.dedicated_run import DEDICATED_POOL
from headrace.spark.epoch_queries import POOL
from tests.e2e.support import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def launched(spark: SparkSession, pool: str, tasks: int) -> list[int]:
    """Run tasks that take a while. Returns their numbers, which Spark gives them when they begin."""
    context: Any = spark.sparkContext
    context.setLocalProperty("spark.scheduler.pool", pool)

    def number(_: int) -> int:
        from pyspark import TaskContext

        time.sleep(0.3)
        task: Any = TaskContext.get()
        return int(task.taskAttemptId())

    numbers: list[int] = context.parallelize(range(tasks), tasks).map(number).collect()
    return numbers


@pytest.mark.parametrize("pool", ["default", POOL])
def test_tasks_of_streams_get_free_slots_before_those_of_the_dedicated_host(spark: SparkSession, pool: str) -> None:
    tracker: Any = spark.sparkContext.statusTracker()
    with ThreadPoolExecutor(2) as threads:
        dedicated = threads.submit(launched, spark, DEDICATED_POOL, 18)
        until(lambda: bool(tracker.getActiveStageIds()), "the query on the dedicated host runs")
        first = threads.submit(launched, spark, pool, 9).result()
    between = [n for n in dedicated.result() if min(first) < n < max(first)]
    assert not between
    assert max(dedicated.result()) > max(first), "the other query was done before"
