"""A byte range of one file, and how the file is recognized later.

The identity of a file is its name, its size and a digest of sampled blocks. Modification time, change time and inode
are only a cheap test that nothing has changed. If one of them differs, the digest decides. So a directory that was
copied or restored from a backup has the same files as before. The digest of an object is the tag (ETag) that its store
gives it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from dataclasses import dataclass
from typing import Any

from headrace.errors import (
    DamagedStream,
    FileChanged,
    HeaderMismatch,
    HeadraceError,
    MissingFile,
    SchemaMismatch,
    UnreadableDirectory,
    UnreadableFile,
)
from headrace.formats.codecs import codec_of
from headrace.sources.handles import SKIP_ADVICE, Handle, close_file, open_file, read_at, size_of, tag_of
from headrace.stores.object_store import ObjectStore

BLOCK = 4096
# Blocks in the digest of an immutable file: evenly spread, with the first and the last. Open, stat and digest of a file
# of 1 MiB take 15 us with 2 blocks and 111 us with 16; a digest of the whole file takes 2 ms.
SEALED_BLOCKS = 16
TAIL_BLOCKS = 2  # of a growing file: its beginning, and the end of the logged bytes
# Two changes within one tick of the file system's clock (4 ms on ext4, 2 s on FAT) have the same time, so times younger
# than this prove nothing.
SETTLED_NS = 2_000_000_000

# The errors that `on_bad_file` handles: one file is bad, the others can be read. Other OSErrors may be temporary and
# are retried.
BAD_FILE = (DamagedStream, FileChanged, HeaderMismatch, MissingFile, SchemaMismatch, UnreadableFile)


@dataclass(frozen=True, slots=True)
class Stamp:
    """The result of stat for a file. Equal stamps mean the same unchanged file, if the first one was `settled`."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @staticmethod
    def of(stat: os.stat_result) -> Stamp:
        return Stamp(stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)

    @property
    def settled(self) -> bool:
        """True if a later change would give another stamp. Only the change time counts, because no program can set
        it."""
        return time.time_ns() - self.ctime_ns > SETTLED_NS


@dataclass(frozen=True, slots=True)
class Extent:
    """Bytes [begin, end) of a file, and a digest of `blocks` samples of its first `end` bytes.

    `sealed` files are immutable, and `end` is their size; the others may grow beyond `end` (`tail`). One task reads a
    `whole` extent in order, decompressed with `codec` if it has one. The times are 0 if they prove nothing: they were
    too young, or an older version wrote the log.
    """

    path: str
    inode: int
    begin: int
    end: int
    digest: str
    sealed: bool
    whole: bool = False
    codec: str = ""
    blocks: int = 1
    mtime_ns: int = 0
    ctime_ns: int = 0

    @staticmethod
    def of(
        fd: Handle, path: str, begin: int, end: int, *, sealed: bool, whole: bool = False, codec: str = ""
    ) -> Extent:
        """The extent of an open file."""
        stamp, blocks = stamp_of(fd), SEALED_BLOCKS if sealed else TAIL_BLOCKS
        return Extent(
            path=path,
            inode=stamp.inode,
            begin=begin,
            end=end,
            digest=sampled(fd, end, blocks),
            sealed=sealed,
            whole=whole,
            codec=codec,
            blocks=blocks,
            mtime_ns=stamp.mtime_ns if stamp.settled else 0,
            ctime_ns=stamp.ctime_ns if stamp.settled else 0,
        )

    @staticmethod
    def parse(line: dict[str, Any]) -> Extent:
        """Parse an extent's log line. In older lines `head` is the digest of the first 4 KiB."""
        if "head" in line:
            line = {k: v for k, v in line.items() if k not in ("head", "head_bytes")} | {"digest": line["head"]}
        return Extent(**line)

    @property
    def stamp(self) -> Stamp | None:
        """The file's stamp when it was logged; None if it proves nothing."""
        return Stamp(self.end, self.mtime_ns, self.ctime_ns, self.inode) if self.ctime_ns else None

    def open(self, store: ObjectStore | None = None) -> Handle:
        """Open the logged file; an object if there is a `store`. Finds a growing file again after it was rotated.
        Raises FileChanged, MissingFile or UnreadableFile."""
        try:
            return self._open(self.path, store)
        except (FileChanged, MissingFile):
            home = None if self.sealed else rotated_to(self, Siblings())
            if home is None:
                raise
            return self._open(home, store)

    def _open(self, path: str, store: ObjectStore | None) -> Handle:
        fd = open_file(path, store)
        try:
            self.verify(fd)
        except BaseException:
            close_file(fd)
            raise
        return fd

    def verify(self, fd: Handle) -> None:
        """Raise FileChanged unless `fd` is the logged file and still has the logged bytes."""
        size = size_of(fd)
        if size < self.end:
            raise changed(self.path, f"shrank from {self.end} to {size} bytes")
        if self.sealed and size > self.end:
            raise changed(self.path, f"grew from {self.end} to {size} bytes")
        if not self.matches(fd):
            raise changed(self.path, "was replaced")

    def matches(self, fd: Handle) -> bool:
        """True if `fd` begins with the logged bytes, as far as the digest shows."""
        return size_of(fd) >= self.end and sampled(fd, self.end, self.blocks) == self.digest


