"""Finding files: a directory, a glob pattern or one file, listed cheaply and often.

Names that start with `.` or `_` are ignored: that is where others put files that are not whole yet.
"""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.errors import MissingFile, UnreadableDirectory

_WILD = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class Found:
    """A file that a listing saw. Both numbers come from a stat: the inode in a directory entry may be another one on
    file systems that are laid over each other."""

    path: str
    inode: int
    size: int


class Listing:
    """The files that `path` stands for. Holds no state between calls."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self.is_glob = not os.path.exists(self.path) and bool(_WILD & set(path))

    @property
    def root(self) -> str:
        """The deepest directory (or the file) that must exist."""
        if not self.is_glob:
            return self.path
        parts = self.path.split(os.sep)
        plain = next(i for i, part in enumerate(parts) if _WILD & set(part))
        return os.sep.join(parts[:plain]) or os.sep

    def check(self) -> None:
        """Raise MissingFile or UnreadableDirectory when there is nothing to list, now or ever."""
        if not os.path.exists(self.root):
            raise MissingFile(
                f"there is no {self.root}", advice="Create it first, or correct the path.", path=self.root
            )
        if os.path.isfile(self.root):
            if not os.access(self.root, os.R_OK):
                raise UnreadableDirectory(
                    f"{self.root} cannot be read", advice="Check its permissions.", path=self.root
                )
            return
        self._scan(self.root)

    def files(self) -> Iterator[Found]:
        """Every file that is there now, in no particular order."""
        if os.path.isfile(self.path):
            yield from _found(self.path)
        elif not self.is_glob:
            yield from self._entries(self.path, "*")
        elif not _WILD & set(os.path.dirname(self.path)):
            yield from self._entries(os.path.dirname(self.path), os.path.basename(self.path))
        else:
            yield from self._deep()

    def _entries(self, directory: str, pattern: str) -> Iterator[Found]:
        for entry in self._scan(directory):
            if _visible(entry.name) and fnmatch.fnmatchcase(entry.name, pattern) and entry.is_file():
                yield from _found(entry.path)

    def _deep(self) -> Iterator[Found]:
        for path in glob.glob(self.path, recursive=True):
            if all(_visible(part) for part in os.path.relpath(path, self.root).split(os.sep)) and os.path.isfile(path):
                yield from _found(path)

    def _scan(self, directory: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(directory) as entries:
                return list(entries)
        except FileNotFoundError:
            raise MissingFile(
                f"there is no {directory}", advice="Create it first, or correct the path.", path=directory
            ) from None
        except OSError as problem:
            raise UnreadableDirectory(
                f"{directory} cannot be listed: {problem.strerror}",
                advice="Check its permissions: it must be readable by the user who runs headrace.",
                path=directory,
            ) from problem


def _found(path: str) -> Iterator[Found]:
    """The file at `path`, unless it has gone since its name was read."""
    try:
        stat = os.stat(path)
    except FileNotFoundError:
        return
    yield Found(path, stat.st_ino, stat.st_size)


def _visible(name: str) -> bool:
    return not name.startswith((".", "_"))
