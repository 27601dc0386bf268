"""A stream that is made of the output of a pipeline on the dedicated host, without Spark: how far its event time has
come, that it gets every row once although state is dropped, and that the query waits while it is full."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest

from headrace.errors import StreamFailed
from headrace.hub.dedicated_pipelines import DedicatedPipelines
from headrace.model.definitions import PipelineDef, SinkDef
from headrace.model.program import DedicatedQuery, FeedInput
from headrace.model.stored import store
from headrace.sinks import SINKS
from headrace.sinks.feed_log import FeedEpoch, FeedLog, make_fed_stream, read_segments, stream_feed
from headrace.sinks.sink_kind import SinkKey
from headrace.sinks.staging import staged_in
from headrace.state.progress import ProgressView
from tests.stream.test_dedicated_damage import Host
from tests.stream.test_dedicated_epochs import Rig, rows_without_spark

__all__ = ["rows_without_spark"]
POSITIONS = (
    'v1\n{{}}\n{{"stream": "s", "position": {}, "closed": false}}\n{{"stream": "t", "position": {}, "closed": false}}\n'
)


@dataclass
class Query:
    """The running query. `reached_at` is what Spark says about the output."""

    pipeline: PipelineDef
    reached_at: int | None = None
    stopped: bool = False

    def current(self) -> bool:
        return not self.stopped

    def gives_way(self) -> bool:
        return False

    def late(self) -> int:
        return 0

    def reached(self) -> int | None:
        return self.reached_at


class Join(Rig):
    """A pipeline over the streams `s` and `t` that feeds the stream `out`, beside the sinks `a` and `b`."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.runtime.close()
        given = self.pipeline.program
        inputs = tuple(
            FeedInput(name, name, given.view, given.ring0, given.output, event_time=time)
            for name, time in (("s", "ts"), ("t", "ts"))
        )
        program = replace(given, dedicated=DedicatedQuery("SELECT n FROM s JOIN t", inputs))
        feed = SinkDef("stream out", "feed", {"stream": "out", "shift": "0"})
        self.pipeline = replace(self.pipeline, program=program, sinks=(*self.pipeline.sinks, feed))
        make_fed_stream(root / "streams" / "out", 1)
        self.out = FeedLog(stream_feed(root / "streams" / "out"))
        self.out.register("reader")
        self.query = Query(self.pipeline)
        self.runtime = self._made()

    def limited(self, **options: str) -> None:
        """The pipeline as it is after the options of the stream `out` have changed."""
        feed = replace(self.pipeline.sinks[-1], options={"stream": "out", "shift": "0", **options})
        self.pipeline = self.query.pipeline = replace(self.pipeline, sinks=(*self.pipeline.sinks[:-1], feed))

    def below(self, stream: str, *watermarks: int | None) -> None:
        """Epochs in the feed of a stream."""
        log = self.runtime.feeds()[stream]
        for watermark in watermarks:
            at = log.end()
            log.manifests.mkdir(parents=True, exist_ok=True)
            store(log.path(at), FeedEpoch(at, "c", 1, at, "", watermark))

    def join(self, number: int, *rows: int, at: tuple[int, int]) -> None:
        """A batch that has read the feeds up to these positions."""
        offsets = self.runtime.directory / "checkpoint" / "offsets"
        offsets.mkdir(parents=True, exist_ok=True)
        (offsets / str(number)).write_text(POSITIONS.format(*at))
        given: Any = list(rows)
        self.runtime.committer.commit(given, number, self.pipeline, self.query)

    def rows(self, start: int = 0) -> list[int]:
        found = (b for e in self.out.epochs(start) for b in read_segments(self.out.segments, e.segments))
        return [n for batch in found for n in batch.column(0).to_numpy().tolist()]

    def time(self) -> int | None:
        newest = self.out.newest()
        return None if newest is None else newest.watermark


@pytest.fixture
def joined(tmp_path: Path) -> Iterator[Join]:
    found = Join(tmp_path)
    yield found
    found.runtime.close()


def test_event_time_is_that_of_sparks_output_but_not_beyond_the_streams(joined: Join) -> None:
    joined.below("s", 10, 50, 60)
    joined.join(0, 1, at=(1, 0))
    assert joined.time() is None, "nothing is known about one of the streams"
    joined.below("t", 40, 90)
    joined.query.reached_at = 25
    joined.join(1, at=(2, 1))
    assert joined.time() == 25, "a join waits for partners"
    joined.query.reached_at = 10**15
    joined.join(2, at=(3, 2))
    assert joined.time() == 60, "at the end of the input Spark's watermark is at the end of time"
    joined.query.reached_at = 30
    joined.join(3, 2, at=(3, 2))
    assert joined.time() == 60, "it never goes back"
    assert joined.rows() == [1, 2]


def test_a_query_without_state_has_the_time_of_its_slowest_stream(joined: Join) -> None:
    query = joined.pipeline.program.dedicated
    assert query is not None
    program = replace(joined.pipeline.program, dedicated=replace(query, stateless=True))
    joined.pipeline = replace(joined.pipeline, program=program)
    joined.below("s", 50)
    joined.below("t", 40)
    joined.join(0, 1, at=(1, 1))
    assert joined.time() == 40


