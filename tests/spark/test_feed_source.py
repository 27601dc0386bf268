"""The offsets of a query that reads a feed: a batch of its own closes what is open at the end, whenever it dies."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import StateDamaged
from headrace.model.stored import store
from headrace.sinks.feed_log import FeedEpoch, FeedLog, read_segments, write_segment
from headrace.spark.feed_source import END_OF_TIME, PUNCTUATION, FeedPartition, FeedReader
from headrace.state.spark_log import feed_positions, feeds_closed, newest_commit

SCHEMA = pa.schema([pa.field("x", pa.int64()), pa.field("ts", pa.timestamp("us", tz="UTC"))])
LIMIT: Any = None  # the reader has a limit of its own


class Feed:
    """A feed with one row in each epoch: the position is its value and its time."""

    def __init__(self, root: Path) -> None:
        self.log = FeedLog(root)
        self.log.manifests.mkdir(parents=True)

    def add(self, ending: bool = False) -> None:
        at = self.log.end()
        rows = pa.table({"x": pa.array([at]), "ts": pa.array([at], pa.int64()).cast(SCHEMA.field("ts").type)})
        segment = write_segment(self.log.segments, f"c-7-{at}/one", rows)
        store(self.log.path(at), FeedEpoch(at, "c", 7, at, "", watermark=at, segments=(segment,), ending=ending))

    def reader(self, start: int = 0, closes: bool = True, event_time: str = "ts") -> FeedReader:
        """The source of a query that is started, or started again."""
        options = {
            "stream": "s",
            "directory": str(self.log.directory),
            "start": str(start),
            "event_time": event_time,
            "delay_us": "5",
            "closes": str(closes).lower(),
            "parallelism": "2",
            "schema": base64.b64encode(SCHEMA.serialize()).decode(),
        }
        return FeedReader(options, [*SCHEMA.names, PUNCTUATION])


def batches(reader: FeedReader, start: dict[str, Any]) -> list[dict[str, Any]]:
    """The offsets of the batches that Spark would run until there is nothing to do."""
    found = []
    while json.dumps(until := reader.latestOffset(start, LIMIT)) != json.dumps(start):
        found.append(start := until)
        assert len(found) < 10
    return found


def read(reader: FeedReader, start: dict[str, Any], end: dict[str, Any]) -> tuple[list[int], list[int]]:
    """The rows of a batch, and the times of its punctuation rows."""
    rows: list[int] = []
    marks: list[int] = []
    for partition in reader.partitions(start, end):
        for batch in reader.read(partition):
            for row in batch.to_pylist():
                at = batch.column("ts").cast(pa.int64())[0].as_py()
                (marks.append(at) if row[PUNCTUATION] else rows.append(row["x"]))
    return sorted(rows), marks


def test_the_end_of_the_input_is_followed_by_one_batch_without_rows(tmp_path: Path) -> None:
    feed = Feed(tmp_path / "feed")
    feed.add()
    feed.add(ending=True)
    reader = feed.reader()
    start = reader.initialOffset()
    end, closed = batches(reader, start)
    assert [(o["position"], o["closed"]) for o in (end, closed)] == [(2, False), (2, True)]
    assert read(reader, start, end) == ([0, 1], [END_OF_TIME])
    assert read(reader, end, closed) == ([], [])
    feed.add()
    assert batches(reader, closed) == [], "more rows are for the next turn"


def test_a_query_that_is_killed_before_its_windows_are_closed_closes_them_when_it_starts_again(tmp_path: Path) -> None:
    feed = Feed(tmp_path / "feed")
    feed.add(ending=True)
    before = feed.reader()
    (end, closed) = batches(before, before.initialOffset())
    again = [(o["position"], o["closed"]) for o in batches(feed.reader(), end)]
    assert again == [(1, True)]
    assert [o["closed"] for o in batches(feed.reader(), closed)] == [True], "sinks may be owed a batch"


def test_a_query_that_is_started_again_runs_once_so_that_windows_do_not_wait_for_more_rows(tmp_path: Path) -> None:
    feed = Feed(tmp_path / "feed")
    reader = feed.reader()
    assert batches(reader, reader.initialOffset()) == [], "there is nothing that could close"
    feed.add()
    (last,) = batches(reader, reader.initialOffset())
    again = feed.reader()
    (nudge,) = batches(again, last)
    assert (nudge["position"], read(again, last, nudge)) == (1, ([], []))
    feed.add()
    assert [o["position"] for o in batches(feed.reader(), nudge)] == [2], "rows are as good"
    untimed = feed.reader(event_time="")
    assert batches(untimed, {**last, "position": 2}) == []


def test_without_windows_an_end_is_like_any_epoch(tmp_path: Path) -> None:
    feed = Feed(tmp_path / "feed")
    feed.add(ending=True)
    feed.add()
    reader = feed.reader(closes=False)
    (end,) = batches(reader, reader.initialOffset())
    assert read(reader, reader.initialOffset(), end) == ([0, 1], [1 + 5])


@settings(max_examples=60, deadline=None)
@given(
    ends=st.lists(st.booleans(), min_size=1, max_size=6),
    kills=st.lists(st.sampled_from(["no", "logged", "done"]), max_size=12),
)
def test_whatever_is_killed_every_row_is_read_once_and_a_turn_ends_closed(
    tmp_path_factory: pytest.TempPathFactory, ends: list[bool], kills: list[str]
) -> None:
    """Runs the batches of a query as Spark does: `logged` kills it when the offset is logged and nothing is done,
    `done` when the batch is committed. A batch that was logged runs again with the same offsets."""
    feed = Feed(tmp_path_factory.mktemp("f") / "feed")
    for ending in ends:
        feed.add(ending)
    turn, seen, again = 0, list[int](), list(kills)
    while True:
        reader = feed.reader(start=turn)
        at = reader.initialOffset()
        closed = False
        while True:
            until = reader.latestOffset(at, LIMIT)
            if json.dumps(until) == json.dumps(at):
                break
            kill = again.pop(0) if again else "no"
            if kill == "logged":
                reader = feed.reader(start=turn)
            seen += read(reader, at, until)[0]
            at, closed = until, until["closed"]
            if kill == "done":
                reader = feed.reader(start=turn)
        if not closed:
            break
        assert FeedLog(feed.log.directory).epoch(at["position"] - 1).ending
        turn = at["position"]
    assert seen == list(range(len(ends)))
    assert closed == (ends[-1] and turn < len(ends))


def test_the_log_of_a_checkpoint_shows_positions_and_whether_all_inputs_are_closed(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "commits").mkdir()

    def log(batch: int, *offsets: dict[str, Any] | None) -> None:
        lines = ["v1", "{}", *("-" if o is None else json.dumps(o) for o in offsets)]
        (tmp_path / "offsets" / str(batch)).write_text("\n".join(lines))
        (tmp_path / "commits" / str(batch)).write_text("v1\n{}")

    def offset(stream: str, position: int, closed: bool) -> dict[str, Any]:
        return {"stream": stream, "position": position, "closed": closed, "run": "r"}

    assert newest_commit(tmp_path) == -1
    log(0, offset("a", 3, False), None)
    log(1, offset("a", 4, True), offset("b", 2, False))
    log(2, offset("a", 4, True), offset("b", 5, True), offset("a", 3, True))
    assert newest_commit(tmp_path) == 2
    assert [feeds_closed(tmp_path, batch) for batch in range(3)] == [False, False, True]
    assert [feed_positions(tmp_path, batch) for batch in range(3)] == [{"a": 3}, {"a": 4, "b": 2}, {"a": 3, "b": 5}]
    with pytest.raises(StateDamaged):
        feeds_closed(tmp_path, 3)


def test_a_partition_names_its_segments(tmp_path: Path) -> None:
    feed = Feed(tmp_path / "feed")
    for _ in range(5):
        feed.add()
    reader = feed.reader()
    start = reader.initialOffset()
    parts = [p for p in reader.partitions(start, reader.latestOffset(start, LIMIT)) if isinstance(p, FeedPartition)]
    assert sorted(len(p.segments) for p in parts) == [0, 2, 3], "two tasks have rows, a third has the punctuation"
    rows = [b for p in parts for b in read_segments(feed.log.segments, p.segments)]
    assert sum(b.num_rows for b in rows) == 5
