"""A stream that waits for room in a stream made of its output: nothing is lost, and no limit counts the time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.errors import StreamFailed
from headrace.hub.hub import Hub
from tests.e2e.support import put, until
from tests.shared.chain import Chain, record
from tests.shared.running import RunningQueries

FULL = "backpressure = 'pause', max_backlog = '100b'"  # full after every epoch


def eight_files(directory: Path) -> None:
    for part in range(8):
        put(directory / f"{part}.json", [record(part, a=part * 20 + i) for i in range(20)])


@pytest.fixture
def queries() -> RunningQueries:
    return RunningQueries()


@pytest.fixture
def hub(tmp_path: Path, queries: RunningQueries) -> Iterator[Hub]:
    """One whose stream `raw` reads files one by one."""
    (tmp_path / "in").mkdir()
    with Hub(tmp_path / "state", queries, buckets=2, start_timeout=60.0) as opened:
        opened.sql(
            f"""CREATE STREAM raw (ts TIMESTAMP, a BIGINT) WITH (source = 'files', format = 'json',
            path = '{tmp_path / "in"}', max_epoch_bytes = '1000', max_epoch_time = '30s', max_latency = '1ms');
            CREATE SINK o WITH (type = 'memory'); CREATE SINK p WITH (type = 'memory')"""
        )
        yield opened


def test_a_stream_that_waits_for_room_is_no_epoch_that_takes_too_long(
    tmp_path: Path, hub: Hub, queries: RunningQueries, monkeypatch: pytest.MonkeyPatch
) -> None:
    eight_files(tmp_path / "in")
    monkeypatch.setattr("headrace.stream.planner_watch.SILENCE_SECONDS", 0.3)
    hub.sql(f"CREATE PIPELINE clean INTO p AS SELECT a FROM raw; CREATE STREAM good AS PIPELINE clean WITH ({FULL})")
    until(lambda: hub.streams["raw"].status().paused_by == ["clean"], "it is paused")
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        status = hub.streams["raw"].status()
        assert (status.state, status.epoch_age, status.problem) == ("running", None, "")
        time.sleep(0.1)
    assert queries.launched == ["raw"]
    hub.sql("CREATE PIPELINE reads INTO o AS SELECT a FROM good")
    until(lambda: hub.pipelines["clean"].results().num_rows == 160, "it goes on when there is room")


def test_waiting_for_the_end_fails_if_a_dead_stream_does_not_read(
    tmp_path: Path, hub: Hub, queries: RunningQueries
) -> None:
    hub.sql(
        f"""CREATE PIPELINE clean INTO p AS SELECT a FROM raw; CREATE STREAM good AS PIPELINE clean WITH ({FULL});
        CREATE PIPELINE again INTO p AS SELECT a FROM good; CREATE STREAM better AS PIPELINE again WITH ({FULL});
        CREATE PIPELINE reads INTO o AS SELECT a FROM better"""
    )
    queries.fail("better", "[FILE_CHANGED] it cannot go on")
    eight_files(tmp_path / "in")
    with pytest.raises(StreamFailed) as caught:
        hub.wait_until_end(60)
    assert "better" in caught.value.message
    assert hub.pipelines["clean"].results().num_rows < 160
    hub.sql("START PIPELINE reads")
    assert hub.wait_until_end(60)
    assert Counter(hub.pipelines["reads"].results()["a"].to_pylist()) == Counter(range(160))


def test_the_watermark_of_a_stream_does_not_advance_while_rows_wait_for_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("headrace.spark.epochs.time.monotonic", lambda: now[0])
    chain = Chain(tmp_path / "state", monkeypatch)
    (tmp_path / "in").mkdir()
    chain.sql(
        f"""CREATE STREAM raw (ts TIMESTAMP, a BIGINT, WATERMARK FOR ts AS ts) WITH (source = 'files', format = 'json',
        path = '{tmp_path / "in"}', max_latency = '1ms', idle_advance = '10s');
        CREATE SINK o WITH (type = 'kept'); CREATE SINK p WITH (type = 'kept');
        CREATE PIPELINE clean INTO p AS SELECT ts, a FROM raw;
        CREATE STREAM good AS PIPELINE clean WITH ({FULL});
        CREATE PIPELINE counts INTO o AS
            SELECT window_start, window_end, count(*) AS n FROM TUMBLE(raw, ts, INTERVAL 1 MINUTE)
            GROUP BY window_start, window_end"""
    )
    for part in range(2):
        put(tmp_path / "in" / f"{part}.json", [record(part, a=part)])
        for _ in range(3):
            now[0] += 1
            chain.step("raw")
    for _ in range(60):
        now[0] += 10
        chain.step("raw")
    assert len(chain.rows("clean")) == 1, "the second row waits for room"
    chain.sql("CREATE PIPELINE reads INTO o AS SELECT a FROM good")
    for _ in range(20):
        now[0] += 1
        chain.drain()
    assert len(chain.rows("clean")) == 2
    assert chain.hub.pipelines["counts"].status().late == 0
