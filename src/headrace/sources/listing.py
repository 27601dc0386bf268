"""Finds the files of a directory, a glob pattern or a single path, and lists them no more often than necessary.

Names that start with `.` or `_` are ignored: by convention they are incomplete files.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
import time
from collections.abc import Iterator

from headrace.errors import MissingFile, UnreadableDirectory
from headrace.sources.extent import SETTLED_NS

_WILD = frozenset("*?[")
_DirectoryStamp = tuple[int, int, int]


class Listing:
    """The files that `path` names. Keeps the times of the directories of the last listing: adding or removing a name
    changes the time of its directory."""

    def __init__(self, path: str, may_be_away: bool = False) -> None:
        """`may_be_away`: a single file may be missing while it is rotated; otherwise that is an error."""
        self.path = os.path.abspath(path)
        self.is_glob = not os.path.exists(self.path) and bool(_WILD & set(path))
        self._may_be_away = may_be_away
        self._marks: dict[str, _DirectoryStamp | None] = {}
        self._settled = False

    @property
    def root(self) -> str:
        """The deepest directory (or the file) that must exist."""
        if not self.is_glob:
            return self.path
        parts = self.path.split(os.sep)
        return os.sep.join(parts[: self._first_wild(parts)]) or os.sep

    @staticmethod
    def _first_wild(parts: list[str]) -> int:
        return next(i for i, part in enumerate(parts) if _WILD & set(part))

    def check(self) -> None:
        """Raise MissingFile or UnreadableDirectory if the path cannot be listed."""
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

    def unchanged(self) -> bool:
        """True if no name was added or removed since the last call of `paths`: no directory has another time, and all
        times were old enough then that a later change would change them."""
        return self._settled and all(_mark(directory) == mark for directory, mark in self._marks.items())

    def paths(self) -> list[str]:
        """Every file that exists now, in no particular order."""
        # Read the times first: a change while the directories are listed is then visible the next time.
        now = time.time_ns()
        self._marks = {directory: _mark(directory) for directory in self._directories()}
        self._settled = all(m is not None and now - max(m[0], m[1]) > SETTLED_NS for m in self._marks.values())
        return list(self._paths())

    def _directories(self) -> Iterator[str]:
        """All directories whose entries decide which files are found. A single file counts as a directory."""
        if not self.is_glob:
            yield self.path
            return
        parts = self.path.split(os.sep)
        for depth in range(self._first_wild(parts), len(parts)):
            prefix = os.sep.join(parts[:depth]) or os.sep
            yield from (found for found in glob.iglob(prefix, recursive=True) if os.path.isdir(found))

    def _paths(self) -> Iterator[str]:
        if os.path.isfile(self.path):
            yield self.path
        elif not self.is_glob:
            yield from self._entries(self.path, "*")
        elif not _WILD & set(os.path.dirname(self.path)):
            yield from self._entries(os.path.dirname(self.path), os.path.basename(self.path))
        else:
            yield from self._deep()

    def _entries(self, directory: str, pattern: str) -> Iterator[str]:
        matches = re.compile(fnmatch.translate(pattern)).match
        for entry in self._scan(directory):
            if _visible(entry.name) and matches(entry.name) and entry.is_file():
                yield entry.path

    def _deep(self) -> Iterator[str]:
        for path in glob.iglob(self.path, recursive=True):
            if all(_visible(part) for part in os.path.relpath(path, self.root).split(os.sep)) and os.path.isfile(path):
                yield path

    def _scan(self, directory: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(directory) as entries:
                self._may_be_away = False  # the path is a directory
                return list(entries)
        except FileNotFoundError:
            if self._may_be_away and os.path.isdir(os.path.dirname(directory)):
                return []
            raise MissingFile(
                f"there is no {directory}", advice="Create it first, or correct the path.", path=directory
            ) from None
        except OSError as problem:
            raise UnreadableDirectory(
                f"{directory} cannot be listed: {problem.strerror}",
                advice="Check its permissions: it must be readable by the user who runs headrace.",
                path=directory,
            ) from problem


def _mark(path: str) -> _DirectoryStamp | None:
    """The times and the inode of a directory; None if it does not exist."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


def _visible(name: str) -> bool:
    return not name.startswith((".", "_"))
