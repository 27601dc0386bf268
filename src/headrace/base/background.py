"""Work for threads that must not block: done by another one."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from headrace.errors import DiskFull, HubClosed, StartTimeout, StateUnavailable, StopTimeout, StreamFailed

AGAIN_SECONDS = 2.0
_log = logging.getLogger(__name__)


class BackgroundQueue:
    """Runs chores one after the other, in the order in which they came, in a thread of its own. `told` hears, there, of
    which stream each was and what went wrong with it, if anything did; no chore keeps the next from being done."""

    def __init__(self, told: Callable[[str, Exception | None], None]) -> None:
        self._told = told
        self._waiting: queue.Queue[tuple[str, Callable[[], None]] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name="headrace-chores", daemon=True)

    def start(self) -> None:
        """Begin; what was put before waits for this."""
        self._thread.start()

    def put(self, stream: str, chore: Callable[[], None]) -> None:
        """Have it done soon. Never waits."""
        self._waiting.put((stream, chore))

    def later(self, stream: str, chore: Callable[[], None], seconds: float | None = None) -> None:
        """Have it done after some time."""
        timer = threading.Timer(AGAIN_SECONDS if seconds is None else seconds, self.put, (stream, chore))
        timer.daemon = True
        timer.start()

    def close(self) -> None:
        """Do nothing that is put from now on."""
        self._waiting.put(None)

    def join(self, timeout: float) -> None:
        """Wait until everything before `close` is done."""
        self._thread.join(timeout)

    def _run(self) -> None:
        while (given := self._waiting.get()) is not None:
            self._told(given[0], self._do(*given))

    def _do(self, stream: str, chore: Callable[[], None]) -> Exception | None:
        try:
            chore()
        except (HubClosed, StreamFailed, StartTimeout, StopTimeout):
            return None  # a dead query is told to those who wait for it; a slow one has the plan and will come to it
        except Exception as problem:  # nobody is above this thread to hear of it
            passes = isinstance(problem, OSError | DiskFull | StateUnavailable)
            _log.warning("stream %s: %s", stream, problem, exc_info=not passes)
            if passes:  # a full disk may have room again
                self.later(stream, chore)
            return problem
        return None
