"""The epochs of one stream since the hub was opened: their speed, and which pipelines cost too much."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.control.signals import EPOCH
from headrace.model.definitions import StreamDef
from headrace.model.schema import field_at
from headrace.model.status import PHASES, SinkTotals, StreamStatus, StreamTotals
from headrace.model.stream_options import stream_settings
from headrace.state.plans import PlanStore
from headrace.stream.budget import Accounts, Budget, BudgetVerdict

if TYPE_CHECKING:
    from headrace.spark.summary import EpochSummary

_RATE_EPOCHS = 20


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read since the hub was opened: rows, bytes, the seconds of the epochs that had rows, and the columns
    that they decoded, by index."""

    rows: int = 0
    bytes: int = 0
    seconds: float = 0.0
    columns: frozenset[int] = frozenset()

    @property
    def rates(self) -> tuple[float, float]:
        """Rows and megabytes per second, over the time in which rows were read."""
        seconds = self.seconds or 1.0
        return self.rows / seconds, self.bytes / seconds / 1e6


class History:
    """Collects the summary of every epoch in Spark's streaming thread. Any thread may read.

    `alone` are the instances that share no pass from the next plan version on, so that their time can be measured.
    """

    def __init__(self, stream: StreamDef, plans: PlanStore) -> None:
        settings = stream_settings(stream)
        time_budget = settings.pipeline_time_budget
        budget = Budget(None if time_budget is None else time_budget / 1000, settings.pipeline_state_budget)
        self._accounts, self._plans = Accounts(budget), plans
        self._recent: deque[tuple[float, EpochSummary]] = deque(maxlen=_RATE_EPOCHS)
        self._schema, self._read_by = stream.schema, -1  # the plan version of the newest epoch with rows
        self.reading = Reading()
        self._ended = 0  # the plan version that last closed all windows, and whether rows came since
        self._fed = False
        self.alone: frozenset[int] = frozenset()
        self.phases: dict[str, float] = {}  # milliseconds of the newest epoch
        self.totals = StreamTotals()
        self.barrier = ""  # the newest barrier that a caller sent

    def add(self, summary: EpochSummary, spent: tuple[float, float] | None = None) -> None:
        """Add a committed epoch. `spent` is how many milliseconds planning took, and how many have passed since."""
        if self._recent:  # only the newest is asked about pipelines
            at, older = self._recent[-1]
            self._recent[-1] = (at, older.without_pipelines())
        self.phases = phases_of(summary, spent)
        seconds = sum(self.phases.values()) / 1000
        self._recent.append((time.monotonic(), summary))
        if summary.rows:
            self._add_reading(summary, seconds)
        self.totals = _after(self.totals, summary, self.phases)
        if summary.barrier.kind != EPOCH.name:
            self.barrier = f"{summary.barrier.kind} {summary.barrier.id} in epoch {summary.epoch}"
        if summary.ending:
            self._ended, self._fed = summary.plan, False
        elif summary.rows:
            self._fed = True

    def _add_reading(self, summary: EpochSummary, seconds: float) -> None:
        before, columns = self.reading, self.reading.columns
        if summary.plan != self._read_by:
            self._read_by = summary.plan
            columns |= frozenset(self._plans.load(summary.plan).view.indexes(len(self._schema)))
        self.reading = Reading(
            before.rows + summary.rows, before.bytes + summary.bytes, before.seconds + seconds, columns
        )

    def at_end(self, status: StreamStatus) -> StreamStatus:
        """`status`; if the stream has stopped, with the rates and columns of all that was read."""
        if status.state != "stopped" or not self.reading.rows:
            return status
        rows_per_s, mb_per_s = self.reading.rates
        columns = [field_at(self._schema, i).name for i in sorted(self.reading.columns)]
        return replace(status, rows_per_s=rows_per_s, mb_per_s=mb_per_s, decoding_columns=columns)

    def fed_since_end(self, version: int) -> bool:
        """True if rows came after the plan of this version had closed all windows."""
        return self._ended == version and self._fed

    def judge(self, summary: EpochSummary) -> BudgetVerdict:
        """Which pipelines cost too much after this epoch. An epoch without rows changes nothing."""
        if not summary.rows or self._accounts.budget == Budget():
            return BudgetVerdict({}, self.alone)
        shared = self._plans.load(summary.plan).families
        return self._accounts.charge(summary.pipeline_ms, summary.state_bytes, shared)

    def measure_alone(self, instances: frozenset[int]) -> None:
        """Let these instances share no pass from the next plan version on."""
        self.alone = instances

    @property
    def recent(self) -> list[EpochSummary]:
        """The newest epochs, oldest first. Only the last has what it did for each pipeline."""
        return [summary for _, summary in list(self._recent)]

    def rates(self) -> tuple[float, float]:
        """Rows and megabytes per second over the newest epochs."""
        recent = list(self._recent)
        if len(recent) == 1:
            return self.reading.rates
        seconds = recent[-1][0] - recent[0][0] if recent else 0.0
        if not seconds:
            return 0.0, 0.0
        later = [summary for _, summary in recent[1:]]
        return sum(s.rows for s in later) / seconds, sum(s.bytes for s in later) / seconds / 1e6


def phases_of(summary: EpochSummary, spent: tuple[float, float] | None) -> dict[str, float]:
    """The milliseconds of each phase. Reading and Ring 0 are those of the slowest task; what is left of the time
    between planning and commit is Spark's scheduling, the shuffle and Ring 1."""
    planning, since = spent or (0.0, summary.read_ms + summary.ring0_ms + summary.sinks_ms)
    state = max(0.0, since - summary.read_ms - summary.ring0_ms - summary.sinks_ms)
    found = (planning, summary.read_ms, summary.ring0_ms, state, summary.sinks_ms)
    return dict(zip(PHASES, (round(ms, 3) for ms in found), strict=True))


def _after(totals: StreamTotals, summary: EpochSummary, phases: dict[str, float]) -> StreamTotals:
    sinks = dict(totals.sinks)
    for name, (rows, ms) in summary.sinks.items():
        known = sinks.get(name, SinkTotals())
        sinks[name] = replace(known, rows=known.rows + rows, seconds=known.seconds + ms / 1000)
    owed = {name: sum(debt.sink == name for debt in summary.progress.debts) for name in sinks}
    return StreamTotals(
        epochs=totals.epochs + 1,
        phase_seconds={name: totals.phase_seconds.get(name, 0.0) + ms / 1000 for name, ms in phases.items()},
        sinks={name: replace(found, owed=owed[name]) for name, found in sinks.items()},
    )
