"""What really happened to a stream, as files: written after it happened, so they never promise.

`Progress` is written by the hub inside the commit of an epoch, before Spark learns that the epoch is done. `Applied` is
written by the planning process when an epoch is really planned: it is the only truth about what is being decoded.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from headrace.errors import EpochMismatch, StateDamaged, StateTooNew
from headrace.program import PipelineDef
from headrace.status import Gap, Traffic
from headrace.stored import store, stored

# While a file of this name is in the stream's directory, no epoch is planned: none at all when it is empty, none behind
# the barrier whose id it holds.
HOLD = "hold"
KEPT_GAPS = 16
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Progress:
    """The stream after its newest committed epoch. `watermark` is in microseconds; counters are since the beginning.

    `failures` are those that failed and are still in the plan, by `PipelineDef.run`: durable before the epoch is, so a
    crash cannot let a pipeline go on with a hole in its output. `closed` counts the windows that the newest epoch
    closed, `future` all rows that were too far ahead of the clock to move the watermark. `detached` are sinks that
    failed and are still in the plan, by `PipelineDef.run`. `debts` are epochs that a sink has promised and not shown
    yet. `rows` counts every record, `rejected` those that were no row for any pipeline, `nulled` broken ones that were
    rows all the same (mode PERMISSIVE), `bad` all of these and bad values, by reason. `end` is the offset at which the
    newest epoch ended, as the planner made it: should Spark lose its log of that epoch, it is planned again with the
    same input.
    """

    epoch: int = -1
    plan: int = 0
    watermark: int | None = None
    rows: int = 0
    bytes: int = 0
    bad: dict[str, int] = field(default_factory=dict)
    pipelines: dict[str, PipelineProgress] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    dead_letters: int = 0
    closed: int = 0
    future: int = 0
    detached: dict[str, dict[str, str]] = field(default_factory=dict)
    debts: tuple[Debt, ...] = ()
    rejected: int = 0
    nulled: int = 0
    end: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Debt:
    """An epoch that one sink of a pipeline owes: its promise is durable, its commit failed."""

    pipeline: PipelineDef
    sink: str
    epoch: int


@dataclass(frozen=True, slots=True)
class PipelineProgress:
    """One instance: rows that became visible in its sinks' first, rows that came too late, bad values met, what crossed
    the bridge; `groups` and `bytes` are its state after the newest epoch. `rows_in` are the stream's records in the
    epochs that it took part in.

    `epoch` is the newest that it took part in, and `seen_rows` and `seen_bytes` are the stream's counters after it:
    whatever the stream has beyond them, the instance has missed. `gaps` are the newest of those that it came back from;
    the `missed` counters are over all of them.
    """

    rows_out: int = 0
    late: int = 0
    bad: int = 0
    epoch: int | None = None
    seen_rows: int = 0
    seen_bytes: int = 0
    missed_rows: int = 0
    missed_bytes: int = 0
    gaps: tuple[Gap, ...] = ()
    sent: Traffic = field(default_factory=Traffic)
    received: Traffic = field(default_factory=Traffic)
    groups: int = 0
    bytes: int = 0
    rows_in: int = 0

    def back(self, stream: Progress, epoch: int) -> PipelineProgress:
        """As of the moment before it takes part in `epoch`; `stream` is the stream before it. What came between is a
        gap, unless the instance is new."""
        if self.epoch is None:
            return replace(self, epoch=epoch - 1, seen_rows=stream.rows, seen_bytes=stream.bytes)
        rows, size = stream.rows - self.seen_rows, stream.bytes - self.seen_bytes
        if not rows and not size:
            return self
        gap = Gap(self.epoch + 1, epoch - 1, rows, size)
        return replace(
            self,
            missed_rows=self.missed_rows + rows,
            missed_bytes=self.missed_bytes + size,
            gaps=(*self.gaps, gap)[-KEPT_GAPS:],
        )


@dataclass(frozen=True, slots=True)
class Applied:
    """The projection of the newest planned epoch: which columns it decodes, under which plan version. Instances in
    `out` are in that plan but on the quarantine list; those `leaving` end in that epoch, and their state is looked
    at."""

    version: int
    epoch: int
    columns: tuple[int, ...]
    out: tuple[int, ...] = ()
    leaving: tuple[int, ...] = ()


def digest_of(end: dict[str, Any]) -> str:
    """What tells an epoch from any other with the same number: a digest of the offset at which it ends."""
    return hashlib.sha256(json.dumps(end, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:32]


def require_same_epoch(before: Progress, epoch: int, digest: str) -> None:
    """Raise EpochMismatch unless `epoch` is later than the newest committed one, or that one with the same input."""
    if before.epoch > epoch or (before.epoch == epoch and before.end and digest and digest_of(before.end) != digest):
        raise mismatch(
            f"epoch {epoch} is not the one that was committed under this number; the newest committed epoch is "
            f"{before.epoch}",
            epoch,
        )


def mismatch(message: str, epoch: int) -> EpochMismatch:
    """An epoch is not the one that was committed under its number."""
    return EpochMismatch(
        message,
        advice="Nothing of it was committed. Spark's checkpoint and the sinks are not of one piece: the checkpoint was "
        "lost in part or put back by hand, or another hub writes under the same name. Restore a savepoint with "
        "--rewind, or drop the stream and create it again.",
        epoch=epoch,
    )


def lost_progress(found: Progress, epoch: int, stream_dir: Path) -> StateDamaged:
    """Progress is stored before Spark logs an epoch as done, so it can never be older than Spark's log."""
    path = stream_dir / "progress.json"
    return StateDamaged(
        f"{path} is missing or old: it ends with epoch {found.epoch}, but Spark's checkpoint with epoch {epoch}",
        advice="Put it back from a backup, restore a savepoint, or drop the stream and create it again.",
        path=str(path),
    )


def read_progress(stream_dir: Path) -> Progress:
    """The newest progress, or a fresh one. Raises StateDamaged."""
    return stored(Progress, stream_dir / "progress.json") or Progress()


class ProgressView:
    """Reads the progress of a stream and parses it only when it has changed: a status of hundreds of pipelines asks for
    it hundreds of times. Any thread may call."""

    def __init__(self, stream_dir: Path) -> None:
        self._directory = stream_dir
        self._known: tuple[tuple[int, int, int], Progress] | None = None

    def read(self) -> Progress:
        """The newest progress. Raises StateDamaged."""
        try:
            found = os.stat(self._directory / "progress.json")
        except OSError:
            return read_progress(self._directory)
        stamp = (found.st_ino, found.st_mtime_ns, found.st_size)  # the file is replaced, never written in place
        known = self._known
        if known is None or known[0] != stamp:
            known = self._known = (stamp, read_progress(self._directory))
        return known[1]


def write_progress(stream_dir: Path, progress: Progress) -> None:
    """Store durably."""
    store(stream_dir / "progress.json", progress)


def read_applied(stream_dir: Path) -> Applied | None:
    """What the planning process last applied; None before the first epoch, and when the file is damaged: nothing
    depends on it but what is shown, and the next epoch writes it again."""
    try:
        return stored(Applied, stream_dir / "applied.json")
    except (StateDamaged, StateTooNew):
        return None


def write_applied(stream_dir: Path, applied: Applied) -> None:
    """Publish what was applied."""
    store(stream_dir / "applied.json", applied)
