"""Room on the disk that is kept for stopping: a file of the state directory that is removed when the disk is full."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from headrace.errors import DiskFull

# Stopping writes a catalog, plan versions, holds and the progress of the epochs in flight: some 100 KB.
RESERVE_BYTES = 4 * 1024 * 1024
T = TypeVar("T")


class Reserve:
    """The reserve of one state directory. `later` calls a function after some time. Any thread may call."""

    def __init__(self, directory: Path, later: Callable[[Callable[[], None]], None]) -> None:
        self._file, self._later = directory / "reserve", later

    def with_room(self, act: Callable[[], T]) -> T:
        """Do what must get through on a full disk: with the reserve released when there is no room otherwise."""
        try:
            return act()
        except DiskFull:
            if not self.release():
                raise
            self._later(self.keep)
            return act()

    def keep(self) -> None:
        """Make the file unless it is there: now, or when there is room."""
        if not self._made():
            self._later(self.keep)

    def _made(self) -> bool:
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
        """Give the room to whoever writes next; whether there was any."""
        try:
            self._file.unlink()
        except OSError:
            return False
        return True
