"""The log of the source `buffers`: one JSON line per listed buffer, after a line about the buffers that were
removed."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.base.durable import private_opener, write_atomic
from headrace.errors import StateDamaged


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Units before number `unit`, which begins at `address`, are never read again. The buffers that are still in the
    log contain `skip` of those units."""

    unit: int = 0
    address: int = 0
    skip: int = 0


class BufferLog:
    """Reads and writes the log. One process writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = 0

    def append(self, fresh: list[dict[str, Any]]) -> None:
        """Add buffers. They are on disk when this returns."""
        with open(self.path, "ab", opener=private_opener) as log:
            log.write(b"".join(map(_line, fresh)))
            log.flush()
            os.fsync(log.fileno())
        self.lines += len(fresh)

    def read(self) -> tuple[Forgotten, list[dict[str, Any]]]:
        """Read a log that an earlier process wrote. A last line that a crash cut is removed."""
        if not self.path.exists():
            return Forgotten(), []
        content = self.path.read_bytes()
        whole = content.rfind(b"\n") + 1
        os.truncate(self.path, whole)  # a crash cut the last line; no epoch was planned with it
        try:
            found = [json.loads(line) for line in content[:whole].splitlines()]
            head = Forgotten(**found.pop(0)) if found and "skip" in found[0] else Forgotten()
        except (ValueError, TypeError) as problem:
            raise StateDamaged(
                f"{self.path} is damaged: {problem}",
                advice="Put it back from a backup, restore a savepoint, or drop the stream and create it again.",
                path=str(self.path),
            ) from problem
        self.lines = len(found)
        return head, found

    def forget(self, head: Forgotten, origins: set[str]) -> None:
        """Remove all buffers of some origins, atomically."""
        kept = [one for one in self.read()[1] if one["origin"] not in origins]
        write_atomic(self.path, b"".join(map(_line, [asdict(head), *kept])))
        self.lines = len(kept)


def _line(values: dict[str, Any]) -> bytes:
    return json.dumps(values, separators=(",", ":")).encode() + b"\n"
