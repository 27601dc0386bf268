"""What tasks and lanes report to the driver about one epoch.

`PlannedEpoch` travels the whole way: the planner makes it, every task receives it and puts it into its report, and the
committer reads it there. The driver therefore commits an epoch with the facts it was planned with, even when a newer
plan was published in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace.control.signals import EPOCH, Barrier
from headrace.sources.badfiles import BadRange

# The counters of `headrace.model.status.Traffic`, in its order. Every lane reports them in every epoch, and a tuple
# takes a tenth of the time.
TrafficCounts = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PlannedEpoch:
    """The facts of one epoch that are the same for all its tasks.

    `watermark` is the stream's after the previous epoch. `now` is the clock in microseconds when the epoch was planned,
    None for no clock. `requested` is the barrier that the epoch was cut for, if any. The instances in `out` are in the
    plan version but in quarantine, so no task runs them. A `probing` epoch is run only to see whether a worker dies,
    and is never committed. `end` is the offset at which the epoch ends. `staging` is the directory for large staged
    rows (`headrace.bridge.spark_rows`), and `packs` the one for large packs of events (`headrace.bridge.packs`).
    """

    epoch: int
    tasks: int
    checkpoint: str
    watermark: int | None = None
    now: int | None = None
    requested: Barrier | None = None
    out: tuple[int, ...] = ()
    probing: bool = False
    end: dict[str, Any] | None = None
    staging: str = ""
    packs: str = ""

    @property
    def barrier(self) -> Barrier:
        """The barrier after the epoch's rows: the requested one, or the epoch's own."""
        return self.requested or Barrier(EPOCH.name, self.epoch)


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What one task did. Its counters for each pipeline are beside it (`headrace.bridge.task_counts`). `plan` is the
    plan version, `ending` says that it closed all windows, and the instances in `leaving` ended in this epoch.

    `rows` counts every record, `rejected` those that became no row for any pipeline, and `nulled` those that became
    rows although their structure or event time is bad (mode PERMISSIVE). `bad` counts all of these and bad values, by
    reason. `values` is the number of cells that were parsed. `max_time` is the highest event time in microseconds; the
    `future` rows are too far ahead of the clock to count for it. `unreadable` are the parts of files that could not be
    read. `read_ms` is the time spent on reading and decoding, `ring0_ms` the time spent in pipelines.
    """

    task: int
    planned: PlannedEpoch
    plan: int
    ending: bool
    leaving: tuple[int, ...]
    rows: int
    bytes: int
    values: int
    rejected: int
    nulled: int
    future: int
    bad: dict[str, int]
    max_time: int | None
    read_ms: float
    ring0_ms: float
    unreadable: tuple[BadRange, ...]


class LaneReport(NamedTuple):
    """What one lane did, and the state it keeps after the epoch.

    `received` counts the messages of all tasks. `late` rows belonged only to windows that an end of input had closed.
    `closed` counts the windows and sessions that closed now. `rows` are the partial aggregates in the state, `groups`
    the groups (exactly, or at least so many) and `bytes` their size.
    """

    instance: int
    bucket: int
    barrier: Barrier
    received: TrafficCounts
    late: int
    closed: int
    rows: int
    bytes: int
    groups: int
    ms: float


@dataclass(frozen=True, slots=True)
class PoolReport:
    """The reports of all lanes of a pool, or of one lane that is not pooled. They have the bucket and the barrier in
    common. `lanes` has a tuple of whole numbers for each lane: its instance, `late` to `groups` of its report, and the
    counters of `Traffic`."""

    bucket: int
    barrier: Barrier
    lanes: tuple[tuple[int, ...], ...]
    ms: tuple[float, ...]

    @staticmethod
    def of(reports: Sequence[LaneReport]) -> PoolReport:
        """`reports` of one pool; at least one."""
        first = reports[0]
        rows = tuple([(r.instance, *r[4:9], *r.received) for r in reports])
        return PoolReport(first.bucket, first.barrier, rows, tuple([r.ms for r in reports]))

    def each(self) -> Iterator[LaneReport]:
        """The reports of the lanes."""
        bucket, barrier = self.bucket, self.barrier
        for numbers, ms in zip(self.lanes, self.ms, strict=True):
            yield LaneReport._make((numbers[0], bucket, barrier, numbers[6:], *numbers[1:6], ms))


@dataclass(frozen=True, slots=True)
class Failure:
    """A pipeline failed in a task or a lane. With a `sink`, only that sink failed, and the pipeline continues without
    it."""

    instance: int
    reason: str
    sink: str | None = None
