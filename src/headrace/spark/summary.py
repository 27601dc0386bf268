"""What one epoch did, for those who watch the stream."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from headrace.control.signals import Barrier
from headrace.program import PlanVersion
from headrace.spark.collected import Collected, Detached, Failures
from headrace.streams.progress import Progress


@dataclass(frozen=True, slots=True)
class EpochSummary:
    """What one epoch did. `failures` and `detached` sinks are new ones; `pipeline_ms` is the time each instance took in
    both rings, over all tasks. `read_ms` and `ring0_ms` are those of the slowest task; `sinks_ms` is the time of the
    commit, and `sinks` has the rows and the milliseconds of each sink in it."""

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


def summarise(
    plan: PlanVersion,
    found: Collected,
    progress: Progress,
    failures: Failures,
    detached: Detached,
    sinks_ms: float = 0.0,
    sinks: dict[str, tuple[int, float]] | None = None,
) -> EpochSummary:
    """The summary of an epoch after which the stream's progress is `progress`. Its commit took `sinks_ms`."""
    reports = list(found.reports.values())
    spent: dict[int, float] = defaultdict(float)
    for report in reports:
        for instance, facts in report["pipelines"].items():
            spent[int(instance)] += facts["ms"]
    for instance, lanes in found.lanes.items():
        spent[instance] += sum(lane["ms"] for lane in lanes.values())
    return EpochSummary(
        epoch=reports[0]["epoch"],
        plan=plan.version,
        barrier=Barrier(*reports[0]["barrier"]),
        ending=reports[0]["ending"],
        rows=sum(r["rows"] for r in reports),
        bytes=sum(r["bytes"] for r in reports),
        values=sum(r["values"] for r in reports),
        tasks=len(reports),
        progress=progress,
        failures=failures,
        detached=detached,
        pipeline_ms=dict(spent),
        state_bytes={i: sum(lane["bytes"] for lane in lanes.values()) for i, lanes in found.lanes.items()},
        read_ms=max(r["read_ms"] for r in reports),
        ring0_ms=max(r["ring0_ms"] for r in reports),
        sinks_ms=sinks_ms,
        sinks=sinks or {},
    )
