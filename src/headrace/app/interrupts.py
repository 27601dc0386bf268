"""Ctrl-C for long-running commands: the first one asks for a clean shutdown, the second one exits at once."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType

STOPPING = "draining; Ctrl-C again to quit at once"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """While entered, SIGINT and SIGTERM set `asked`; a second signal exits with code 130 and cleans up nothing.

    Spark installs a SIGINT handler of its own when a session starts, so call `install` again after that. Main thread
    only.
    """

    def __init__(self, message: str = STOPPING) -> None:
        self.asked = threading.Event()
        self.message = message
        self.prints = True  # false: someone else prints `message` when `asked` is set
        self._out = 2
        self._before = {number: signal.getsignal(number) for number in _SIGNALS}

    def install(self) -> None:
        """Handle the signals here, in place of any other handler."""
        for number in _SIGNALS:
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked.is_set():
            # Spark's JVM ends when the pipe to this process closes.
            os._exit(130)
        self.asked.set()
        if self.prints:
            os.write(self._out, f"\n{self.message}\n".encode())

    def __enter__(self) -> Interrupts:
        self._out = os.dup(2)  # Spark's start points descriptor 2 at a file for some seconds
        self.install()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._out)
        self._out = 2
