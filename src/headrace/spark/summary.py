"""A summary of one committed epoch, for status, rates and budgets."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

from headrace.control.signals import Barrier
from headrace.spark.epoch_reports import Detached, EpochReports, Failures
from headrace.state.progress import Progress


@dataclass(frozen=True, slots=True)
class EpochSummary:
    """What one epoch did. `failures` and `detached` sinks are those that are new in it. `pipeline_ms` is the time each
    instance took in both rings, over all tasks. `read_ms` and `ring0_ms` are those of the slowest task. `sinks_ms` is
    the time of the commit, and `sinks` the rows and milliseconds of each sink in it."""

    epoch: int
    plan: int
    barrier: Barrier
    ending: bool
    rows: int
    bytes: int
    values: int
    tasks: int
    progress: Progress
    failures: Failures
    detached: Detached
    pipeline_ms: dict[int, float]
    state_bytes: dict[int, int]
    read_ms: float = 0.0
    ring0_ms: float = 0.0
    sinks_ms: float = 0.0
    sinks: dict[str, tuple[int, float]] = field(default_factory=dict)

    def without_pipelines(self) -> EpochSummary:
        """The summary without what it has for each pipeline: about 0.8 kB."""
        return replace(self, progress=replace(self.progress, pipelines={}), pipeline_ms={}, state_bytes={})


def summarise(found: EpochReports, progress: Progress, failures: Failures, detached: Detached) -> EpochSummary:
    """The summary of an epoch after which the stream's progress is `progress`."""
    reports, first = list(found.tasks.values()), found.first
    spent: dict[int, float] = defaultdict(float)
    for instance, counts in found.counts.by_instance().items():
        if counts.timed:
            spent[instance] += counts.us / 1000
    for instance, lanes in found.lanes.items():
        spent[instance] += sum(lane.ms for lane in lanes.values())
    return EpochSummary(
        epoch=first.planned.epoch,
        plan=first.plan,
        barrier=first.planned.barrier,
        ending=first.ending,
        rows=sum(r.rows for r in reports),
        bytes=sum(r.bytes for r in reports),
        values=sum(r.values for r in reports),
        tasks=len(reports),
        progress=progress,
        failures=failures,
        detached=detached,
        pipeline_ms=dict(spent),
        state_bytes={i: sum(lane.bytes for lane in lanes.values()) for i, lanes in found.lanes.items()},
        read_ms=max(r.read_ms for r in reports),
        ring0_ms=max(r.ring0_ms for r in reports),
    )
