"""The messages of one epoch's tasks and lanes, as the driver collects them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from headrace.base.arrays import Ints
from headrace.bridge.messages import STREAM_LANE, MessageKind, Receipt, Row, decode
from headrace.bridge.reports import Failure, LaneReport, PoolReport, TaskReport
from headrace.bridge.spark_rows import RowsForSpark
from headrace.bridge.task_counts import CountsSum, decode_report
from headrace.control.signals import Barrier
from headrace.model.definitions import PipelineDef
from headrace.model.plan_version import PlanVersion
from headrace.sinks.sink_kind import Staged

Failures = dict[int, str]
Detached = dict[int, dict[str, str]]
Members = dict[int, PipelineDef]  # the instances of an epoch: those in its plan, and those that leave in it


def members_of(plan: PlanVersion, leaving: tuple[int, ...]) -> Members:
    """The instances of an epoch with this plan, when the instances in `leaving` end in it."""
    ended = {left.pipeline.instance: left.pipeline for left in plan.left if left.pipeline.instance in leaving}
    return ended | {p.instance: p for p in plan.pipelines}


@dataclass(slots=True)
class EpochReports:
    """The messages of an epoch, sorted by kind.

    `tasks` are the task reports by task, `counts` the sum of the counters that tasks report for each instance, and
    `lanes` the lane reports by instance and bucket. `barriers` are the barriers of every instance's buckets, and of the
    stream's tasks under `STREAM_LANE`; a barrier that arrives twice is there twice. `lost` are sinks that could not be
    written to. `staged` are the rows for the Spark query of each instance. `nothing` says that Spark ran a batch for
    which no epoch was planned.
    """

    tasks: dict[int, TaskReport] = field(default_factory=dict)
    counts: CountsSum = field(default_factory=CountsSum)
    lanes: dict[int, dict[int, LaneReport]] = field(default_factory=lambda: defaultdict(dict))
    barriers: dict[int, list[tuple[int, Barrier]]] = field(default_factory=lambda: defaultdict(list))
    receipts: dict[int, dict[str, list[Staged]]] = field(default_factory=lambda: defaultdict(dict))
    staged: dict[int, list[RowsForSpark]] = field(default_factory=lambda: defaultdict(list))
    failures: Failures = field(default_factory=dict)
    lost: Detached = field(default_factory=lambda: defaultdict(dict))
    nothing: bool = False

    @property
    def first(self) -> TaskReport:
        """One of the task reports. What the planner decided is the same in all of them."""
        return next(iter(self.tasks.values()))

    def add(self, row: Row) -> None:
        """Take one message. Of several failures of an instance or a sink, the first one counts."""
        if row.kind == MessageKind.OUTPUT:
            receipt = Receipt.decode(row.payload)
            self.receipts[receipt.instance].setdefault(receipt.sink, []).append(receipt.staged)
        elif row.kind == MessageKind.STAGED:
            rows = RowsForSpark.decode(row.payload)
            self.staged[rows.instance].append(rows)
        elif row.kind == MessageKind.ERROR:
            self._add_failure(decode(Failure, row.payload))
        elif row.kind == MessageKind.NO_EPOCH:
            self.nothing = True
        elif row.instance == STREAM_LANE:
            self._add_task(*decode_report(row.payload))
        else:
            self._add_lanes(decode(PoolReport, row.payload))

    def _add_lanes(self, report: PoolReport) -> None:
        bucket, arrived = report.bucket, (report.bucket, report.barrier)
        for lane in report.each():
            self.lanes[lane.instance][bucket] = lane
            self.barriers[lane.instance].append(arrived)

    def _add_failure(self, failure: Failure) -> None:
        if failure.sink is None:
            self.failures.setdefault(failure.instance, failure.reason)
        else:
            self.lost[failure.instance].setdefault(failure.sink, failure.reason)

    def _add_task(self, report: TaskReport, counts: Ints) -> None:
        self.tasks[report.task] = report
        self.barriers[STREAM_LANE].append((report.task, report.planned.barrier))
        self.counts.add(counts)
