"""When the planner starts an epoch, with a clock that only the test moves: without Spark, with the real source."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.model.definitions import StreamDef
from headrace.model.plan_version import PlanVersion
from headrace.model.schema import BIGINT, TIMESTAMP, Field, Schema
from headrace.spark import epochs
from headrace.spark.epochs import EpochPartition, EpochPlanner
from headrace.state.plans import PlanStore, unpack_plan
from headrace.state.progress import Progress, write_progress

Offset = dict[str, Any]


class Clock:
    """Stands for the module `time` in the planner."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return int(self.now * 1e9)


class Planning:
    """A stream of files, and its planner."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, **options: str) -> None:
        self.root, self.clock, self.files, self.rows = root, Clock(), 0, 0
        monkeypatch.setattr(epochs, "time", self.clock)
        monkeypatch.setattr(epochs, "send_notice", lambda *args, **facts: None)
        (root / "in").mkdir()
        schema = Schema((Field("id", BIGINT), Field("ts", TIMESTAMP)))
        stream = StreamDef("s", schema, 1, 0, "files", "json", {"path": str(root / "in"), **options})
        self.plans = PlanStore(root)
        self.stream, self.version = stream, 0
        self.publish()
        self.planner = EpochPlanner(
            {"directory": str(root), "checkpoint": "c", "port": "9", "token": "t", "parallelism": "2"}
        )
        self.at = self.cut(self.planner.initial())

    def publish(self) -> None:
        self.version += 1
        self.plans.publish(PlanVersion(self.version, self.stream, ()))

    def put(self, rows: int) -> None:
        """A file with so many rows of 20 bytes."""
        text = "".join(json.dumps({"id": 1000000 + i}) + "\n" for i in range(rows))
        (self.root / "in" / f"{self.files:04}.json").write_text(text)
        self.files += 1
        self.clock.now += 0.2  # the source lists its directory that often

    def cut(self, start: Offset | None = None) -> Offset:
        """An epoch is planned now, and committed."""
        begin = self.at if start is None else start
        end = self.planner.latest(begin)
        assert end != begin, "no epoch was cut"
        self.at = end
        return end

    def commit(self, rows: int, *, closed: int = 0, watermark: int | None = None) -> None:
        """The epoch is done."""
        self.rows += rows
        epoch = self.at["epoch"]
        write_progress(self.root, Progress(epoch, self.version, watermark, self.rows, self.rows * 16, closed=closed))

    def waits(self) -> bool:
        return self.planner.latest(self.at) == self.at


def test_by_default_rows_do_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planning = Planning(tmp_path, monkeypatch)
    planning.commit(0)
    assert planning.waits()  # nothing to read is no epoch
    planning.put(1)
    planning.cut()


def test_a_plan_version_is_read_once_and_travels_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planning = Planning(tmp_path, monkeypatch)
    read: set[int] = set()
    loaded = PlanStore._loaded

    def noted(store: PlanStore, version: int, parse: Callable[[str], Any]) -> Any:
        read.add(version)
        return loaded(store, version, parse)

    monkeypatch.setattr(PlanStore, "_loaded", noted)
    for version in (1, 2):
        planning.commit(0)
        assert planning.waits()
        planning.put(1)
        start = planning.at
        (part, *_) = planning.planner.partitions(start, planning.cut())
        assert isinstance(part, EpochPartition)
        assert unpack_plan(part.plan) == PlanVersion(version, planning.stream, ())
        assert read == set(range(2, version + 1))  # the first was read before
        planning.commit(1)
        planning.publish()
        planning.cut()


def test_rows_wait_for_max_latency_and_a_new_plan_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planning = Planning(tmp_path, monkeypatch, max_latency="5s")
    planning.commit(0)
    planning.put(3)
    assert planning.waits()
    planning.clock.now += 4.7
    planning.put(3)
    assert planning.waits()
    planning.clock.now += 0.2
    planning.cut()
    planning.commit(6)
    planning.put(1)
    assert planning.waits()
    planning.publish()
    assert planning.cut()["plan"] == 2


def test_a_damaged_hold_file_holds_until_it_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planning = Planning(tmp_path, monkeypatch)
    planning.commit(0)
    planning.put(1)
    (tmp_path / "hold").write_bytes(b"\xff\x00")
    assert planning.waits()
    (tmp_path / "hold").unlink()
    planning.cut()


def test_enough_rows_do_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planning = Planning(tmp_path, monkeypatch, max_latency="1h", max_rows="100")
    planning.commit(0)
    planning.put(10)
    planning.clock.now += 3601
    assert planning.waits()  # seen now for the first time
    planning.clock.now += 3601
    planning.cut()
    planning.commit(10)
    planning.put(80)
    assert planning.waits()
    planning.put(40)
    planning.cut()


@pytest.mark.parametrize("flush", ["true", "false"])
def test_after_windows_have_closed_the_next_epoch_is_cut_at_once(
    flush: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planning = Planning(tmp_path, monkeypatch, max_latency="1h", flush_on_watermark=flush)
    planning.commit(0, closed=2)
    assert planning.waits()
    planning.put(1)
    assert planning.waits() == (flush == "false")


def test_the_watermark_of_an_idle_stream_advances_until_rows_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planning = Planning(tmp_path, monkeypatch, idle_advance="10s")
    planning.commit(0)
    planning.clock.now += 60
    assert planning.waits()  # no row was ever seen
    planning.put(1)
    planning.cut()
    planning.commit(1, watermark=5_000_000)
    planning.clock.now += 9
    assert planning.waits()
    planning.clock.now += 1.5
    assert planning.cut()["watermark"] == 15_000_000
    planning.commit(0, watermark=15_000_000)
    assert planning.waits()
    planning.put(1)
    assert planning.cut()["watermark"] == 15_000_000
    planning.commit(1, watermark=15_000_000)
    planning.clock.now += 9
    assert planning.waits()


def test_the_clock_of_an_epoch_never_goes_back_and_reaches_its_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planning = Planning(tmp_path, monkeypatch)
    before = planning.at
    planning.commit(0)
    planning.put(1)
    planning.clock.now -= 3600
    planning.planner.source.backlog(planning.at["source"])
    planning.publish()
    end = planning.cut()
    assert end["now"] == before["now"]
    parts: Any = planning.planner.partitions(before, end)
    assert {part.planned.now for part in parts} == {end["now"]}
