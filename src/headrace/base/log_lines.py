"""Lines of logs that only grow. Each is JSON and ends with its checksum, so a changed bit is never taken for another
path or size."""

from __future__ import annotations

import json
import zlib
from typing import Any


def to_line(value: dict[str, Any]) -> bytes:
    """A line with its checksum."""
    text = json.dumps(value, separators=(",", ":")).encode()
    return b"%b %08x\n" % (text, zlib.crc32(text))


def from_line(line: bytes) -> dict[str, Any]:
    """The value of a line. Raises ValueError if the line is damaged. Lines of earlier versions have no checksum."""
    text = line
    if not line.endswith(b"}"):
        text, _, checksum = line.rpartition(b" ")
        if checksum != b"%08x" % zlib.crc32(text):
            raise ValueError("it does not match its checksum")
    value: dict[str, Any] = json.loads(text)
    return value
