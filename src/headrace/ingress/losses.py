"""The losses of a journal, summed in a small file, so that they are shown until the stream is dropped."""

from __future__ import annotations

import json
import time
from pathlib import Path

from headrace.base.durable import write_atomic

KEPT = 16
_NAME = "losses.json"


def add_loss(directory: Path, code: str, size: int) -> None:
    """Record that `size` acknowledged bytes are gone. `code` is the error code of the reason."""
    total, newest = _read(directory)
    newest.append({"code": code, "bytes": size, "at": time.time()})
    write_atomic(directory / _NAME, json.dumps({"bytes": total + size, "newest": newest[-KEPT:]}).encode())


def read_losses(directory: Path) -> int:
    """The sum of all lost bytes."""
    return _read(directory)[0]


def _read(directory: Path) -> tuple[int, list[dict[str, object]]]:
    try:
        found = json.loads((directory / _NAME).read_bytes())
        return int(found["bytes"]), list(found["newest"])
    except (OSError, ValueError, KeyError, TypeError):  # only a statistic: a damaged one starts at 0
        return 0, []
