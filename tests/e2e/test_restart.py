"""Restarts with Spark's own files: odd paths, logs that a power loss took, modes of what is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from headrace.base.durable import write_atomic
from headrace.errors import HeadraceError
from headrace.sinks import outputs
from headrace.spark import query
from headrace.state.checkpoint import misplaced
from headrace.state.restore import restore
from headrace.state.spark_log import sync_epoch
from headrace.state.state_dir import stream_directory
from tests.e2e.support import put
from tests.state.test_state_dir import wide

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]

NAME = "größe 50%41"


def script(place: Path) -> str:
    return f"""
        CREATE STREAM `{NAME}` (id BIGINT) WITH (source = 'files', path = '{place}/in', format = 'json');
        CREATE SINK rows WITH (type = 'jsonl', path = '{place}/rows');
        CREATE SINK counts WITH (type = 'jsonl', path = '{place}/counts');
        CREATE PIPELINE plain INTO rows AS SELECT id FROM `{NAME}`;
        CREATE PIPELINE counted INTO counts AS SELECT id % 2 AS k, count(*) AS n FROM `{NAME}` GROUP BY id % 2"""


def found(sink: Path) -> list[dict[str, Any]]:
    parts = sorted(sink.glob("part-*"), key=lambda part: part.name.split("-")[3])
    return [json.loads(line) for part in parts for line in part.read_text().splitlines()]


class Runs:
    """Opens a hub, gives it a file of four rows, and closes it, several times."""

    def __init__(self, place: Path, spark: SparkSession) -> None:
        self.place, self.state, self.spark, self.fed = place, place / "state", spark, 0
        (place / "in").mkdir(parents=True)

    def run(self, extra: str = "") -> None:
        self.feed()
        with headrace.connect(self.state, spark=self.spark, buckets=2) as hub:
            hub.sql(script(self.place) + extra)
            assert hub.wait_until_end(120)
            hub.savepoint(f"after-{self.fed}")

    def feed(self) -> None:
        put(self.place / "in" / f"{self.fed:04}.json", [json.dumps({"id": self.fed + i}) for i in range(4)])
        self.fed += 4

    def check(self) -> None:
        """Every row is there once, and the counters continued."""
        assert sorted(row["id"] for row in found(self.place / "rows")) == list(range(self.fed))
        newest = {row["k"]: row["n"] for row in found(self.place / "counts")}
        assert newest == {0: self.fed // 2, 1: self.fed // 2}

    @property
    def checkpoint(self) -> Path:
        return stream_directory(self.state, NAME.lower()) / "checkpoint"


def test_a_state_directory_with_an_odd_name_continues_even_from_where_an_earlier_version_put_its_checkpoint(
    tmp_path: Path, spark: SparkSession
) -> None:
    place = tmp_path / "a b%20c#d?e:f ü[g]"
    runs = Runs(place, spark)
    runs.run()
    assert sorted(p.name for p in tmp_path.iterdir()) == [place.name]
    assert runs.checkpoint.is_dir() and list(runs.checkpoint.parent.parent.iterdir()) == [runs.checkpoint.parent]
    assert wide(runs.state) == []
    old = misplaced(runs.checkpoint)
    old.parent.mkdir(parents=True)
    runs.checkpoint.rename(old)
    runs.run()
    runs.check()
    assert not old.exists() and runs.checkpoint.is_dir()
    # Restored to another odd path, with a pipeline that is not in the savepoint.
    restore(runs.state / "savepoints" / f"after-{runs.fed}", place / "neu %7E")
    runs.state = place / "neu %7E"
    runs.run(f"; CREATE PIPELINE later INTO rows AS SELECT -id AS id FROM `{NAME}` WHERE id > 9")
    assert sorted(row["id"] for row in found(place / "rows")) == [-11, -10, *range(12)]


def lose_offsets(checkpoint: Path, newest: str) -> None:
    (checkpoint / "offsets" / newest).unlink()


def tear_both(checkpoint: Path, newest: str) -> None:
    for name in ("offsets", "commits"):
        path = checkpoint / name / newest
        path.write_bytes(path.read_bytes()[:7])


def test_what_spark_has_lost_of_its_newest_epoch_loses_and_doubles_nothing(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []

    def synced(checkpoint: Path, batch: int) -> None:
        sync_epoch(checkpoint, batch)
        steps.append("log")

    def written(path: Path, data: bytes) -> None:
        steps.append("manifest")
        write_atomic(path, data)

    monkeypatch.setattr(query, "sync_epoch", synced)
    monkeypatch.setattr(outputs, "write_atomic", written)
    runs = Runs(tmp_path, spark)
    runs.run()
    assert steps[0] == "log" and "manifest" in steps
    losses: list[Callable[[Path, str], None]] = [lose_offsets, tear_both]
    for lose in losses:
        newest = max(int(p.name) for p in (runs.checkpoint / "offsets").iterdir() if p.name.isdigit())
        lose(runs.checkpoint, str(newest))
        runs.run()
        runs.check()
    # More than the newest epoch is gone: the hub reports it and writes nothing.
    for name in ("offsets", "commits"):
        for path in (runs.checkpoint / name).iterdir():
            path.unlink()
    with pytest.raises(HeadraceError) as caught:
        runs.run()
    assert "EPOCH_MISMATCH" in caught.value.render()
    runs.fed -= 4
    runs.check()
