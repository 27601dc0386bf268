"""A pipeline that would make gigabytes of a few rows fails alone, on Spark, and the workers stay small."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.hub.objects import Pipeline
from tests.e2e.support import put, rows_of, until
from tests.e2e.test_shared import workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
GUILTY = {
    "value": "SELECT repeat(k, 5000000 + id) AS a FROM s",
    "state": "SELECT repeat(k, 6000000) AS w, count(*) AS n FROM s GROUP BY k",
}
MANY = "SELECT id FROM s WHERE length(repeat(k, 300000)) > 5"


def largest(spark: SparkSession) -> float:
    """Megabytes that the largest worker had at its peak."""
    peaks = []
    for pid in workers(spark):
        with contextlib.suppress(FileNotFoundError):  # a worker that has just ended
            facts = Path(f"/proc/{pid}/status").read_text().splitlines()
            peaks += [int(line.split()[1]) / 1024 for line in facts if line.startswith("VmHWM:")]
    return max(peaks)


def _failed(pipeline: Pipeline) -> bool:
    return pipeline.status().state == "failed"


def test_a_pipeline_that_makes_too_much_fails_alone_and_workers_stay_small(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "in").mkdir()
    with headrace.connect(tmp_path / "state", spark=spark) as hub:
        hub.sql(f"""
            CREATE STREAM s (id INT, k STRING) WITH (source = 'files', format = 'json', path = '{tmp_path / "in"}');
            CREATE SINK m WITH (type = 'memory');
            CREATE PIPELINE fine INTO m AS SELECT id FROM s; CREATE PIPELINE many INTO m AS {MANY}""")
        for name, query in GUILTY.items():
            hub.sql(f"CREATE PIPELINE {name} INTO m AS {query}")
        before = largest(spark)
        put(tmp_path / "in" / "1.json", (f'{{"id": {i}, "k": "key{i}"}}' for i in range(600)))
        for name in GUILTY:
            pipeline = hub.pipelines[name]
            until(partial(_failed, pipeline), f"{name} fails")
            assert "[VALUE_TOO_LARGE]" in str(pipeline.status().error)
        put(tmp_path / "in" / "2.json", ['{"id": 600, "k": "x"}'])
        hub.streams["s"].sync()
        for name in ("fine", "many"):
            assert sorted(rows_of(hub.pipelines[name].results())) == [(i,) for i in range(601)]
            assert hub.pipelines[name].status().state == "running"
        # 600 values of 1.8 MB are 1 GB if they are made at once.
        assert largest(spark) - before < 500, "megabytes"
