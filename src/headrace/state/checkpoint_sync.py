"""Makes Spark's checkpoint durable. Spark never syncs it: without this a power loss could leave an epoch that is logged
as done beside state that is missing or torn, when the input of the epoch is deleted.

Called when the next epoch is planned. A power loss before that may still leave such an entry, if the disk had written
it before the state. Spark then reports the missing state, and nothing of the input is deleted yet.

Spark writes a file of a checkpoint once and renames it to its name. So each file is synced once, with its directories.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headrace.base.durable import fsync
from headrace.state.spark_log import COMMITS

# Syncs that run at the same time share one flush of the disk.
_AT_ONCE = 8
_CRC = ".crc"
_File = tuple[str, int, int]  # path, inode, time of the last change


class CheckpointSync:
    """Syncs the new files of a checkpoint. Thread-safe."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._synced: set[_File] = set()
        self._busy = threading.Lock()

    def sync(self) -> None:
        """Make everything durable that is in the checkpoint now. The entries of epochs that are done come last: one
        that survives a power loss has its state."""
        with self._busy:
            self._sync_new()

    def _sync_new(self) -> None:
        commits = str(self._checkpoint / COMMITS)
        # These entries are listed first. Spark writes the state of an epoch before its entry, so the list made after
        # them has the state of all of them.
        done = set(self._files(commits))
        rest = {file for file in self._files(str(self._checkpoint)) if os.path.dirname(file[0]) != commits}
        found = done | rest
        for files in (rest, done):
            paths = {path for path, _, _ in files - self._synced}
            _sync_all(paths)
            _sync_all(self._above(paths))
        self._synced = found

    def _above(self, paths: set[str]) -> set[str]:
        """The directories of files, up to the checkpoint and the one that it is in."""
        root, found = str(self._checkpoint), set[str]()
        for directory in map(os.path.dirname, paths):
            at = directory
            while at.startswith(root) and at not in found:
                found.add(at)
                at = os.path.dirname(at)
        return found | {os.path.dirname(root)} if found else found

    def _files(self, directory: str) -> Iterator[_File]:
        try:
            entries = list(os.scandir(directory))
        except FileNotFoundError:  # Spark deletes old state meanwhile
            return
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from self._files(entry.path)
            elif not entry.name.startswith(".") or entry.name.endswith(_CRC):  # not one that is still written
                try:
                    found = entry.stat()
                except FileNotFoundError:
                    continue
                yield entry.path, found.st_ino, found.st_mtime_ns


def _sync_all(paths: set[str]) -> None:
    if len(paths) < 2:
        for path in paths:
            _sync(path)
        return
    with ThreadPoolExecutor(min(len(paths), _AT_ONCE)) as threads:
        for done in [threads.submit(_sync, path) for path in sorted(paths)]:
            done.result()


def _sync(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # an old one, deleted meanwhile
        fsync(Path(path))
