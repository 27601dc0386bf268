"""Runs slow work in another thread, so that the main thread can handle Ctrl-C and show what happens.

Only the main thread handles signals, and not while it waits inside the JVM's gateway. Spark also replaces the SIGINT
handler if it is started in the main thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class _Work(Generic[T]):
    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._found: T | None = None
        self._problem: BaseException | None = None
        self.done = threading.Event()

    def run(self) -> None:
        try:
            self._found = self._work()
        except BaseException as problem:
            self._problem = problem
        finally:
            self.done.set()

    def result(self) -> T:
        if self._problem is not None:
            raise self._problem
        return self._found  # type: ignore[return-value]


def attended(work: Callable[[], T], tick: Callable[[], object] = bool, seconds: float = 0.1) -> T:
    """The result of `work`, or its error. Calls `tick` every so many `seconds` until then. Signal handlers run
    meanwhile, in the main thread."""
    task = _Work(work)
    threading.Thread(target=task.run, name="headrace-work", daemon=True).start()
    while not task.done.wait(seconds):
        tick()
    return task.result()
