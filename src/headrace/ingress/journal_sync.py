"""One sync of a journal's files. The journal prepares it, and any thread may run it."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from headrace.ingress.mark import JournalPosition, MarkFile


@dataclass(slots=True)
class Sync:
    """Files to sync, and the position for the mark: everything before it is on disk after the sync. Sets `problem`
    after a failure. Closes the handles in any case."""

    place: JournalPosition
    mark: MarkFile
    files: list[tuple[Path, int]] = field(default_factory=list)
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
