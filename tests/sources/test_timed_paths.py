"""A path with the time in it: which directories are listed, what is read, and what a restart remembers."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BadOption, MissingFile
from headrace.model.definitions import StreamDef
from headrace.model.schema import BIGINT, Field, Schema
from headrace.sources import SOURCES
from headrace.sources.files import Files
from headrace.sources.source_kind import SourceOffset
from headrace.sources.timed_path import TimedPath

NOON = datetime(2026, 3, 1, 12, 30, tzinfo=UTC).timestamp()
DAY = 86400.0


def test_the_paths_of_periods_and_the_times_of_files() -> None:
    daily = TimedPath("/d/dt={yyyy}-{MM}-{dd}/*.json")
    assert daily.between(NOON - DAY, NOON) == [f"/d/dt=2026-{day}/*.json" for day in ("02-28", "03-01", "03-02")]
    assert daily.everything == "/d/dt=" + "-".join("[0-9]" * n for n in (4, 2, 2)) + "/*.json"
    assert daily.root == "/d" and daily.time_of("/d/dt=2026-03-01/a.json") == NOON - 12.5 * 3600
    assert daily.time_of("/d/dt=2026-13-01/a.json") is None and daily.time_of("/elsewhere/a.json") is None
    assert TimedPath("/d/{yyyy}/{MM}").between(NOON, NOON) == ["/d/2026/03", "/d/2026/04"]
    assert TimedPath("/d/{yyyy}").between(NOON, NOON) == ["/d/2026", "/d/2027"]
    assert TimedPath("/d/{yyyy}").everything == "/d/[0-9][0-9][0-9][0-9]/*"


@given(st.floats(0, 4e9), st.floats(0, 10 * DAY), st.sampled_from(["{yyyy}", "{yyyy}/{MM}", "{yyyy}{MM}{dd}/{HH}"]))
def test_every_time_of_a_range_is_in_one_of_its_periods(since: float, length: float, parts: str) -> None:
    timed = TimedPath(f"/d/{parts}")
    found = timed.between(since, since + length)
    assert len(set(found)) == len(found)
    for time in (since, since + length / 2, since + length):
        begins = [begin for path in found if (begin := timed.time_of(f"{path}/f")) is not None]
        assert timed.floor(time) in begins
        assert len(begins) == len(found)


@pytest.mark.parametrize("path", ["/d/{MM}/{dd}", "/d/{yyyy}/{dd}", "/d/{dd}/{MM}/{yyyy}"])
def test_a_time_with_a_gap_is_refused(path: str) -> None:
    with pytest.raises(BadOption):
        TimedPath(path)


class Stream:
    """A source of files with a clock that the test moves."""

    def __init__(self, root: Path, **options: str) -> None:
        self.root, self.now = root, NOON
        (root / "in").mkdir(exist_ok=True)
        self.options = {"path": f"{root}/in/{{yyyy}}/{{MM}}/{{dd}}", "lookback": "48h"} | options
        self.at: SourceOffset | None = None
        self.open()

    def open(self) -> None:
        stream = StreamDef("s", Schema((Field("n", BIGINT),)), None, 0, "files", "json", self.options)
        SOURCES["files"].check(stream)
        made: Any = SOURCES["files"].make(stream, self.root / "state", lambda: self.now)
        assert isinstance(made, Files)
        self.source = made

    def put(self, day: str, number: int) -> None:
        directory = self.root / "in" / day
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{number}.json").write_text(json.dumps({"n": number}) + "\n")

    def read(self) -> set[int]:
        """The numbers of the files that the next epoch reads."""
        self.now += 10
        begin = self.source.initial() if self.at is None else self.at
        self.at = self.source.latest(begin, None)
        splits: list[Any] = list(self.source.splits(begin, self.at, 4))
        self.source.commit(self.at)
        return {int(Path(part.extent.path).stem) for split in splits for part in split.ranges}


def test_everything_is_read_first_and_then_what_comes_within_the_lookback(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    for number, day in enumerate(("2019/01/01", "2026/02/27", "2026/03/01")):
        stream.put(day, number)
    assert stream.read() == {0, 1, 2}
    stream.put("2026/02/27", 10)  # within the lookback
    stream.put("2026/03/02", 11)  # the clock of its writer is ahead
    stream.put("2019/01/01", 12)  # too late
    assert stream.read() == {10, 11}
    stream.now += 5 * DAY
    assert stream.read() == set()
    stream.put("2026/03/01", 13)
    assert stream.read() == set()
    stream.put("2026/03/05", 14)
    assert stream.read() == {14}


def test_a_mount_that_was_away_longer_than_the_lookback_loses_no_file(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    stream.put("2026/03/01", 1)
    assert stream.read() == {1}
    (tmp_path / "in").rename(tmp_path / "away")
    for _ in range(5):
        stream.now += DAY
        with pytest.raises(MissingFile):
            stream.read()
    (tmp_path / "away").rename(tmp_path / "in")
    stream.put("2026/03/02", 2)
    assert stream.read() == {2}


def test_a_hub_that_was_away_reads_what_came_meanwhile(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    stream.put("2026/03/01", 1)
    assert stream.read() == {1}
    stream.now += 20 * DAY
    stream.put("2026/03/04", 2)
    stream.put("2026/03/20", 3)
    stream.open()
    assert stream.read() == {2, 3}
    stream.open()
    stream.put("2026/03/04", 4)
    assert stream.read() == set()


def test_files_before_the_horizon_are_forgotten_and_never_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.sources.filelog.COMPACT_LINES", 10)
    stream = Stream(tmp_path)
    for number in range(50):
        stream.put("2026/03/01", number)
    assert stream.read() == set(range(50))
    assert len(stream.source.log.last) == 50
    stream.now += 10 * DAY
    for number in range(100, 160):
        stream.put("2026/03/11", number)
    assert stream.read() == set(range(100, 160))
    stream.put("2026/03/11", 200)
    assert stream.read() == {200}
    stream.put("2026/03/11", 201)
    assert stream.read() == {201}
    assert not any("/03/01/" in path for path in stream.source.log.last)
    stream.open()
    assert stream.read() == set()


def test_latest_begins_with_the_lookback_and_reads_only_what_comes_later(tmp_path: Path) -> None:
    stream = Stream(tmp_path, start="latest")
    stream.put("2026/01/01", 1)
    stream.put("2026/03/01", 2)
    assert stream.read() == set()
    assert "2026/01/01" not in str(stream.source.log.last)
    stream.put("2026/03/01", 3)
    assert stream.read() == {3}


def test_options_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadOption):
        Stream(tmp_path, tail="true")
    with pytest.raises(BadOption):
        Stream(tmp_path, path=f"{tmp_path}/in", lookback="1h")
    with pytest.raises(MissingFile):
        Stream(tmp_path, path=f"{tmp_path}/none/{{yyyy}}")


def test_an_idle_stream_lists_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.listing.SETTLED_NS", 0)
    for name in ("FULL", "FULL_AT_MOST"):
        monkeypatch.setattr(f"headrace.sources.files.{name}", 1e9)
    stream = Stream(tmp_path)
    for number in range(20):
        stream.put("2026/03/01", number)
    assert stream.read() == set(range(20))
    listed: list[bool] = []
    real = stream.source.listing.paths

    def counted() -> list[str]:
        listed.append(True)
        return real()

    monkeypatch.setattr(stream.source.listing, "paths", counted)
    stream.now += 1  # the first listing took everything; this one takes the periods
    stream.read()
    listed.clear()
    for _ in range(5):
        assert stream.read() == set()
    assert listed == []
