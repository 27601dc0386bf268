"""The log of the source `buffers`: one JSON line per listed buffer, after a line about the buffers that were removed.
The file `buffers.count` beside it has the number of buffers, to detect that the end of the log is missing."""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from headrace.base.durable import private_opener, write_atomic
from headrace.base.log_lines import from_line, to_line
from headrace.errors import DiskFull, HeadraceError, StateDamaged, StateUnavailable
from headrace.model.stored import store_text, stored_text


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Units before number `unit`, which begins at `address`, are never read again. The buffers that are still in the
    log contain `skip` of those units."""

    unit: int = 0
    address: int = 0
    skip: int = 0


@dataclass(frozen=True, slots=True)
class LoggedBuffer:
    """A buffer of an origin: its file and size, and its place in the sequence. For each state in which it may begin
    (`headrace.ingress.delimiting`), `outcomes` has the positions after its first and its last delimiter, and the state
    at its end. With `ends` its last record is kept even without a delimiter."""

    path: str
    size: int
    sequence: int
    origin: str
    ends: bool
    outcomes: list[list[int]]


class BufferLog:
    """Reads and writes the log. One process writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = 0

    def append(self, fresh: list[LoggedBuffer]) -> None:
        """Add buffers. They are on disk when this returns."""
        with open(self.path, "ab", opener=private_opener) as log:
            log.write(b"".join(to_line(asdict(one)) for one in fresh))
            log.flush()
            os.fsync(log.fileno())
        self.lines += len(fresh)
        with contextlib.suppress(DiskFull, StateUnavailable):  # the buffers are logged; a smaller number is no error
            self._count(self.lines, durable=False)

    def read(self) -> tuple[Forgotten, list[LoggedBuffer]]:
        """Read a log that an earlier process wrote. A last line that a crash cut is removed."""
        content = self.path.read_bytes() if self.path.exists() else b""
        whole = content.rfind(b"\n") + 1
        try:
            lines = [from_line(line) for line in content[:whole].splitlines()]
            head = Forgotten(**lines.pop(0)) if lines and "skip" in lines[0] else Forgotten()
            found = [LoggedBuffer(**line) for line in lines]
        except (ValueError, TypeError) as problem:
            raise self._damaged(f"is damaged: {problem}") from problem
        if (counted := self._counted()) > len(found):
            raise self._damaged(f"was truncated or lost: it has {len(found)} of {counted} buffers")
        if whole != len(content):  # a crash cut the last line; no epoch was planned with it
            os.truncate(self.path, whole)
        self.lines = len(found)
        return head, found

    def _damaged(self, how: str) -> StateDamaged:
        return StateDamaged(
            f"{self.path} {how}",
            advice="Restore it from a backup, restore a savepoint, or drop the stream and create it again.",
            path=str(self.path),
        )

    def _counted(self) -> int:
        """How many buffers were logged, as far as known. If the file is damaged, only this check is lost."""
        with contextlib.suppress(HeadraceError):
            return int(stored_text(self.path.with_suffix(".count"), lambda text: False) or 0)
        return 0

    def _count(self, buffers: int, durable: bool) -> None:
        """Note how many buffers there are. Nothing but a check depends on it, so a larger number need not be durable.
        If a smaller one were lost, the check would fail."""
        store_text(self.path.with_suffix(".count"), str(buffers), durable)

    def forget(self, head: Forgotten, origins: set[str]) -> None:
        """Remove all buffers of some origins, atomically."""
        kept = [one for one in self.read()[1] if one.origin not in origins]
        self._count(len(kept), durable=True)  # first: a smaller number is never an error
        write_atomic(self.path, b"".join(to_line(line) for line in (asdict(head), *map(asdict, kept))))
        self.lines = len(kept)
