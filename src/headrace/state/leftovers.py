"""State that epochs wrote and never committed: removed before a query starts.

Spark's tasks write the state of epoch N as version N + 1 before the epoch is committed. When the epoch runs again with
other input (without a pipeline that killed its worker, or without a file that cannot be read), Spark 4.3 keeps the file
that is already there instead of the new one. The state in memory is right, so nothing shows until the next start reads
the wrong version. A version that no committed epoch wrote is therefore never worth keeping: the re-run makes it again.
"""

from __future__ import annotations

import re
from pathlib import Path

from headrace.base.durable import fsync

# `7.changelog`, `7_<lineage>.zip`, their checksums `.7.changelog.crc` and temporary files `.7.changelog.<uuid>.tmp`.
_VERSIONED = re.compile(r"\.?(\d+)(?:_[\w-]+)?\.(?:changelog|zip|delta|snapshot)\b.*")


def remove_uncommitted_state(checkpoint: Path) -> int:
    """Remove the state versions that no committed epoch of a checkpoint wrote; how many files that were. Call it while
    no query uses the checkpoint."""
    # Epoch N begins with version N. Where the log of commits is lost, the log of offsets still says what is needed.
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
