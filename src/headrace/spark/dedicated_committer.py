"""Commits the batches of one pipeline on the dedicated host: the query runs, its rows are staged, the sinks commit.

Spark calls it inside foreachBatch. When it returns, Spark logs the batch as done. When it raises, or the process dies
anywhere in here, Spark runs the same batch again: the offsets are positions in feeds, which keep the epochs until the
next batch is under way. Sinks know the batch by (checkpoint, instance, epoch) and a digest of its offsets, so they show
it once. The epoch is the number of the batch, counted over all turns of the instance (`Begin.first`).

If streams are made of the output, every batch says how far their event time has come, with rows or without. That is the
watermark that Spark computes for the output of the query, but never more than the streams below have reached: at the
end of a finite source Spark's watermark is at the end of time, and more input may come. A batch first waits until the
feeds of these streams have room, so its own feeds fill, and then the streams below pause. It also waits while its
streams read a backlog for other pipelines (`headrace.bridge.read_share`).
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame

from headrace.base.durable import state_errors
from headrace.base.faults import fault_point
from headrace.bridge.read_share import ReadShare
from headrace.errors import HeadraceError, SinkFailed, StreamFailed, kind_of
from headrace.model.definitions import FEED, PipelineDef
from headrace.model.stored import damaged, stored
from headrace.sinks.delivery import Delivered, Delivery
from headrace.sinks.feed_log import FeedLog
from headrace.sinks.feed_sink import feed_settings, is_full
from headrace.sinks.sink_kind import EpochMark, SinkKey, Staged
from headrace.spark.driver_sinks import DriverSinks, still_owed
from headrace.spark.query_failures import is_of_spark, query_failure
from headrace.spark.query_output import write_output
from headrace.state.checkpoint import CHECKPOINT
from headrace.state.checkpoint_sync import CheckpointSync
from headrace.state.dedicated_state import BEGIN, Begin, LeftBehind, remember, sinks_of, stream_directory_of
from headrace.state.progress import Debt, PipelineProgress, Progress, ProgressView, require_same_epoch
from headrace.state.spark_log import feed_positions, newest_commit, sync_epoch

SETTLE_SECONDS = 1.0
ROOM_SECONDS = 0.1  # between two looks at feeds that are full
BACKLOG_SECONDS = 0.25  # between two looks at streams that read a backlog
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """A committed batch: the rows in the first sink, the milliseconds it took, and sinks that were lost in it."""

    batch: int
    rows: int
    ms: float
    detached: dict[str, str]


@dataclass(frozen=True, slots=True)
class FeedConsumer:
    """One feed that the query reads, and the name under which it keeps its position there."""

    stream: str
    log: FeedLog
    name: str


class RunningBatch(Protocol):
    """The query whose batch is committed."""

    @property
    def pipeline(self) -> PipelineDef:
        """Its definition as it is now. The outlets may change while a batch waits."""
        ...

    def current(self) -> bool:
        """False once the query was stopped: then nothing is stored."""
        ...

    def gives_way(self) -> bool:
        """True while its streams read a backlog for other pipelines, and its own rows can wait."""
        ...

    def late(self) -> int:
        """How many rows of the batch were dropped as late. Known when its rows are read."""
        ...

    def reached(self) -> int | None:
        """How far the event time of the output has come with the batch, in microseconds. None if that is not known."""
        ...


class DedicatedCommitter:
    """Commits the batches of one pipeline, one at a time, in Spark's streaming thread. `directory` is that of its
    state (`headrace.stream.dedicated_runtime`), `consumers` are its feeds in the order of its inputs.

    `waits_for_room` is true while a batch waits because a stream that is made of the output has no room.
    """

    def __init__(
        self,
        directory: Path,
        checkpoint: str,
        consumers: tuple[FeedConsumer, ...],
        done: Callable[[BatchSummary], None],
        reveal: Callable[[str], str] = str,
    ) -> None:
        self._directory, self._consumers, self._done = directory, consumers, done
        self._progress = ProgressView(directory)
        # Sinks stage rows in the same place in every turn.
        self.sinks = DriverSinks(checkpoint, directory.parent, reveal, feeds=stream_directory_of(directory))
        self.sinks.settle_seconds = None  # only this pipeline waits for them
        self._busy = threading.Lock()
        self._share = ReadShare(time.monotonic)
        self._synced = CheckpointSync(directory / CHECKPOINT)
        self._released = -1
        self.waits_for_room = False
        self._remembered: PipelineDef | None = None

    @property
    def progress(self) -> Progress:
        """The pipeline after its newest committed batch: `epoch` is the batch."""
        return self._progress.read()

    def give_way(self, query: RunningBatch) -> None:
        """Leave the task slots to other pipelines for a while, if they need them. Call it before `commit`. Raises
        StreamFailed if the query is stopped meanwhile."""
        while self._share.early and query.gives_way():
            if not query.current():
                raise StreamFailed("the query was stopped while its streams read a backlog")
            time.sleep(BACKLOG_SECONDS)

    def commit(self, rows: DataFrame, batch: int, pipeline: PipelineDef, query: RunningBatch) -> None:
        """Run a batch and commit it."""
        with self._busy:
            self._commit(rows, batch, pipeline, query)

    def _commit(self, rows: DataFrame, batch: int, pipeline: PipelineDef, query: RunningBatch) -> None:
        began = time.perf_counter()
        with state_errors(self._directory / CHECKPOINT):
            self._synced.sync()  # the state that the batch starts from
            sync_epoch(self._directory / CHECKPOINT, batch)
        before, digest = self._progress.read(), self._digest(batch)
        require_same_epoch(before, batch, "")
        begin = stored(Begin, self._directory / BEGIN)
        if begin is None:
            raise damaged(self._directory / BEGIN, "is missing, but the query has run")
        before = self._with_undecided(before, begin, pipeline)
        if pipeline != self._remembered:
            remember(self._directory, pipeline)
            self._remembered = pipeline
        key = self.sinks.key(pipeline.instance, begin.first + batch, digest)
        staged = self.sinks.staged(pipeline)
        for sink in staged.sinks:
            self.sinks.of(pipeline, sink.name).verify(key)
        waited = time.perf_counter()
        self._wait_for_room(query)
        waited = time.perf_counter() - waited
        lost: dict[str, str] = {}
        try:
            receipts = write_output(rows, staged, key, lost, in_tasks=True)
        except Exception as problem:
            if is_of_spark(problem) or not query.current():
                raise
            failure = query_failure(problem, pipeline)
            raise failure from problem
        fault_point("after-dedicated-staging")
        if not query.current():
            raise StreamFailed("the query of this commit was stopped")
        if any(sink.kind == FEED for sink in pipeline.sinks):
            key = replace(key, mark=EpochMark(self._event_time(batch, pipeline, query)))
        delivered = self._deliver(pipeline, key, receipts=receipts, lost=lost, before=before)
        if delivered.failure:
            raise _as_error(delivered.failure)
        fault_point("after-dedicated-commit")
        if batch > before.epoch:
            after = self._after(before, batch, key.epoch, pipeline=pipeline, delivered=delivered, late=query.late())
            self._progress.write(after)
        fault_point("after-dedicated-progress")
        spent = time.perf_counter() - began
        self._share.ran(spent - waited)
        self._done(BatchSummary(batch, delivered.rows or 0, spent * 1000, delivered.detached))

    def _deliver(
        self,
        pipeline: PipelineDef,
        key: SinkKey,
        receipts: Mapping[str, list[Staged]],
        lost: Mapping[str, str],
        before: Progress,
    ) -> Delivered:
        debts: dict[str, list[SinkKey]] = defaultdict(list)
        for debt in before.debts:
            debts[debt.sink].append(self.sinks.owed(debt))
        gone = before.detached.get(pipeline.run, {})
        delivery = Delivery(pipeline, partial(self.sinks.for_commit, pipeline), key, debts)
        return delivery.deliver(receipts, "", lost, {s.name: gone[s.name] for s in pipeline.sinks if s.name in gone})

    def _wait_for_room(self, query: RunningBatch) -> None:
        """Wait until the streams that are made of the output have read enough of it, or their limits have changed.
        Raises StreamFailed if the query is stopped meanwhile."""
        logs: dict[Path, FeedLog] = {}  # each remembers the manifests that it has parsed
        try:
            while self._full(query.pipeline, logs):
                self.waits_for_room = True
                if not query.current():
                    raise StreamFailed("the query was stopped while it waited for a stream that reads its output")
                time.sleep(ROOM_SECONDS)
        finally:
            self.waits_for_room = False

    def _full(self, pipeline: PipelineDef, logs: dict[Path, FeedLog]) -> bool:
        """True if a stream that is made of the output has no room."""
        feeds = replace(pipeline, sinks=tuple(sink for sink in pipeline.sinks if sink.kind == FEED), late=None)
        for sink in self.sinks.staged(feeds).sinks:
            settings = feed_settings(sink)
            place = settings.directory(pipeline.instance)
            if is_full(settings, logs.setdefault(place, FeedLog(place))) and not settings.abandoned(pipeline.instance):
                return True
        return False

    def _event_time(self, batch: int, pipeline: PipelineDef, running: RunningBatch) -> int | None:
        """How far the event time of the output has come with a batch, in microseconds."""
        query = pipeline.program.dedicated
        timed = set() if query is None else {given.stream for given in query.inputs if given.event_time is not None}
        read = feed_positions(self._directory / CHECKPOINT, batch)
        found = [_watermark_at(c.log.directory, read.get(c.stream, 0)) for c in self._consumers if c.stream in timed]
        below = [watermark for watermark in found if watermark is not None]
        if not below or len(below) < len(found):
            return None
        if query is not None and query.stateless:  # Spark's own watermark is that of the batch before
            return min(below)
        reached = running.reached()
        return None if reached is None else min(*below, reached)

    def _with_undecided(self, before: Progress, begin: Begin, pipeline: PipelineDef) -> Progress:
        """`before` with the debts of sinks for the undecided epochs of states that were dropped. If one of the sinks
        has committed such an epoch, all have promised it. The debts are stored before this batch is delivered: then the
        sink that shows an epoch may forget its manifest."""
        if before.epoch >= 0 or not begin.all_undecided:
            return before
        owed = {(debt.sink, debt.epoch) for debt in before.debts}
        new: list[Debt] = []
        for epoch in begin.all_undecided:
            names = sinks_of(begin.sinks, epoch, pipeline)
            key = self.sinks.key(pipeline.instance, epoch)
            if any(self.sinks.of(pipeline, name).committed(key) for name in names):
                new += [Debt(pipeline, name, epoch) for name in names if (name, epoch) not in owed]
        if not new:
            return before
        debts = sorted((*before.debts, *new), key=lambda debt: debt.epoch)
        known = replace(before, debts=tuple(debts))
        self._progress.write(known)
        return known

    def _after(
        self, before: Progress, batch: int, epoch: int, pipeline: PipelineDef, delivered: Delivered, late: int
    ) -> Progress:
        counted = before.pipelines.get(str(pipeline.instance), PipelineProgress())
        counted = replace(
            counted, rows_out=counted.rows_out + (delivered.rows or 0), late=counted.late + late, epoch=batch
        )
        owed = still_owed(before.debts, self.sinks.settled)
        gone = before.detached.get(pipeline.run, {}) | delivered.detached
        return replace(
            before,
            epoch=batch,
            pipelines={str(pipeline.instance): counted},
            debts=(*owed, *(Debt(pipeline, sink, epoch, sink in delivered.promised) for sink in delivered.owed)),
            detached={pipeline.run: gone} if gone else {},
        )

    def settle(self) -> tuple[Debt, ...]:
        """Try once more to commit the epochs that sinks owe. Returns those that are still owed."""
        if not self._busy.acquire(timeout=SETTLE_SECONDS):  # a commit may hang in a sink
            return self._progress.read().debts
        try:
            before = self._progress.read()
            left = still_owed(before.debts, self.sinks.settled)
            if left != before.debts:
                self._progress.write(replace(before, debts=left))
            return left
        finally:
            self._busy.release()

    def settle_last(
        self, pipeline: PipelineDef, left: LeftBehind, wanted: Callable[[], bool] = lambda: True
    ) -> tuple[Debt, ...]:
        """The pipeline is dropped and its query has ended: try once to commit the epochs that its sinks owe, as long as
        that is `wanted`. Returns those that they may lack afterwards."""
        known = {(debt.sink, debt.epoch) for debt in left.debts}
        asked = {epoch: sinks_of(left.sinks, epoch, pipeline) for epoch in left.undecided}
        undecided = [Debt(pipeline, name, epoch) for epoch, names in asked.items() for name in names]
        undecided = [debt for debt in undecided if (debt.sink, debt.epoch) not in known]
        if not self._busy.acquire(timeout=SETTLE_SECONDS):  # a commit hangs in a sink
            return (*left.debts, *undecided)
        try:
            shown = {epoch: {self._shows(pipeline, name, epoch) for name in names} for epoch, names in asked.items()}
            promised = [debt for debt in undecided if True in shown[debt.epoch]]  # if one sink has it, all promised it
            unclear = [debt for debt in undecided if True not in shown[debt.epoch] and None in shown[debt.epoch]]
            lacking = still_owed((*left.debts, *promised), lambda debt: wanted() and self._settled_last(debt))
            return (*lacking, *unclear)
        finally:
            self._busy.release()

    def _settled_last(self, debt: Debt) -> bool:
        """Try to commit an epoch that a sink owes. Whatever it raises, the other sinks are asked, too."""
        try:
            return self.sinks.settled(debt, declared=False)
        except Exception as problem:  # such as one of the sink's client library
            _log.warning("pipeline %s, sink %s, epoch %d: %r", debt.pipeline.name, debt.sink, debt.epoch, problem)
            return False

    def _shows(self, pipeline: PipelineDef, name: str, epoch: int) -> bool | None:
        """True if a sink has committed an epoch. None if it does not say."""
        try:
            return self.sinks.of(pipeline, name).committed(self.sinks.key(pipeline.instance, epoch))
        except Exception:  # then the epoch is named as one that the sinks may lack
            return None

    def release(self) -> None:
        """Let the feeds forget what is read and committed. Spark logs a batch as done after `commit` has returned, so
        this is called from time to time, by one thread. The state and the log are made durable first: then Spark runs
        nothing before it again. Raises coded errors only, also for a disk that fails: then it is tried again."""
        checkpoint = self._directory / CHECKPOINT
        with state_errors(checkpoint):
            newest = newest_commit(checkpoint)
            if newest > self._released:
                self._synced.sync()
                self._advance(feed_positions(checkpoint, newest))
                self._released = newest

    def read(self) -> dict[str, int]:
        """The position in the feed of each stream up to which everything is in the sinks."""
        newest = self._progress.read().epoch
        return feed_positions(self._directory / CHECKPOINT, newest) if newest >= 0 else {}

    def moved(self, directory: Path, checkpoint: str) -> None:
        """Go on with another checkpoint in another directory. Only while no query runs."""
        self._directory, self._released, self._remembered = directory, -1, None
        self._synced = CheckpointSync(directory / CHECKPOINT)
        self._progress = ProgressView(directory)
        self.sinks.moved(checkpoint)

    def _advance(self, read: Mapping[str, int]) -> None:
        for consumer in self._consumers:
            if consumer.stream in read:
                consumer.log.advance(consumer.name, read[consumer.stream])

    def _digest(self, batch: int) -> str:
        found = feed_positions(self._directory / CHECKPOINT, batch)
        return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:32]

    def close(self) -> None:
        self.sinks.close()


def _watermark_at(feed: Path, position: int) -> int | None:
    """The watermark of a stream at a position of its feed. None before the first epoch."""
    log = FeedLog(feed)
    return log.epoch(position - 1).watermark if log.path(position - 1).exists() else None


def _as_error(failure: str) -> HeadraceError:
    """The error for a failure that a delivery reports as text."""
    kind = kind_of(failure)
    if kind is None:
        return SinkFailed(failure)
    return kind(failure.split("] ", 1)[1])
