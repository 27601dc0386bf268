"""What threads that must not wait leave for another one to do."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable

from headrace.errors import HubClosed, StartTimeout, StopTimeout, StreamFailed


class Chores:
    """Runs chores one after the other, in the order in which they came, in a thread of its own."""

    def __init__(self) -> None:
        self._waiting: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name="headrace-chores", daemon=True)

    def start(self) -> None:
        """Begin; what was put before waits for this."""
        self._thread.start()

    def put(self, chore: Callable[[], None]) -> None:
        """Have it done soon. Never waits."""
        self._waiting.put(chore)

    def close(self) -> None:
        """Do nothing that is put from now on."""
        self._waiting.put(None)

    def join(self, timeout: float) -> None:
        """Wait until everything before `close` is done."""
        self._thread.join(timeout)

    def _run(self) -> None:
        while (chore := self._waiting.get()) is not None:
            # A dead query is told to those who wait for it; a slow one has the plan and will come to it.
            with contextlib.suppress(HubClosed, StreamFailed, StartTimeout, StopTimeout):
                chore()
