"""Queries of the epoch host that fail because of others run again alone. Without Spark: each query is a function."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.sql import SparkSession

from headrace.errors import DiskFailed
from headrace.sinks.sink_kind import SinkKey
from headrace.spark.epoch_queries import ATTEMPTS, EpochQueries
from headrace.spark.epoch_query import EpochQuery, QueryOutcome
from headrace.spark.session import Engine
from tests.ring0.tasks import N, stateless


class Queries:
    """Runs one function per instance as its query. `attempts` are the instances in the order of their attempts, and
    `active` those that run now."""

    def __init__(self, patch: pytest.MonkeyPatch, bodies: dict[int, Callable[[], None]]) -> None:
        self.cancelled = threading.Event()
        context = SimpleNamespace(
            setLocalProperty=lambda *_: None,
            setJobGroup=lambda *_, **__: None,
            cancelJobGroup=lambda _: self.cancelled.set(),
        )
        session = cast(SparkSession, SimpleNamespace(sparkContext=context))
        self.host, self.bodies = EpochQueries(Engine(session, owned=False)), bodies
        self.attempts, self.active, self._lock = list[int](), set[int](), threading.Lock()
        patch.setattr(self.host, "_run", self._run)

    def _run(self, query: EpochQuery) -> QueryOutcome:
        instance = query.pipeline.instance
        with self._lock:
            self.attempts.append(instance)
            self.active.add(instance)
        try:
            self.bodies[instance]()
        finally:
            with self._lock:
                self.active.discard(instance)
        return QueryOutcome()

    def run(self, limit: float | None = None) -> dict[int, QueryOutcome]:
        asked = [EpochQuery(stateless(i, N), SinkKey("c", i, 0), (), now=0) for i in self.bodies]
        try:
            return self.host.run(asked, limit, lambda pipeline: False)
        finally:
            self.host.cancel()


def test_a_query_that_uses_up_the_memory_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def guilty() -> None:
        time.sleep(0.3)
        raise MemoryError("Java heap space")

    def victim() -> None:
        time.sleep(0.1)
        if 2 in queries.active:
            raise MemoryError("Java heap space")

    queries = Queries(monkeypatch, {1: victim, 2: guilty, 3: victim})
    found = queries.run()
    assert {instance: outcome.failure[:16] for instance, outcome in found.items()} == {
        1: "",
        2: "[OUT_OF_MEMORY] ",
        3: "",
    }
    assert sorted(queries.attempts[:3]) == [1, 2, 3], "all begin together"
    assert queries.attempts[3:] == [1, 2, 3, 2], "and run again one after the other"
    assert queries.attempts.count(2) == ATTEMPTS
    assert found[2].ms >= 900, "it took all its attempts"


def test_a_disk_that_fails_once_fails_no_query_and_a_bad_row_is_met_once(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[Exception] = [DiskFailed("Input/output error")]

    def unlucky() -> None:
        if failures:
            raise failures.pop()

    def bad() -> None:
        raise ZeroDivisionError("division by zero")

    queries = Queries(monkeypatch, {1: unlucky, 2: bad})
    found = queries.run()
    assert not found[1].failure and found[2].failure
    assert sorted(queries.attempts) == [1, 1, 2]


def test_waiting_for_others_does_not_count_as_time_of_a_query_but_all_its_attempts_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def dies_once() -> None:
        if queries.attempts.count(1) == 1:
            raise MemoryError("Java heap space")
        time.sleep(0.8)

    def dies_and_hangs() -> None:
        if queries.attempts.count(3) == 1:
            raise MemoryError("Java heap space")
        assert queries.cancelled.wait(30)

    queries = Queries(monkeypatch, {1: dies_once, 2: lambda: time.sleep(1.0), 3: dies_and_hangs})
    found = queries.run(limit=1.5)
    assert not found[1].failure and not found[2].failure
    assert found[3].failure.startswith("[QUERY_TIMEOUT]")
    assert queries.attempts.count(3) == 2
