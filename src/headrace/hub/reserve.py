"""Disk space that is kept for stopping: a file of the state directory that is deleted when the disk is full."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from headrace.base.background import BackgroundQueue
from headrace.errors import DiskFull

# Stopping writes a catalog, plan versions, holds and the progress of the epochs in flight: about 100 KB.
RESERVE_BYTES = 4 * 1024 * 1024
T = TypeVar("T")


class Reserve:
    """The reserve of one state directory. Any thread may call."""

    def __init__(self, directory: Path, background: BackgroundQueue) -> None:
        self._file, self._background = directory / "reserve", background
        self._lock = threading.Lock()
        self._users = 0  # calls that need the room of the reserve

    def with_room(self, act: Callable[[], T], *, needed: bool = True) -> T:
        """Call `act`. If the disk is full and the call is `needed`, release the reserve and call it again."""
        try:
            return act()
        except DiskFull:
            if not needed or not self._use():
                raise
        try:
            return act()
        finally:
            with self._lock:
                self._users -= 1
            self._background.later("", self.keep)

    def keep(self) -> None:
        """Create the file unless it exists. If there is no room, or a call needs it, try again later."""
        with self._lock:  # no call begins to use the room meanwhile
            kept = not self._users and self._created()
        if not kept:
            self._background.later("", self.keep)

    def _use(self) -> bool:
        """Release the room for a call. False if there is none."""
        with self._lock:
            released = self.release()
            self._users += released
        return released

    def _created(self) -> bool:
        if self._file.exists():
            return True
        half = self._file.with_name(".reserve")
        try:
            handle = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                os.posix_fallocate(handle, 0, RESERVE_BYTES)
            finally:
                os.close(handle)
            half.rename(self._file)
        except OSError:
            with contextlib.suppress(OSError):
                half.unlink(missing_ok=True)
            return False
        return True

    def release(self) -> bool:
        """Delete the file, so that the next write has room. True if there was a file."""
        try:
            self._file.unlink()
        except OSError:
            return False
        return True
