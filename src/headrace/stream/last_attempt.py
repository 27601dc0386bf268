"""The last attempt to deliver what the sinks of dropped pipelines on the dedicated host owe.

A sink that hangs must not hold up a DROP, and a slow one must get its rows. So all pipelines of a statement try at the
same time, each in a thread of its own, and an attempt may take as long as its sinks take rows. Its rows are deleted
when it ends, or when it is given up.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

from headrace.errors import HeadraceError
from headrace.stream.dedicated_runtime import DedicatedRuntime

IDLE_SECONDS = 10.0  # an attempt is given up after this time without a step
MOST_SECONDS = 60.0  # for all attempts of a statement: other scripts may wait for it
LOOK_SECONDS = 0.1  # between two looks at the steps
_log = logging.getLogger(__name__)


class LastAttempt:
    """The attempt of one pipeline whose query has ended. It begins at once."""

    def __init__(self, runtime: DedicatedRuntime, release: bool) -> None:
        """With `release` the sinks also forget the pipeline and are closed."""
        self.name = runtime.pipeline.name
        self.lacking = ["they did not answer in time"]  # what its sinks may lack
        self._runtime, self._release = runtime, release
        self._steps, self._since = runtime.steps, time.monotonic()
        self._thread = threading.Thread(target=self._run, name="headrace-settle", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            lacking = self._runtime.deliver_owed()
            if self._release:
                self._runtime.release()
        except Exception as problem:  # nothing above this thread could log it
            lacking = [problem.message if isinstance(problem, HeadraceError) else repr(problem)]
        self.lacking = lacking

    def goes_on(self, end: float) -> bool:
        """True if the attempt has not ended and its sinks take rows. Else it is given up, and at `end` in any case."""
        if not self._thread.is_alive():
            return False
        now, steps = time.monotonic(), self._runtime.steps
        if steps != self._steps:
            self._steps, self._since = steps, now
        self._runtime.given_up = now >= min(end, self._since + IDLE_SECONDS)
        return not self._runtime.given_up

    def wait(self, seconds: float) -> None:
        """Wait for its end, so many seconds at most."""
        self._thread.join(seconds)


def deliver_last(leaving: Sequence[DedicatedRuntime], release: bool = False) -> list[str]:
    """These pipelines are dropped: end their queries, and try once to deliver what their sinks owe. With `release` the
    sinks also forget the pipelines and are closed. Returns a warning for each pipeline whose sinks may lack rows."""
    for runtime in leaving:
        runtime.stop()
    attempts = [LastAttempt(runtime, release) for runtime in leaving if not runtime.given_up]
    end = time.monotonic() + MOST_SECONDS
    while waiting := [attempt for attempt in attempts if attempt.goes_on(end)]:
        waiting[0].wait(LOOK_SECONDS)
    warnings = [
        f"pipeline {attempt.name} was dropped; its sinks may lack rows: {'; '.join(attempt.lacking)}"
        for attempt in attempts
        if attempt.lacking
    ]
    for warning in warnings:
        _log.warning(warning)
    return warnings


def forget(leaving: Sequence[DedicatedRuntime]) -> list[str]:
    """Like `deliver_last` with `release`, then delete everything that the pipelines keep on disk. No task of their
    streams may run for them any more."""
    warnings = deliver_last(leaving, release=True)
    for runtime in leaving:
        runtime.delete()
    return warnings
