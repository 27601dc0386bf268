"""What a journal has lost: a small file that adds it up, so that it is shown until the stream is dropped."""

from __future__ import annotations

import json
import time
from pathlib import Path

from headrace.base.durable import write_atomic

KEPT = 16
_NAME = "losses.json"


def add_loss(directory: Path, code: str, size: int) -> None:
    """`size` bytes that were acknowledged are gone, for a reason that has a code."""
    total, newest = _read(directory)
    newest.append({"code": code, "bytes": size, "at": time.time()})
    write_atomic(directory / _NAME, json.dumps({"bytes": total + size, "newest": newest[-KEPT:]}).encode())


def read_losses(directory: Path) -> int:
    """All bytes that were lost."""
    return _read(directory)[0]


def _read(directory: Path) -> tuple[int, list[dict[str, object]]]:
    try:
        found = json.loads((directory / _NAME).read_bytes())
        return int(found["bytes"]), list(found["newest"])
    except (OSError, ValueError, KeyError, TypeError):  # only a statistic: a damaged one begins again
        return 0, []
