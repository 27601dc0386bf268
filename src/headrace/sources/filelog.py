"""The durable log of a file source: which bytes of which files make up the stream, in order.

An *extent* is a byte range of one file. The log is JSON lines, appended and fsynced before `append` returns, so an
offset (extent, position) means the same bytes after any restart; now and then it is compacted, that is replaced whole
by one without what was read. One writer, in the process that plans epochs.
"""

from __future__ import annotations

import hashlib
import json
import os
from bisect import bisect_right
from collections.abc import Set
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.durable import fsync, private_opener, write_atomic
from headrace.errors import FileChanged, MissingFile, StateDamaged, UnreadableDirectory

HEAD = 4096
COMPACT_LINES = 1000  # a shorter log is left as it is
KEEP_GONE = 7 * 24 * 3600.0  # seconds


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
        self.verify_size(stat.st_size)

    def verify_size(self, size: int) -> None:
        """Raise FileChanged if a file of this extent cannot have `size` bytes."""
        if size < self.end:
            raise changed(self.path, f"shrank from {self.end} to {size} bytes")
        if self.sealed and size > self.end:
            raise changed(self.path, f"grew from {self.end} to {size} bytes")


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
    """The extents of a stream, in memory and on disk.

    Extents are numbered for ever; those before `first` have been read and are forgotten, but for what is known of
    their files. A file that was read and is gone is remembered for KEEP_GONE, so that one that comes back, with a
    mount for instance, is not read again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.first = 0
        self.extents: list[Extent] = []  # number `first` and later
        self.last: dict[str, Extent] = {}  # path -> its newest extent
        self._gone: dict[str, float] = {}  # path -> since when it is not there, as compactions saw it
        self._before: list[int] = [0]  # bytes before extent `first` + i
        self._lines = self._compacted = 0  # now, and after the newest compaction
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
                self._read(json.loads(line))
            except (ValueError, TypeError, KeyError) as problem:
                raise StateDamaged(
                    f"{self.path}, line {number}, is damaged", path=str(self.path), line=number
                ) from problem

    def _read(self, line: dict[str, Any]) -> None:
        """One line: an extent, or, at the beginning of a compacted log, what is known of what was forgotten."""
        self._lines += 1
        if "first" in line:
            self.first, self._before = int(line["first"]), [int(line["bytes"])]
            self._compacted = int(line["lines"])
        elif "known" in line:
            known = Extent(**line["known"])
            self.last[known.path] = known
            if line["gone"] is not None:
                self._gone[known.path] = float(line["gone"])
        else:
            self._add(Extent(**line))

    def _add(self, extent: Extent) -> None:
        self.extents.append(extent)
        self.last[extent.path] = extent
        self._before.append(self._before[-1] + extent.end - extent.begin)

    def append(self, extents: list[Extent]) -> None:
        """Add extents; they are durable when this returns."""
        if not extents:
            return
        fresh = not self.path.exists()
        with open(self.path, "ab", opener=private_opener) as log:
            log.write("".join(_line(asdict(e)) for e in extents).encode())
            log.flush()
            os.fsync(log.fileno())
        if fresh:
            fsync(self.path.parent)
        for extent in extents:
            self._add(extent)
        self._lines += len(extents)

    @property
    def grown(self) -> bool:
        """Whether the log is worth compacting: twice as long as the last time, so that all compactions together cost
        no more than writing it did."""
        return self._lines >= max(COMPACT_LINES, 2 * self._compacted)

    def compact(self, oldest: int, present: Set[str], now: float) -> None:
        """Forget the extents before number `oldest`, which no offset will name again, and the files that were read
        and have been gone for KEEP_GONE. `present` are the files that are there."""
        dropped = max(0, min(oldest - self.first, len(self.extents)))
        extents = self.extents[dropped:]
        open_paths = {e.path for e in extents}
        gone = {p: self._gone.get(p, now) for p in self.last.keys() - present}
        forgotten = {p for p, since in gone.items() if now - since > KEEP_GONE and p not in open_paths}
        unsaid = open_paths | forgotten
        known = [e for p, e in self.last.items() if p not in unsaid]
        lines: list[dict[str, Any]] = [{"known": asdict(e), "gone": gone.get(e.path)} for e in known]
        lines += [asdict(e) for e in extents]
        head: dict[str, Any] = {"first": self.first + dropped, "bytes": self._before[dropped], "lines": len(lines) + 1}
        write_atomic(self.path, "".join(map(_line, [head, *lines])).encode())
        self.first, self.extents, self._before = self.first + dropped, extents, self._before[dropped:]
        self.last = {p: e for p, e in self.last.items() if p not in forgotten}
        self._gone = {p: since for p, since in gone.items() if p not in forgotten}
        self._lines = self._compacted = len(lines) + 1

    @property
    def total(self) -> int:
        """All bytes logged."""
        return self._before[-1]

    def address(self, extent: int, pos: int) -> int:
        """Where (extent, position in its file) lies in the concatenation of all extents."""
        if extent >= self.first + len(self.extents):
            return self.total
        if extent < self.first:
            raise StateDamaged(
                f"{self.path} has forgotten extent {extent}, which an epoch asks for", path=str(self.path), line=extent
            )
        return self._before[extent - self.first] + pos - self.extents[extent - self.first].begin

    def place(self, address: int) -> tuple[int, int]:
        """The (extent, position) of an address; at a boundary, the end of the earlier extent."""
        i = max(0, bisect_right(self._before, address - 1) - 1) if address else 0
        i = min(i, len(self.extents) - 1)
        return self.first + i, self.extents[i].begin + address - self._before[i]

    def extent(self, number: int) -> Extent:
        """An extent that was not forgotten."""
        return self.extents[number - self.first]


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":")) + "\n"
