"""Spark in miniature: runs the epochs of a real hub in this process, one at a time, when a test asks for it.

Everything except Spark is real: hub, catalog, planner, Ring 0 tasks, lanes, committer. A `Checkpoint` holds what Spark
keeps on disk: the offset that was logged, and the state of every lane. A test can end an epoch anywhere.
"""

from __future__ import annotations

import copy
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.base import background
from headrace.base.background import BackgroundQueue
from headrace.bridge.messages import Row
from headrace.bridge.pools import bucket_of
from headrace.bridge.spark_rows import open_staging
from headrace.errors import (
    BrokerDenied,
    BrokerUnreachable,
    DataLost,
    DiskFull,
    JournalDamaged,
    SinkUnavailable,
    StoreDenied,
    StoreUnreachable,
    StreamFailed,
)
from headrace.hub.hub import Hub
from headrace.model.definitions import SinkDef
from headrace.model.program import Meaning
from headrace.model.schema import Schema
from headrace.ring1.pool_store import PoolStore
from headrace.sinks import SINKS
from headrace.sinks.in_process import pack, unpack
from headrace.sinks.sink_kind import SinkKey, SinkKind, SinkSettings, Staged
from headrace.sources.extent import BAD_FILE
from headrace.spark.committer import FilesLeftOut, ProbeLived
from headrace.spark.epochs import EpochPartition, EpochPlanner, read_partition
from headrace.spark.state_host import LaneProcessor
from headrace.state.catalog import Catalog
from headrace.state.checkpoint import CHECKPOINT
from headrace.state.plans import PlanStore, unpack_plan
from headrace.state.progress import read_applied, read_progress
from headrace.state.quarantine import read_quarantine
from headrace.state.state_dir import StateDir
from headrace.stream.dedicated_runtime import DedicatedRequest, DedicatedRun
from headrace.stream.host import QueryRequest
from headrace.stream.managed_query import ManagedQuery
from headrace.stream.stream_status import StoredStream
from headrace.stream.waiting import QueryWaits
from tests.ring1.memory_store import MemoryStore

# Errors that end a query, as they do in a task or the planner of Spark.
ENDING = (
    *BAD_FILE, SinkUnavailable, DiskFull, JournalDamaged, BrokerDenied, BrokerUnreachable, DataLost, StoreDenied,
    StoreUnreachable,
)  # fmt: skip
DEATH = "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"
Lane = tuple[int, int]


class Crash(BaseException):
    """The process dies here."""


@dataclass
class Epoch:
    """An epoch that was committed: who was in it, and which rows of the stream it had."""

    number: int
    instances: dict[int, str]
    first: int
    rows: int


@dataclass
class Checkpoint:
    """Survives the process. `crash` names the place at which the next epoch ends the process, `killers` the
    pipelines that kill the worker they run in, `killers_at_end` those that do so when they leave with their state."""

    end: dict[str, Any] | None = None
    logged: tuple[dict[str, Any], dict[str, Any]] | None = None
    state: dict[Lane, MemoryStore] = field(default_factory=dict)
    epochs: list[Epoch] = field(default_factory=list)
    kept: dict[SinkKey, list[Any]] = field(default_factory=dict)
    crash: str = ""
    killers: set[str] = field(default_factory=set)
    killers_at_end: set[str] = field(default_factory=set)
    rows: int = 0

    def die(self, place: str) -> None:
        if self.crash == place:
            self.crash = ""
            raise Crash(place)


