"""A hub without Spark that runs by itself: each query is a `MiniQuery` in a thread of its own.

Epochs are real (planner, tasks, lanes, committer), and so are the notices that the planner sends to the hub. So the hub
waits, holds and stops as it does with Spark. A test can pause streams, and make queries fail.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from pyspark.sql import SparkSession

from headrace.model.program import Meaning
from headrace.state.catalog import Catalog
from headrace.state.plans import PlanStore
from headrace.state.state_dir import StateDir
from headrace.stream.dedicated_runtime import DedicatedRequest, DedicatedRun
from headrace.stream.host import QueryRequest
from headrace.stream.managed_query import ManagedQuery
from headrace.stream.waiting import QueryWaits
from tests.shared.mini import Checkpoint, MiniQuery

POLL_SECONDS = 0.005


class RunningQueries:
    """Launches queries that run by themselves. `refusal` is raised instead of launching a query. `on_launch` is called
    for every query before it starts, in the launching thread."""

    def __init__(self) -> None:
        self.launched: list[str] = []
        self.refusal: Exception | None = None
        self.on_launch: Callable[[str], None] = lambda stream: None
        self._checkpoints: dict[str, Checkpoint] = {}
        self._queries: dict[str, MiniQuery] = {}
        self._paused: set[str] = set()
        self._all_paused = False
        self._one_task = threading.Lock()  # Python workers run one task at a time, and so do these threads

    def pause(self, *streams: str) -> None:
        """Run no epoch of these streams, or of all, from now on. Returns when none is in flight."""
        self._all_paused = self._all_paused or not streams
        self._paused |= set(streams)
        for stream, query in list(self._queries.items()):
            if self._is_paused(stream):
                with query.busy:
                    pass

    def resume(self) -> None:
        """Run epochs again."""
        self._all_paused = False
        self._paused.clear()

    def fail(self, stream: str, problem: str) -> None:
        """End the query of a stream with this problem."""
        query = self._queries[stream]
        query.stop()
        query.ended(problem)

    # --- the hub's launcher -----------------------------------------------------------------------

    def bind(self, state: StateDir, catalog: Catalog) -> Meaning:
        return Meaning()

    def ready(self) -> None:
        """There is no engine to start."""

    def launch(self, request: QueryRequest) -> MiniQuery:
        if self.refusal is not None:
            raise self.refusal
        self.on_launch(request.stream)
        self.launched.append(request.stream)
        query = MiniQuery(self._checkpoints.setdefault(request.options["checkpoint"], Checkpoint()), request)
        self._queries[request.stream] = query
        threading.Thread(target=self._run, args=(request.stream, query), daemon=True).start()
        return query

    def launch_dedicated(self, request: DedicatedRequest) -> DedicatedRun:
        raise AssertionError("there is no Spark here")

    def waits(self, query: ManagedQuery, plans: PlanStore) -> QueryWaits:
        return QueryWaits(query, plans)

    def checker(self, start: bool) -> None:
        return None

    def session(self) -> SparkSession:
        raise AssertionError("there is no Spark here")

    def stop(self) -> None:
        """There is no engine to stop."""

    def _is_paused(self, stream: str) -> bool:
        return self._all_paused or stream in self._paused

    def _run(self, stream: str, query: MiniQuery) -> None:
        while not query.over:
            with self._one_task, query.busy:
                worked = not query.over and not self._is_paused(stream) and query.step()
            if not worked:
                time.sleep(POLL_SECONDS)
