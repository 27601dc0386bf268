"""Streams that one thread has for itself for a while: to copy them as they stand, or to bring them to their end."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator


class StreamReservations:
    """Who is had by whom in one hub. `lock` is the hub's; waiting lets go of it.

    A savepoint takes the streams that it copies, and a shutdown those that it stops: while they are taken no script
    starts, drops or replaces them, and neither begins before the other is done.
    """

    def __init__(self, lock: threading.RLock) -> None:
        self._freed = threading.Condition(lock)
        self._taken: set[str] = set()

    def is_free(self, streams: Collection[str]) -> bool:
        """Whether nobody has any of these. Under the lock."""
        return self._taken.isdisjoint(streams)

    def wait(self, streams: Collection[str], timeout: float | None = None) -> bool:
        """Wait until nobody has any of these; whether that came in time. Under the lock: until it is let go of, nobody
        takes them, and all that was read before may be outdated."""
        return self._freed.wait_for(lambda: self.is_free(streams), timeout)

    @contextlib.contextmanager
    def taken(self, streams: Collection[str]) -> Iterator[None]:
        """Have those of these streams that are free. Enter it under the lock, and let go of that inside."""
        mine = set(streams) - self._taken
        self._taken |= mine
        try:
            yield
        finally:
            with self._freed:
                self._taken -= mine
                self._freed.notify_all()
