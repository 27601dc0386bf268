"""Work queue for threads that must not block."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from headrace.errors import DiskFull, HubClosed, StartTimeout, StateUnavailable, StopTimeout, StreamFailed

AGAIN_SECONDS = 2.0
_log = logging.getLogger(__name__)


class BackgroundQueue:
    """Runs tasks in a thread of its own, one at a time, in the order of `put`.

    After each task that thread calls `on_done` with the stream's name and the error, or None. A task that fails does
    not stop the queue."""

    def __init__(self, on_done: Callable[[str, Exception | None], None]) -> None:
        self._on_done = on_done
        self._waiting: queue.Queue[tuple[str, Callable[[], None]] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name="headrace-background", daemon=True)

    def start(self) -> None:
        """Start the thread. Tasks that were put earlier run now."""
        self._thread.start()

    def put(self, stream: str, task: Callable[[], None]) -> None:
        """Queue a task. Returns at once."""
        self._waiting.put((stream, task))

    def later(self, stream: str, task: Callable[[], None], seconds: float | None = None) -> None:
        """Queue a task after a delay."""
        timer = threading.Timer(AGAIN_SECONDS if seconds is None else seconds, self.put, (stream, task))
        timer.daemon = True
        timer.start()

    def close(self) -> None:
        """Ignore tasks that are put from now on."""
        self._waiting.put(None)

    def join(self, timeout: float) -> None:
        """Wait until the tasks from before `close` are done."""
        self._thread.join(timeout)

    def _run(self) -> None:
        while (given := self._waiting.get()) is not None:
            self._on_done(given[0], self._do(*given))

    def _do(self, stream: str, task: Callable[[], None]) -> Exception | None:
        try:
            task()
        except (HubClosed, StreamFailed, StartTimeout, StopTimeout):
            return None  # callers that wait for a dead query get its error; a slow query reaches the plan later
        except Exception as problem:  # no caller above this thread could catch it
            transient = isinstance(problem, OSError | DiskFull | StateUnavailable)
            _log.warning("stream %s: %s", stream, problem, exc_info=not transient)
            if transient:  # a full disk may have room later
                self.later(stream, task)
            return problem
        return None
