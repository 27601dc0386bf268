"""The end of all streams of a hub: because their sources have ended, or because the hub is to stop.

The two never mix: while the hub drains, no window is closed because a source seems to have ended.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from threading import RLock
from typing import Protocol, TypeVar

from headrace.errors import ExternalError, StreamFailed
from headrace.hub.reservations import StreamReservations
from headrace.model.program import PipelineDef
from headrace.model.status import Waited
from headrace.stream.runtime import StreamRuntime

DRAIN_SECONDS = 60.0
T = TypeVar("T")
_log = logging.getLogger(__name__)


class WithRoom(Protocol):
    """Calls something, and once more with the reserve released when the disk is full."""

    def __call__(self, act: Callable[[], T]) -> T: ...


class Shutdown:
    """Ends the streams that `started` gives: those with a query, dead ones included. `lock` is the hub's,
    `reservations` says which streams are copied; `running` are the pipelines that a stream should run, and `finished` hears, under the
    lock, of those whose source has ended. `with_room` runs what must get through on a full disk."""

    def __init__(
        self,
        lock: RLock,
        reservations: StreamReservations,
        started: Callable[[], list[StreamRuntime]],
        running: Callable[[str], tuple[PipelineDef, ...]],
        finished: Callable[[Sequence[PipelineDef]], None],
        with_room: WithRoom,
    ) -> None:
        self._with_room = with_room
        self._lock, self._reservations = lock, reservations
        self._started, self._running, self._finished = started, running, finished
        self._draining = False

    def wait(self, timeout: float | None) -> bool:
        """Wait until every source is drained, then close all windows, commit, and stop; whether that went in time."""
        deadline = None if timeout is None else time.monotonic() + timeout
        dead: dict[StreamRuntime, StreamFailed] = {}
        for runtime in self._started():
            try:
                if not runtime.wait_exhausted(_left(deadline)) or self._draining:
                    return False
            except StreamFailed as problem:  # the others come to their end first
                dead[runtime] = problem
        while runtimes := [r for r in self._started() if r not in dead]:
            for runtime in runtimes:
                try:
                    if not self._end(runtime, deadline):
                        return False
                except StreamFailed as problem:
                    dead[runtime] = problem
        for first in dead.values():
            raise first
        return True

    def _end(self, runtime: StreamRuntime, deadline: float | None) -> bool:
        """Close all windows of a stream and stop it, unless somebody joins meanwhile; whether that went in time."""
        with self._lock:
            if self._draining:
                return False
            if not runtime.started:  # nobody needed it any more
                return True
            pipelines = self._running(runtime.stream.name)
            version = runtime.end(pipelines)
        if not runtime.wait_exhausted(_left(deadline)):
            return False
        with self._lock:
            if self._draining:
                return False
            if runtime.plans.current() == version:
                runtime.stop()
                self._finished(pipelines)
        return True

    def drain(self, timeout: float, told: Callable[[Waited], None]) -> bool:
        """Let every epoch in flight finish, then stop; whether all finished in time."""
        began = time.monotonic()
        calm = True
        with contextlib.ExitStack() as mine:
            with self._lock:
                self._draining = True  # nobody may close all windows now because a source seems to have ended
                mine.callback(setattr, self, "_draining", False)
                runtimes = self._started()
                names = {runtime.stream.name.lower() for runtime in runtimes}
                # A savepoint lets its streams go on when it is done. One that takes too long finds them stopped.
                self._reservations.wait(names, timeout)
                mine.enter_context(self._reservations.taken(names))
            for runtime in runtimes:
                with contextlib.suppress(ExternalError):  # it is asked once more below
                    self._with_room(runtime.ask_to_hold)
            for runtime in runtimes:
                done = True
                with contextlib.suppress(StreamFailed):  # a query that died has nothing in flight
                    done = self._held(runtime, max(0.0, began + timeout - time.monotonic()))
                told(Waited(runtime.stream.name, runtime.newest_epoch, time.monotonic() - began, done))
                runtime.stop()
                calm = calm and done
        return calm

    def _held(self, runtime: StreamRuntime, timeout: float) -> bool:
        """Whether the epoch in flight ended in time. A disk that takes no write cannot keep a stream from stopping."""
        try:
            return self._with_room(lambda: runtime.hold(timeout))
        except ExternalError as problem:
            _log.warning("stream %s cannot be held: %s", runtime.stream.name, problem)
            return False


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
