"""Spark's epoch logs in the checkpoint: Spark writes `offsets/N` before epoch N runs and `commits/N` when it is done.

Spark does not fsync them, so a power loss may lose the newest entries or tear them. Output that sinks have committed
must not depend on that. This module makes the logs durable before the first sink commits, and deletes torn entries
before a query starts. Spark then plans or runs the epoch again, and the planner makes sure that its input is the same.
`headrace.state.checkpoint_sync` makes the rest of the checkpoint durable before the input of an epoch is deleted.
"""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import dataclass
from pathlib import Path

from headrace.base.durable import fsync
from headrace.errors import StateDamaged
from headrace.state.progress import mismatch

OFFSETS, COMMITS, STATE = "offsets", "commits", "state"
_NOTHING = "-"  # the offset of a source that had nothing to read so far
_log = logging.getLogger(__name__)


def sync_epoch(checkpoint: Path, batch: int) -> None:
    """Fsync the log entries that a re-run of a batch needs: its offsets, and the commit entry before it. Called before
    the first sink commits the batch. The state that the batch starts from is durable since it was planned."""
    offsets = checkpoint / OFFSETS / str(batch)
    if not offsets.exists():
        raise StateDamaged(f"{offsets} is missing while its epoch runs", path=str(offsets))
    files = [offsets, checkpoint / COMMITS / str(batch - 1)]
    _sync([file for file in files if file.exists()])


def newest_commit(checkpoint: Path) -> int:
    """The newest batch that Spark has logged as done. -1 before the first."""
    return [-1, *_entries(checkpoint / COMMITS)][-1]


def newest_offset(checkpoint: Path) -> int:
    """The newest batch that Spark has planned. -1 before the first."""
    return [-1, *_entries(checkpoint / OFFSETS)][-1]


def mend_logs(checkpoint: Path, committed: int) -> None:
    """Delete the newest entries if they are torn, and commit entries without offsets. Called before a query starts.

    `committed` is the newest epoch that headrace committed. Raises EpochMismatch if the logs lost an epoch before it:
    only the newest one can be planned again.
    """
    for name, lines in ((OFFSETS, 3), (COMMITS, 2)):
        if entries := _entries(checkpoint / name):
            newest = checkpoint / name / str(entries[-1])
            if not _whole(newest, lines):
                _remove(newest, "is torn")
    planned = newest_offset(checkpoint)
    for entry in _entries(checkpoint / COMMITS):
        if entry > planned:
            _remove(checkpoint / COMMITS / str(entry), "has no offsets")
    if planned < committed - 1:
        raise mismatch(f"{checkpoint} ends with epoch {planned}, but epoch {committed} is committed", committed)
    if planned < 0:  # any state is from the first epoch, which starts without state
        shutil.rmtree(checkpoint / STATE, ignore_errors=True)


def _sync(files: list[Path]) -> None:
    for path in [*files, *dict.fromkeys(file.parent for file in files)]:
        fsync(path)


def _entries(directory: Path) -> list[int]:
    return sorted(int(p.name) for p in directory.iterdir() if p.name.isdigit()) if directory.is_dir() else []


def _whole(path: Path, lines: int) -> bool:
    """True if an entry has a version line and then only lines of JSON, or marks of sources without an offset. Also
    deletes its checksum file: a power loss may have damaged that one instead, and Spark would then refuse a good
    entry."""
    try:
        found = path.read_text().splitlines()
        for line in found[1:]:
            if line != _NOTHING:
                json.loads(line)
    except ValueError:  # not OSError, which may be temporary and no reason to delete
        return False
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    return len(found) >= lines and found[0].startswith("v")


def _remove(path: Path, why: str) -> None:
    _log.warning("Spark's log entry %s %s and is deleted; its epoch runs again", path, why)
    path.unlink()
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    fsync(path.parent)


def feed_positions(checkpoint: Path, batch: int) -> dict[str, int]:
    """The position in the feed of each stream at which a batch ends. A query that reads a stream twice has two sources
    on its feed; the smaller position counts. Raises StateDamaged."""
    found: dict[str, int] = {}
    for offset in _feed_offsets(checkpoint, batch):
        if offset is not None:
            found[offset.stream] = min(offset.position, found.get(offset.stream, offset.position))
    return found


def feeds_closed(checkpoint: Path, batch: int) -> bool:
    """True if a batch ran after the end of all inputs, so that all windows are closed. Raises StateDamaged."""
    return all(offset is not None and offset.closed for offset in _feed_offsets(checkpoint, batch))


@dataclass(frozen=True, slots=True)
class _FeedOffset:
    stream: str
    position: int
    closed: bool


def _feed_offsets(checkpoint: Path, batch: int) -> list[_FeedOffset | None]:
    """The offsets of the sources of a batch (`headrace.spark.feed_source`). None for a source that had nothing to read
    so far."""
    path = checkpoint / OFFSETS / str(batch)
    try:
        lines = path.read_text().splitlines()[2:]
        found = [None if line == _NOTHING else json.loads(line) for line in lines]
        return [f and _FeedOffset(str(f["stream"]), int(f["position"]), bool(f["closed"])) for f in found]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise StateDamaged(
            f"{path} cannot be read: {problem}",
            advice="It belongs to the checkpoint of a pipeline on the dedicated host. Restore it from a backup or a "
            "savepoint, or drop the pipeline and create it again.",
            path=str(path),
        ) from problem
