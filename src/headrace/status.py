"""Status objects: plain facts about streams and pipelines, for programs, terminals and notebooks."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

State = Literal["created", "starting", "running", "stopping", "stopped", "failed", "finished"]

# A pipeline as its status shows it: one whose stream is being restarted, or is dead, does not run.
ShownState = Literal["created", "starting", "running", "stopping", "stopped", "failed", "finished", "retrying", "dead"]
StreamState = Literal["stopped", "running", "retrying", "dead"]


def to_datetime(micros: int | None) -> datetime | None:
    """Microseconds since 1970 as a UTC datetime; None stays None, and so does what no datetime can hold."""
    if micros is None:
        return None
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    except OverflowError:
        return None


# What the time of an epoch is spent on, in order; see `StreamStatus.phases`.
PHASES = ("planning", "reading", "ring0", "state", "sinks")

# A larger share of rejected rows is worth a warning: then the declaration does not fit the input.
REJECTED_SHARE = 0.1


def _too_many(part: int, rows: int) -> bool:
    # More than there are: the rows were not counted yet when some of these were.
    return REJECTED_SHARE * rows < part <= rows


def stream_warning(name: str, rows: int, rejected: int, nulled: int, bad: Mapping[str, int]) -> str:
    """What to say about a stream that rejects many of its rows, or has NULLs for them; empty if it does not."""
    what, part = ("rejected", rejected) if rejected >= nulled else ("has NULLs for", nulled)
    if not _too_many(part, rows):
        return ""
    return (
        f"stream {name} {what} {part:,} of {rows:,} rows ({_reasons(bad)}): check the declared columns and the "
        "options of the format; on_error = 'dead_letter' keeps such records for a look"
    )


def untimed_warning(name: str, rows: int, bad: Mapping[str, int]) -> str:
    """What to say about a stream whose rows often have no event time; empty if they have one."""
    untimed = bad.get("null_event_time", 0)
    if not _too_many(untimed, rows):
        return ""
    return (
        f"stream {name} has {untimed:,} of {rows:,} rows without an event time, which are in no window: check the name "
        "of the event time column"
    )


def pipeline_warning(name: str, rows: int, bad: int, rejects: bool) -> str:
    """What to say about a pipeline that finds bad values in many of its rows; empty if it does not. `rejects` if it
    does not get those rows at all."""
    if not _too_many(bad, rows):
        return ""
    what = "are rejected" if rejects else "have NULL instead"
    return (
        f"pipeline {name} found bad values in {bad:,} of {rows:,} rows, which {what}: check the declared types and the "
        "options of the format"
    )


def _reasons(bad: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in sorted(bad.items()))


# The states of a pipeline that has work to do. Whether its stream can do it is another question: see
# `StreamRuntime.raise_failure`.
ALIVE: tuple[ShownState, ...] = ("created", "starting", "running", "stopping", "retrying", "dead")


@dataclass(frozen=True, slots=True)
class Change:
    """A pipeline came into `state` at `at` (seconds since 1970) because of `reason`."""

    state: State
    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class Waited:
    """A stream that was stopped in order: the newest epoch it had planned, how long it was waited for, and whether
    the epoch was done then."""

    stream: str
    epoch: int
    seconds: float
    done: bool


@dataclass(frozen=True, slots=True)
class Gap:
    """Input that a pipeline missed: the epochs from `first` to `last`, in which the stream had `rows` rows."""

    first: int
    last: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SinkTotals:
    """What one sink got from the pipelines of a stream since the hub was opened, and how long its commits took. `owed`
    counts epochs that it has promised and not shown yet."""

    rows: int = 0
    seconds: float = 0.0
    owed: int = 0


@dataclass(frozen=True, slots=True)
class StreamTotals:
    """The epochs of a stream since the hub was opened: their number, the seconds by phase (`PHASES`), and the sinks."""

    epochs: int = 0
    phase_seconds: dict[str, float] = field(default_factory=dict)
    sinks: dict[str, SinkTotals] = field(default_factory=dict)


class HtmlTable:
    """A dataclass that shows itself as a small table in a notebook."""

    def _repr_html_(self) -> str:
        facts = [(f.name, getattr(self, f.name)) for f in dataclasses.fields(self)]  # type: ignore[arg-type]
        rows = "".join(f"<tr><th>{html.escape(n)}</th><td>{html.escape(str(v))}</td></tr>" for n, v in facts)
        return f"<table>{rows}</table>"


@dataclass(frozen=True, slots=True)
class Traffic:
    """Messages over a pipeline's lanes, counted on one side: batches of rows and the rows (partial aggregates) in them,
    watermarks, barriers, ends; `dropped` are input rows that were not sent because they were late."""

    batches: int = 0
    rows: int = 0
    watermarks: int = 0
    barriers: int = 0
    ends: int = 0
    dropped: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*(getattr(self, f.name) + getattr(other, f.name) for f in dataclasses.fields(self)))

    def __str__(self) -> str:
        return ", ".join(f"{f.name} {getattr(self, f.name)}" for f in dataclasses.fields(self))


@dataclass(frozen=True)
class StreamStatus(HtmlTable):
    """A stream, as it really is: nothing here is planned or promised.

    `decoding_columns`, `projection_version` (a plan version) and `subscribers` (pipelines with the columns each needs,
    `*` for all) are those of the newest planned epoch; `epoch` is the newest committed one, and `rows`, `bytes`, `bad`
    and `watermark` are as of it; rates are over the last epochs. `rows` counts every record; `rejected` of them were no
    row for any pipeline, and `nulled` were rows although their structure or event time is bad (mode PERMISSIVE). `bad`
    counts by reason what was rejected for all or concerned a pipeline; `dead_letters` are in the stream's sink;
    `far_future` rows did not move the watermark (option max_future). `dropped` records were given up by the gateway
    under overload. `skipped_files` were left out (on_bad_file = 'skip'), and `bad_files` are the newest of them, with
    the reason.

    `state` is running, retrying (the query failed and is started again: `attempt` counts the tries in a row, `next_try`
    is when the next one is), dead (it stays so until a pipeline of it is started) or stopped; `since` is when that
    began. `phases` are the milliseconds of the newest epoch by phase: planning (by headrace and Spark), reading and
    decoding, ring0 (pipelines in the slowest task), state (Spark's scheduling, the shuffle and Ring 1), sinks (the
    commit). `barrier` is the newest barrier that somebody sent, with the epoch that carried it. `problem` is the newest
    failure of the query, or what keeps the hub from doing its part. `epoch_age` is how many seconds the epoch in flight
    has taken so far, and `waiting_for` what it waits for: planning, tasks, or the commit of a sink; None when there is
    none.
    """

    name: str
    running: bool
    epoch: int
    projection_version: int
    decoding_columns: list[str]
    columns_declared: int
    subscribers: dict[str, list[str]]
    rows: int
    bytes: int
    bad: dict[str, int]
    watermark: datetime | None
    lag_bytes: int
    epoch_ms: float | None
    rows_per_s: float
    mb_per_s: float
    dead_letters: int = 0
    far_future: int = 0
    problem: str = ""
    state: StreamState = "stopped"
    since: datetime | None = None
    attempt: int = 0
    next_try: datetime | None = None
    epoch_age: float | None = None
    waiting_for: str = ""
    rejected: int = 0
    nulled: int = 0
    dropped: int = 0
    skipped_files: int = 0
    bad_files: dict[str, str] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)
    barrier: str = ""

    @property
    def losses(self) -> list[str]:
        """What did not become rows, in words; empty if nothing."""
        bad = f"bad: {_reasons(self.bad)}"
        counts = {
            "rejected": self.rejected,
            "broken and NULL": self.nulled,
            "dropped": self.dropped,
            "files left out": self.skipped_files,
        }
        return [*(f"{count:,} {what}" for what, count in counts.items() if count), *([bad] if self.bad else [])]

    @property
    def warnings(self) -> list[str]:
        """What somebody should look at: many rejected rows, many without an event time, files that were left out."""
        rejected = stream_warning(self.name, self.rows, self.rejected, self.nulled, self.bad)
        untimed = untimed_warning(self.name, self.rows, self.bad)
        files = [f"stream {self.name} left out {path}: {why}" for path, why in self.bad_files.items()]
        return [*(text for text in (rejected, untimed) if text), *files]


@dataclass(frozen=True)
class PipelineStatus(HtmlTable):
    """A pipeline. `rows_out` are rows visible in its first sink; `late` rows came after all their windows had closed.
    `groups` and `state_bytes` are its state; `sent` and `received` what crossed the bridge from Ring 0 to Ring 1.

    `missed_rows` are the stream's rows that passed while it was stopped or failed; each `gap` is a run of epochs that
    it missed before it came back. `state` is retrying or dead when that is what its stream is. `changes` are the newest
    of its states with reason and time; `detached` are sinks that failed and are no longer written to, with the
    reason. `rows_in` are the stream's records in its epochs; `bad` of them had bad values that concern it, and
    `rejected` it did not get for that (on_error 'skip' or 'dead_letter').
    """

    name: str
    stream: str
    state: ShownState
    instance: int
    rows_out: int
    late: int
    bad: int
    groups: int
    epoch_ms: float | None
    missed_rows: int
    gaps: list[Gap]
    error: str
    state_bytes: int = 0
    sent: Traffic = field(default_factory=Traffic)
    received: Traffic = field(default_factory=Traffic)
    detached: dict[str, str] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    rows_in: int = 0
    rejected: int = 0

    @property
    def losses(self) -> list[str]:
        """What did not become output although it was meant for the pipeline, in words; empty if nothing."""
        nulled = self.bad - self.rejected
        counts = {"late": self.late, "rejected": self.rejected, "with bad values": nulled, "missed": self.missed_rows}
        return [f"{count:,} {what}" for what, count in counts.items() if count]

    @property
    def warnings(self) -> list[str]:
        """What somebody should look at: bad values in many rows."""
        found = pipeline_warning(self.name, self.rows_in, self.bad, rejects=self.rejected > 0)
        return [found] if found else []