def test_a_batch_that_runs_again_and_one_after_the_state_is_dropped_are_there_once(joined: Join) -> None:
    joined.join(0, 1, at=(0, 0))
    joined.join(0, 1, at=(0, 0))
    joined.lose_state()
    joined.join(0, 2, at=(0, 0))
    joined.join(1, 3, at=(0, 0))
    assert joined.rows() == [1, 2, 3] == joined.shown("a")


@pytest.mark.parametrize("read", [False, True])
def test_a_batch_that_runs_again_after_the_pipeline_that_replaces_it_wrote_is_there_once(
    joined: Join, monkeypatch: pytest.MonkeyPatch, read: bool
) -> None:
    joined.join(0, 1, at=(0, 0))
    with monkeypatch.context() as dies, pytest.raises(KeyboardInterrupt):
        dies.setattr(ProgressView, "write", Mock(side_effect=KeyboardInterrupt))
        joined.join(1, 2, at=(0, 0))
    sink = staged_in(joined.pipeline.sinks[-1], joined.root / "streams" / "s")
    other = SINKS["feed"].driver(sink, joined.pipeline.program.output)
    for epoch in range(3):
        key = SinkKey("e" * 32, 2, epoch)
        table = pa.table({"n": pa.array([10 + epoch], pa.int32())})
        other.commit(key, [SINKS["feed"].task(sink).stage(table, key)])
    if read:
        joined.out.advance("reader", joined.out.end())
    joined.join(1, 2, at=(0, 0))
    joined.join(2, 3, at=(0, 0))
    assert joined.rows(5 if read else 0) == ([3] if read else [1, 2, 10, 11, 12, 3])
    assert joined.shown("a") == [1, 2, 3]


def test_a_query_that_is_gone_keeps_nothing_in_the_stream_that_it_fed(joined: Join) -> None:
    """Also if the hub died before it could say so."""
    joined.join(0, 1, at=(0, 0))
    streams = dict.fromkeys(("s", "t", "out"))
    catalog: Any = SimpleNamespace(pipelines={}, ended=(), streams=streams)
    declared: Any = SimpleNamespace(catalog=catalog)
    DedicatedPipelines(declared, lambda stream: joined.root / "streams" / stream, Host()).sweep()
    assert not joined.runtime.home.exists()
    assert [p.name for p in joined.out.directory.glob("ended-*")] == ["ended-1"]


def test_a_batch_waits_while_the_stream_is_full_and_a_stop_ends_the_wait(joined: Join) -> None:
    joined.limited(strategy="pause", limit="1")
    joined.join(0, 1, at=(0, 0))
    problems: list[Exception] = []

    def run() -> None:
        try:
            joined.join(1, 2, at=(0, 0))
        except StreamFailed as problem:
            problems.append(problem)

    for stopped in (True, False):
        joined.query.stopped = False
        waiting = threading.Thread(target=run)
        waiting.start()
        time.sleep(0.3)
        assert joined.rows() == [1] and waiting.is_alive()
        joined.query.stopped = stopped
        if not stopped:
            joined.out.advance("reader", 1)
        waiting.join(10)
        assert not waiting.is_alive()
        assert len(problems) == 1
    assert joined.shown("a") == [1, 2]


@pytest.mark.parametrize("change", ["more", "drop", "gone"])
def test_a_batch_that_waits_continues_when_the_limit_of_the_stream_is_changed(joined: Join, change: str) -> None:
    joined.limited(strategy="pause", limit="1")
    joined.join(0, 1, at=(0, 0))
    waiting = threading.Thread(target=joined.join, args=(1, 2), kwargs={"at": (0, 0)})
    waiting.start()
    time.sleep(0.3)
    assert joined.rows() == [1] and waiting.is_alive()
    if change == "gone":
        joined.query.pipeline = replace(joined.pipeline, sinks=joined.pipeline.sinks[:-1])
    else:
        joined.limited(
            **{"more": {"strategy": "pause", "limit": "1MB"}, "drop": {"strategy": "drop", "limit": "1"}}[change]
        )
    waiting.join(10)
    joined.query.stopped = True
    assert not waiting.is_alive()
    assert joined.shown("a") == [1, 2]


def test_a_feed_whose_limit_was_changed_follows_the_new_one(joined: Join) -> None:
    """It stays open meanwhile. With the old limit it would drop the rows of the last batch."""
    joined.limited(strategy="drop", limit="1000")
    joined.join(0, *range(20), at=(0, 0))
    joined.join(1, *range(20, 200), at=(0, 0))
    assert joined.out.dropped() == 180
    joined.limited(strategy="spill", limit="1MB")
    joined.join(2, *range(200, 400), at=(0, 0))
    assert joined.out.dropped() == 180
    assert joined.rows() == [*range(20), *range(200, 400)]


def test_a_stream_that_was_dropped_gets_nothing_and_nobody_waits_for_it(joined: Join) -> None:
    joined.limited(strategy="pause", limit="1")
    joined.join(0, 1, at=(0, 0))
    make_fed_stream(joined.root / "streams" / "new", 2)
    (joined.root / "streams" / "out").rename(joined.root / "gone")
    (joined.root / "streams" / "new").rename(joined.root / "streams" / "out")
    joined.join(1, 2, at=(0, 0))
    assert joined.shown("a") == [1, 2]
    assert FeedLog(stream_feed(joined.root / "streams" / "out")).end() == 0
