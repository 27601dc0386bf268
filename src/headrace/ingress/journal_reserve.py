"""Disk space that a journal keeps in reserve for the case that the disk is full."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from headrace.ingress.journal_files import write_at

RESERVE = 256 << 10  # for the positions of consumers and for new files


class JournalReserve:
    """A file that is deleted when the disk is full. For one thread."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "reserve"
        self._kept = False

    def spend(self) -> None:
        """Free the space, so that a consumer can write its position and a new file can be created."""
        self._kept = False
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def keep(self) -> None:
        """Reserve the space. Raises OSError if there is none."""
        if self._kept:
            return
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(handle).st_size < RESERVE:
                write_at(handle, memoryview(os.urandom(RESERVE)), 0)  # random: no file system can compress it
        finally:
            os.close(handle)
        self._kept = True
