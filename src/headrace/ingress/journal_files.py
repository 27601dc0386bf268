"""File operations of a journal's writer: the lock of the directory, complete writes, and synced copies."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from pathlib import Path

from headrace.errors import StateInUse

LOCK_SECONDS = 10.0


def copy_over(path: Path) -> None:
    """Replace a file by a synced copy of itself."""
    temporary = path.with_name(f".{path.name}")
    try:
        shutil.copyfile(path, temporary)
        os.chmod(temporary, 0o600)
        handle = os.open(temporary, os.O_RDONLY)
        try:
            os.fdatasync(handle)
        finally:
            os.close(handle)
        os.rename(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def write_at(handle: int, data: memoryview, at: int) -> None:
    """Write all of `data` at an offset. If that fails, restore the length of the file."""
    done = 0
    try:
        while done < len(data):
            done += os.pwrite(handle, data[done:], at + done)
    except OSError:
        os.ftruncate(handle, at)
        raise


def locked(directory: Path) -> int:
    """Take the writer's lock. Waits a while, because the gateway of a killed hub lives some moments longer."""
    handle = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    end = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except OSError:
            if time.monotonic() > end:
                os.close(handle)
                raise StateInUse(f"the journal {directory} is in use", path=str(directory)) from None
            time.sleep(0.05)
