"""The DuckDB connection of the planner. It evaluates constants with the engine that runs the pipelines.

DuckDB cannot be interrupted inside one function call, and a regular expression can take many seconds. So constants
are evaluated in a thread of their own. When the time limit of planning is over, the planner leaves that thread, which
ends by itself, and the next constant gets a new one. A regular expression of Python would stop all threads meanwhile,
so it is evaluated in a process (`headrace.sql.functions.constant_process`).
"""

from __future__ import annotations

import atexit
import math
import os
import threading
import time
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from queue import Empty, SimpleQueue
from typing import Any
from weakref import WeakSet

import duckdb

from headrace.errors import ConstantNotEvaluated
from headrace.exec.constants import connect
from headrace.sql.functions.constant_process import ConstantProcess, needs_process
from headrace.sql.plan.limits import TooSlow, time_left

EXIT_SECONDS = 2.0
# The process for regular expressions holds memory, and ends when it has had nothing to do for so long.
IDLE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class _QueuedConstant:
    """An expression to evaluate, and where its value goes."""

    future: Future[Any]
    sql: str
    time_zone: str


class _Evaluator:
    """One thread, and its connection for each time zone. A daemon thread: the process may exit while a constant that
    nobody waits for is still evaluated."""

    def __init__(self) -> None:
        self.process = os.getpid()  # threads do not survive a fork
        self._lock = threading.Lock()
        self._abandoned = False
        self._tasks: SimpleQueue[_QueuedConstant | None] = SimpleQueue()  # None ends the thread
        self._connections: dict[str, duckdb.DuckDBPyConnection] = {}
        self._child = ConstantProcess()
        self._thread = threading.Thread(target=self._run, name="headrace-constants", daemon=True)
        self._thread.start()

    def submit(self, sql: str, time_zone: str) -> Future[Any]:
        """Queue an expression. The future is cancelled if this evaluator is abandoned first."""
        future: Future[Any] = Future()
        with self._lock:
            if self._abandoned:
                future.cancel()
            else:
                self._tasks.put(_QueuedConstant(future, sql, time_zone))
        return future

    def _run(self) -> None:
        try:
            self._evaluate_all()
        finally:
            self._child.end()

    def _evaluate_all(self) -> None:
        while (task := self._next()) is not None:
            if task.future.set_running_or_notify_cancel():
                try:
                    task.future.set_result(self._value(task.sql, task.time_zone))
                except BaseException as problem:
                    task.future.set_exception(problem)

    def _next(self) -> _QueuedConstant | None:
        if self._child.running:
            with suppress(Empty):
                return self._tasks.get(timeout=IDLE_SECONDS)
            self._child.end()
        return self._tasks.get()

    def _value(self, sql: str, time_zone: str) -> Any:
        if needs_process(sql):
            return self._child.value(sql, time_zone)
        row = self._connection(time_zone).execute(f"SELECT {sql}").fetchone()
        assert row is not None
        return row[0]

    def _connection(self, time_zone: str) -> duckdb.DuckDBPyConnection:
        found = self._connections.get(time_zone)
        if found is None:
            found = connect(time_zone)
            self._connections[time_zone] = found
        return found

    def abandon(self) -> None:
        """End as soon as DuckDB notices. Callers that wait for their turn get a CancelledError, and the one whose
        expression runs may get a duckdb.InterruptException."""
        with self._lock:
            self._abandoned = True
            with suppress(Empty):
                while (task := self._tasks.get_nowait()) is not None:
                    task.future.cancel()
            self._tasks.put(None)
        self._child.kill()
        for connection in list(self._connections.values()):
            connection.interrupt()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def join(self, seconds: float) -> None:
        """Wait for the thread of an abandoned evaluator."""
        self._thread.join(seconds)


_lock = threading.Lock()
_evaluator: _Evaluator | None = None
_abandoned: WeakSet[_Evaluator] = WeakSet()  # the thread of each keeps it until it ends


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
        _abandoned.add(used)
    used.abandon()


@atexit.register
def end_thread() -> None:
    """End the thread and its connections; the next constant gets new ones. A hub that closes calls it, and Python at
    its end: DuckDB reports every connection that is still open then, and a thread that leaves DuckDB while Python ends
    aborts the process. A constant that takes longer does not delay the caller."""
    used = _evaluator
    if used is not None and used.process == os.getpid():
        _replace(used)
    until = time.monotonic() + EXIT_SECONDS
    for one in list(_abandoned):
        if one.process == os.getpid():
            one.join(max(0.0, until - time.monotonic()))


def still_running() -> bool:
    """True if a constant that nobody waits for is still evaluated in this process. It aborts the process if it ends
    while Python finalizes."""
    return any(one.process == os.getpid() and one.alive for one in list(_abandoned))


def evaluate(sql: str, time_zone: str) -> Any:
    """The value of a constant expression in the given time zone. Raises duckdb.Error if the expression fails,
    ConstantNotEvaluated if that is not known, and TooSlow after the time limit of planning. Thread-safe."""
    while True:
        evaluator, left = _current(), time_left()
        try:
            return evaluator.submit(sql, time_zone).result(None if math.isinf(left) else max(0.0, left))
        except TimeoutError:
            _replace(evaluator)
            raise TooSlow from None
        except (CancelledError, duckdb.InterruptException) as problem:
            if _current() is evaluator:  # not a failure of the expression, so no plan may hold it
                raise ConstantNotEvaluated(
                    "the evaluation of a constant was interrupted", advice="Run the statement again."
                ) from problem
            # Another caller's time limit was over, so it has abandoned this evaluator. That says nothing about this
            # expression.


@lru_cache(maxsize=8)
def knows_time_zone(time_zone: str) -> bool:
    """True if DuckDB knows the time zone."""
    if time_zone == "UTC":  # the usual one: asking would load DuckDB for every script that is checked
        return True
    try:
        evaluate("1", time_zone)
    except duckdb.Error:
        return False
    return True
