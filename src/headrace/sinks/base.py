"""What a sink is: staged by tasks, committed once per epoch by the driver.

A task stages its rows (attempt-unique, invisible to readers) and returns a small `Staged` receipt; the driver commits
the receipts it collected, under a key. Committing the same key again changes nothing and removes what the re-run
staged: that makes a sink exactly-once per (checkpoint, instance, epoch), see DESIGN section 8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class SinkKey:
    """Names one epoch's output of one pipeline instance. A fresh checkpoint restarts epochs, so it is part of it."""

    checkpoint: str
    instance: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Staged:
    """A task's receipt. `rows` rows; either a staged `file` (relative to the sink's staging area) or `data`, Arrow
    IPC bytes that travel to the driver (memory and console sinks only, which are bounded)."""

    rows: int
    file: str = ""
    data: bytes = b""


class TaskSink(Protocol):
    """Task side. Made from a SinkDef inside the task; one call per (epoch, lane)."""

    def stage(self, table: pa.Table, key: SinkKey) -> Staged:
        """Write `table` where no reader sees it. Never called with an empty table."""
        ...


class DriverSink(Protocol):
    """Driver side. Called from the thread that runs the epochs of the pipeline's stream."""

    guarantee: str

    def commit(self, key: SinkKey, staged: list[Staged]) -> int:
        """Make the epoch's rows visible, exactly once per key. Returns the rows that are visible because of it."""
        ...

    def close(self) -> None:
        """Release what the sink holds; committed output stays."""
        ...
