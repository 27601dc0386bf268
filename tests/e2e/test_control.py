"""Control signals on the user's path: stops, several sinks, a sink that fails, signals with acknowledgements."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import headrace
from headrace.control.signals import SYNC_TEST
from headrace.hub.hub import Hub
from headrace.sinks.sink_kind import SinkKey, Staged
from tests.e2e.support import put, rows_of, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

STREAM = """CREATE STREAM s (id BIGINT, k STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 2 SECONDS)
    WITH (source = 'files', format = 'json', path = '{place}/in', max_epoch_bytes = '100kb')"""


def lines(low: int, high: int) -> list[str]:
    """Rows low..high-1, ten a second."""
    return [
        f'{{"id": {i}, "k": "k{i % 3}", '
        f'"ts": "2026-01-01T{i // 36000:02}:{i // 600 % 60:02}:{i // 10 % 60:02}.{i % 10}Z"}}'
        for i in range(low, high)
    ]


@pytest.fixture
def hub(tmp_path: Path, spark: SparkSession) -> Iterator[Hub]:
    put(tmp_path / "in" / "0.json", lines(0, 100))
    with headrace.connect(tmp_path / "state", spark=spark, buckets=2) as opened:
        opened.sql(STREAM.format(place=tmp_path))
        yield opened


class Feeder:
    """Puts files of 50 rows into the input until `stop` is called."""

    def __init__(self, place: Path) -> None:
        self._place, self._stop, self.rows = place, threading.Event(), 100
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            put(self._place / "in" / f"{self.rows:06}.json", lines(self.rows, self.rows + 50))
            self.rows += 50

    def stop(self) -> int:
        self._stop.set()
        self._thread.join()
        return self.rows


def parquet_ids(path: Path) -> list[int]:
    return sorted(row["id"] for row in pq.read_table(path).to_pylist()) if list(path.glob("part-*")) else []


def json_ids(path: Path) -> list[int]:
    return sorted(json.loads(line)["id"] for part in path.glob("part-*") for line in part.read_text().splitlines())


def test_a_graceful_stop_under_load_loses_and_doubles_nothing_in_two_sinks_of_different_speed(
    hub: Hub, tmp_path: Path
) -> None:
    hub.sql(
        f"""CREATE SINK fast WITH (type = 'parquet', path = '{tmp_path}/fast');
        CREATE SINK slow WITH (type = 'jsonl', path = '{tmp_path}/slow');
        CREATE PIPELINE p INTO fast, slow AS SELECT id FROM s"""
    )
    runtime = hub.runtime("s")
    held = runtime.committer.sink(hub.record("p").definition, "slow")
    commit = held.commit

    def slowly(key: SinkKey, staged: list[Staged]) -> int:
        time.sleep(0.15)
        return commit(key, staged)

    held.commit = slowly  # type: ignore[method-assign]
    feeder = Feeder(tmp_path)
    until(lambda: len(parquet_ids(tmp_path / "fast")) > 300, "rows flow")
    hub.sql("STOP PIPELINE p GRACEFUL")
    stopped = parquet_ids(tmp_path / "fast")
    assert stopped == json_ids(tmp_path / "slow")  # the same cut
    assert stopped == list(range(len(stopped)))  # a prefix of the stream: nothing lost, nothing twice
    fed = feeder.stop()
    assert len(stopped) < fed
    states = [c.state for c in hub.pipelines["p"].status().changes]
    assert states == ["starting", "running", "stopping", "stopped"]
    # It continues later. The rows that it missed are a gap, the same in both sinks.
    hub.sql("START PIPELINE p")
    put(tmp_path / "in" / "z.json", lines(fed, fed + 20))
    until(lambda: fed + 19 in parquet_ids(tmp_path / "fast"), "the newest row")
    hub.sql("STOP PIPELINE p")
    fast, slow = parquet_ids(tmp_path / "fast"), json_ids(tmp_path / "slow")
    assert Counter(fast) == Counter(slow) and max(Counter(fast).values()) == 1
    assert len(fast) + hub.pipelines["p"].status().missed_rows == fed + 20


def test_open_windows_are_kept_or_closed_as_asked_and_now_drops_them(hub: Hub, tmp_path: Path) -> None:
    query = "SELECT unix_seconds(window.start) AS start, count(*) AS n FROM s GROUP BY window(ts, '1 hour')"
    hub.sql(
        "CREATE SINK m WITH (type = 'memory');"
        + ";".join(f"CREATE PIPELINE {name} INTO m AS {query}" for name in ("kept", "closed", "dropped"))
    )
    until(lambda: hub.streams["s"].status().rows == 100, "the first file")
    hub.sql("STOP PIPELINE kept KEEP WINDOWS; STOP PIPELINE closed GRACEFUL CLOSE WINDOWS")
    hub.sql("STOP PIPELINE dropped NOW")
    until(lambda: hub.pipelines["dropped"].status().state == "stopped", "dropped has stopped")
    assert hub.pipelines["closed"].status().state == hub.pipelines["kept"].status().state == "stopped"
    assert [n for _, n in rows_of(hub.pipelines["closed"].results())] == [100]
    assert rows_of(hub.pipelines["kept"].results()) == rows_of(hub.pipelines["dropped"].results()) == []
    hub.sql("START PIPELINE kept; START PIPELINE closed; START PIPELINE dropped")
    put(tmp_path / "in" / "1.json", lines(100, 130))
    assert hub.wait_until_end(90)
    assert [n for _, n in rows_of(hub.pipelines["kept"].results())] == [130]
    assert [n for _, n in rows_of(hub.pipelines["closed"].results())] == [100]  # its window is closed for good
    assert hub.pipelines["closed"].status().late == 30
    assert [n for _, n in rows_of(hub.pipelines["dropped"].results())] == [30]


def test_signals_are_acknowledged_in_both_channels_with_ids_of_one_counter(hub: Hub, tmp_path: Path) -> None:
    hub.sql("CREATE SINK m WITH (type = 'memory'); CREATE PIPELINE p INTO m AS SELECT id FROM s")
    runtime = hub.runtime("s")
    epochs = []
    ids = []
    for number in range(3):
        put(tmp_path / "in" / f"{number + 1}.json", lines(100 + number * 10, 110 + number * 10))
        ack = runtime.barrier(SYNC_TEST).result(60)
        assert hub.streams["s"].sync() > ack.epoch
        ids.append(ack.signal.id)
        epochs.append(ack.epoch)
        assert hub.streams["s"].ping() >= ack.epoch
        assert hub.streams["s"].flush() >= ack.epoch
    assert epochs == sorted(set(epochs))  # one epoch each
    assert ids == sorted(set(ids)) and ids[1] - ids[0] == 4  # a sync, a ping and a flush between them


def test_a_sink_that_fails_is_detached_or_stops_its_pipeline_and_nothing_is_written_twice(
    hub: Hub, tmp_path: Path
) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    again = "retries = '2', retry_backoff = '10ms'"
    hub.sql(
        f"""CREATE SINK good WITH (type = 'parquet', path = '{good}');
        CREATE SINK bad WITH (type = 'jsonl', path = '{bad}', {again}, on_failure = 'detach');
        CREATE SINK worse WITH (type = 'jsonl', path = '{tmp_path}/worse', {again});
        CREATE SINK mine WITH (type = 'parquet', path = '{tmp_path}/mine');
        CREATE PIPELINE d INTO good, bad AS SELECT id FROM s;
        CREATE PIPELINE t INTO mine, worse AS SELECT id FROM s"""
    )
    until(lambda: len(parquet_ids(good)) == len(json_ids(bad)) == len(json_ids(tmp_path / "worse")) == 100, "100 rows")
    for path in (bad, tmp_path / "worse"):  # tasks can no longer stage there
        (path / "_headrace").rename(path / "aside")
        (path / "_headrace").write_text("in the way")
    put(tmp_path / "in" / "1.json", lines(100, 200))
    until(lambda: hub.pipelines["d"].status().detached, "the sink is detached")
    until(lambda: hub.pipelines["t"].status().state == "failed", "the other pipeline has stopped")
    until(lambda: len(parquet_ids(good)) == 200, "the other sink goes on")
    assert hub.pipelines["d"].status().state == "running" and "bad" in hub.pipelines["d"].status().detached
    assert "SINK_FAILED" in hub.pipelines["t"].status().error
    assert parquet_ids(tmp_path / "mine") == json_ids(tmp_path / "worse") == list(range(100))  # the same cut
    for path in (bad, tmp_path / "worse"):
        (path / "_headrace").unlink()
        (path / "aside").rename(path / "_headrace")
    hub.sql("START PIPELINE d; START PIPELINE t")
    assert not hub.pipelines["d"].status().detached
    put(tmp_path / "in" / "2.json", lines(200, 300))
    assert hub.wait_until_end(90)
    assert parquet_ids(good) == list(range(300))
    assert json_ids(bad) == [*range(100), *range(200, 300)]
    assert parquet_ids(tmp_path / "mine") == json_ids(tmp_path / "worse") == [*range(100), *range(200, 300)]
