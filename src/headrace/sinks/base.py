"""What a sink is: staged by tasks, committed once per epoch by the driver.

A task stages its rows (attempt-unique, invisible to readers) and returns a small `Staged` receipt; the driver commits
the receipts it collected, under a key. Committing the same key again changes nothing and removes what the re-run
staged: that makes a sink exactly-once per (checkpoint, instance, epoch). Several sinks of one pipeline first all
promise an epoch and then all commit it (`headrace.sinks.delivery`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from headrace.base.options import Option, check_options, choice, duration, integer
from headrace.model.program import SinkDef
from headrace.model.schema import Schema


@dataclass(frozen=True, slots=True)
class SinkKey:
    """Names one epoch's output of one pipeline instance. A fresh checkpoint restarts epochs, so it is part of it.

    `digest` stands for the input of the epoch: what was committed under a key with another one is not this epoch's. It
    is empty where the input is not known, as for what older epochs owe.
    """

    checkpoint: str
    instance: int
    epoch: int
    digest: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Staged:
    """A task's receipt. `rows` rows; either a staged `file` (relative to the sink's staging area) or `data`, Arrow
    IPC bytes that travel to the driver (memory and console sinks only, which are bounded)."""

    rows: int
    file: str = ""
    data: bytes = b""


class TaskSink(Protocol):
    """Task side. Made from a SinkDef inside the task; called once per lane, or per piece of a task's output."""

    def stage(self, table: pa.Table, key: SinkKey) -> Staged:
        """Write `table` where no reader sees it. Never called with an empty table."""
        ...


def keep_all(sink: SinkDef, staged: list[Staged]) -> list[Staged]:
    """For sinks whose receipts are small: a task hands over each of them."""
    return staged


class DriverSink(Protocol):
    """Driver side. Called from the thread that runs the epochs of the pipeline's stream."""

    guarantee: str

    def promise(self, key: SinkKey, staged: list[Staged]) -> None:
        """Make sure that a later `commit` can bring these rows, also after a crash; nothing is visible yet. What was
        promised or committed under this key before stands."""
        ...

    def commit(self, key: SinkKey, staged: list[Staged]) -> int:
        """Make the epoch's rows visible, exactly once per key: those that were promised, else those that are staged.
        Returns the rows that are visible because of it."""
        ...

    def committed(self, key: SinkKey) -> bool:
        """Whether the epoch got past its commit, in this process or before."""
        ...

    def verify(self, key: SinkKey) -> None:
        """Raise EpochMismatch when something with another digest was promised or committed under this key."""
        ...

    def discard(self, key: SinkKey) -> None:
        """Forget what was staged and promised under this key. What is committed stays."""
        ...

    def ahead(self, key: SinkKey) -> int:
        """How many files, or other units that stay, there are of later epochs of the same instance and checkpoint,
        whether readers see them or not: whatever a later commit could take for its own."""
        ...

    def rewind(self, key: SinkKey) -> None:
        """Remove what is `ahead`: the sink is then as it was when `key` was committed."""
        ...

    def forget(self, key: SinkKey) -> None:
        """The instance is gone, and no epoch up to `key` comes back: remove what is kept beside its output."""
        ...

    def close(self) -> None:
        """Release what the sink holds; committed output stays."""
        ...


# Options of every sink: what happens when it cannot write.
DELIVERY_OPTIONS = (
    Option("retries", integer(0, 100), default=3, help="how often a failed write or commit is tried again"),
    Option(
        "retry_backoff",
        duration,
        default=100_000,
        help="the wait before the first retry, doubled for each further one up to 10 s (default 100ms)",
    ),
    Option(
        "on_failure",
        choice("stop", "detach"),
        default="stop",
        help="after the last retry: stop the pipeline (default), or detach this sink and go on with the others",
    ),
)


def _nothing_more(values: Mapping[str, Any]) -> None:
    """The options' own readers say all there is to check."""


@dataclass(frozen=True, slots=True)
class SinkKind:
    """A kind of sink, as `CREATE SINK` names it.

    `task` makes the task side and `driver` the driver side of one pipeline's use of a sink; neither touches the disk
    before it is used. `check_values` looks at what single options cannot say (a directory that cannot be written);
    it changes nothing, so it may run for `headrace check`. `paths` are the options that name places on disk. `condense`
    makes a task's receipts so far into fewer: sinks whose receipts carry rows stay within their bound by it.
    """

    name: str
    help: str
    guarantee: str
    options: tuple[Option, ...]
    task: Callable[[SinkDef], TaskSink]
    driver: Callable[[SinkDef, Schema], DriverSink]
    check_values: Callable[[Mapping[str, Any]], None] = _nothing_more
    paths: tuple[str, ...] = ()
    condense: Callable[[SinkDef, list[Staged]], list[Staged]] = keep_all

    def values(self, given: Mapping[str, str]) -> dict[str, Any]:
        """The value of every option. Raises the coded option errors."""
        return check_options(f"sink '{self.name}'", (*self.options, *DELIVERY_OPTIONS), given)

    def check(self, given: Mapping[str, str]) -> None:
        """Whether a sink with these raw options can be; raises a coded error when not. Changes nothing."""
        self.check_values(self.values(given))
