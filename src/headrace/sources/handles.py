"""An open file of the file source: a descriptor of a local file, or an object of a store.

The functions here are the only ones that know the difference. Errors of a store are coded ones, which no reader of a
format takes for damaged data.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from headrace.errors import MissingFile, UnreadableFile
from headrace.stores.object_store import ObjectStore

SKIP_ADVICE = (
    "CREATE OR REPLACE STREAM with the same definition and on_bad_file = 'skip'; pipelines and progress are kept."
)


class ObjectFile(io.RawIOBase):
    """An object, opened for reading. `tag` identifies its content, if the store says so: an object is replaced as a
    whole, and then has another one."""

    def __init__(self, store: ObjectStore, name: str) -> None:
        self._store, self._at = store, 0
        self._file = store.open(name)
        with store.asking("read an object"):
            facts: dict[Any, Any] = self._file.metadata() or {}
            self.size = int(self._file.size())
        known = {_text(key).lower(): _text(value) for key, value in facts.items()}
        self.tag = known.get("etag", "").strip('"')
        found = store.info(name)
        self.mtime_ns = 0 if found is None else found.mtime_ns

    def read_at(self, length: int, at: int) -> bytes:
        with self._store.asking("read an object"):
            return bytes(self._file.read_at(max(0, min(length, self.size - at)), at)) if at < self.size else b""

    def readinto(self, buffer: Any) -> int:
        found = self.read_at(len(buffer), self._at)
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (0 if whence == os.SEEK_SET else self._at if whence == os.SEEK_CUR else self.size)
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


Handle = int | ObjectFile


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def open_file(path: str, store: ObjectStore | None = None) -> Handle:
    """Open a file for reading; an object if there is a `store`. Raises MissingFile or UnreadableFile."""
    try:
        if store is not None:
            return ObjectFile(store, store.name_of(path))
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise MissingFile(
            f"{path} disappeared before it was read",
            advice="Restore it, and the stream continues. If it is lost: " + SKIP_ADVICE,
            path=path,
        ) from None
    except PermissionError:
        raise UnreadableFile(
            f"{path} cannot be read",
            advice="Make it readable for the user who runs headrace, or remove it, and the stream continues. "
            "To leave such files out: " + SKIP_ADVICE,
            path=path,
        ) from None


def close_file(handle: Handle) -> None:
    os.close(handle) if isinstance(handle, int) else handle.close()


@contextmanager
def closing_file(handle: Handle) -> Iterator[Handle]:
    """Closes a file at the end of the block."""
    try:
        yield handle
    finally:
        close_file(handle)


def read_at(handle: Handle, length: int, at: int) -> bytes:
    """Bytes at a place; fewer at the end of the file."""
    return os.pread(handle, length, at) if isinstance(handle, int) else handle.read_at(length, at)


def size_of(handle: Handle) -> int:
    return os.fstat(handle).st_size if isinstance(handle, int) else handle.size


def mtime_ns_of(handle: Handle) -> int:
    return os.fstat(handle).st_mtime_ns if isinstance(handle, int) else handle.mtime_ns


def tag_of(handle: Handle) -> str:
    """What the store says about the content of an object; empty for a local file."""
    return "" if isinstance(handle, int) else handle.tag


def as_file(handle: Handle) -> BinaryIO:
    """A file object at the beginning of the file. Closing it leaves the handle open."""
    if isinstance(handle, int):
        file = os.fdopen(os.dup(handle), "rb")
        file.seek(0)
        return file
    handle.seek(0)
    kept: Any = _StaysOpen(handle)
    return io.BufferedReader(kept, 1 << 20)


class _StaysOpen(io.RawIOBase):
    """An object file that stays open when this is closed."""

    def __init__(self, inner: ObjectFile) -> None:
        self._inner = inner
        self.seek, self.tell, self.readinto = inner.seek, inner.tell, inner.readinto  # type: ignore[method-assign]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True
