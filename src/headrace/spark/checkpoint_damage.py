"""Finds damaged files of a checkpoint. Spark often does not name them: without the snapshot that it needs, it builds
the state from older changes, and fails with another error.

Hadoop's local file system keeps the checksums of a file beside it, in `.<name>.crc`: the letters `crc`, a byte of
version, how many bytes each checksum covers (four bytes, big-endian), and a CRC-32 for each piece.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path

from headrace.errors import StateDamaged

_MAGIC = b"crc\0"
_NAMED = 5  # files that an error names


def state_damage(checkpoint: Path, said: str) -> str:
    """What to report for a query that failed with `said`: a StateDamaged with the damaged files of its checkpoint if
    there are any, else `said`."""
    wrong = list(damaged_files(checkpoint))
    if not wrong:
        return said
    more = f" and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
    return StateDamaged(
        f"{', '.join(wrong[:_NAMED])}{more}: missing, or not as Spark wrote it",
        advice="Restore the file from a backup, restore a savepoint, or drop the stream and its pipelines.",
    ).render()


def damaged_files(checkpoint: Path) -> Iterator[str]:
    """The files whose bytes do not match their checksums, and those of which only the checksums are left."""
    for directory, _, names in os.walk(checkpoint):
        for name in sorted(names):
            if name.startswith(".") and name.endswith(".crc"):
                data = Path(directory, name[1:-4])
                try:
                    if not _intact(data, Path(directory, name)):
                        yield str(data)
                except FileNotFoundError:  # either was deleted
                    if Path(directory, name).exists():
                        yield str(data)


def _intact(data: Path, sums: Path) -> bool:
    known = sums.read_bytes()
    size = int.from_bytes(known[4:8], "big")
    if not known.startswith(_MAGIC) or not size:
        return not known  # without checksums there is nothing to compare
    with data.open("rb") as file:
        found = b"".join(zlib.crc32(piece).to_bytes(4, "big") for piece in iter(lambda: file.read(size), b""))
    return found == known[8:]