class MiniQuery:
    """A stream's query. `step` runs one epoch, and returns True if there was anything to do."""

    def __init__(self, checkpoint: Checkpoint, request: QueryRequest) -> None:
        self.checkpoint, self.committer, self.ended = checkpoint, request.committer, request.on_end
        (request.directory / CHECKPOINT).mkdir(mode=0o700, parents=True, exist_ok=True)  # as StreamQuery does
        open_staging(request.directory)
        self.planner = EpochPlanner(request.options | {"parallelism": "2", "one_machine": "true"})
        self.busy = threading.RLock()  # held while an epoch runs in another thread
        self.over = False

    def stop(self) -> None:
        self.over = True
        with self.busy:  # as with Spark, no epoch is in flight when this returns
            pass

    def last_epoch(self) -> None:
        return None

    def step(self) -> bool:
        try:
            return self._step()
        except ENDING as problem:
            self.end(str(problem))
            return True

    def _step(self) -> bool:
        kept = self.checkpoint
        if kept.logged is None:
            start = kept.end or self.planner.initial()
            end = self.planner.latest(start)
            if end == start:
                return False
            kept.logged = (start, end)
            kept.die("logged")
            if kept.end is not None:  # Spark says that an epoch is done when it has logged the next one
                self.planner.commit(kept.end)
        parts: list[Any] = list(self.planner.partitions(*kept.logged))
        names = {p.name for p in unpack_plan(parts[0].plan).pipelines}
        flushed = {left.pipeline.name for left in parts[0].leaving if left.flush or not left.drop}
        if names & kept.killers or flushed & kept.killers_at_end:
            self.end(DEATH)
            return True
        messages = [row for part in parts for row in self._task(part)]
        kept.die("tasks")
        state = copy.deepcopy(kept.state)
        rows = [row for lane in _lanes(messages) for row in _advance(state, *lane)]
        kept.die("lanes")
        try:
            self.committer.commit(rows)
        except (ProbeLived, FilesLeftOut) as ended:
            self.end(type(ended).__name__)
            return True
        kept.die("committed")
        self._done(parts[0], state)
        return True

    def _task(self, part: EpochPartition) -> Iterator[Row]:
        for batch in read_partition(part):
            yield from (Row(*values.values()) for values in batch.to_pylist())

    def _done(self, part: EpochPartition, state: dict[Lane, MemoryStore]) -> None:
        kept = self.checkpoint
        assert kept.logged is not None
        _, kept.end = kept.logged
        kept.logged, kept.state = None, state
        progress = read_progress(self.planner.directory)
        # The pipelines that should be in it, not those that the task got: no other may be left out.
        plan = self.planner.plans.load(unpack_plan(part.plan).version)
        gone = read_quarantine(self.planner.directory).reasons(plan.version)
        present = [p for p in plan.pipelines if p.instance not in gone and p.run not in progress.failures]
        instances = {p.instance: p.name for p in present}
        kept.epochs.append(Epoch(part.planned.epoch, instances, kept.rows, progress.rows - kept.rows))
        kept.rows = progress.rows
        done = self.planner.directory / "checkpoint" / "commits" / str(part.planned.epoch)
        done.parent.mkdir(parents=True, exist_ok=True)
        done.touch()  # as Spark does, which keeps more of them
        done.with_name(str(part.planned.epoch - 2)).unlink(missing_ok=True)

    def end(self, problem: str) -> None:
        self.over = True
        self.ended(problem)


def lanes_with_state(state: dict[Lane, MemoryStore]) -> set[int]:
    """The lanes that have state, by themselves or in a pool."""
    found: set[int] = set()
    for (lane, bucket), store in state.items():
        pool = PoolStore(store)
        pooled = bucket_of((lane, bucket)) is not None
        if pooled:
            pool.load()
        found |= pool.lanes if pooled else {lane} if store.head is not None else set()
    return found


def _lanes(messages: list[Row]) -> Iterator[tuple[Lane, list[Row]]]:
    found: dict[Lane, list[Row]] = {}
    for row in messages:
        found.setdefault((row.instance, row.bucket), []).append(row)
    return iter(found.items())


def _advance(state: dict[Lane, MemoryStore], lane: Lane, rows: list[Row]) -> list[Row]:
    processor = LaneProcessor()
    processor.store = state.setdefault(lane, MemoryStore())
    return [Row(*found) for found in processor.handleInputRows(lane, iter(rows), None)]


class KeptSink:
    """A sink that survives the process and keeps the rows of each epoch."""

    guarantee = "exactly once"

    def __init__(self, kept: dict[SinkKey, list[Any]]) -> None:
        self._kept = kept

    def commit(self, key: SinkKey, staged: list[Staged]) -> int:
        rows = [tuple(row.values()) for s in staged for row in unpack(s.data).to_pylist()]
        self._kept.setdefault(key, rows)
        return len(rows)

    def promise(self, key: SinkKey, staged: list[Staged]) -> None:
        """A commit needs no promise here."""

    def committed(self, key: SinkKey) -> bool:
        return key in self._kept

    def verify(self, key: SinkKey) -> None:
        """Every key is kept once."""

    def discard(self, key: SinkKey) -> None:
        """Nothing is staged elsewhere."""

    def ahead(self, key: SinkKey) -> int:
        return 0

    def rewind(self, key: SinkKey) -> None:
        """Never ahead."""

    def forget(self, key: SinkKey) -> None:
        """Tests look at the rows later."""

    def close(self) -> None:
        """Nothing is open."""


class KeptTask:
    def stage(self, table: pa.Table, key: SinkKey) -> Staged:
        return Staged(table.num_rows, data=pack(table))


class _SteppingWaits(QueryWaits):
    """Runs epochs in the thread that waits, because no other thread does."""

    def __init__(self, mini: Mini, query: ManagedQuery, plans: PlanStore) -> None:
        super().__init__(query, plans)
        self._mini, self._stepped = mini, query

    def until_planned(self, version: int, timeout: float, stored: StoredStream) -> None:
        self._mini.wait_planned(self._stepped, version)

    def until_exhausted(self, timeout: float | None) -> bool:
        return self._mini.drain()

    def until_held(self, timeout: float) -> bool:
        return True  # no epoch is in flight between two steps