def stamp_of(fd: Handle) -> Stamp:
    """The stamp of an open file."""
    if isinstance(fd, int):
        return Stamp.of(os.fstat(fd))
    return Stamp(fd.size, fd.mtime_ns, fd.mtime_ns, 0)


def sampled(fd: Handle, end: int, blocks: int) -> str:
    """A digest of `blocks` blocks, evenly spread over the first `end` bytes; of all those bytes if they are fewer. Of
    an object, its tag."""
    if tag := tag_of(fd):
        return f"tag:{tag}"
    digest = hashlib.blake2b(digest_size=16)
    if blocks == 1:
        digest.update(read_at(fd, min(end, BLOCK), 0))
    elif end <= blocks * BLOCK:
        digest.update(read_at(fd, end, 0))
    else:
        for i in range(blocks):
            digest.update(read_at(fd, BLOCK, (end - BLOCK) * i // (blocks - 1)))
    return digest.hexdigest()


def changed(path: str, how: str) -> FileChanged:
    """The error for a file whose content has changed."""
    return FileChanged(
        f"{path} {how} after it was listed",
        advice="Restore its old content and store the new content under another name, then START a pipeline of the "
        "stream. For files that grow at their end set tail = 'true'. If the old content is lost: " + SKIP_ADVICE,
        path=path,
        how=how,
    )


class Siblings:
    """The files in the directories of one search. Lists each directory once."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, int]] = {}

    def of(self, directory: str) -> dict[str, int]:
        """The inodes of the uncompressed files, by path. Empty if the directory cannot be listed."""
        if directory not in self._seen:
            found = self._seen[directory] = {}
            with contextlib.suppress(OSError), os.scandir(directory) as entries:
                for entry in entries:
                    if not codec_of(entry.name) and entry.is_file():
                        found[entry.path] = entry.stat().st_ino
        return self._seen[directory]


def rotated_to(extent: Extent, siblings: Siblings) -> str | None:
    """The current path of a rotated growing file, in the same directory: renamed (logrotate's default), or copied
    before it was truncated in place (copytruncate). None if its bytes are not found.

    A renamed file has the logged inode, the logged bytes and a name that begins like the old one. The name counts,
    because the file system soon reuses the inode of a deleted file, and the new file may begin with the same lines. A
    copy has another inode, so the file at the old path must still have the logged one.
    """
    files = siblings.of(os.path.dirname(extent.path))
    beginning = os.path.splitext(extent.path)[0]
    others = sorted(path for path in files if path != extent.path and path.startswith(beginning))
    found = [path for path in others if files[path] == extent.inode]
    if not found and files.get(extent.path) == extent.inode:
        found = others
    return next((path for path in found if holds(path, extent)), None)


def holds(path: str, extent: Extent) -> bool:
    """True if the file at `path` begins with the bytes of an extent."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return extent.matches(fd)
    finally:
        os.close(fd)


def look_at(path: str) -> Stamp | None:
    """The stamp of a file; None if it does not exist. Raises UnreadableDirectory."""
    try:
        return Stamp.of(os.stat(path))
    except FileNotFoundError:
        return None
    except PermissionError as problem:
        raise UnreadableDirectory(
            f"the files in {os.path.dirname(path)} cannot be accessed: {problem.strerror}",
            advice="Check its permissions: the user who runs headrace must be allowed to enter it.",
            path=os.path.dirname(path),
        ) from None


def stamp_at(path: str, store: ObjectStore | None = None) -> Stamp | None:
    """The stamp of a file that could not be read; None if it has none."""
    try:
        if store is None:
            return look_at(path)
        found = store.info(store.name_of(path))
        return None if found is None else Stamp(found.size, found.mtime_ns, found.mtime_ns, 0)
    except (HeadraceError, OSError):
        return None
