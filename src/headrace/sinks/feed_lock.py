"""The lock of a feed (`headrace.sinks.feed_log`): `<feed>/feed.lock`.

The consumers of most feeds belong to the hub, which has one thread for each. A Spark reader is different: queries of
the user, in processes of their own, take it over from each other. A process holds the lock while it chooses the
consumer or acts as it. The operating system releases the lock of a process that dies.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.base.durable import state_errors

LOCK = "feed.lock"


@contextmanager
def feed_locked(feed: Path, make: bool = False) -> Iterator[None]:
    """Hold the lock of a feed. With `make` its file is made if it is missing. Without a file no Spark reader consumes
    the feed, and without a directory there is no feed: then nothing is locked. Not reentrant."""
    with state_errors(feed):
        handle = _locked(feed / LOCK, os.O_CREAT if make else 0)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _locked(path: Path, flags: int) -> int | None:
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
    except BaseException:
        os.close(handle)
        raise
    return handle
