"""Atomic, durable writes: a reader sees the old file or the new one, never a mix. All small state is written here."""

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
    """Replace the content of `path` by `data`. The data is on disk when this returns, and no reader sees part of it.
    The file gets the permissions of its directory."""
    _replace(path, data, durable=True)
    fsync(path.parent)


def write_quickly(path: Path, data: bytes) -> None:
    """Like `write_atomic`, but after a power loss the file may have any content."""
    _replace(path, data, durable=False)


def _replace(path: Path, data: bytes, durable: bool) -> None:
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    mode = 0o666 & os.stat(path.parent).st_mode
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as out:
            out.write(data)
            out.flush()
            if durable:
                os.fsync(out.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def fsync(path: Path) -> None:
    """Make a file, or the names in a directory, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def state_error(problem: OSError, path: Path | None = None) -> ExternalError:
    """The coded error for an OSError about a path of the state directory."""
    where = str(problem.filename or path or "the state directory")
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(
            f"no space left to write {where}: {problem.strerror}",
            advice="Free space on that disk. Streams then resume by themselves.",
            path=where,
        )
    return StateUnavailable(
        f"{where} cannot be used: {problem.strerror or problem}",
        advice="Check its permissions, its mount and its disk. Streams resume by themselves once it works.",
        path=where,
    )


def is_of_state(problem: BaseException) -> TypeGuard[OSError]:
    """True for an OSError about files. A lost connection to Spark is an OSError too, and is not meant here."""
    return isinstance(problem, OSError) and not isinstance(problem, ConnectionError | TimeoutError)


@contextlib.contextmanager
def state_errors(path: Path) -> Iterator[None]:
    """Turn every OSError inside the block into a coded error about the state directory."""
    try:
        yield
    except OSError as problem:
        raise state_error(problem, path) from problem


def private_directory(path: Path) -> None:
    """Create a directory and its missing parents, readable by the owner only. Their names are on disk when this
    returns: otherwise a power loss could remove a directory with all synced files in it."""
    durable_directory(path, 0o700)


def durable_directory(path: Path, mode: int = 0o777) -> None:
    """Create a directory and its missing parents, and make their names durable."""
    if not path.is_dir():
        durable_directory(path.parent, mode)
        path.mkdir(mode=mode, exist_ok=True)
        with contextlib.suppress(PermissionError):  # a parent in which files may be made and not listed
            fsync(path.parent)


def private_opener(path: str, flags: int) -> int:
    """An `opener` for `open` that creates files readable by the owner only."""
    return os.open(path, flags, 0o600)
