"""Files that are either old or new, never half: the one way small state is written."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

from headrace.errors import DiskFull, ExternalError, StateUnavailable


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


def state_error(problem: OSError, path: Path | None = None) -> ExternalError:
    """What the operating system said about a path of the state directory, as one of our errors."""
    where = str(problem.filename or path or "the state directory")
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(
            f"there is no room to write {where}: {problem.strerror}",
            advice="Make room on that disk. Streams go on by themselves then.",
            path=where,
        )
    return StateUnavailable(
        f"{where} cannot be used: {problem.strerror or problem}",
        advice="Check its permissions, its mount and its disk. Streams go on by themselves then.",
        path=where,
    )


def is_of_state(problem: BaseException) -> TypeGuard[OSError]:
    """True for what the operating system says of files: a lost connection to Spark is an OSError, too."""
    return isinstance(problem, OSError) and not isinstance(problem, ConnectionError | TimeoutError)


@contextlib.contextmanager
def state_errors(path: Path) -> Iterator[None]:
    """Raise what the operating system says in here about the state directory as one of our errors."""
    try:
        yield
    except OSError as problem:
        raise state_error(problem, path) from problem


def private_directory(path: Path) -> None:
    """Make a directory, and those above it that are missing, for the owner alone."""
    if not path.is_dir():
        private_directory(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def private_opener(path: str, flags: int) -> int:
    """The `opener` for `open` that makes files for the owner alone."""
    return os.open(path, flags, 0o600)
