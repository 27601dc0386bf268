"""What a sink is: staged by tasks, committed once per epoch by the driver.

A task stages its rows (attempt-unique, invisible to readers) and returns a small `Staged` receipt; the driver commits
the receipts it collected, under a key. Committing the same key again changes nothing and removes what the re-run
staged: that makes a sink exactly-once per (checkpoint, instance, epoch). Several sinks of one pipeline first all
promise an epoch and then all commit it (`headrace.sinks.delivery`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar

import pyarrow as pa

from headrace.base.options import Option, choice, declared, duration, integer, option, read_settings
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


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """Options of every sink: what happens when it cannot write. Durations are microseconds."""

    retries: int = option(integer(0, 100), default=3, help="how often a failed write or commit is retried")
    retry_backoff: int = option(
        duration,
        default=100_000,
        help="the wait before the first retry; it doubles for each further one, up to 10 s (default 100ms)",
    )
    on_failure: Literal["stop", "detach"] = option(
        choice("stop", "detach"),
        default="stop",
        help="after the last retry: stop the pipeline (default), or detach this sink and continue with the others",
    )


DELIVERY_OPTIONS = declared(SinkSettings)
S = TypeVar("S", bound=SinkSettings)


def no_more_checks(settings: SinkSettings) -> None:
    """For sinks whose options can only be wrong one by one."""


def keep_all(settings: SinkSettings, staged: list[Staged]) -> list[Staged]:
    """For sinks whose receipts are small: a task reports each of them."""
    return staged


@dataclass(frozen=True, slots=True)
class SinkKind(Generic[S]):
    """A kind of sink, as `CREATE SINK` names it.

    `settings` declares its options. `make_task` makes the task side and `make_driver` the driver side of one pipeline's
    use of a sink; neither touches the disk before it is used. `check_settings` looks at what a single option cannot
    show, such as a directory that cannot be written. It changes nothing, so it may run for `headrace check`. `paths`
    are the options that name places on disk. `merge_receipts` combines the receipts of one task into fewer: it keeps
    sinks whose receipts carry rows within their bound.
    """

    name: str
    help: str
    guarantee: str
    settings: type[S]
    make_task: Callable[[SinkDef, S], TaskSink]
    make_driver: Callable[[SinkDef, S, Schema], DriverSink]
    check_settings: Callable[[S], None] = no_more_checks
    paths: tuple[str, ...] = ()
    merge_receipts: Callable[[S, list[Staged]], list[Staged]] = keep_all

    @property
    def all_options(self) -> tuple[Option, ...]:
        """The options that this kind reads."""
        kind: Any = self.settings
        return declared(kind)

    @property
    def options(self) -> tuple[Option, ...]:
        """The options that this kind has and others need not have."""
        return tuple(o for o in self.all_options if o not in DELIVERY_OPTIONS)

    def settings_of(self, options: Mapping[str, str]) -> S:
        """Parse a sink's options. Raises the coded option errors."""
        return read_settings(self.settings, f"sink '{self.name}'", options)

    def check(self, options: Mapping[str, str]) -> None:
        """Raise a coded error if a sink with these options cannot be created. Changes nothing."""
        self.check_settings(self.settings_of(options))

    def task(self, sink: SinkDef) -> TaskSink:
        """The task side of `sink`."""
        return self.make_task(sink, self.settings_of(sink.options))

    def driver(self, sink: SinkDef, output: Schema) -> DriverSink:
        """The driver side of `sink`, for a pipeline with this output."""
        return self.make_driver(sink, self.settings_of(sink.options), output)

    def condense(self, sink: SinkDef, staged: list[Staged]) -> list[Staged]:
        """Combine the receipts of one task."""
        return self.merge_receipts(self.settings_of(sink.options), staged)
