"""The durable log of a file source: which bytes of which files make up the stream, in order.

An *extent* is a byte range of one file. The log is append-only JSON lines, fsynced before `append` returns, so an
offset (extent, position) means the same bytes after any restart. One writer, in the process that plans epochs.
"""

from __future__ import annotations

import hashlib
import json
import os
from bisect import bisect_right
from dataclasses import asdict, dataclass
from pathlib import Path

from headrace.errors import FileChanged, MissingFile, StateDamaged, UnreadableDirectory

HEAD = 4096


@dataclass(frozen=True, slots=True)
class Extent:
    """Bytes [begin, end) of a file, and how to know the file again: inode, and a digest of its first `head_bytes`.

    `sealed` files are immutable, and `end` is their size; the others may grow beyond `end` (`tail`). A `whole` extent
    is read in order by one task, decompressed by `codec` if it has one.
    """

    path: str
    inode: int
    begin: int
    end: int
    head_bytes: int
    head: str
    sealed: bool
    whole: bool = False
    codec: str = ""

    def open(self) -> int:
        """A descriptor of the file, which is still the one that was logged. Raises FileChanged or MissingFile."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise MissingFile(
                f"{self.path} is gone before it was read",
                advice="Put it back: files must stay until the pipelines have read them.",
                path=self.path,
            ) from None
        except PermissionError:
            raise unreadable(self.path) from None
        try:
            self.verify(fd)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def verify(self, fd: int) -> None:
        """Raise FileChanged unless `fd` is the file that was logged, with at least the bytes that were logged."""
        stat = os.fstat(fd)
        if stat.st_ino != self.inode or fingerprint(fd, self.head_bytes) != self.head:
            raise changed(self.path, "was replaced")
        if stat.st_size < self.end:
            raise changed(self.path, f"shrank from {self.end} to {stat.st_size} bytes")
        if self.sealed and stat.st_size > self.end:
            raise changed(self.path, f"grew from {self.end} to {stat.st_size} bytes")


def changed(path: str, how: str) -> FileChanged:
    """The error for a file that is not what it was."""
    return FileChanged(
        f"{path} {how} after it was listed",
        advice="Write new data under a new name, and rename it into place when it is whole; "
        "for files that grow at their end set tail = 'true'.",
        path=path,
        how=how,
    )


def unreadable(path: str) -> UnreadableDirectory:
    """The error for a file that may not be read."""
    return UnreadableDirectory(
        f"{path} cannot be read", advice="Make it readable for the user who runs headrace.", path=path
    )


def fingerprint(fd: int, length: int) -> str:
    """A digest of the first `length` bytes."""
    return hashlib.blake2b(os.pread(fd, length, 0), digest_size=16).hexdigest()


class FileLog:
    """The extents of a stream, in memory and on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.extents: list[Extent] = []
        self.inodes: dict[str, int] = {}  # path -> inode
        self.last: dict[str, Extent] = {}  # path -> its newest extent
        self._before: list[int] = [0]  # bytes before extent i
        self._load()

    def _load(self) -> None:
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return
        whole = content.rfind(b"\n") + 1
        if whole != len(content):  # a crash cut the last line: it was never promised to anyone
            os.truncate(self.path, whole)
        for number, line in enumerate(content[:whole].splitlines(), 1):
            try:
                self._add(Extent(**json.loads(line)))
            except (ValueError, TypeError) as problem:
                raise StateDamaged(
                    f"{self.path}, line {number}, is damaged", path=str(self.path), line=number
                ) from problem

    def _add(self, extent: Extent) -> None:
        self.extents.append(extent)
        self.inodes[extent.path] = extent.inode
        self.last[extent.path] = extent
        self._before.append(self._before[-1] + extent.end - extent.begin)

    def append(self, extents: list[Extent]) -> None:
        """Add extents; they are durable when this returns."""
        if not extents:
            return
        fresh = not self.path.exists()
        text = "".join(json.dumps(asdict(e), separators=(",", ":")) + "\n" for e in extents)
        with open(self.path, "ab") as log:
            log.write(text.encode())
            log.flush()
            os.fsync(log.fileno())
        if fresh:
            directory = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        for extent in extents:
            self._add(extent)

    @property
    def total(self) -> int:
        """All bytes logged."""
        return self._before[-1]

    def address(self, extent: int, pos: int) -> int:
        """Where (extent, position in its file) lies in the concatenation of all extents."""
        if extent >= len(self.extents):
            return self.total
        return self._before[extent] + pos - self.extents[extent].begin

    def place(self, address: int) -> tuple[int, int]:
        """The (extent, position) of an address; at a boundary, the end of the earlier extent."""
        i = max(0, bisect_right(self._before, address - 1) - 1) if address else 0
        i = min(i, len(self.extents) - 1)
        return i, self.extents[i].begin + address - self._before[i]
