"""Status of streams and pipelines, for programs, terminals and notebooks."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

from headrace.model.bad_reasons import counted, records_and_values

State = Literal["created", "starting", "running", "stopping", "stopped", "failed", "finished"]

# The state of a pipeline as a status shows it. A pipeline does not run while its stream restarts or is dead, nor while
# no hub is open.
Resumes = Literal["stopped, runs again with the next hub"]
ShownState = Literal[State, "retrying", "dead", Resumes]
StreamState = Literal["stopped", "running", "retrying", "dead"]


def to_datetime(micros: int | None) -> datetime | None:
    """Microseconds since 1970 as a UTC datetime. None for None, and for a value out of the range of datetime."""
    if micros is None:
        return None
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    except OverflowError:
        return None


# The phases of an epoch, in order; see `StreamStatus.phases`.
PHASES = ("planning", "reading", "ring0", "state", "sinks")

# A larger share of rejected rows gets a warning: the declaration probably does not fit the input.
REJECTED_SHARE = 0.1


def _too_many(part: int, rows: int) -> bool:
    # `part` may exceed `rows` for a moment, because the two are not counted at the same time.
    return REJECTED_SHARE * rows < part <= rows


def stream_warning(name: str, rows: int, rejected: int, nulled: int, bad: Mapping[str, int], kept_in: str = "") -> str:
    """The warning for a stream that rejects many of its rows or reads them as NULLs. Empty if it does not. `kept_in`
    is its dead letter sink."""
    what, part = ("rejected", rejected) if rejected >= nulled else ("has NULLs for", nulled)
    if not _too_many(part, rows):
        return ""
    advice = "on_error = 'dead_letter' keeps such records so that you can inspect them"
    # A row that is read although it is bad may have several bad values.
    more = not nulled and records_and_values(bad) > part
    found = counted(bad) + ("; values also in other rows" if more else "")
    return (
        f"stream {name} {what} {part:,} of {rows:,} rows ({found}): check the declared columns and the "
        f"options of the format; {f'sink {kept_in} has the records' if kept_in else advice}"
    )


def untimed_warning(name: str, rows: int, bad: Mapping[str, int]) -> str:
    """The warning for a stream with many rows without an event time. Empty if they have one."""
    untimed = bad.get("null_event_time", 0)
    if not _too_many(untimed, rows):
        return ""
    return (
        f"stream {name} has {untimed:,} of {rows:,} rows without an event time, which are in no window: check the name "
        "of the event time column"
    )


def pipeline_warning(name: str, rows: int, bad: int, rejects: bool) -> str:
    """The warning for a pipeline that finds bad values in many of its rows. Empty if it does not. With `rejects` the
    pipeline does not get those rows at all."""
    if not _too_many(bad, rows):
        return ""
    what = "are rejected" if rejects else "have NULL instead"
    return (
        f"pipeline {name} found bad values in {bad:,} of {rows:,} rows, which {what}: check the declared types and the "
        "options of the format"
    )


# The states of a pipeline that has work to do. `StreamRuntime.raise_failure` checks whether its stream can do it.
ALIVE: tuple[ShownState, ...] = ("created", "starting", "running", "stopping", "retrying", "dead")


@dataclass(frozen=True, slots=True)
class StateChange:
    """A pipeline entered `state` at time `at` (seconds since 1970) because of `reason`.

    >>> hub.pipelines["by_minute"].status().changes[-1].reason
    'its first epoch is planned'
    """

    state: State
    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class Waited:
    """A stream that was stopped gracefully: its newest planned epoch, how many seconds the hub waited for that epoch,
    and whether it completed."""

    stream: str
    epoch: int
    seconds: float
    done: bool


@dataclass(frozen=True, slots=True)
class Gap:
    """Input that a pipeline missed: the epochs from `first` to `last`, in which the stream had `rows` rows.

    >>> hub.pipelines["by_minute"].status().gaps
    []
    """

    first: int
    last: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SinkTotals:
    """What one sink got from the pipelines of a stream since the hub was opened, and how long its commits took. `owed`
    counts epochs that it has promised and not shown yet.

    >>> hub.streams["sensors"].totals().sinks["minutes"].owed
    0
    """

    rows: int = 0
    seconds: float = 0.0
    owed: int = 0


@dataclass(frozen=True, slots=True)
class StreamTotals:
    """The epochs of a stream since the hub was opened: their number, the seconds by phase (`PHASES`), and the sinks.

    >>> list(hub.streams["sensors"].totals().phase_seconds)
    ['planning', 'reading', 'ring0', 'state', 'sinks']
    """

    epochs: int = 0
    phase_seconds: dict[str, float] = field(default_factory=dict)
    sinks: dict[str, SinkTotals] = field(default_factory=dict)


class HtmlTable:
    """Base of dataclasses that a notebook shows as a small table."""

    def _repr_html_(self) -> str:
        facts = [(f.name, getattr(self, f.name)) for f in dataclasses.fields(self)]  # type: ignore[arg-type]
        rows = "".join(f"<tr><th>{html.escape(n)}</th><td>{html.escape(str(v))}</td></tr>" for n, v in facts)
        return f"<table>{rows}</table>"


@dataclass(frozen=True, slots=True)
class Traffic:
    """Messages on a pipeline's lanes, as the sender or the receiver counts them: batches, the rows (partial aggregates)
    in them, watermarks, barriers and ends. `dropped` counts input rows that were not sent because they were late.

    >>> hub.pipelines["by_minute"].status().sent.rows
    40
    """

    batches: int = 0
    rows: int = 0
    watermarks: int = 0
    barriers: int = 0
    ends: int = 0
    dropped: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            batches=self.batches + other.batches,
            rows=self.rows + other.rows,
            watermarks=self.watermarks + other.watermarks,
            barriers=self.barriers + other.barriers,
            ends=self.ends + other.ends,
            dropped=self.dropped + other.dropped,
        )

    def __str__(self) -> str:
        return ", ".join(f"{f.name} {getattr(self, f.name)}" for f in dataclasses.fields(self))


@dataclass(frozen=True)
class StreamStatus(HtmlTable):
    """The status of a stream. All values are facts about epochs that ran, not about plans.

    Of the newest planned epoch:
    - `projection_version` is its plan version, and `decoding_columns` are the columns that it decodes.
    - `subscribers` are its pipelines, each with the columns that it needs; `*` is all columns.

    Of the newest committed epoch, whose number is `epoch`:
    - `rows` counts every record. `rejected` of them reached no pipeline. `nulled` reached pipelines although their
      structure or event time is bad (mode PERMISSIVE).
    - `bad` counts bad records by reason, if they were rejected for all pipelines or concern at least one.
    - `dead_letters` counts the records in the dead letter sink, whose name is `dead_letter_sink`. `far_future` rows did
      not move the watermark (option max_future). The gateway dropped `dropped` records under overload.
    - `skipped_files` counts files that were left out (on_bad_file = 'skip'). `bad_files` lists the newest of them with
      the reason.
    - Rates are averages over the last epochs.

    `state` is running, stopped, retrying or dead; `since` is when that state began. While retrying, `attempt` counts
    the failures in a row, and `next_try` is when the query starts again. A dead stream stays dead until one of its
    pipelines is started. `problem` is the newest failure of the query or of the hub. `epoch_age` is how many seconds
    the current epoch has taken so far, None between epochs. `waiting_for` says what it waits for: planning, tasks, or
    the commit of a sink. `phases` are the milliseconds of the newest epoch by phase: planning (by headrace and Spark),
    reading and decoding, ring0 (pipelines in the slowest task), state (Spark's scheduling, the shuffle and Ring 1), and
    sinks (the commit). `barrier` is the newest barrier of a user, with the epoch that carried it. `paused_by` are the
    pipelines on the dedicated host that the stream waits for: it reads nothing until they have caught up.

    >>> status = hub.streams["sensors"].status()
    >>> status.state, status.rows, status.columns_declared
    ('running', 600, 4)
    >>> status.watermark.isoformat()
    '2026-01-01T00:09:49+00:00'
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
    paused_by: list[str] = field(default_factory=list)
    dead_letter_sink: str = ""

    @property
    def columns_decoded(self) -> int:
        """How many of the declared columns are decoded, whole or in part: fields of one STRUCT are one column.

        >>> hub.streams["sensors"].status().columns_decoded
        3
        """
        return len({name.partition(".")[0] for name in self.decoding_columns})

    @property
    def losses(self) -> list[str]:
        """The input that did not become rows, in words. Empty if all of it did.

        >>> hub.streams["sensors"].status().losses
        []
        """
        counts = {
            "rejected": self.rejected,
            "broken and NULL": self.nulled,
            "dropped": self.dropped,
            "files left out": self.skipped_files,
        }
        lost = [f"{count:,} {what}" for what, count in counts.items() if count]
        return [*lost, counted(self.bad)] if self.bad else lost

    @property
    def warnings(self) -> list[str]:
        """Warnings for the user: many rejected rows, many rows without an event time, files that were left out.

        >>> hub.streams["sensors"].status().warnings
        []
        """
        rejected = stream_warning(
            name=self.name,
            rows=self.rows,
            rejected=self.rejected,
            nulled=self.nulled,
            bad=self.bad,
            kept_in=self.dead_letter_sink,
        )
        untimed = untimed_warning(self.name, self.rows, self.bad)
        return [*(text for text in (rejected, untimed) if text), *self.left_out]

    @property
    def left_out(self) -> list[str]:
        """A warning for each of the newest files that were left out.

        >>> hub.streams["sensors"].status().left_out
        []
        """
        return [f"stream {self.name} left out {path}: {why}" for path, why in self.bad_files.items()]


@dataclass(frozen=True)
class PipelineStatus(HtmlTable):
    """The status of a pipeline.

    - `rows_in` counts the stream's records in its epochs. `bad` of them have bad values in columns that it reads; it
      did not get the `rejected` ones (on_error 'skip' or 'dead_letter').
    - `rows_out` counts the rows in its first sink. `late` rows arrived after all their windows had closed.
    - `groups` and `state_bytes` measure its state. `sent` and `received` count the messages from Ring 0 to Ring 1.
    - `missed_rows` counts the stream's rows that went by while it was stopped or failed. Each of `gaps` is a run of
      epochs that it missed.
    - `state` is retrying or dead when its stream is. If no hub is open, a pipeline that should run is "stopped, runs
      again with the next hub". `changes` lists its newest states with reason and time.
    - `detached` lists sinks that failed and get no more rows, with the reason.
    - `host` is where it runs: shared, epoch or dedicated (docs/hosts.md). On the dedicated host, `waiting_rows` are
      rows of its streams that are not in its sinks yet, `dropped_rows` are rows for which there was no room
      (backpressure 'drop'), and `other_streams` are the streams that it reads beside `stream`. The first two also count
      for a Spark reader.

    >>> status = hub.pipelines["by_minute"].status()
    >>> status.state, status.rows_in, status.rows_out, status.groups
    ('running', 600, 36, 4)
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
    changes: list[StateChange] = field(default_factory=list)
    rows_in: int = 0
    rejected: int = 0
    host: str = "shared"
    waiting_rows: int = 0
    dropped_rows: int = 0
    other_streams: list[str] = field(default_factory=list)

    @property
    def losses(self) -> list[str]:
        """The rows for this pipeline that did not become output, in words. Empty if there are none.

        >>> hub.pipelines["by_minute"].status().losses
        []
        """
        nulled = self.bad - self.rejected
        counts = {
            "late": self.late,
            "rejected": self.rejected,
            "with bad values": nulled,
            "missed": self.missed_rows,
            "dropped": self.dropped_rows,
        }
        return [f"{count:,} {what}" for what, count in counts.items() if count]

    @property
    def warnings(self) -> list[str]:
        """Warnings for the user: bad values in many rows.

        >>> hub.pipelines["by_minute"].status().warnings
        []
        """
        found = pipeline_warning(self.name, self.rows_in, self.bad, rejects=self.rejected > 0)
        return [found] if found else []
