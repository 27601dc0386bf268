"""When a query on the dedicated host leaves the task slots to its neighbours, without Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.errors import StreamFailed
from headrace.hub.reconciler import Reconciler
from headrace.model.stored import store
from headrace.sinks.feed_log import FeedEpoch, FeedSegment
from headrace.state.notices import EpochPlanned, PlanningHeld, SourceIdle
from headrace.stream import dedicated_runtime
from headrace.stream.planner_watch import BACKLOG_BYTES, QUIET_SECONDS, PlannerWatch
from tests.stream.test_dedicated_damage import Host
from tests.stream.test_dedicated_outputs import Join, Query, rows_without_spark

__all__ = ["rows_without_spark"]


class Busy(Query):
    """A query whose streams read a backlog until `idle`."""

    idle = False

    def gives_way(self) -> bool:
        return not self.idle


@pytest.fixture
def joined(tmp_path: Path) -> Iterator[Join]:
    found = Join(tmp_path)
    yield found
    found.runtime.close()


def host_of(join: Join) -> Host:
    host = join.runtime._host
    assert isinstance(host, Host)
    return host


def limited(join: Join, strategy: str) -> None:
    """The query with another strategy, a limit of a thousand bytes, and without the stream of its output."""
    query = join.pipeline.program.dedicated
    assert query is not None
    program = replace(join.pipeline.program, dedicated=replace(query, strategy=strategy, limit="1000"))
    join.pipeline = replace(join.pipeline, program=program, sinks=join.pipeline.sinks[:-1])
    join.runtime.redefine(join.pipeline)


def hand_over(join: Join, stream: str, size: int) -> None:
    """An epoch of so many bytes in the feed of a stream."""
    log = join.runtime.feeds()[stream]
    log.manifests.mkdir(parents=True, exist_ok=True)
    segments = (FeedSegment("a/b", 1, size, 0),)
    store(log.path(log.end()), FeedEpoch(log.end(), "c", 1, log.end(), "", 0, segments))


def test_a_query_gives_way_while_a_stream_reads_a_backlog_and_its_rows_can_wait(joined: Join) -> None:
    limited(joined, "spill")
    assert not joined.runtime.gives_way()
    host_of(joined).backlog = True
    assert joined.runtime.gives_way()
    hand_over(joined, "t", 499)
    assert joined.runtime.gives_way()
    hand_over(joined, "t", 1)
    assert not joined.runtime.gives_way(), "one of its feeds is half full"


def test_a_query_whose_output_is_a_stream_gives_way_to_nobody(joined: Join) -> None:
    host_of(joined).backlog = True
    feed = joined.pipeline.sinks[-1]
    limited(joined, "spill")
    assert joined.runtime.gives_way()
    joined.runtime.redefine(replace(joined.pipeline, sinks=(*joined.pipeline.sinks, feed)))
    assert not joined.runtime.gives_way()


def test_only_so_much_waits_for_a_query_that_gives_way(joined: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedicated_runtime, "WAITING_BYTES", 100)
    limited(joined, "spill")
    host_of(joined).backlog = True
    hand_over(joined, "s", 100)
    assert not joined.runtime.gives_way()


@pytest.mark.parametrize("strategy", ["pause", "drop"])
def test_a_query_that_would_hold_up_its_streams_or_lose_rows_gives_way_to_nobody(joined: Join, strategy: str) -> None:
    host_of(joined).backlog = True
    limited(joined, strategy)
    assert not joined.runtime.gives_way()


def test_a_query_gives_way_to_nobody_while_somebody_waits_for_its_rows(
    joined: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited(joined, "spill")
    host_of(joined).backlog = True
    seen: list[bool] = []

    def reached(_: object, ends: dict[str, int]) -> bool:
        seen.append(joined.runtime.gives_way())
        return True

    class Run:
        def drain(self, timeout: float) -> bool:
            return True

        def stop(self) -> None: ...

        def last_epoch(self) -> None: ...

    monkeypatch.setattr(dedicated_runtime.DedicatedRuntime, "_reached", reached)
    monkeypatch.setattr(joined.runtime, "_run", Run())
    assert joined.runtime.drain(5)
    assert seen == [False]
    assert joined.runtime.gives_way()


def test_a_batch_waits_for_its_neighbours_and_the_end_of_their_backlog_or_a_stop_ends_the_wait(joined: Join) -> None:
    committer, query = joined.runtime.committer, Busy(joined.pipeline)
    committer.give_way(query)  # the first batch
    joined.join(0, 1, at=(0, 0))
    committer._share.ran(3.0)
    problems: list[Exception] = []

    def run() -> None:
        try:
            committer.give_way(query)
        except StreamFailed as problem:
            problems.append(problem)

    for stopped in (True, False):
        query.stopped = query.idle = False
        waiting = threading.Thread(target=run)
        waiting.start()
        time.sleep(0.3)
        assert waiting.is_alive()
        query.stopped, query.idle = stopped, not stopped
        waiting.join(10)
        assert not waiting.is_alive()
        assert len(problems) == 1


def test_a_stream_reads_a_backlog_until_an_epoch_takes_the_rest_or_it_pauses() -> None:
    now = [0.0]
    watch = PlannerWatch(lambda: now[0])

    def planned(epoch: int, backlog: int) -> None:
        watch.on_notice(EpochPlanned(stream="s", pid=1, plan=1, epoch=epoch, backlog=backlog, planning_ms=1.0))

    assert not watch.reads_backlog(0)
    planned(0, BACKLOG_BYTES - 1)
    assert not watch.reads_backlog(0), "a live source nearly always has some bytes"
    planned(1, 10 * BACKLOG_BYTES)
    assert watch.reads_backlog(10 * BACKLOG_BYTES)
    assert not watch.reads_backlog(11 * BACKLOG_BYTES), "the next epoch takes all of it"
    now[0] += 60
    assert watch.reads_backlog(BACKLOG_BYTES), "a long epoch"
    with watch.changed:
        watch.epoch_committed()
    assert watch.reads_backlog(BACKLOG_BYTES)
    now[0] += QUIET_SECONDS
    assert not watch.reads_backlog(BACKLOG_BYTES), "it is paused: a feed is full"
    planned(2, 10 * BACKLOG_BYTES)
    watch.on_notice(PlanningHeld(stream="s", pid=1))
    assert not watch.reads_backlog(BACKLOG_BYTES), "it is held"
    watch.held = False
    assert watch.reads_backlog(BACKLOG_BYTES)
    watch.on_notice(SourceIdle(stream="s", pid=1, plan=1, exhausted=False))
    assert not watch.reads_backlog(BACKLOG_BYTES)


@pytest.mark.parametrize(
    ("others", "reads", "wanted"),
    [
        ([("running", None)], True, True),
        ([("running", None)], False, False),
        ([("stopped", None)], True, False),
        ([("running", "a query of its own")], True, False),
    ],
)
def test_a_backlog_counts_only_while_pipelines_of_other_hosts_read_it(
    others: list[tuple[str, str | None]], reads: bool, wanted: bool
) -> None:
    def record(desired: str, dedicated: str | None) -> Any:
        return SimpleNamespace(
            desired=desired, definition=SimpleNamespace(program=SimpleNamespace(dedicated=dedicated))
        )

    records = [record("running", "the query itself"), *(record(*other) for other in others)]
    hub: Any = SimpleNamespace(
        _runtimes=SimpleNamespace(known=lambda name: SimpleNamespace(reads_backlog=reads) if name == "s" else None),
        catalog=SimpleNamespace(of_stream=lambda name: records),
    )
    pipeline: Any = SimpleNamespace(streams=("t", "s"))
    assert Reconciler.reads_backlog(hub, pipeline) == wanted
