"""Several streams of one hub in this process, for chains: `tests.shared.mini` with a query for every stream.

A test steps the streams in any order, ends the process at any place of any stream, and opens the hub again.
"""

from __future__ import annotations

import copy
import datetime as dt
import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.base.background import BackgroundQueue
from headrace.control.acks import Ack
from headrace.errors import StreamFailed
from headrace.hub.hub import Hub
from headrace.model.definitions import SinkDef
from headrace.model.program import Meaning
from headrace.model.schema import Schema
from headrace.sinks import SINKS
from headrace.sinks.sink_kind import SinkKey, SinkKind, SinkSettings
from headrace.state.catalog import Catalog
from headrace.state.plans import PlanStore
from headrace.state.progress import read_applied
from headrace.state.state_dir import StateDir
from headrace.stream.dedicated_runtime import DedicatedRequest, DedicatedRun
from headrace.stream.host import QueryRequest
from headrace.stream.managed_query import ManagedQuery
from headrace.stream.stream_status import StoredStream
from headrace.stream.waiting import QueryWaits
from tests.shared.mini import Checkpoint, KeptSink, KeptTask, MiniQuery, SteppingQueue

T0 = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def at(seconds: float) -> dt.datetime:
    """A moment of the tests."""
    return T0 + dt.timedelta(seconds=seconds)


def record(seconds: float, **values: Any) -> str:
    """A line of JSON with an event time."""
    return json.dumps({"ts": at(seconds).isoformat(), **values})


class Waits(QueryWaits):
    """Runs epochs in the thread that waits, because no other thread does."""

    def __init__(self, chain: Chain, query: ManagedQuery, plans: PlanStore) -> None:
        super().__init__(query, plans)
        self._chain, self.query = chain, query

    def until_planned(self, version: int, timeout: float, stored: StoredStream) -> None:
        for _ in range(100):
            applied = read_applied(self.query.directory)
            if applied is not None and applied.version >= version:
                return
            self.query.raise_failure()
            query = self._chain.queries.get(self.query.stream.name.lower())
            if query is not None and query.over:
                raise StreamFailed("the query fails again and again")  # as after PATIENT_ATTEMPTS
            assert self._chain.step(self.query.stream.name), "an idle stream plans a new version at once"
        raise AssertionError("the plan was never planned")

    def until_exhausted(self, timeout: float | None) -> bool:
        while self._chain.step(self.query.stream.name) or self._chain.step(self.query.stream.name):
            pass
        return True

    def until_held(self, timeout: float) -> bool:
        return True  # no epoch is in flight between two steps

    def until_paused(self, ack: Future[Ack], timeout: float) -> bool:
        while not ack.done():
            assert self._chain.step(self.query.stream.name), "a barrier begins an epoch"
        return True


class Chain:
    """A hub on `directory` whose streams are stepped by the test."""

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch, like: Chain | None = None) -> None:
        """`like` is another one whose streams and sinks this one continues."""
        self.directory = directory
        self.checkpoints: dict[str, Checkpoint] = {} if like is None else like.checkpoints
        self.kept: dict[SinkKey, list[Any]] = {} if like is None else like.kept
        self.queries: dict[str, MiniQuery] = {}

        def driver(sink: SinkDef, settings: SinkSettings, output: Schema) -> KeptSink:
            return KeptSink(self.kept)

        kind = SinkKind("kept", "for tests", "exactly once", SinkSettings, lambda sink, settings: KeptTask(), driver)
        patch.setitem(SINKS, "kept", kind)
        patch.setattr("headrace.sources.files.CHEAP", float("inf"))
        patch.setattr("headrace.hub.reconciler.BackgroundQueue", self._queue)
        self.hub = self.open()

    def open(self) -> Hub:
        self.queries = {}
        self.hub = Hub(self.directory, self, buckets=2, start_timeout=60.0)
        return self.hub

    def _queue(self, on_done: Callable[[str, Exception | None], None]) -> BackgroundQueue:
        self.background = SteppingQueue(on_done)
        return self.background

    def crash(self) -> Hub:
        """Release the directory as a dead process would, and open it again."""
        self.hub.close(drain=False)
        return self.open()

    def copied(self) -> tuple[dict[str, Checkpoint], dict[SinkKey, list[Any]]]:
        """What Spark and the sinks have now."""
        return copy.deepcopy(self.checkpoints), copy.deepcopy(self.kept)

    def sql(self, text: str) -> list[Any]:
        return self.hub.sql(text)

    def checkpoint(self, stream: str) -> Checkpoint:
        """What Spark keeps of a stream."""
        return self.queries[stream.lower()].checkpoint

    def step(self, stream: str) -> bool:
        """Run one epoch of a stream, if there is anything to do."""
        query = self.queries.get(stream.lower())
        worked = query is not None and not query.over and query.step()
        self.background.run()
        return worked

    def drain(self) -> None:
        """Run epochs of all streams until there is nothing more to do. In a first pass a stream makes room for the one
        before it, in a second one that finds its source polled too often, and in a third it looks again."""
        while sum(self.step(name) for _ in range(3) for name in list(self.queries)):
            pass

    def rows(self, pipeline: str) -> list[Any]:
        """All output rows of a pipeline, in order."""
        found = self.hub.catalog.pipeline(pipeline)
        assert found is not None
        mine = (k for k in self.kept if k.instance == found.definition.instance)
        return [row for key in sorted(mine, key=lambda k: k.epoch) for row in self.kept[key]]

    def bag(self, pipeline: str) -> Counter[Any]:
        """The output rows of a pipeline, without their order."""
        return Counter(self.rows(pipeline))

    # --- the hub's launcher -----------------------------------------------------------------------

    def bind(self, state: StateDir, catalog: Catalog) -> Meaning:
        return Meaning()

    def ready(self) -> None:
        """There is no engine to start."""

    def launch(self, request: QueryRequest) -> MiniQuery:
        kept = self.checkpoints.setdefault(request.options["checkpoint"], Checkpoint())
        made = self.queries[request.stream.lower()] = MiniQuery(kept, request)
        return made

    def launch_dedicated(self, request: DedicatedRequest) -> DedicatedRun:
        raise AssertionError("there is no Spark here")

    def waits(self, query: ManagedQuery, plans: PlanStore) -> QueryWaits:
        return Waits(self, query, plans)

    def session(self) -> SparkSession:
        raise AssertionError("there is no Spark here")

    def checker(self, start: bool) -> None:
        return None

    def stop(self) -> None:
        """There is no engine to stop."""
