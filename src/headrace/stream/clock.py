"""Time, and calls at a later time. Tests pass a clock of their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Tells the time, and calls functions later."""

    def now(self) -> float:
        """Seconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never jumps."""
        ...

    def later(self, seconds: float, act: Callable[[], None]) -> Callable[[], None]:
        """Call `act` in another thread after `seconds`. Returns a function that cancels the call."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def later(self, seconds: float, act: Callable[[], None]) -> Callable[[], None]:
        timer = threading.Timer(seconds, act)
        timer.daemon = True
        timer.start()
        return timer.cancel
