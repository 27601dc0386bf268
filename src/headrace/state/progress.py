"""Files that record what happened to a stream. They are written afterwards, so they contain only facts.

The hub writes `Progress` inside the commit of an epoch, before Spark logs the epoch as done. The planning process
writes `Applied` when it has planned an epoch. Only `Applied` says which columns are being decoded.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from headrace.errors import EpochMismatch, StateDamaged, StateTooNew
from headrace.model.codec import dump
from headrace.model.definitions import PipelineDef
from headrace.model.status import Gap, Traffic
from headrace.model.stored import store, store_text, stored

# While a file of this name is in the stream's directory, the planner plans no epoch. If the file holds the id of a
# barrier, it plans epochs up to that barrier.
HOLD = "hold"
KEPT_GAPS = 16
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Progress:
    """The stream after its newest committed epoch. `watermark` is in microseconds. Counters start with the stream.

    - `rows` counts every record. `rejected` of them reached no pipeline. `nulled` are broken but reached pipelines
      (mode PERMISSIVE). `bad` counts all of these and bad values, by reason.
    - `failures` are pipelines that failed and are still in the plan, by `PipelineDef.run`. They are durable before the
      epoch is, so after a crash no pipeline continues with a gap in its output.
    - `detached` are sinks that failed and are still in the plan, by `PipelineDef.run`. `debts` are epochs that a sink
      has promised but not committed.
    - `closed` counts the windows that the newest epoch closed. `future` counts rows that were too far ahead of the
      clock to move the watermark.
    - `end` is the planner's end offset of the newest epoch. If Spark loses its log of that epoch, the planner plans it
      again with the same input.
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
class PlannerProgress:
    """The part of `Progress` that the planner needs. Reading it builds no counters of pipelines, of which there may be
    hundreds."""

    epoch: int = -1
    watermark: int | None = None
    rows: int = 0
    bytes: int = 0
    closed: int = 0
    end: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Debt:
    """An epoch that a sink of a pipeline still has to commit: it was promised durably, and the commit failed.
    `promised` is false if the sink had no rows, so that it promised nothing, or if it could not say whether it has a
    promise. Earlier versions did not store it."""

    pipeline: PipelineDef
    sink: str
    epoch: int
    promised: bool = False


@dataclass(frozen=True, slots=True)
class PipelineProgress:
    """The progress of one pipeline instance.

    `rows_out` counts the rows in its first sink, `late` the rows that arrived too late, and `bad` the rows with bad
    values. `sent` and `received` count bridge messages. `groups` and `bytes` measure its state after the newest epoch.
    `rows_in` counts the stream's records in the epochs that it took part in.

    `epoch` is the newest epoch that it took part in, and `seen_rows` and `seen_bytes` are the stream's counters after
    that epoch. The instance has missed everything that the stream counted since. `gaps` are the newest gaps that it
    returned from; the `missed` counters cover all of them.
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
        """The progress just before the instance takes part in `epoch`; `stream` is the stream's progress at that
        moment. Epochs in between are a gap, unless the instance is new."""
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
    """The projection of the newest planned epoch: the columns it decodes and its plan version. Instances in `out` are
    in that plan but quarantined. Instances in `leaving` end in that epoch, and it reads their state."""

    version: int
    epoch: int
    columns: tuple[int, ...]
    out: tuple[int, ...] = ()
    leaving: tuple[int, ...] = ()


def digest_of(end: dict[str, Any]) -> str:
    """A digest of an epoch's end offset. It distinguishes epochs with the same number."""
    return hashlib.sha256(json.dumps(end, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:32]


def require_same_epoch(before: Progress, epoch: int, digest: str) -> None:
    """Raise EpochMismatch unless `epoch` is newer than the newest committed epoch, or equals it and has the same
    input."""
    if before.epoch > epoch or (before.epoch == epoch and before.end and digest and digest_of(before.end) != digest):
        raise mismatch(
            f"epoch {epoch} differs from the epoch that was committed with this number; the newest committed epoch is "
            f"{before.epoch}",
            epoch,
        )


def mismatch(message: str, epoch: int) -> EpochMismatch:
    """The error for an epoch that differs from the one committed with its number."""
    return EpochMismatch(
        message,
        advice="Nothing of it was committed. Spark's checkpoint does not match the sinks: the checkpoint lost files or "
        "was replaced by hand, or another hub writes with the same name. Restore a savepoint with --rewind, or drop "
        "the stream and create it again.",
        epoch=epoch,
    )


def lost_progress(found: Progress | PlannerProgress, epoch: int, stream_dir: Path) -> StateDamaged:
    """The error for progress that is older than Spark's log. Progress is stored first, so this means lost files."""
    path = stream_dir / "progress.json"
    return StateDamaged(
        f"{path} is missing or old: it ends with epoch {found.epoch}, but Spark's checkpoint with epoch {epoch}",
        advice="Restore it from a backup, restore a savepoint, or drop the stream and create it again.",
        path=str(path),
    )


def read_progress(stream_dir: Path) -> Progress:
    """The newest progress, or a fresh one. Raises StateDamaged."""
    return stored(Progress, stream_dir / "progress.json") or Progress()


def read_planner_progress(stream_dir: Path) -> PlannerProgress:
    """The newest progress, or a fresh one, as far as the planner needs it. Raises StateDamaged."""
    return stored(PlannerProgress, stream_dir / "progress.json") or PlannerProgress()


class ProgressView:
    """Reads the progress of a stream and parses it only when it has changed. The status of hundreds of pipelines reads
    it hundreds of times. Thread-safe."""

    def __init__(self, stream_dir: Path) -> None:
        self._directory = stream_dir
        self._known: tuple[tuple[int, int, int], Progress] | None = None

    def read(self) -> Progress:
        """The newest progress. Raises StateDamaged."""
        stamp, known = self._stamp(), self._known
        if stamp is None:
            return read_progress(self._directory)
        if known is None or known[0] != stamp:
            known = self._known = (stamp, read_progress(self._directory))
        return known[1]

    def write(self, progress: Progress) -> None:
        """Store the progress durably. No other process writes it."""
        write_progress(self._directory, progress)
        stamp = self._stamp()
        self._known = None if stamp is None else (stamp, progress)

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self._directory / "progress.json")
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size  # the file is replaced, never written in place


def write_progress(stream_dir: Path, progress: Progress) -> None:
    """Store the progress durably."""
    store(stream_dir / "progress.json", progress)


def read_applied(stream_dir: Path) -> Applied | None:
    """The projection that the planner applied last. None before the first epoch, and if the file is damaged: nothing
    that is committed depends on it, and the next epoch writes it again."""
    try:
        return stored(Applied, stream_dir / "applied.json")
    except (StateDamaged, StateTooNew):
        return None


def write_applied(stream_dir: Path, applied: Applied) -> None:
    """Store the projection of the newest planned epoch. It is written while Spark waits for the plan of an epoch, so
    it is not synced: after a power loss it may be gone."""
    store_text(stream_dir / "applied.json", dump(applied), durable=False)
