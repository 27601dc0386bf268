"""Files that are either old or new, never half: the one way small state is written."""

from __future__ import annotations

import os
import uuid
from pathlib import Path


def write_atomic(path: Path, data: bytes) -> None:
    """Replace `path` by `data`: on the disk before this returns, and never visible in part. Nobody may read the file
    who may not read its directory."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    mode = 0o666 & os.stat(path.parent).st_mode
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync(path.parent)


def fsync(path: Path) -> None:
    """Make a file, or the names in a directory, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def private_directory(path: Path) -> None:
    """Make a directory, and those above it that are missing, for the owner alone."""
    if not path.is_dir():
        private_directory(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def private_opener(path: str, flags: int) -> int:
    """The `opener` for `open` that makes files for the owner alone."""
    return os.open(path, flags, 0o600)
