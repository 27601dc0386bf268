"""Streams that one operation has reserved: a savepoint while it copies them, or a shutdown while it stops them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator


class StreamReservations:
    """Tracks which streams of a hub are reserved. `lock` is the hub's lock; waiting releases it.

    A savepoint reserves the streams that it copies, and a shutdown those that it stops. No script starts, drops or
    replaces a reserved stream, and neither operation begins before the other is done.
    """

    def __init__(self, lock: threading.RLock) -> None:
        self._freed = threading.Condition(lock)
        self._reserved: set[str] = set()

    def is_free(self, streams: Collection[str]) -> bool:
        """True if none of these streams is reserved. Under the lock."""
        return self._reserved.isdisjoint(streams)

    def wait(self, streams: Collection[str], timeout: float | None = None) -> bool:
        """Wait until none of these streams is reserved. True if that happened in time. Under the lock, which is
        released while this waits: the catalog may have changed when it returns."""
        return self._freed.wait_for(lambda: self.is_free(streams), timeout)

    @contextlib.contextmanager
    def reserve(self, streams: Collection[str]) -> Iterator[None]:
        """Reserve those of these streams that are free, until the block ends. Enter it under the lock, and release the
        lock inside."""
        mine = set(streams) - self._reserved
        self._reserved |= mine
        try:
            yield
        finally:
            with self._freed:
                self._reserved -= mine
                self._freed.notify_all()
