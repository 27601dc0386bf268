"""Removes state that epochs wrote but never committed. Runs before a query starts.

Spark's tasks write the state of epoch N as version N + 1 before the epoch is committed. When the epoch runs again with
other input (without a pipeline that killed its worker, or without an unreadable file), Spark 4.3 keeps the existing
file instead of the new one. The state in memory is right, so the error shows only when the next start reads the wrong
version. A version that no committed epoch wrote is therefore always deleted: the re-run writes it again.
"""

from __future__ import annotations

import re
from pathlib import Path

from headrace.base.durable import fsync

# `7.changelog`, `7_<lineage>.zip`, their checksums `.7.changelog.crc` and temporary files `.7.changelog.<uuid>.tmp`.
_VERSIONED = re.compile(r"\.?(\d+)(?:_[\w-]+)?\.(?:changelog|zip|delta|snapshot)\b.*")


def remove_uncommitted_state(checkpoint: Path) -> int:
    """Delete the state versions that no committed epoch of a checkpoint wrote. Returns the number of files. Call it
    only while no query uses the checkpoint."""
    # Epoch N starts from version N. If the commit log is lost, the offset log still shows which versions are needed.
    newest = max(_newest(checkpoint / "commits") + 1, _newest(checkpoint / "offsets"))
    removed = 0
    for path in (checkpoint / "state").rglob("*"):
        found = _VERSIONED.fullmatch(path.name)
        if found is not None and int(found[1]) > newest:
            path.unlink(missing_ok=True)
            removed += 1
    if removed:
        for directory in {p.parent for p in (checkpoint / "state").rglob("*")}:
            fsync(directory)
    return removed


def _newest(directory: Path) -> int:
    return max((int(p.name) for p in directory.glob("*") if p.name.isdigit()), default=-1)
