"""A pipeline that kills the Python worker it runs in is found and stopped; other pipelines are not affected."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.hub.hub import Hub
from tests.e2e.support import put, rows_of, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Where the worker dies: in a task of Ring 1, or of Ring 0. The way back is the same, so one is enough by default.
RING = os.environ.get("HEADRACE_CRASH_RING", "1")

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def lines(low: int, high: int) -> list[str]:
    return [f'{{"id": {i}, "k": "k{i % 3}"}}' for i in range(low, high)]


@pytest.fixture
def hub(tmp_path: Path, spark: SparkSession, crashes: Path) -> Iterator[Hub]:
    put(tmp_path / "in" / "0.json", lines(0, 100))
    with headrace.connect(tmp_path / "state", spark=spark, buckets=2) as opened:
        opened.sql(
            "CREATE STREAM s (id BIGINT, k STRING) WITH (source = 'files', format = 'json', "
            f"path = '{tmp_path / 'in'}'); CREATE SINK m WITH (type = 'memory')"
        )
        yield opened


def test_what_kills_a_worker_is_stopped_with_its_error_and_the_neighbours_lose_and_double_nothing(
    hub: Hub, tmp_path: Path, crashes: Path, spark: SparkSession
) -> None:
    hub.sql(
        "CREATE PIPELINE fine INTO m AS SELECT id FROM s;"
        "CREATE PIPELINE kills INTO m AS SELECT k, max(id) AS high FROM s GROUP BY k;"
        "CREATE PIPELINE counts INTO m AS SELECT k, count(*) AS n FROM s GROUP BY k"
    )
    until(lambda: hub.pipelines["fine"].status().rows_out == 100, "the first file is read")
    crashes.write_text("kills/state\n" if RING == "1" else "kills\n")
    put(tmp_path / "in" / "1.json", lines(100, 160))
    until(lambda: hub.pipelines["fine"].status().rows_out == 160, "the neighbours go on with that very epoch")
    until(lambda: hub.pipelines["kills"].status().state == "failed", "the guilty one is stopped")
    assert "[WORKER_DIED]" in hub.pipelines["kills"].status().error
    assert hub.pipelines["kills"].status().missed_rows == 60
    # Started again after the cause is gone, it has none of its old state.
    crashes.unlink()
    hub.sql("START PIPELINE kills")
    put(tmp_path / "in" / "2.json", lines(160, 180))
    until(lambda: hub.pipelines["kills"].status().rows_out == 6, "it runs again")
    status = hub.pipelines["kills"].status()
    assert (status.state, [g.rows for g in status.gaps]) == ("running", [60])
    assert set(hub.streams["s"].status().subscribers) == {"fine", "counts", "kills"}
    assert hub.wait_until_end(60)
    assert sorted(rows_of(hub.pipelines["fine"].results())) == [(i,) for i in range(180)]
    counted: dict[str, int] = dict(rows_of(hub.pipelines["counts"].results()))
    assert counted == {"k0": 60, "k1": 60, "k2": 60}
    # The search ran epochs with fewer pipelines. The next start must not read the state that these epochs wrote.
    hub.close()
    spark._jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()  # type: ignore[union-attr]  # as a new JVM would
    with headrace.connect(tmp_path / "state", spark=spark, buckets=2) as again:
        put(tmp_path / "in" / "3.json", lines(180, 186))
        until(lambda: again.pipelines["fine"].results().num_rows == 6, "the reopened hub reads on")
        assert again.wait_until_end(60)
        counted = dict(rows_of(again.pipelines["counts"].results()))
        assert counted == {"k0": 62, "k1": 62, "k2": 62}
