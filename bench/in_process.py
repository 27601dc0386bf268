"""A hub whose epochs run in this process, one at a time and without Spark, to measure the CPU time of our own code.

Planner, tasks, lanes and committer are the real ones. Partitions are pickled and messages are Arrow batches, as between
the processes of Spark; Spark's own work is left out. State is in dictionaries.
"""

from __future__ import annotations

import gc
import pickle
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.bridge.messages import Row
from headrace.bridge.spark_rows import open_staging
from headrace.hub.hub import Hub
from headrace.model.program import Meaning
from headrace.sources import files
from headrace.spark.epochs import EpochPlanner, read_partition
from headrace.spark.state_host import LaneProcessor
from headrace.state.catalog import Catalog
from headrace.state.checkpoint import CHECKPOINT
from headrace.state.plans import PlanStore
from headrace.state.progress import read_applied
from headrace.state.state_dir import StateDir
from headrace.stream.dedicated_runtime import DedicatedRequest, DedicatedRun
from headrace.stream.host import QueryRequest
from headrace.stream.managed_query import ManagedQuery
from headrace.stream.stream_status import StoredStream
from headrace.stream.waiting import QueryWaits
from tests.ring1.memory_store import MemoryStore

PARALLELISM = 2
CACHES = 64 << 20  # bytes: more than the caches of a processor


class LocalQuery:
    """A stream's query. `seconds` is the CPU time that each part of the epochs took so far.

    `bridge_bytes` are the bytes of all messages from tasks to lanes, `messages` and `calls` those that the state host
    got. Without `one_machine` large packs travel inside messages, as on a cluster. If `cold`, planning and commit
    find nothing in the processor's caches, whatever the tasks did before.
    """

    def __init__(self, request: QueryRequest, parallelism: int = PARALLELISM, one_machine: bool = True) -> None:
        self._committer, self._checkpoint = request.committer, request.directory / CHECKPOINT
        self._checkpoint.mkdir(mode=0o700, parents=True, exist_ok=True)
        open_staging(request.directory)
        given = {"parallelism": str(parallelism), "one_machine": str(one_machine).lower()}
        self._planner = EpochPlanner(request.options | given)
        self._offset: dict[str, Any] | None = None
        self._state: dict[tuple[int, int], MemoryStore] = defaultdict(MemoryStore)
        self.seconds: dict[str, float] = defaultdict(float)
        self.cold = False
        self.messages = self.calls = self.tasks = self.epochs = self.bridge_bytes = 0

    def stop(self) -> None:
        """No epoch is in flight between two steps."""

    def last_epoch(self) -> None:
        return None

    def step(self) -> bool:
        """Run one epoch. False if there was nothing to do."""
        with self._in_driver() as began:
            start = self._offset or self._planner.initial()
            end = self._planner.latest(start)
            if end == start:
                return False
            sent = [pickle.dumps(part) for part in self._planner.partitions(start, end)]
            began = self._took("plan", began)
        batches = [list(read_partition(pickle.loads(part))) for part in sent]
        began = self._took("tasks", began)
        self.tasks, self.epochs = self.tasks + len(sent), self.epochs + 1
        self.bridge_bytes += sum(batch.nbytes for found in batches for batch in found)
        rows = [row for lane, found in _by_lane(batches).items() for row in self._lane(lane, found)]
        self._took("state", began)
        with self._in_driver() as began:
            self._committer.commit(rows)
            self._planner.commit(end)
            self._took("commit", began)
        self._offset = end
        done = self._checkpoint / "commits" / str(end["epoch"])
        done.parent.mkdir(exist_ok=True)
        done.touch()  # as Spark does
        return True

    @contextmanager
    def _in_driver(self) -> Iterator[float]:
        """For the driver's work; gives the time at its begin. What the tasks have left in this process is not the
        driver's: garbage is collected before, and the rest is not looked at meanwhile."""
        gc.collect()
        gc.freeze()
        if self.cold:
            np.zeros(CACHES, np.uint8).fill(1)
        try:
            yield time.process_time()
        finally:
            gc.unfreeze()

    def _took(self, part: str, began: float) -> float:
        now = time.process_time()
        self.seconds[part] += now - began
        return now

    def _lane(self, lane: tuple[int, int], rows: list[Row]) -> Iterator[Row]:
        processor = LaneProcessor()
        processor.store = self._state[lane]
        self.messages, self.calls = self.messages + len(rows), self.calls + 1
        for found in processor.handleInputRows(lane, iter(rows), None):
            yield Row(*found)


def _by_lane(tasks: list[list[pa.RecordBatch]]) -> dict[tuple[int, int], list[Row]]:
    """The messages by the key that Spark groups them by."""
    found: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for batch in (batch for batches in tasks for batch in batches):
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            found[values[0], values[1]].append(Row(*values))
    return found


class _SteppingWaits(QueryWaits):
    """Runs epochs in the thread that waits, because no other thread does."""

    def __init__(self, local: LocalHub, query: ManagedQuery, plans: PlanStore) -> None:
        super().__init__(query, plans)
        self._local, self._managed = local, query

    def until_planned(self, version: int, timeout: float, stored: StoredStream) -> None:
        while (applied := read_applied(self._managed.directory)) is None or applied.version < version:
            self._local.query.step()

    def until_held(self, timeout: float) -> bool:
        return True


class LocalHub:
    """A hub on `directory` with one running stream. `query` runs its epochs."""

    def __init__(self, directory: Path, parallelism: int = PARALLELISM, one_machine: bool = True) -> None:
        self._parallelism, self._one_machine = parallelism, one_machine
        files.CHEAP = float("inf")  # list the input whenever an epoch is planned
        self.hub = Hub(directory, self, start_timeout=60.0)

    def checker(self, start: bool) -> None:
        return None

    def bind(self, state: StateDir, catalog: Catalog) -> Meaning:
        return Meaning()

    def ready(self) -> None:
        """There is no engine to start."""

    def launch(self, request: QueryRequest) -> LocalQuery:
        self.query = LocalQuery(request, self._parallelism, self._one_machine)
        return self.query

    def launch_dedicated(self, request: DedicatedRequest) -> DedicatedRun:
        raise AssertionError("there is no Spark here")

    def waits(self, query: ManagedQuery, plans: PlanStore) -> QueryWaits:
        return _SteppingWaits(self, query, plans)

    def session(self) -> SparkSession:
        raise AssertionError("there is no Spark here")

    def stop(self) -> None:
        """There is no engine to stop."""
