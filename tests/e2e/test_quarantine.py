"""A pipeline that kills the Python worker it runs in is found and stopped; its neighbours do not notice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.hub import Hub
from tests.e2e.support import put, rows_of, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    hub: Hub, tmp_path: Path, crashes: Path
) -> None:
    hub.sql(
        "CREATE PIPELINE fine INTO m AS SELECT id FROM s;"
        "CREATE PIPELINE kills INTO m AS SELECT id, k FROM s;"
        "CREATE PIPELINE states INTO m AS SELECT k, max(id) AS high FROM s GROUP BY k;"
        "CREATE PIPELINE counts INTO m AS SELECT k, count(*) AS n FROM s GROUP BY k"
    )
    until(lambda: hub.pipelines["kills"].status().rows_out == 100, "the first file is read")
    crashes.write_text("kills\nstates/state\n")
    put(tmp_path / "in" / "1.json", lines(100, 160))
    until(lambda: hub.pipelines["fine"].status().rows_out == 160, "the neighbours go on with that very epoch")
    for name in ("kills", "states"):
        pipeline = hub.pipelines[name]
        until(lambda p=pipeline: p.status().state == "failed", f"{name} is stopped")  # type: ignore[misc]
        assert "[WORKER_DIED]" in pipeline.status().error
    assert hub.pipelines["kills"].status().missed_rows == 60
    put(tmp_path / "in" / "2.json", lines(160, 180))
    until(lambda: hub.pipelines["fine"].status().rows_out == 180, "and with the next")
    assert set(hub.streams["s"].status().subscribers) == {"fine", "counts"}
    # Started again when the cause is gone, it begins anew.
    crashes.unlink()
    hub.sql("START PIPELINE kills")
    put(tmp_path / "in" / "3.json", lines(180, 200))
    until(lambda: hub.pipelines["kills"].status().rows_out == 120, "it runs again")
    status = hub.pipelines["kills"].status()
    assert (status.state, [g.rows for g in status.gaps]) == ("running", [80])
    assert hub.wait_until_end(60)
    assert sorted(rows_of(hub.pipelines["fine"].results())) == [(i,) for i in range(200)]
    kept = [*range(100), *range(180, 200)]
    assert sorted(rows_of(hub.pipelines["kills"].results())) == [(i, f"k{i % 3}") for i in kept]
    counted: dict[str, int] = dict(rows_of(hub.pipelines["counts"].results()))
    assert counted == {"k0": 67, "k1": 67, "k2": 66}
    # Its state was dropped, not kept for an instance that begins anew.
    assert hub.pipelines["states"].status().groups == 0
