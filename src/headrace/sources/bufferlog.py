"""The log of the source `buffers`: what was listed, a JSON line each, after a line that says what was forgotten."""

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
    """Units up to number `unit`, which begins at `address`, are never asked for again. Of the buffers that are still
    in the log, the first `skip` units are among them."""

    unit: int = 0
    address: int = 0
    skip: int = 0


class BufferLog:
    """See the module. One writer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = 0

    def append(self, fresh: list[dict[str, Any]]) -> None:
        """Keep buffers: on the disk when this returns."""
        with open(self.path, "ab", opener=private_opener) as log:
            log.write(b"".join(map(_line, fresh)))
            log.flush()
            os.fsync(log.fileno())
        self.lines += len(fresh)

    def read(self) -> tuple[Forgotten, list[dict[str, Any]]]:
        """What a log holds that another process wrote, and maybe did not end."""
        if not self.path.exists():
            return Forgotten(), []
        content = self.path.read_bytes()
        whole = content.rfind(b"\n") + 1
        os.truncate(self.path, whole)  # a crash cut the last line: nothing of it was promised
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
        """Leave out all buffers of some origins: either all of it happens or nothing."""
        kept = [one for one in self.read()[1] if one["origin"] not in origins]
        write_atomic(self.path, b"".join(map(_line, [asdict(head), *kept])))
        self.lines = len(kept)


def _line(values: dict[str, Any]) -> bytes:
    return json.dumps(values, separators=(",", ":")).encode() + b"\n"
