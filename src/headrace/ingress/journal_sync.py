"""Which files of a journal are not synced yet, and one sync of them.

The journal's thread prepares a `Sync`, any thread may run it, and the journal's thread takes it back.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from headrace.ingress.mark import JournalPosition, MarkFile

MARK_SECONDS = 1.0
OpenFiles = list[tuple[Path, int]]  # names and handles


@dataclass(slots=True)
class Sync:
    """Files to sync, and the position for the mark: everything before it is on disk after the sync. Sets `problem`
    after a failure. Closes the handles in any case."""

    place: JournalPosition
    mark: MarkFile
    files: OpenFiles = field(default_factory=list)
    problem: OSError | None = None

    def run(self, really: bool = True, mark: bool = True) -> None:
        """Sync and close the files, then move the mark. Any thread may call it. A file whose sync failed must not be
        synced again: the kernel may have dropped the dirty pages, and the second fsync would then succeed. Closing can
        fail too, for example on NFS: then the file may not have all its data."""
        for _, handle in self.files:
            try:
                if really and self.problem is None:
                    os.fdatasync(handle)
            except OSError as problem:
                self.problem = problem
            try:
                os.close(handle)  # releases the handle even if it fails
            except OSError as problem:
                self.problem = self.problem or problem
        if really and mark and self.problem is None:
            with contextlib.suppress(OSError):  # the mark is then older than the files, which is safe
                self.mark.write(synced=self.place)


class FileSyncs:
    """The files that are not synced yet. `failed` are those whose sync failed: nothing more is written until they are
    copied. `problem` says why nothing can be synced. For one thread."""

    def __init__(self, mark: MarkFile) -> None:
        self._mark = mark
        self._marked = 0.0  # when
        self.dirty = False  # true if the files that are written now have changed
        self.full: OpenFiles = []  # finished files
        self.failed: list[Path] = []
        self.problem = ""

    def prepare(self, current: OpenFiles, end: JournalPosition) -> Sync | None:
        """The files that were flushed but not synced, or None. `current` are the files that are written now. Raises
        OSError, without effect, if the process has no file handles left."""
        self.problem = self.problem if self.failed else ""
        if self.failed or not (self.dirty or self.full):
            return None
        sync = Sync(end, self._mark)
        copies: OpenFiles = []
        try:
            for path, handle in current:
                copies.append((path, os.dup(handle)))
        except OSError:
            for _, handle in copies:
                os.close(handle)
            raise
        sync.files, self.full, self.dirty = self.full + copies, [], False
        return sync

    def take_back(self, sync: Sync) -> None:
        """Take back a sync that has run."""
        if sync.problem is not None:
            self.failed = [path for path, _ in sync.files]
            self.not_possible(sync.problem)

    def not_possible(self, problem: OSError) -> None:
        """Record why a sync failed or could not start."""
        self.problem = f"the journal cannot be synced: {problem.strerror or problem}"

    def require_none_failed(self) -> None:
        """Raise OSError if files have to be copied first."""
        if self.failed:
            raise OSError(self.problem)

    def copied(self) -> None:
        """The files whose sync failed were copied."""
        self.failed, self.problem = [], ""

    def mark_is_due(self) -> bool:
        """True if the mark was not moved for a while. The caller moves it now."""
        now = time.monotonic()
        due = now - self._marked >= MARK_SECONDS
        self._marked = now if due else self._marked
        return due

    def close(self) -> None:
        """Close the finished files."""
        for _, handle in self.full:
            os.close(handle)
