"""Ends all streams of a hub, because their sources have ended or because the hub closes.

The two never mix: while the hub drains, no window is closed because a source seems to have ended.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from functools import partial

from headrace.errors import ExternalError, StreamFailed
from headrace.hub.dead_readers import DeadReaders
from headrace.hub.reconciler import Reconciler
from headrace.model.status import Waited
from headrace.stream.host import StreamFailures
from headrace.stream.runtime import StreamRuntime

FOR_EVER = 10.0**9
LOOK_SECONDS = 1.0  # how often a wait looks whether it can still end
_log = logging.getLogger(__name__)


class Shutdown:
    """Ends the streams of one hub that were started, dead ones included. Any thread may call."""

    def __init__(self, reconciler: Reconciler) -> None:
        self._reconciler, self._readers = reconciler, DeadReaders(reconciler)
        self._draining = False

    def wait_until_end(self, timeout: float | None) -> bool:
        """Wait until every source has ended, then close all windows, commit, and stop. True if that happened in time.
        If streams die, the others end first; then the failure is raised."""
        deadline = None if timeout is None else time.monotonic() + timeout
        dead: dict[StreamRuntime, StreamFailed] = {}
        for runtime in self._reconciler.started():
            try:
                if not self._exhausted(runtime, deadline) or self._draining:
                    return False
            except StreamFailed as problem:
                dead[runtime] = problem
        while runtimes := [r for r in self._reconciler.started() if r not in dead]:
            for runtime in runtimes:  # a stream that a pipeline feeds gets that pipeline's last rows before it ends
                try:
                    if not self._exhausted(runtime, deadline) or not self._end(runtime, deadline):
                        return False
                except StreamFailed as problem:
                    dead[runtime] = problem
        if not self._finish_dedicated(_left(deadline)):
            return False
        for first in dead.values():
            raise first
        return True

    def _exhausted(self, runtime: StreamRuntime, deadline: float | None) -> bool:
        """Wait until a source has ended. Streams come in the order of their chain, so nothing feeds it any more once a
        query on the dedicated host has read what the streams before have left for it."""
        if runtime.stream.fed_by is not None:
            producer = self._reconciler.catalog.pipeline(runtime.stream.fed_by)
            feeds = None if producer is None else self._reconciler.dedicated.known(producer.definition.instance)
            limit = FOR_EVER if (left := _left(deadline)) is None else left
            if feeds is not None and not feeds.drain(limit, partial(self._readers.stuck, feeds)):
                return False
            runtime.look_again()
        return self._read_to_end(runtime, deadline)

    def _read_to_end(self, runtime: StreamRuntime, deadline: float | None) -> bool:
        """Wait until a source has ended, or raise StreamFailed if that cannot happen because a dead stream does not
        read."""
        while True:
            left = _left(deadline)
            if runtime.wait_exhausted(LOOK_SECONDS if left is None else min(left, LOOK_SECONDS)):
                return True
            if left is not None and left <= LOOK_SECONDS:
                return False
            self._readers.require_none(runtime)

    def _end(self, runtime: StreamRuntime, deadline: float | None) -> bool:
        """Close all windows of a stream and stop it, unless a pipeline joins meanwhile. False if time ran out."""
        reconciler = self._reconciler
        with reconciler.lock:
            if self._draining:
                return False
            if not runtime.started:  # its last pipeline has left
                return True
            pipelines = reconciler.catalog.running(runtime.stream.name)
            own = {p.instance for p in pipelines if reconciler.catalog.is_dedicated(p.instance)}
            # A join waits for the end of all of its streams, even of one that got no row since its last end.
            version = runtime.end(pipelines, again=bool(own))
        if not self._read_to_end(runtime, deadline):
            return False
        with reconciler.lock:
            if self._draining:
                return False
            if runtime.plans.current() == version:
                runtime.stop()
                # Others have rows in their feeds, and windows that are open.
                reconciler.declarations.finished([p for p in pipelines if p.instance not in own])
        return True

    def _finish_dedicated(self, timeout: float | None) -> bool:
        """Let pipelines on the dedicated host read what their streams have left in the feeds. They have finished then,
        not before: a run ends when no pipeline is left that runs. False if time ran out."""
        reconciler = self._reconciler
        found = reconciler.dedicated.finish(FOR_EVER if timeout is None else timeout, self._readers.stuck)
        if found is None:
            return False
        for pipeline, problem in found.failed:  # even if the background queue has not recorded the failure yet
            reconciler.drop_failed(StreamFailures(pipeline.program.stream, {pipeline.run: problem}, {}))
        with reconciler.lock:
            reconciler.declarations.finished(found.done)
        return True

    def drain(self, timeout: float, on_waited: Callable[[Waited], None] | None = None) -> bool:
        """Let every epoch in flight finish, then stop the queries. True if all finished in time. `on_waited` is called
        for each stream when it has stopped."""
        began = time.monotonic()
        in_time = True
        reservations = self._reconciler.reservations
        with contextlib.ExitStack() as steps:
            with self._reconciler.lock:
                self._draining = True
                steps.callback(self._drained)
                runtimes = self._reconciler.started()
                names = {runtime.stream.name.lower() for runtime in runtimes}
                # A savepoint releases its streams when it is done. One that takes too long finds them stopped.
                reservations.wait(names, timeout)
                steps.enter_context(reservations.reserve(names))
            for runtime in runtimes:
                with contextlib.suppress(ExternalError):  # `hold` asks again
                    self._reconciler.reserve.with_room(runtime.ask_to_hold)
            for runtime in runtimes:
                done = True
                with contextlib.suppress(StreamFailed):  # a dead query has no epoch in flight
                    done = self._hold(runtime, max(0.0, began + timeout - time.monotonic()))
                if on_waited is not None:
                    on_waited(Waited(runtime.stream.name, runtime.newest_epoch, time.monotonic() - began, done))
                runtime.stop()
                in_time = in_time and done
        return in_time

    def _drained(self) -> None:
        self._draining = False

    def _hold(self, runtime: StreamRuntime, timeout: float) -> bool:
        """True if the epoch in flight ended in time. A disk that refuses writes must not keep a stream from
        stopping."""
        try:
            return self._reconciler.reserve.with_room(partial(runtime.hold, timeout))
        except ExternalError as problem:
            _log.warning("cannot hold stream %s: %s", runtime.stream.name, problem)
            return False


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
