"""Room on the disk that is kept for stopping: a file of the state directory that is removed when the disk is full."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

# Stopping writes a catalog, plan versions, holds and the progress of the epochs in flight: some 100 KB.
RESERVE_BYTES = 4 * 1024 * 1024


class Reserve:
    """The reserve of one state directory. Any thread may call; nothing here fails."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "reserve"

    @property
    def kept(self) -> bool:
        """Whether it is there."""
        return self._file.exists()

    def keep(self) -> bool:
        """Make the file unless it is there; whether it is. It is not while the disk is full."""
        if self.kept:
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
