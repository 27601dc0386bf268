"""The DuckDB connection of the planner. It evaluates constants with the engine that runs the pipelines.

DuckDB cannot be interrupted inside of one function call, and a regular expression can take many seconds. So constants
are evaluated in a thread of their own. When the time limit of planning is over, the planner leaves that thread, which
ends by itself, and the next constant gets a new one.
"""

from __future__ import annotations

import math
import os
import threading
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import duckdb

from headrace.exec.kernels import install
from headrace.sql.plan.limits import TooSlow, time_left

MEMORY_LIMIT = "256MB"


class _Evaluator:
    """One thread, and its connection for each time zone."""

    def __init__(self) -> None:
        self.process = os.getpid()  # threads do not survive a fork
        self._thread = ThreadPoolExecutor(1, "headrace-constants")
        self._connections: dict[str, duckdb.DuckDBPyConnection] = {}

    def submit(self, sql: str, time_zone: str) -> Future[Any]:
        return self._thread.submit(self._value, sql, time_zone)

    def _value(self, sql: str, time_zone: str) -> Any:
        row = self._connection(time_zone).execute(f"SELECT {sql}").fetchone()
        assert row is not None
        return row[0]

    def _connection(self, time_zone: str) -> duckdb.DuckDBPyConnection:
        found = self._connections.get(time_zone)
        if found is None:
            found = duckdb.connect(":memory:", config={"threads": 1, "memory_limit": MEMORY_LIMIT})
            found.execute("SET TimeZone=" + "'" + time_zone.replace("'", "''") + "'")
            install(found)
            self._connections[time_zone] = found
        return found

    def abandon(self) -> None:
        """End as soon as DuckDB notices. Callers that wait for their turn get a CancelledError."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        for connection in list(self._connections.values()):
            connection.interrupt()


_lock = threading.Lock()
_evaluator: _Evaluator | None = None


def _current() -> _Evaluator:
    global _evaluator
    with _lock:
        if _evaluator is None or _evaluator.process != os.getpid():
            _evaluator = _Evaluator()
        return _evaluator


def _replace(used: _Evaluator) -> None:
    global _evaluator
    with _lock:
        if _evaluator is used:
            _evaluator = None
    used.abandon()


def evaluate(sql: str, time_zone: str) -> Any:
    """The value of a constant expression in the given time zone. Raises duckdb.Error, and TooSlow after the time limit
    of planning. Thread-safe."""
    while True:
        evaluator, left = _current(), time_left()
        try:
            return evaluator.submit(sql, time_zone).result(None if math.isinf(left) else max(0.0, left))
        except TimeoutError:
            _replace(evaluator)
            raise TooSlow from None
        except (CancelledError, RuntimeError):  # another caller has abandoned this thread
            if _current() is evaluator:
                raise


@lru_cache(maxsize=8)
def knows_time_zone(time_zone: str) -> bool:
    """True if DuckDB knows the time zone."""
    try:
        evaluate("1", time_zone)
    except duckdb.Error:
        return False
    return True
