"""What a stream's and a pipeline's options do while they run: batch policy, idle streams, far-future rows, late rows,
limits and the end of input."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.hub.hub import Hub
from tests.e2e.support import put, rows_of, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def line(second: float, k: str = "a") -> str:
    ts = (START + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return json.dumps({"id": round(second), "k": k, "ts": ts, "spare": "x"})


def stream(directory: Path, name: str = "s", delay: int = 0, **options: str) -> str:
    directory.mkdir(exist_ok=True)
    more = "".join(f", {k} = '{v}'" for k, v in options.items())
    return (
        f"CREATE STREAM {name} (id BIGINT, k STRING, ts TIMESTAMP, spare STRING, WATERMARK FOR ts AS ts - INTERVAL "
        f"{delay} SECONDS) WITH (source = 'files', format = 'json', path = '{directory}'{more})"
    )


def facts(hub: Hub, name: str) -> dict[str, str]:
    """DESCRIBE as a dictionary."""
    table = hub.sql(f"DESCRIBE {name}")[0].table
    assert table is not None
    return {row["fact"]: row["value"] for row in table.to_pylist()}


def test_a_stream_waits_for_rows_as_its_batch_policy_says(spark: SparkSession, tmp_path: Path) -> None:
    with headrace.connect(tmp_path / "state", spark=spark, buckets=1) as hub:
        put(tmp_path / "in" / "0.json", [line(0)])
        hub.sql(
            f"{stream(tmp_path / 'in', max_latency='3s', max_rows='50')}; CREATE SINK m WITH (type = 'memory');"
            "CREATE PIPELINE p INTO m AS SELECT id FROM s"
        )
        seen = hub.streams["s"]
        until(lambda: seen.status().rows == 1, "the first row: a new plan does not wait")
        first, began = seen.status().epoch, time.monotonic()
        for i in (1, 2, 3):
            put(tmp_path / "in" / f"{i}.json", [line(i)])
            time.sleep(0.4)
        until(lambda: seen.status().rows == 4, "three files")
        assert time.monotonic() - began > 2.5
        assert seen.status().epoch == first + 1  # one epoch has all three
        committed = seen.status().epoch
        put(tmp_path / "in" / "4.json", [line(i) for i in range(4, 100)])
        until(lambda: seen.status().rows == 100, "more rows than max_rows")
        assert seen.status().epoch == committed + 1
        explained = str(hub.sql("EXPLAIN SELECT id FROM s")[0])
        assert "max_latency 3 seconds" in explained


def test_silence_far_future_late_rows_and_too_many_groups(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in" / "0.json", [line(i, "ab"[i % 2]) for i in range(60)] + [line(1e9, "future")])
    with headrace.connect(tmp_path / "state", spark=spark, buckets=2) as hub:
        hub.sql(
            f"""{stream(tmp_path / "in", idle_advance="1s", max_latency="1ms")};
            CREATE SINK m WITH (type = 'memory'); CREATE SINK too_late WITH (type = 'memory');
            CREATE PIPELINE w INTO m WITH (late_sink = 'too_late') AS
              SELECT window.start AS s, k, count(*) AS n FROM s GROUP BY window(ts, '1 minute'), k;
            CREATE PIPELINE h INTO m WITH (late_sink = too_late) AS
              SELECT window.start AS s, count(*) AS n FROM s WHERE id < 30 GROUP BY window(ts, '1 minute');
            CREATE PIPELINE d INTO m AS SELECT DISTINCT k FROM s;
            CREATE PIPELINE wide INTO m WITH (max_groups = 5) AS SELECT id, count(*) AS n FROM s GROUP BY id"""
        )
        window = hub.pipelines["w"]
        # No row moves the watermark beyond 59 s: the row in the far future must not, the clock does.
        until(lambda: window.status().rows_out == 2, "a window that only silence closes")
        assert sorted(rows_of(window.results("m"))) == [(START, "a", 30), (START, "b", 30)]
        assert sorted(r[0] for r in rows_of(hub.pipelines["d"].results())) == ["a", "b", "future"]
        until(lambda: hub.pipelines["wide"].status().state == "failed", "more groups than allowed")
        assert "TOO_MANY_GROUPS" in hub.pipelines["wide"].status().error
        status = hub.streams["s"].status()
        assert status.far_future == 1
        assert status.watermark is not None
        assert START + timedelta(seconds=60) <= status.watermark < START + timedelta(hours=1)
        # The stream's watermark has gone on, so these are late.
        put(tmp_path / "in" / "1.json", [line(5, "a"), line(7, "b"), line(50, "c")])
        until(lambda: window.status().late == 3, "late rows")
        late = [("a", 5), ("b", 7), ("c", 50)]
        assert rows_of(window.results("too_late")) == [(k, START + timedelta(seconds=t)) for k, t in late]
        assert [r[0] for r in rows_of(hub.pipelines["h"].results("too_late"))] == [5, 7]
        assert sorted(r[0] for r in rows_of(hub.pipelines["d"].results())) == ["a", "b", "c", "future"]
        found = facts(hub, "w")
        assert (found["late"], found["state"]) == ("3", "running")
        assert found["sent"].replace(", dropped 3", ", dropped 0") == found["received"]
        assert int(found["groups"]) == 1 and int(found["state_bytes"]) > 0  # the far future is still open
        assert facts(hub, "s")["far_future"] == "1"
        assert "warning" in str(hub.sql("EXPLAIN SELECT id FROM s")[0])  # 1 ms is less than an epoch takes


def test_the_end_of_input_closes_no_window_if_asked_not_to_and_an_empty_stream_has_totals(
    spark: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path / "in" / "0.json", [line(i) for i in range(10)])
    total = "SELECT count(*) AS n, sum(id) AS total, max(k) AS high FROM"
    options = stream(tmp_path / "in", "keeping", close_at_end="false")
    with headrace.connect(tmp_path / "state", spark=spark, buckets=1) as hub:
        hub.sql(
            f"""{options}; {stream(tmp_path / "none", "empty")}; CREATE SINK m WITH (type = 'memory');
            CREATE PIPELINE k INTO m AS SELECT count(*) AS n FROM keeping GROUP BY window(ts, '1 minute');
            CREATE PIPELINE everything INTO m AS {total} keeping; CREATE PIPELINE nothing INTO m AS {total} empty;
            CREATE PIPELINE no_groups INTO m AS SELECT k, count(*) AS n FROM empty GROUP BY k"""
        )
        assert hub.wait_until_end(90)
        results = {name: rows_of(pipeline.results()) for name, pipeline in hub.pipelines.items()}
        totals = {"everything": [(10, 45, "a")], "nothing": [(0, None, None)]}
        assert results == {"k": [], "no_groups": [], **totals}
        assert hub.pipelines["k"].status().groups == 1