class SteppingQueue(BackgroundQueue):
    """Runs tasks in `Mini.step`, so that a test knows after which epoch a failed pipeline leaves. Tasks that are put
    off run in the thread, as in a hub."""

    def __init__(self, on_done: Callable[[str, Exception | None], None]) -> None:
        super().__init__(on_done)
        self._tasks: deque[tuple[str, Callable[[], None]]] = deque()

    def put(self, stream: str, task: Callable[[], None]) -> None:
        self._tasks.append((stream, task))

    def later(self, stream: str, task: Callable[[], None], seconds: float | None = None) -> None:
        wait = background.AGAIN_SECONDS if seconds is None else seconds
        timer = threading.Timer(wait, super().put, (stream, task))
        timer.daemon = True
        timer.start()

    def run(self) -> None:
        """Run the tasks that were put."""
        while self._tasks:
            stream, task = self._tasks.popleft()
            self._on_done(stream, self._do(stream, task))


class Mini:
    """A hub on `directory` whose queries are `MiniQuery`s. `open` it again after a crash."""

    def __init__(
        self, directory: Path, patch: pytest.MonkeyPatch, buckets: int = 2, kept: Checkpoint | None = None
    ) -> None:
        self.directory, self.checkpoint, self._buckets = directory, kept or Checkpoint(), buckets
        rows = self.checkpoint.kept

        def driver(sink: SinkDef, settings: SinkSettings, output: Schema) -> KeptSink:
            return KeptSink(rows)

        kind = SinkKind("kept", "for tests", "exactly once", SinkSettings, lambda sink, settings: KeptTask(), driver)
        patch.setitem(SINKS, "kept", kind)
        patch.setattr("headrace.sources.files.CHEAP", float("inf"))  # however busy the machine is
        # Hubs that the code under test opens by itself, such as that of `headrace run`, run here too.
        patch.setattr("headrace.hub.hub.SparkLauncher", lambda *_: self)
        patch.setattr("headrace.hub.reconciler.BackgroundQueue", self._queue)
        self.waiting = True  # false: statements return before their plan is planned
        self.query: MiniQuery | None = None
        self.hub = self.open()

    def open(self) -> Hub:
        self.query = None
        self.hub = Hub(self.directory, self, buckets=self._buckets, start_timeout=60.0)
        return self.hub

    def _queue(self, on_done: Callable[[str, Exception | None], None]) -> BackgroundQueue:
        self.background = SteppingQueue(on_done)
        return self.background

    # --- the hub's launcher -----------------------------------------------------------------------

    def bind(self, state: StateDir, catalog: Catalog) -> Meaning:
        return Meaning()

    def ready(self) -> None:
        """There is no engine to start."""

    def launch(self, request: QueryRequest) -> MiniQuery:
        self.query = MiniQuery(self.checkpoint, request)
        return self.query

    def launch_dedicated(self, request: DedicatedRequest) -> DedicatedRun:
        raise AssertionError("there is no Spark here")

    def waits(self, query: ManagedQuery, plans: PlanStore) -> QueryWaits:
        return _SteppingWaits(self, query, plans)

    def session(self) -> SparkSession:
        raise AssertionError("there is no Spark here")

    def checker(self, start: bool) -> None:
        return None

    def stop(self) -> None:
        """There is no engine to stop."""

    def wait_planned(self, query: ManagedQuery, version: int) -> None:
        for _ in range(100 if self.waiting else 0):
            applied = read_applied(query.directory)
            if applied is not None and applied.version >= version:
                return
            if self.query is not None and self.query.over:
                query.raise_failure()
                raise StreamFailed("the query fails again and again")  # as after PATIENT_ATTEMPTS
            assert self.step(), "an idle stream plans a new version at once"
        assert not self.waiting, "the plan was never planned"

    def step(self) -> bool:
        """Run one epoch, if there is anything to do."""
        worked = self.query is not None and not self.query.over and self.query.step()
        self.background.run()
        return worked

    def drain(self) -> bool:
        """Run epochs until there is nothing more to do."""
        while self.step() or self.step():  # a source that was polled too often looks again after an idle notice
            pass
        return True

    def crash(self) -> None:
        """Release the directory as a dead process would, and open it again."""
        self.hub.close(drain=False)
        self.open()

    def output(self, instance: int) -> list[Any]:
        """All output rows of an instance, in order."""
        keys = sorted((k for k in self.checkpoint.kept if k.instance == instance), key=lambda k: k.epoch)
        return [row for key in keys for row in self.checkpoint.kept[key]]
