"""A stream recovers by itself and reports it: killed processes, missing input, hanging commits."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from headrace.hub.hub import Hub
from headrace.sinks.memory import MemorySink
from tests.e2e.support import put, rows_of, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def lines(low: int, high: int) -> list[str]:
    return [f'{{"id": {i}}}' for i in range(low, high)]


def descendants(root: int) -> list[tuple[int, str]]:
    """The processes below `root`, with their command lines."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:  # it ended meanwhile
                continue
    found, below = [], {root}
    while below:
        below = {pid for pid, parent in parents.items() if parent in below}
        for pid in below:
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            found.append((pid, command))
    return found


def kill(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def hub(tmp_path: Path, spark: SparkSession) -> Iterator[Hub]:
    put(tmp_path / "in" / "0.json", lines(0, 10))
    with headrace.connect(tmp_path / "state", spark=spark, buckets=2) as opened:
        yield opened


def begin(hub: Hub, tmp_path: Path, options: str = "") -> None:
    hub.sql(
        f"CREATE STREAM s (id BIGINT) WITH (source = 'files', format = 'json', path = '{tmp_path / 'in'}'{options});"
        "CREATE SINK m WITH (type = 'memory'); CREATE PIPELINE p INTO m AS SELECT id FROM s"
    )
    until(lambda: hub.pipelines["p"].status().rows_out == 10, "the first file is read")


def comes_back(hub: Hub, tmp_path: Path, low: int) -> None:
    """The stream reads the next file, and no row is lost or duplicated."""
    put(tmp_path / "in" / f"{low}.json", lines(low, low + 10))
    until(lambda: hub.pipelines["p"].status().rows_out == low + 10, f"rows from {low} on are there")
    assert sorted(rows_of(hub.pipelines["p"].results())) == [(i,) for i in range(low + 10)]
    until(lambda: hub.streams["s"].status().state == "running", "it runs")
    assert hub.pipelines["p"].status().state == "running"


def test_killed_processes_and_an_input_that_is_away_end_no_stream(
    hub: Hub, tmp_path: Path, spark: SparkSession
) -> None:
    begin(hub, tmp_path)
    runtime = hub.runtime("s")
    # The planning process.
    planner = runtime.planner_pid
    assert planner is not None
    kill([planner])
    until(lambda: hub.streams["s"].status().state == "retrying", "the failure is shown")
    status = hub.streams["s"].status()
    assert (status.attempt, hub.pipelines["p"].status().state) == (1, "retrying")
    assert status.next_try is not None and status.since is not None and status.problem
    comes_back(hub, tmp_path, 10)
    # Spark's Python daemon together with all of its workers, in the middle of an epoch or between two.
    killed = [pid for pid, command in descendants(os.getpid()) if "-m headrace.spark.daemon" in command]
    assert killed
    kill(killed)
    comes_back(hub, tmp_path, 20)
    # The input directory is away for a second.
    (tmp_path / "in").rename(tmp_path / "away")
    until(lambda: hub.streams["s"].status().state == "retrying", "the failure is shown")
    assert "MISSING_FILE" in hub.streams["s"].status().problem
    (tmp_path / "away").rename(tmp_path / "in")
    comes_back(hub, tmp_path, 30)


def test_a_commit_that_wants_to_end_the_process_is_a_failure_like_any_other(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(hub, tmp_path)
    real, raised = MemorySink.commit, list[BaseException]()

    def leaves(self: MemorySink, *given: Any) -> int:
        if len(raised) < 2:
            raised.append((SystemExit(3), KeyboardInterrupt())[len(raised)])
            raise raised[-1]
        return real(self, *given)

    monkeypatch.setattr(MemorySink, "commit", leaves)
    comes_back(hub, tmp_path, 10)
    assert len(raised) == 2


def test_a_commit_that_hangs_is_shown_and_does_not_block_dropping_the_stream(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.spark.query.PLANNER_SECONDS", 0.5)
    monkeypatch.setattr("headrace.spark.query.STOP_SECONDS", 1.0)
    begin(hub, tmp_path)
    hanging, go_on, real = threading.Event(), threading.Event(), MemorySink.commit

    def hangs(self: MemorySink, *given: Any) -> int:
        hanging.set()
        go_on.wait(60)
        return real(self, *given)

    monkeypatch.setattr(MemorySink, "commit", hangs)
    put(tmp_path / "in" / "1.json", lines(10, 20))
    assert hanging.wait(60)  # not a commit of the epoch before, which may still be shown
    until(lambda: "sink m of pipeline p" in hub.streams["s"].status().waiting_for, "who it waits for is shown")
    assert (hub.streams["s"].status().epoch_age or 0) > 0
    hub.sql("STOP PIPELINE p NOW")
    hub.sql("DROP PIPELINE p; DROP STREAM s")
    assert not hub.streams
    go_on.set()


def test_a_task_that_never_ends_affects_only_its_own_pipeline(hub: Hub, tmp_path: Path, crashes: Path) -> None:
    begin(hub, tmp_path, ", max_epoch_time = '4s'")
    hub.sql("CREATE PIPELINE hangs INTO m AS SELECT id + 1 AS n FROM s")
    crashes.write_text("hangs/for ever\n")
    comes_back(hub, tmp_path, 10)
    until(lambda: hub.pipelines["hangs"].status().state == "failed", "the one that hangs is stopped")
    assert "[EPOCH_TIMEOUT]" in hub.pipelines["hangs"].status().error
