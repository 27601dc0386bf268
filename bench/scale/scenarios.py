"""Clusters and loads that this machine cannot run, answered by the simulator with the fitted costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from bench.scale.model import CostModel, Load, distinct
from bench.scale.simulator import (
    Cluster,
    Phases,
    bucket_shares,
    makespan,
    slowed,
    spread,
    stable_period,
    zipf,
)

SLOT_SHARE = 1.0  # of a core, that a task slot of the cluster has beside one of the machine that was measured


@dataclass(frozen=True, slots=True)
class Demand:
    """What is asked for: one stream's input and pipelines, and how its keys spread. All windows are `window` seconds
    long; of the pipelines a family has `family`. `spark_cpu` is the driver's CPU for Spark's own work per epoch."""

    megabytes_s: float
    pipelines: int
    keys: int = 10_000
    family: int = 8
    columns: int = 10
    row_bytes: int = 330
    window: float = 60.0
    skew: float = 0.0
    streams: int = 1
    spark_cpu: float = 0.15

    def load(self, seconds: float, tasks: int) -> Load:
        """The counts of an epoch with `seconds` of input."""
        rows = self.megabytes_s * 1e6 / self.row_bytes * seconds
        families = max(1, self.pipelines // self.family)
        windows = max(1.0, seconds / self.window)
        partials = self.pipelines * tasks * distinct(rows / tasks, self.keys * windows)
        closed = self.pipelines * seconds / self.window * self.keys
        return Load(
            rows, self.megabytes_s * seconds, self.columns, tasks, self.pipelines, families, 0, partials, closed
        )


def phases(model: CostModel, demand: Demand, cluster: Cluster, seconds: float) -> Phases:
    """One epoch of one stream with `seconds` of input."""
    tasks = max(cluster.slots, 1)
    load = demand.load(seconds, tasks)
    ring0 = [model.part("tasks", load) / tasks / SLOT_SHARE] * tasks
    ring0 = slowed(ring0, cluster.straggler_share, cluster.straggler_factor)
    # As many buckets as slots: each key is in one, so a hot key makes its bucket late. Groups are spread, rows are not.
    shares = _shares(min(demand.keys, 20_000), demand.skew, tasks)
    fixed = model.part("state", replace(load, partials=0.0, closed=0.0))
    work = model.part("state", load) - fixed
    ring1 = [fixed / tasks + work * share for share in shares]
    bridged = load.partials * model.bridge_bytes / 1e6
    across = bridged * (cluster.executors - 1) / max(cluster.executors, 1)
    return Phases(
        plan=model.part("plan", load) + demand.spark_cpu,
        ring0=makespan(ring0, cluster.slots, cluster.launch),
        shuffle=across / (cluster.network_mb_s * cluster.executors),
        ring1=makespan(
            slowed(ring1, cluster.straggler_share, cluster.straggler_factor, 2), cluster.slots, cluster.launch
        ),
        commit=model.part("commit", load),
    )


@cache
def _shares(keys: int, skew: float, buckets: int) -> list[float]:
    return bucket_shares(zipf(keys, skew), buckets, lambda key: spread(key, buckets))


@dataclass(frozen=True, slots=True)
class Answer:
    """A cluster that keeps up: seconds between epochs, the phases of one, which saturates first, bytes of state."""

    executors: int
    period: float
    phases: Phases
    first: str
    driver_share: float
    state_bytes: float


def settle(model: CostModel, demand: Demand, cluster: Cluster, within: float) -> Answer | None:
    """The shortest period that `cluster` keeps up with; None if it needs longer than `within` seconds."""

    def epoch(seconds: float) -> float:
        return phases(model, demand, cluster, seconds).total

    period = stable_period(epoch)
    if period is None or period > within:
        return None
    found = phases(model, demand, cluster, period)
    # The driver runs every stream's planning and commit, one after the other under Python's lock.
    share = demand.streams * found.driver / period
    state = demand.pipelines * demand.keys * model.state_bytes * demand.streams
    return Answer(cluster.executors, period, found, saturates(model, demand, cluster, period), share, state)


def saturates(model: CostModel, demand: Demand, cluster: Cluster, seconds: float) -> str:
    """The phase that grows most if input, pipelines and cluster double: the one that more executors do not help."""
    before = phases(model, demand, cluster, seconds)
    doubled = replace(demand, megabytes_s=demand.megabytes_s * 2, pipelines=demand.pipelines * 2)
    after = phases(model, doubled, replace(cluster, executors=cluster.executors * 2), seconds)
    names = ("plan", "ring0", "shuffle", "ring1", "commit")
    return max(names, key=lambda name: float(getattr(after, name)) - float(getattr(before, name)))


def fewest(model: CostModel, demand: Demand, within: float, cluster: Cluster, most: int = 512) -> Answer | None:
    """The smallest number of executors that keeps up with epochs of at most `within` seconds; None beyond `most`."""
    executors = 1
    while executors <= most and settle(model, demand, replace(cluster, executors=executors), within) is None:
        executors *= 2
    if executors > most:
        return None
    low, high = executors // 2, executors
    while high - low > 1:
        middle = (low + high) // 2
        if settle(model, demand, replace(cluster, executors=middle), within) is None:
            low = middle
        else:
            high = middle
    return settle(model, demand, replace(cluster, executors=high), within)
