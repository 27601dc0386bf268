"""A sink without room: its stream waits, shows the reason, and continues by itself with every row once."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from headrace.base import durable
from headrace.sinks import outputs
from headrace.stream.retries import RetryPolicy
from tests.e2e.support import put, until
from tests.shared.mini import Mini


class Disk:
    """The disk of the directories `full`: no file can be made durable there at `place`."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.full: set[str] = set()
        self.place, self.number = "stage", errno.ENOSPC
        patch.setattr(outputs, "fsync", self._fsync)
        patch.setattr(outputs, "write_atomic", self._write)

    def _refuse(self, path: Path, place: str) -> None:
        if place == self.place and any(name in path.parts for name in self.full):
            raise OSError(self.number, "No space left on device", str(path))

    def _fsync(self, path: Path) -> None:
        if path.suffix == ".staged":
            self._refuse(path, "stage")
        durable.fsync(path)

    def _write(self, path: Path, data: bytes) -> None:
        self._refuse(path, "commit")
        durable.write_atomic(path, data)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.setattr("headrace.stream.supervisor.RetryPolicy", lambda: RetryPolicy(first=600, longest=600))
    return Disk(monkeypatch)


@pytest.fixture
def mini(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: Disk) -> Mini:
    made = Mini(tmp_path / "state", monkeypatch)
    (tmp_path / "in").mkdir()
    made.hub.sql(f"CREATE STREAM s (a BIGINT) WITH (source = 'files', format = 'json', path = '{tmp_path / 'in'}')")
    for name in ("small", "large"):
        made.hub.sql(f"CREATE SINK {name} WITH (type = 'jsonl', path = '{tmp_path / name}', retries = '0')")
    return made


def feed(mini: Mini, low: int, high: int) -> None:
    put(mini.directory.parent / "in" / f"{low}.json", [json.dumps({"a": i}) for i in range(low, high)])
    mini.drain()


def again(mini: Mini) -> None:
    mini.hub.runtime("s").supervisor.try_now()
    mini.drain()


def shown(mini: Mini, sink: str) -> list[int]:
    parts = (mini.directory.parent / sink).glob("part-*")
    return sorted(json.loads(line)["a"] for part in parts for line in part.read_text().splitlines())


def staged(mini: Mini) -> list[Path]:
    return list(mini.directory.parent.rglob("*.staged"))


@pytest.mark.parametrize("into", ["small", "small, large"])
@pytest.mark.parametrize("place", ["stage", "commit"])
def test_a_full_disk_of_a_sink_is_waited_for_and_no_row_is_lost_or_doubled(
    mini: Mini, disk: Disk, place: str, into: str
) -> None:
    mini.hub.sql(f"CREATE PIPELINE p INTO {into} AS SELECT a FROM s WHERE a < 1000")
    mini.hub.sql("CREATE SINK other WITH (type = 'memory'); CREATE PIPELINE q INTO other AS SELECT a FROM s")
    feed(mini, 0, 10)
    disk.place, disk.full = place, {"small"}
    feed(mini, 10, 20)
    for _ in range(3):
        assert [p.status().state for p in mini.hub.pipelines.values()] == ["retrying", "retrying"]
        assert mini.hub.pipelines["p"].status().error.startswith("[SINK_UNAVAILABLE] sink small")
        assert not staged(mini), "tries must not fill the disk"
        again(mini)
    disk.full = set()
    again(mini)
    feed(mini, 20, 30)
    assert [p.status().state for p in mini.hub.pipelines.values()] == ["running", "running"]
    for sink in into.split(", "):
        assert shown(mini, sink) == list(range(30))
    assert mini.hub.pipelines["q"].results()["a"].to_pylist() == list(range(30))
    assert mini.hub.pipelines["p"].status().rows_out == 30


def test_a_full_sink_is_waited_for_without_a_limit(mini: Mini, disk: Disk) -> None:
    mini.hub.sql("CREATE PIPELINE p INTO small AS SELECT a FROM s")
    feed(mini, 0, 10)
    supervisor = mini.hub.runtime("s").supervisor
    supervisor.retries.policy = RetryPolicy(first=0.0, longest=0.0, limit=2)
    disk.full = {"small"}
    put(mini.directory.parent / "in" / "10.json", [json.dumps({"a": 10})])
    until(
        lambda: mini.step() and supervisor.retrying is not None and supervisor.retrying.attempt > 5, "it is tried again"
    )
    assert supervisor.state == "retrying"


@pytest.mark.parametrize("leave", ["STOP PIPELINE p NOW", "DROP PIPELINE p"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.ESTALE])
def test_a_pipeline_whose_sink_is_waited_for_can_leave_and_the_others_go_on(
    mini: Mini, disk: Disk, leave: str, number: int
) -> None:
    mini.hub.sql("CREATE PIPELINE p INTO small AS SELECT a FROM s; CREATE PIPELINE q INTO large AS SELECT a FROM s")
    feed(mini, 0, 10)
    disk.full, disk.number = {"small"}, number
    feed(mini, 10, 20)
    for _ in range(4):
        again(mini)
    mini.hub.sql(leave)
    again(mini)
    assert mini.hub.pipelines["q"].status().state == "running"
    assert (shown(mini, "small"), shown(mini, "large")) == (list(range(10)), list(range(20)))


def test_a_sink_that_may_be_detached_holds_up_no_pipeline(mini: Mini, disk: Disk) -> None:
    path = mini.directory.parent / "extra"
    mini.hub.sql(f"CREATE SINK extra WITH (type = 'jsonl', path = '{path}', retries = '0', on_failure = 'detach')")
    mini.hub.sql("CREATE PIPELINE p INTO large, extra AS SELECT a FROM s")
    disk.full = {"extra"}
    feed(mini, 0, 10)
    assert shown(mini, "large") == list(range(10))
    assert "SINK_UNAVAILABLE" in mini.hub.record("p").detached["extra"]


def test_a_directory_that_may_not_be_written_to_stops_its_own_pipeline_only(mini: Mini, disk: Disk) -> None:
    mini.hub.sql("CREATE PIPELINE p INTO small AS SELECT a FROM s; CREATE PIPELINE q INTO large AS SELECT a FROM s")
    disk.full, disk.number = {"small"}, errno.EACCES
    feed(mini, 0, 10)
    assert [p.status().state for p in mini.hub.pipelines.values()] == ["failed", "running"]
    assert shown(mini, "large") == list(range(10))


def test_dead_letters_without_room_hold_up_the_stream_until_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: Disk
) -> None:
    mini = Mini(tmp_path / "state", monkeypatch)
    put(tmp_path / "in" / "0.json", ['{"a": 0}'])
    mini.hub.sql(
        f"CREATE SINK small WITH (type = 'jsonl', path = '{tmp_path / 'small'}');"
        f"CREATE STREAM s (a BIGINT) WITH (source = 'files', format = 'json', path = '{tmp_path / 'in'}',"
        " on_error = 'dead_letter', dead_letter_sink = 'small'); CREATE SINK m WITH (type = 'memory')"
    )
    mini.hub.sql("CREATE PIPELINE p INTO m AS SELECT a FROM s")
    mini.drain()
    disk.place, disk.full = "commit", {"small"}
    put(tmp_path / "in" / "1.json", ["{", '{"a": 1}'])
    mini.drain()
    assert "[SINK_UNAVAILABLE]" in mini.hub.streams["s"].status().problem
    disk.full = set()
    again(mini)
    assert mini.hub.streams["s"].status().dead_letters == 1
    assert mini.hub.pipelines["p"].results()["a"].to_pylist() == [0, 1]
