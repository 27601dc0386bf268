"""What Spark readers do while a savepoint is taken, another query takes them over, or their hub was restored."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.errors import EpochMismatch, ReaderTaken
from headrace.sinks.feed_log import FeedLog
from headrace.spark.reader_source import register_readers
from headrace.state import savepoints
from headrace.state.restore import restore
from tests.shared.test_readers import LIMIT, Readable, Session, UserQuery, opened


@pytest.fixture
def chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Readable:
    monkeypatch.setattr("headrace.spark.feed_source.BATCH_BYTES", 1)  # a batch has one epoch
    return opened(tmp_path, monkeypatch)


def give(chain: Readable, *values: int) -> None:
    """One epoch for each value."""
    for value in values:
        chain.give(f"{value:06}.json", value)
        chain.drain()


def restored(chain: Readable, savepoint: Path, saved: Any, patch: pytest.MonkeyPatch) -> Readable:
    """The hub that continues from a savepoint. `saved` is what Spark and the sinks had then."""
    chain.hub.close()
    chain.checkpoints, chain.kept = saved
    restore(savepoint, chain.directory.with_name("restored"))
    return Readable(chain.directory.with_name("restored"), patch, like=chain)


def test_a_savepoint_has_all_rows_that_the_copied_reader_still_needs(
    chain: Readable, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = UserQuery(chain, stream="raw", columns="v")
    query.go()
    give(chain, *range(12))
    copy_file, scandir = shutil.copy2, os.scandir

    def copy(source: str, target: Path) -> None:
        copy_file(source, target)
        place = Path(source).parts
        if "feeds" in place and "consumers" not in place and query.plan():  # the positions are copied with the lock
            query.run()
            query.commits += 1

    def listed(path: Path) -> list[os.DirEntry[str]]:  # the order of a file system is any
        return sorted(scandir(path), key=lambda entry: entry.name)

    with monkeypatch.context() as patch:
        patch.setattr(savepoints, "os", SimpleNamespace(scandir=listed, walk=os.walk))
        patch.setattr(savepoints, "shutil", SimpleNamespace(copy2=copy, rmtree=shutil.rmtree))
        path = chain.hub.savepoint("here")
    assert len(query.rows) > 2, "the query went on while the feed was copied"
    again = restored(chain, path, chain.copied(), monkeypatch)
    other = UserQuery(again, stream="raw", columns="v")
    other.go()
    rows = [row[0] for row in other.rows]
    assert rows == list(range(12))[12 - len(rows) :]
    assert {*rows} >= {*range(12)} - {row[0] for row in query.rows}


def test_a_query_that_takes_over_begins_after_what_was_released_meanwhile(chain: Readable) -> None:
    first = UserQuery(chain, stream="raw", columns="v")
    first.go()
    give(chain, 0, 1, 2)
    second = UserQuery(chain, stream="raw", columns="v").reader
    start = second.initialOffset()
    first.go()
    caught_up = second.latestOffset(start, LIMIT)
    assert [row for part in second.partitions(start, caught_up) for row in second.read(part)] == []
    give(chain, 3)
    end = second.latestOffset(caught_up, LIMIT)
    rows = [row for part in second.partitions(caught_up, end) for batch in second.read(part) for row in batch["v"]]
    assert [row.as_py() for row in rows] == [3]


def test_of_two_queries_that_take_over_at_once_one_stays(chain: Readable, monkeypatch: pytest.MonkeyPatch) -> None:
    UserQuery(chain, stream="raw", columns="v").go()
    give(chain, 0)
    queries = [UserQuery(chain, stream="raw", columns="v") for _ in range(2)]
    both, register = threading.Barrier(2), FeedLog.register

    def slow(log: FeedLog, consumer: str, position: int = 0) -> int:
        found = register(log, consumer, position)
        with suppress(threading.BrokenBarrierError):
            both.wait(0.3)
        return found

    monkeypatch.setattr(FeedLog, "register", slow)
    ended = [run(query.go) for query in queries]
    errors = [error for error in map(finished, ended) if error is not None]
    assert [type(error) for error in errors] in ([], [ReaderTaken])
    assert len(consumers(chain)) == 1
    assert [query.rows for query in queries if query.rows][-1] == [(0,)]


def test_a_query_that_is_taken_over_while_it_advances_does_not_come_back(
    chain: Readable, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (UserQuery(chain, stream="raw", columns="v") for _ in range(2))
    first.go()
    give(chain, 0)
    first.plan()
    first.run()
    first.commits += 1
    taking: list[tuple[threading.Thread, list[Exception]]] = []
    write = FeedLog._write

    def slow(log: FeedLog, consumer: str, position: int) -> None:
        if not taking:
            taking.append(run(second.go))
            taking[0][0].join(0.3)
        write(log, consumer, position)

    monkeypatch.setattr(FeedLog, "_write", slow)
    first.go()
    assert finished(taking[0]) is None
    assert consumers(chain) == [second.reader.own]
    with pytest.raises(ReaderTaken):
        first.go()


def test_a_batch_that_is_run_again_after_a_take_over_says_so(chain: Readable) -> None:
    first = UserQuery(chain, stream="raw", columns="v")
    first.go()
    give(chain, 0)
    first.plan()
    second = UserQuery(chain, stream="raw", columns="v")
    second.go()
    assert second.rows == [(0,)]
    first.start()
    with pytest.raises(ReaderTaken):
        first.run()


@pytest.mark.parametrize("logged", [False, True])
def test_a_checkpoint_that_is_newer_than_the_restored_hub_is_refused_when_the_feed_has_caught_up(
    chain: Readable, monkeypatch: pytest.MonkeyPatch, logged: bool
) -> None:
    query = UserQuery(chain, stream="raw", columns="v")
    query.go()
    give(chain, 0)
    query.go()
    path, saved = chain.hub.savepoint("here"), chain.copied()
    same = [dict(offset) for offset in query.offsets]
    give(chain, 1, 2)
    query.go()
    if logged:
        give(chain, 3)
        query.plan()
    again = restored(chain, path, saved, monkeypatch)
    again.drain()
    give(again, 4, 5, 6)
    query._chain = again
    query.start()
    with pytest.raises(EpochMismatch, match="other rows"):
        query.go()
    query.offsets, query.commits = same, len(same)  # a checkpoint of the same time goes on
    for offset in query.offsets:
        offset.pop("after")  # also one that was made before offsets had it
    query.kept = {0: query.kept[0]}
    query.go()
    assert [row[0] for row in query.rows] == [0, 1, 2, *([3] if logged else []), 4, 5, 6]


def test_a_hub_that_gets_the_port_of_a_closed_one_is_registered() -> None:
    session: Any = Session()
    for token in ("old", "new", "new"):
        register_readers(session, 4711, token)
    assert [made.token for made in session.made] == ["old", "new"]


def consumers(chain: Readable) -> list[str]:
    (feed,) = (chain.directory / "streams" / "raw" / "feeds").iterdir()
    return list(FeedLog(feed).consumers())


def run(work: Callable[[], None]) -> tuple[threading.Thread, list[Exception]]:
    """Start work in a thread."""
    errors: list[Exception] = []

    def guarded() -> None:
        try:
            work()
        except Exception as problem:
            errors.append(problem)

    thread = threading.Thread(target=guarded)
    thread.start()
    return thread, errors


def finished(started: tuple[threading.Thread, list[Exception]]) -> Exception | None:
    """The problem of the work, if it had one."""
    started[0].join(30)
    assert not started[0].is_alive()
    return started[1][0] if started[1] else None
