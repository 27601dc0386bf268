"""The interface of sinks: tasks stage rows, the driver commits them once per epoch.

A task stages its rows where no reader sees them, under a name that is unique per attempt, and returns a small `Staged`
receipt. The driver commits the receipts of all tasks under a key. Committing the same key again changes nothing and
removes the rows that the repeated run staged. So a sink is exactly-once per (checkpoint, instance, epoch). If a
pipeline has several sinks, first all of them promise an epoch, then all of them commit it (`headrace.sinks.delivery`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Generic, Literal, Protocol, TypeVar, runtime_checkable

import pyarrow as pa

from headrace.base.options import Option, choice, declared, duration, integer, option, read_settings
from headrace.model.definitions import SinkDef
from headrace.model.schema import Schema


@dataclass(frozen=True, slots=True)
class EpochMark:
    """What an epoch says about time: the stream's watermark after it, in microseconds, and whether its finite source
    has ended. Only sinks with `SinkKind.every_epoch` look at it."""

    watermark: int | None
    ending: bool = False


@dataclass(frozen=True, slots=True)
class SinkKey:
    """Identifies the output of one pipeline instance in one epoch. The checkpoint belongs to it, because a new
    checkpoint numbers epochs from 0 again.

    `digest` identifies the input of the epoch: output under the same key with another digest is not the output of this
    epoch. It is empty if the input is not known, as for older epochs that a sink still owes. `mark` is set when the
    driver commits an epoch. `promised` is set for an epoch that a sink owes and has promised: if the sink finds neither
    the promise nor anything of a later epoch, files were removed, and rows with them.
    """

    checkpoint: str
    instance: int
    epoch: int
    digest: str = field(default="", compare=False)
    mark: EpochMark | None = field(default=None, compare=False)
    promised: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Staged:
    """A task's receipt for `rows` staged rows. They are in `file` (relative to the sink's staging directory) or in
    `data`, Arrow IPC bytes that travel to the driver. Only the memory and console sinks use `data`; they are
    bounded."""

    rows: int
    file: str = ""
    data: bytes = b""


class TaskSink(Protocol):
    """The task side. A task makes it from a SinkDef and calls it once per lane, or once per piece of its output."""

    def stage(self, table: pa.Table, key: SinkKey) -> Staged:
        """Write `table`, which is never empty, where no reader sees it."""
        ...


class DriverSink(Protocol):
    """The driver side. One thread at a time calls it, not always the same: a call may hang
    (`headrace.spark.hanging`)."""

    guarantee: str

    def promise(self, key: SinkKey, staged: list[Staged]) -> None:
        """Ensure that a later `commit` can show these rows, even after a crash. Nothing is visible yet. An earlier
        promise or commit under this key stays valid."""
        ...

    def commit(self, key: SinkKey, staged: list[Staged]) -> int:
        """Make the rows of the epoch visible, exactly once per key: the promised ones, else the staged ones. Returns
        the number of rows that the epoch made visible."""
        ...

    def committed(self, key: SinkKey) -> bool:
        """True if the epoch passed its commit point, in this process or an earlier one."""
        ...

    def verify(self, key: SinkKey) -> None:
        """Raise EpochMismatch if rows with another digest were promised or committed under this key."""
        ...

    def discard(self, key: SinkKey) -> None:
        """Delete the staged and promised rows of this key. Committed rows stay."""
        ...

    def ahead(self, key: SinkKey) -> int:
        """How many durable files (or other units) of later epochs of the same instance and checkpoint exist, visible or
        not. A later commit could mistake them for its own."""
        ...

    def rewind(self, key: SinkKey) -> None:
        """Delete what `ahead` counts. Afterwards the sink is as it was when `key` was committed."""
        ...

    def forget(self, key: SinkKey) -> None:
        """Delete everything but the output of an instance that was dropped. No epoch up to `key` is ever run again."""
        ...

    def close(self) -> None:
        """Release resources. Committed output stays."""
        ...


# A writer of a sink: the checkpoint and the instance in its keys. And the ids under which an instance may have written.
SinkWriter = tuple[str, int]
Checkpoints = Callable[[int], Sequence[str]]


@runtime_checkable
class KnowsWriters(Protocol):
    """A driver side of a sink, or the system behind it, that knows who has written to it. Optional: a restore asks it
    for pipelines that the savepoint does not know."""

    def writers(self, checkpoints: Checkpoints) -> set[SinkWriter]:
        """The writers, as far as they may have one of the ids that `checkpoints` returns for their instance."""
        ...


@runtime_checkable
class DurablePromises(Protocol):
    """A driver side whose promises are files. Files may be removed by hand. Optional: with it, a promise that was
    removed is noticed."""

    def promised(self, key: SinkKey) -> bool:
        """True if there is a promise under this key."""
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


@lru_cache(maxsize=4096)
def _settings_of(kind: Any, name: str, options: tuple[tuple[str, str], ...]) -> Any:
    """Cached, because every epoch asks for the settings of every sink of every pipeline."""
    return read_settings(kind, f"sink '{name}'", dict(options))


DELIVERY_OPTIONS = declared(SinkSettings)
S = TypeVar("S", bound=SinkSettings)


def no_more_checks(settings: SinkSettings) -> None:
    """For sinks whose options can only be wrong one by one."""


def any_output(sink: str, settings: SinkSettings, output: Schema) -> None:
    """For sinks that take rows of any schema."""


def keep_all(settings: SinkSettings, staged: list[Staged]) -> list[Staged]:
    """For sinks whose receipts are small: a task reports each of them."""
    return staged


@dataclass(frozen=True, slots=True)
class SinkKind(Generic[S]):
    """A kind of sink, as `CREATE SINK` names it.

    `settings` declares its options. `make_task` makes the task side and `make_driver` the driver side of one pipeline's
    use of a sink; neither touches the disk before it is used. `check_settings` looks at what a single option cannot
    show, such as a directory that cannot be written. It changes nothing, so it may run for `headrace check`.
    `check_output` gets the name of the sink and raises a coded error if rows of a schema cannot be written. `paths` are
    the options that name places on disk. `merge_receipts` combines the receipts of one task into fewer: it keeps
    sinks whose receipts carry rows within their bound.
    """

    name: str
    help: str
    guarantee: str
    settings: type[S]
    make_task: Callable[[SinkDef, S], TaskSink]
    make_driver: Callable[[SinkDef, S, Schema], DriverSink]
    check_settings: Callable[[S], None] = no_more_checks
    check_output: Callable[[str, S, Schema], None] = any_output
    paths: tuple[str, ...] = ()
    merge_receipts: Callable[[S, list[Staged]], list[Staged]] = keep_all
    guarantee_with: Callable[[S], str] | None = None  # the guarantee, if it depends on the options
    task_secrets: tuple[str, ...] = ()  # options with secrets whose values tasks need
    every_epoch: bool = False  # True: `DriverSink.commit` is called for epochs without rows, too

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
        kind: Any = self.settings
        found: S = _settings_of(kind, self.name, tuple(options.items()))
        return found

    def check(self, options: Mapping[str, str]) -> None:
        """Raise a coded error if a sink with these options cannot be created. Changes nothing."""
        self.check_settings(self.settings_of(options))

    def require_output(self, sink: SinkDef, output: Schema) -> None:
        """Raise a coded error if the sink cannot write rows of this schema. Does no I/O."""
        self.check_output(sink.name, self.settings_of(sink.options), output)

    def guarantee_of(self, sink: SinkDef) -> str:
        """What a user of `sink` can rely on."""
        return self.guarantee if self.guarantee_with is None else self.guarantee_with(self.settings_of(sink.options))

    def task(self, sink: SinkDef) -> TaskSink:
        """The task side of `sink`."""
        return self.make_task(sink, self.settings_of(sink.options))

    def driver(self, sink: SinkDef, output: Schema) -> DriverSink:
        """The driver side of `sink`, for a pipeline with this output."""
        return self.make_driver(sink, self.settings_of(sink.options), output)

    def condense(self, sink: SinkDef, staged: list[Staged]) -> list[Staged]:
        """Combine the receipts of one task."""
        return self.merge_receipts(self.settings_of(sink.options), staged)
