"""The logs of epochs in Spark's checkpoint: `offsets/N` before epoch N runs, `commits/N` when it is done.

Spark writes them without fsync, so a power loss may take the newest ones, or leave them torn. What sinks have committed
must not depend on that: the logs are made durable here before the first sink commits, and torn ones are removed before
a query starts. Spark then plans the epoch again, or runs it again, and the planner makes sure that it is the same one.
"""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

from headrace.base.durable import fsync
from headrace.errors import StateDamaged
from headrace.state.progress import mismatch

OFFSETS, COMMITS = "offsets", "commits"
_log = logging.getLogger(__name__)


def sync_epoch(checkpoint: Path, batch: int) -> None:
    """Make durable what a re-run of Spark's batch needs: its offsets, the commit before it, and the state that it began
    with. Called before the first sink commits the batch."""
    offsets = checkpoint / OFFSETS / str(batch)
    if not offsets.exists():
        raise StateDamaged(f"{offsets} is missing while its epoch runs", path=str(offsets))
    files = [offsets, checkpoint / COMMITS / str(batch - 1), *checkpoint.glob(f"state/*/*/{batch}.*")]
    _sync([file for file in files if file.exists()])


def sync_commit(checkpoint: Path, batch: int) -> None:
    """Make Spark's word durable that a batch is done: what the batch has read may be deleted then."""
    file = checkpoint / COMMITS / str(batch)
    if file.exists():
        _sync([file])


def mend_logs(checkpoint: Path, committed: int) -> None:
    """Remove the newest entries if they are torn, and commits of epochs without offsets. Before a query starts.

    Raises EpochMismatch when they end before the epoch that precedes `committed`, the newest committed one: only that
    one can be planned again.
    """
    for name, lines in ((OFFSETS, 3), (COMMITS, 2)):
        if entries := _entries(checkpoint / name):
            newest = checkpoint / name / str(entries[-1])
            if not _whole(newest, lines):
                _remove(newest, "is torn")
    planned = [-1, *_entries(checkpoint / OFFSETS)][-1]
    for entry in _entries(checkpoint / COMMITS):
        if entry > planned:
            _remove(checkpoint / COMMITS / str(entry), "has no offsets")
    if planned < committed - 1:
        raise mismatch(f"{checkpoint} ends with epoch {planned}, but epoch {committed} is committed", committed)
    if planned < 0:  # what there is of state is of the first epoch, and Spark begins that one without
        shutil.rmtree(checkpoint / "state", ignore_errors=True)


def _sync(files: list[Path]) -> None:
    for path in [*files, *dict.fromkeys(file.parent for file in files)]:
        fsync(path)


def _entries(directory: Path) -> list[int]:
    return sorted(int(p.name) for p in directory.iterdir() if p.name.isdigit()) if directory.is_dir() else []


def _whole(path: Path, lines: int) -> bool:
    """Whether an entry has a version and, on each further line, JSON. Its checksum was as little durable as itself, so
    it is not asked for any more."""
    try:
        found = path.read_text().splitlines()
        for line in found[1:]:
            json.loads(line)
    except ValueError:  # an OSError may pass: it is not a reason to delete anything
        return False
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    return len(found) >= lines and found[0].startswith("v")


def _remove(path: Path, why: str) -> None:
    _log.warning("Spark's log entry %s %s and is removed; its epoch is run again", path, why)
    path.unlink()
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    fsync(path.parent)
