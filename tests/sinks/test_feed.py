"""Feeds: exactly once whichever step dies, consumers that keep what they need, and exact counts of what is dropped."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base import durable
from headrace.errors import EpochMismatch, StateDamaged, StateTooNew, UnknownSinkKind
from headrace.model.definitions import SinkDef
from headrace.model.schema import BIGINT, Field, Schema
from headrace.sinks import SINKS, Staged, feed_log, feed_sink, settle_sink
from headrace.sinks.feed_lock import feed_locked
from headrace.sinks.feed_log import FeedLog, feed_directory, make_fed_stream, may_feed, read_segments, stream_feed
from headrace.sinks.feed_sink import FeedSink, feed_settings, is_full
from headrace.sinks.sink_kind import EpochMark, SinkKey
from headrace.sinks.staging import staged_in
from headrace.sql import define_sink, parse_script
from tests.sinks.crashes import Crash, DyingOs

OUTPUT = Schema((Field("x", BIGINT),))


class Writer:
    """Runs epochs of one instance as a stream does: tasks stage, then the driver commits."""

    def __init__(self, root: Path, instance: int = 7, **options: str) -> None:
        self.root, self.instance = root, instance
        self.sink = staged_in(SinkDef("feed", "feed", options), root)
        self.log = FeedLog(feed_directory(root, instance))

    def key(self, epoch: int, watermark: int | None = None, digest: str = "", ending: bool = False) -> SinkKey:
        return SinkKey("c" * 32, self.instance, epoch, digest, EpochMark(watermark, ending))

    def stage(self, key: SinkKey, parts: Sequence[Sequence[int]]) -> list[Staged]:
        task = SINKS["feed"].task(self.sink)
        return [task.stage(pa.table({"x": pa.array(part, pa.int64())}), key) for part in parts if part]

    def driver(self) -> FeedSink:
        made = SINKS["feed"].driver(self.sink, OUTPUT)
        assert isinstance(made, FeedSink)
        return made

    def run(self, epoch: int, *parts: Sequence[int], watermark: int | None = None) -> int:
        key = self.key(epoch, watermark)
        return self.driver().commit(key, self.stage(key, parts))

    def rows(self, start: int = 0) -> list[int]:
        log = FeedLog(self.log.directory)
        return [
            x
            for epoch in log.epochs(start)
            for batch in read_segments(log.segments, epoch.segments)
            for x in batch.column(0).to_numpy().tolist()
        ]

    def files(self) -> list[str]:
        return sorted(str(p.relative_to(self.root)) for p in self.root.rglob("*") if p.is_file())


def test_no_statement_can_name_the_kind() -> None:
    (statement,) = parse_script("CREATE SINK x WITH (type = 'feed')")
    with pytest.raises(UnknownSinkKind):
        define_sink(statement)  # type: ignore[arg-type]
    assert "feed" not in list(SINKS)
    with pytest.raises(UnknownSinkKind):
        settle_sink(SinkDef("x", "feed", {}))


def test_rows_are_visible_when_their_epoch_is_committed_and_stay_in_order(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    key = writer.key(0, watermark=5)
    staged = writer.stage(key, [[1, 2], [3]])
    assert writer.log.epochs(0) == []
    assert writer.driver().commit(key, staged) == 3
    writer.run(1, [4], watermark=9)
    assert writer.rows() == [1, 2, 3, 4]
    assert [(e.position, e.epoch, e.rows, e.watermark) for e in writer.log.epochs(0)] == [(0, 0, 3, 5), (1, 1, 1, 9)]


def test_a_second_run_of_an_epoch_leaves_one_copy(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    assert writer.run(0, [1], [2]) == 2
    assert writer.run(0, [2, 1]) == 2
    assert writer.rows() == [1, 2]
    assert len(list(writer.log.segments.rglob("*"))) == 3  # a directory and two files


def test_an_epoch_without_rows_is_written_only_for_news_about_time(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.run(0)
    assert writer.log.end() == 0
    writer.run(1, watermark=10)
    writer.run(2, watermark=10)
    writer.run(3, watermark=12)
    writer.run(4, [1], watermark=11)  # a watermark never goes back
    assert [(e.epoch, e.rows, e.watermark) for e in writer.log.epochs(0)] == [(1, 0, 10), (3, 0, 12), (4, 1, 12)]
    writer.driver().commit(writer.key(5, 12, ending=True), [])
    assert writer.log.epochs(3)[0].ending


@pytest.mark.parametrize("damage", ["cut", "flip", "gone"])
def test_a_damaged_segment_is_an_error_with_its_path_and_gives_no_row(tmp_path: Path, damage: str) -> None:
    writer = Writer(tmp_path)
    writer.run(0, [1, 2, 3])
    (path,) = (p for p in writer.log.segments.rglob("*") if p.is_file())
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(data[:-9] if damage == "cut" else data[:-30] + b"?" + data[-29:])
    with pytest.raises(StateDamaged) as found:
        writer.rows()
    assert found.value.params["path"] == str(path)


@pytest.mark.parametrize("content", [b"", b'{"position":0', b'{"position":3}\n'])
def test_a_damaged_manifest_is_an_error_with_its_path(tmp_path: Path, content: bytes) -> None:
    writer = Writer(tmp_path)
    writer.run(0, [1])
    path = writer.log.path(0)
    path.write_bytes(content)
    with pytest.raises(StateDamaged) as found:
        FeedLog(writer.log.directory).epochs(0)
    assert str(path) in found.value.message


def test_a_missing_manifest_between_others_is_an_error_with_its_path(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    for epoch in range(3):
        writer.run(epoch, [epoch])
    writer.log.path(1).unlink()
    with pytest.raises(StateDamaged) as found:
        FeedLog(writer.log.directory).epochs(0)
    assert found.value.params["path"] == str(writer.log.path(1))


def test_a_missing_newest_manifest_is_an_error_with_its_path(tmp_path: Path) -> None:
    """Its position must not be given to other rows: readers may have read it."""
    writer = Writer(tmp_path)
    for epoch in range(3):
        writer.run(epoch, [epoch])
    newest = writer.log.path(2)
    newest.unlink()
    for use in (writer.rows, FeedLog(writer.log.directory).end, lambda: writer.run(3, [3])):
        with pytest.raises(StateDamaged, match=newest.name):
            use()
    for damaged in (b"", b"7\n", b"9"):  # the count is only a check
        (writer.log.directory / "count").write_bytes(damaged)
        assert FeedLog(writer.log.directory).end() == 2


def test_a_missing_position_of_a_reader_is_an_error_with_its_path(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.log.register("reader")
    writer.run(0, [0])
    (writer.log.directory / "consumers" / "reader.json").unlink()
    with pytest.raises(StateDamaged, match=r"reader\.json"):
        writer.log.advance("reader", 1)


def test_a_damaged_beginning_of_a_fed_stream_is_an_error_with_its_path(tmp_path: Path) -> None:
    """With a higher number the rows of the pipeline would be left out, as those of a dropped one."""
    make_fed_stream(tmp_path / "t", 1)
    assert may_feed(tmp_path / "t", 1)
    data = (tmp_path / "t" / "fed_from").read_bytes()
    for at in range(len(data) - 1):
        (tmp_path / "t" / "fed_from").write_bytes(data[:at] + bytes([data[at] ^ 8]) + data[at + 1 :])
        with pytest.raises((StateDamaged, StateTooNew), match="fed_from"):
            may_feed(tmp_path / "t", 1)
    (tmp_path / "t" / "fed_from").write_bytes(b"3")  # as an earlier version wrote it
    assert (may_feed(tmp_path / "t", 2), may_feed(tmp_path / "t", 3)) == (False, True)


def test_epochs_are_kept_for_the_slowest_consumer(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    log = writer.log
    assert (log.register("fast"), log.register("slow")) == (0, 0)
    for epoch in range(4):
        writer.run(epoch, [epoch], watermark=epoch)
    log.advance("fast", 4)
    assert (log.positions(), log.backlog().rows) == ([0, 1, 2, 3], 4)
    log.advance("slow", 2)
    assert log.positions() == [1, 2, 3], "the manifest before the first needed epoch stays"
    assert len([p for p in log.segments.rglob("*") if p.is_file()]) == 2
    assert writer.rows(2) == [2, 3]
    log.advance("slow", 1)  # it never goes back
    assert log.consumers() == {"fast": 4, "slow": 2}
    log.unregister("slow")
    log.trim()
    assert (log.positions(), log.end()) == ([3], 4)
    assert log.backlog().bytes == 0
    assert [p for p in log.segments.rglob("*") if p.is_file()] == []
    writer.run(4, [4])
    assert [e.position for e in log.epochs(4)] == [4]
    assert log.register("late") == 4
    assert log.dropped() == 0


def test_a_consumer_that_joins_late_begins_with_what_is_kept(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.log.register("first")
    for epoch in range(4):
        writer.run(epoch, [epoch])
    writer.log.advance("first", 3)
    assert writer.log.register("second") == 3
    assert writer.log.register("third", writer.log.end()) == 4


def test_forgetting_an_instance_leaves_nothing_on_disk(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.log.register("reader")
    writer.run(0, [1])
    writer.stage(writer.key(1), [[2]])
    writer.driver().forget(writer.key(1))
    assert writer.files() == []


def test_a_consumer_that_advances_while_its_feed_is_dropped_does_not_bring_it_back(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.log.register("reader")
    writer.run(0, [1])
    dropping = threading.Thread(target=lambda: writer.driver().forget(writer.key(1)))
    with feed_locked(writer.log.directory, make=True):
        dropping.start()
        dropping.join(0.3)
        writer.log.advance("reader", 1)
    dropping.join(30)
    assert writer.files() == []


def test_a_reader_that_asks_for_the_lock_of_a_feed_that_is_being_deleted_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, rmdir = Writer(tmp_path), os.rmdir

    def interrupted(path: Any, **options: Any) -> None:  # everything in the directory is deleted by now
        monkeypatch.setattr(os, "rmdir", rmdir)
        with feed_locked(writer.log.directory, make=True):
            rmdir(path, **options)

    writer.run(0, [1])
    shutil.rmtree(writer.log.manifests)
    shutil.rmtree(writer.log.segments)
    monkeypatch.setattr(os, "rmdir", interrupted)
    writer.driver().forget(writer.key(1))
    assert writer.files() == []


def test_drop_counts_exactly_what_found_no_room_and_a_second_run_drops_the_same(tmp_path: Path) -> None:
    writer = Writer(tmp_path, strategy="drop", limit="1000")
    writer.log.register("reader")
    sizes = [1, 60, 60, 60, 1]
    for epoch, size in enumerate(sizes):
        writer.run(epoch, range(size))
        writer.run(epoch, range(size))
    found = writer.log.epochs(0)
    assert [e.rows + e.dropped for e in found] == sizes
    dropped = sum(e.dropped for e in found)
    assert dropped > 0
    assert writer.log.dropped() == dropped
    assert len(writer.rows()) == sum(sizes) - dropped
    assert writer.log.backlog().bytes <= 1000
    assert not is_full(feed_settings(writer.sink), writer.log)
    writer.log.advance("reader", writer.log.end())
    writer.run(5, range(60))
    assert writer.log.epochs(5)[0].dropped == 0


def test_rows_that_find_no_room_are_not_written_and_take_their_epoch_with_them(tmp_path: Path) -> None:
    writer = Writer(tmp_path, strategy="drop", limit="2000")
    writer.log.register("reader")
    writer.run(0, range(60))
    files = writer.files()
    key = writer.key(1)
    assert [s.rows for s in writer.stage(key, [range(300)])] == [300]
    assert writer.files() == files, "a task writes nothing that would be dropped"
    staged = writer.stage(key, [[1, 2], range(300)])
    assert writer.driver().commit(key, staged) == 0
    assert [(e.rows, e.dropped) for e in writer.log.epochs(0)] == [(60, 0), (0, 302)]
    assert len(writer.rows()) == 60
    assert not [name for name in writer.files() if name not in files and "segments" in name]


@pytest.mark.parametrize("strategy", ["pause", "spill"])
def test_pause_and_spill_ask_the_stream_to_pause_and_drop_nothing(tmp_path: Path, strategy: str) -> None:
    writer = Writer(tmp_path, strategy=strategy, limit="900")
    writer.log.register("reader")
    full = []
    for epoch in range(5):
        writer.run(epoch, range(30))
        full.append(is_full(feed_settings(writer.sink), writer.log))
    assert (full[0], full[-1]) == (False, True)
    assert len(writer.rows()) == 150
    writer.log.advance("reader", 4)
    assert not is_full(feed_settings(writer.sink), writer.log)


def test_an_epoch_with_other_input_under_the_same_key_is_refused(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    key = writer.key(0, digest="a")
    writer.driver().commit(key, writer.stage(key, [[1]]))
    writer.driver().verify(writer.key(0, digest="a"))
    with pytest.raises(EpochMismatch):
        writer.driver().verify(writer.key(0, digest="b"))


def test_a_promised_epoch_can_be_committed_without_its_tasks(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    key = writer.key(0, watermark=4)
    writer.driver().promise(key, writer.stage(key, [[1, 2]]))
    assert writer.log.end() == 0
    assert writer.driver().commit(key, []) == 2
    assert writer.rows() == [1, 2]
    discarded = writer.key(1)
    writer.driver().promise(discarded, writer.stage(discarded, [[3]]))
    writer.driver().discard(discarded)
    assert writer.driver().commit(discarded, []) == 0
    assert writer.rows() == [1, 2]
    assert not list(writer.log.directory.glob("promise*"))


def test_a_promise_that_was_removed_is_an_error_with_its_path(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.run(0, [1])
    key = writer.key(1)
    writer.driver().promise(key, writer.stage(key, [[2]]))
    writer.log.promise(writer.instance).unlink()
    owed = SinkKey(key.checkpoint, key.instance, key.epoch, promised=True)
    with pytest.raises(StateDamaged) as caught:
        writer.driver().commit(owed, [])
    assert str(writer.log.promise(writer.instance)) in caught.value.message
    assert writer.driver().commit(SinkKey(key.checkpoint, key.instance, 1), []) == 0, "nothing was promised"
    writer.run(2, [3])
    assert writer.driver().commit(owed, []) == 0, "it was settled before the later epoch"
    assert writer.rows() == [1, 3]


def test_an_epoch_is_committed_although_the_count_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(tmp_path)
    writer.run(0, [1])

    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr("headrace.model.stored.write_quickly", full)
        assert writer.run(1, [2]) == 1
        writer.driver().rewind(writer.key(0))  # its count is durable
    assert writer.rows() == [1]
    assert writer.run(1, [3]) == 1
    assert writer.rows() == [1, 3]


@pytest.mark.parametrize("step", ["commit", "discard", "rewind", "forget"])
def test_a_promise_of_an_earlier_version_is_kept(tmp_path: Path, step: str) -> None:
    """Earlier versions had one file for the promises of all instances."""
    (tmp_path / "streams" / "t").mkdir(parents=True)
    old, new = (Writer(tmp_path / "streams" / "s", i, stream="t", shift="0") for i in (7, 8))
    old.log = FeedLog(stream_feed(tmp_path / "streams" / "t"))
    earlier = old.log.directory / "promise.json"
    mine, other = old.key(0, watermark=4, digest="a"), new.key(0, watermark=4)
    old.driver().promise(mine, old.stage(mine, [[1, 2]]))
    old.log.promise(7).rename(earlier)
    with pytest.raises(EpochMismatch):
        old.driver().verify(old.key(0, digest="b"))
    driver = new.driver()
    actions: dict[str, Callable[[], object]] = {
        "commit": lambda: driver.commit(other, []),
        "discard": lambda: driver.discard(other),
        "rewind": lambda: driver.rewind(other),
        "forget": lambda: driver.forget(other),
    }
    actions[step]()
    assert earlier.exists(), "it is the promise of another instance"
    assert old.driver().commit(mine, []) == 2
    assert old.rows() == [1, 2]
    assert not earlier.exists()


@pytest.mark.parametrize("step", ["discard", "rewind", "forget"])
def test_a_promise_of_an_earlier_version_is_deleted_with_its_epoch(tmp_path: Path, step: str) -> None:
    (tmp_path / "streams" / "t").mkdir(parents=True)
    writer = Writer(tmp_path / "streams" / "s", stream="t", shift="0")
    writer.log = FeedLog(stream_feed(tmp_path / "streams" / "t"))
    key = writer.key(0)
    writer.driver().promise(key, writer.stage(key, [[1, 2]]))
    writer.log.promise(7).rename(writer.log.directory / "promise.json")
    driver = writer.driver()
    {"discard": driver.discard, "rewind": driver.rewind, "forget": driver.forget}[step](key)
    assert not list(writer.log.directory.glob("promise*"))
    assert writer.driver().commit(key, []) == 0


@pytest.mark.parametrize("strategy", ["spill", "drop"])
@pytest.mark.parametrize("step", ["promise", "commit", "discard"])
def test_a_promise_is_kept_although_another_pipeline_writes_to_the_feed(
    tmp_path: Path, step: str, strategy: str
) -> None:
    """In the epoch in which a pipeline is replaced, both write to the feed of the stream that is made of them."""
    (tmp_path / "streams" / "t").mkdir(parents=True)
    old, new = (Writer(tmp_path / "streams" / "s", i, stream="t", shift="0", strategy=strategy) for i in (7, 8))
    for writer in (old, new):
        writer.log = FeedLog(stream_feed(tmp_path / "streams" / "t"))
    first, second = old.key(0, watermark=4), new.key(0, watermark=4)
    old.driver().promise(first, old.stage(first, [[1, 2]]))
    if step != "commit":
        new.driver().promise(second, new.stage(second, [[3]]))
    if step == "discard":
        new.driver().discard(second)
    else:
        assert new.driver().commit(second, new.stage(second, [[3]])) == 1
    assert old.driver().commit(first, []) == 2
    assert sorted(old.rows()) == ([1, 2] if step == "discard" else [1, 2, 3])
    assert [e.position for e in old.log.epochs(0)] == list(range(old.log.end()))
    for writer, key in ((old, first), (new, second)):
        assert writer.driver().committed(key) == (writer is old or step != "discard")
    new.driver().forget(second)
    assert not list(old.log.directory.glob("promise*"))


def test_two_pipelines_that_write_to_the_feed_of_a_stream_at_once_never_take_the_same_position(tmp_path: Path) -> None:
    """A query on the dedicated host that is replaced may commit in its own thread when the new pipeline does."""
    (tmp_path / "streams" / "t").mkdir(parents=True)
    writers = [Writer(tmp_path / "streams" / "s", i, stream="t", shift="0") for i in (7, 8)]
    for writer in writers:
        writer.log = FeedLog(stream_feed(tmp_path / "streams" / "t"))
    start = threading.Barrier(2)

    def write(writer: Writer) -> None:
        start.wait()
        for epoch in range(40):
            writer.run(epoch, [writer.instance * 1000 + epoch])

    threads = [threading.Thread(target=write, args=(writer,)) for writer in writers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(writers[0].rows()) == [i * 1000 + epoch for i in (7, 8) for epoch in range(40)]


class FedStream:
    """The stream `t` and the pipelines that feed it, each in epochs of its own stream or query."""

    def __init__(self, root: Path) -> None:
        (root / "streams" / "t").mkdir(parents=True)
        self.log = FeedLog(stream_feed(root / "streams" / "t"))
        self.log.register("stream")
        self._root, self._drivers = root / "streams" / "s", dict[int, FeedSink]()

    def run(self, instance: int, epoch: int, *rows: int) -> int:
        """Run an epoch of a pipeline. Its sink stays open, as in a hub. Every pipeline has a checkpoint of its own."""
        writer = self._writer(instance)
        key = self.key(instance, epoch)
        return self._driver(instance).commit(key, writer.stage(key, [rows]))

    def _writer(self, instance: int) -> Writer:
        writer = Writer(self._root, instance, stream="t", shift="0")
        writer.log = self.log
        return writer

    def _driver(self, instance: int) -> FeedSink:
        return self._drivers.setdefault(instance, self._writer(instance).driver())

    def key(self, instance: int, epoch: int) -> SinkKey:
        return SinkKey(f"{instance:032}", instance, epoch, "", EpochMark(epoch))

    def discard(self, instance: int, epoch: int) -> None:
        self._driver(instance).discard(self.key(instance, epoch))

    def forget(self, instance: int, epoch: int) -> None:
        self._driver(instance).forget(self.key(instance, epoch))

    def reopened(self) -> None:
        """As after kill -9 of the hub."""
        self._drivers.clear()

    def rows(self, start: int = 0) -> list[int]:
        return self._writer(1).rows(start)

    def read(self, end: int) -> list[int]:
        """The rows that the stream reads up to a position. Then it forgets them."""
        rows = self.rows(self.log.position_of("stream") or 0)
        self.log.advance("stream", end)
        return rows


@pytest.fixture
def fed(tmp_path: Path) -> FedStream:
    return FedStream(tmp_path)


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("later", [1, 3])
def test_an_epoch_that_runs_again_after_another_pipeline_wrote_is_there_once(
    fed: FedStream, later: int, killed: bool
) -> None:
    """The pipeline that replaces another one commits in a thread of its own, while a sink lets the epoch wait."""
    assert fed.run(1, 8, 0) == 1
    assert fed.run(1, 9, 1, 2) == 2
    for batch in range(later):
        fed.run(2, batch, 10 + batch)
    if killed:
        fed.reopened()
    assert fed.run(1, 9, 2, 1) == 2
    fed.discard(1, 9)
    assert fed.rows() == [0, 1, 2, *range(10, 10 + later)]


@pytest.mark.parametrize("killed", [False, True])
def test_an_epoch_that_runs_again_after_it_was_read_and_another_pipeline_wrote_is_not_written_again(
    fed: FedStream, killed: bool
) -> None:
    fed.run(1, 9, 1, 2)
    for batch in range(4):
        fed.run(2, batch, 10 + batch)
    assert fed.read(5) == [1, 2, 10, 11, 12, 13]
    fed.run(2, 4, 14)
    assert fed.read(6) == [14]
    if killed:
        fed.reopened()
    assert fed.run(1, 9, 1, 2) == 2
    assert fed.run(2, 4, 14) == 1
    assert (fed.rows(6), fed.log.end()) == ([], 6)
    assert not [p for p in fed.log.segments.rglob("*") if p.is_file()]


def test_a_feed_keeps_one_manifest_for_each_pipeline_until_it_is_forgotten(fed: FedStream) -> None:
    for instance in range(1, 6):
        for epoch in range(3):
            fed.run(instance, epoch, instance)
        fed.read(fed.log.end())
    assert fed.log.positions() == [2, 5, 8, 11, 14], "the newest of each"
    for instance in range(1, 5):
        fed.forget(instance, 3)
    for epoch in range(3, 6):
        fed.run(5, epoch, 5)
    assert fed.read(fed.log.end()) == [5, 5, 5]
    assert fed.log.positions() == [17]
    assert not list(fed.log.directory.glob("ended-*"))


def test_what_a_pipeline_that_is_forgotten_wrote_last_is_still_read(fed: FedStream) -> None:
    fed.run(1, 0, 1)
    fed.forget(1, 1)
    fed.run(2, 0, 2)
    fed.run(2, 1, 3)
    assert fed.read(1) == [1, 2, 3]
    assert fed.rows(1) == [2, 3]
    assert fed.read(3) == [2, 3]
    assert (fed.log.positions(), list(fed.log.directory.glob("ended-*"))) == ([2], [])


def test_forgetting_a_pipeline_that_wrote_nothing_leaves_no_mark(fed: FedStream) -> None:
    fed.forget(1, 1)
    fed.run(2, 0, 2)
    fed.forget(3, 1)
    assert not list(fed.log.directory.glob("ended-*"))


def test_a_reader_that_joins_does_not_begin_at_a_manifest_that_is_kept_for_its_writer(fed: FedStream) -> None:
    fed.run(1, 1)
    fed.run(1, 2)  # an epoch without rows that says how far the event time has come
    fed.run(2, 5)
    for epoch in range(6, 12):
        fed.run(3, epoch, epoch)
    fed.log.advance("stream", 7)
    assert fed.log.positions() == [1, 2, 6, 7, 8]
    fed.log.unregister("stream")
    assert fed.log.register("later") == 7
    assert fed.rows(7) == [10, 11]


def test_the_manifests_that_a_feed_remembers_are_those_that_it_keeps(fed: FedStream) -> None:
    fed.run(1, 0, 1)
    for epoch in range(50):
        fed.run(2, epoch, 2)
        fed.log.advance("stream", fed.log.end())
    assert fed.log.positions() == [0, 50]
    assert len(fed.log._known) == 2


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("run"), st.integers(1, 3), st.integers(0, 3)),
            st.tuples(st.just("again"), st.integers(1, 3), st.booleans()),
            st.tuples(st.just("read"), st.integers(0, 6), st.just(0)),
        ),
        max_size=30,
    )
)
def test_a_stream_gets_every_row_once_whichever_of_its_pipelines_runs_its_newest_epoch_again(
    steps: list[tuple[str, int, int]],
) -> None:
    with tempfile.TemporaryDirectory() as root:
        fed, newest, counted = FedStream(Path(root)), dict[int, tuple[int, list[int]]](), itertools.count()
        written, got = list[int](), list[int]()
        for what, number, more in steps:
            if what == "run":
                rows = [next(counted) for _ in range(more)]
                written += rows
                newest[number] = (newest.get(number, (-1, []))[0] + 1, rows)
                fed.run(number, newest[number][0], *rows)
            elif what == "again" and number in newest:
                if more:
                    fed.reopened()
                fed.run(number, newest[number][0], *newest[number][1])
            elif what == "read":
                at = fed.log.position_of("stream") or 0
                end = min(at + number, fed.log.end())
                got += [x for x in fed.rows(at) if x not in fed.rows(end)]
                fed.log.advance("stream", end)
        assert got + fed.rows(fed.log.position_of("stream") or 0) == written


def test_rewinding_deletes_what_came_after_the_savepoint(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    for epoch in range(4):
        writer.run(epoch, [epoch])
    assert writer.driver().ahead(writer.key(1)) == 2
    writer.driver().rewind(writer.key(1))
    assert (writer.rows(), writer.driver().ahead(writer.key(1))) == ([0, 1], 0)
    writer.run(2, [20])
    assert writer.rows() == [0, 1, 20]


def test_a_crash_at_any_step_of_a_commit_loses_and_doubles_nothing() -> None:
    """The commit dies before and after every file operation; then the epoch is run again, as Spark does."""
    for step in itertools.count():
        with tempfile.TemporaryDirectory() as root:
            writer = Writer(Path(root))
            writer.log.register("reader")
            writer.run(0, [1], watermark=1)
            dying = DyingOs(step)
            patches = [mock.patch.object(module, "os", dying) for module in (durable, feed_log, feed_sink)]
            try:
                with patches[0], patches[1], patches[2]:
                    writer.run(1, [2], [3], watermark=2)
                finished = True
            except Crash:
                finished = False
            seen = writer.rows()
            assert seen in ([1], [1, 2, 3])
            writer.run(1, [3, 2], watermark=2)
            writer.run(2, [4], watermark=3)
            assert sorted(writer.rows()) == [1, 2, 3, 4]
            assert [e.epoch for e in writer.log.epochs(0)] == [0, 1, 2]
            named = {s.file for e in writer.log.epochs(0) for s in e.segments}
            kept = {str(p.relative_to(writer.log.segments)) for p in writer.log.segments.rglob("*") if p.is_file()}
            assert kept == named
            if finished:
                assert step > 10
                return


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("run"), st.integers(0, 5), st.booleans()),
            st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 12), st.booleans()),
        ),
        max_size=25,
    )
)
def test_every_consumer_gets_every_row_once_in_order_under_any_schedule(steps: list[tuple[str, int, bool]]) -> None:
    """Epochs with and without rows, each possibly run twice, between consumers that read up to any position."""
    with tempfile.TemporaryDirectory() as root:
        writer, expected = Writer(Path(root)), list[int]()
        got: dict[str, list[int]] = {"a": [], "b": []}
        at = {name: writer.log.register(name) for name in got}
        epoch = 0
        for what, number, twice in steps:
            if what == "run":
                rows = list(range(len(expected), len(expected) + number))
                expected += rows
                for _ in range(1 + twice):
                    writer.run(epoch, rows, watermark=epoch // 2)
                epoch += 1
                continue
            until = min(at[what] + number, writer.log.end())
            for found in FeedLog(writer.log.directory).epochs(at[what], until):
                got[what] += [
                    x
                    for b in read_segments(writer.log.segments, found.segments)
                    for x in b.column(0).to_numpy().tolist()
                ]
            at[what] = max(at[what], until)
            writer.log.advance(what, at[what])
        for name, seen in got.items():
            assert seen + writer.rows(at[name]) == expected
