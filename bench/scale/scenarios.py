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


@dataclass(frozen=True, slots=True)
class Demand:
    """What is asked for: the input and pipelines of a stream, and how its keys spread.

    All windows are `window` seconds long, and a family has `family` pipelines. `streams` such streams share executors
    and driver. `spark_cpu` is the driver's CPU for Spark's own work per epoch. If `combined`, the tasks of an executor
    would combine their partial rows before they send them, which headrace does not do today.
    """

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
    combined: bool = False

    def load(self, seconds: float, tasks: int, executors: int) -> Load:
        """The counts of an epoch of one stream with `seconds` of input."""
        rows = self.megabytes_s * 1e6 / self.row_bytes * seconds
        families = max(1, self.pipelines // self.family)
        windows = max(1.0, seconds / self.window)
        senders = min(tasks, executors) if self.combined else tasks
        partials = self.pipelines * senders * distinct(rows / senders, self.keys * windows)
        closed = self.pipelines * seconds / self.window * self.keys
        return Load(
            rows,
            self.megabytes_s * seconds,
            self.columns,
            tasks,
            self.pipelines,
            families,
            stateless=0,
            doubles=0,
            partials=partials,
            merged=partials,  # every task has rows of every window
            closed=closed,
        )


def phases(model: CostModel, demand: Demand, cluster: Cluster, seconds: float) -> Phases:
    """One epoch with `seconds` of input of every stream, all at the same time. Every stream has a
    planning process, and Spark's own work is in threads, so both use the driver's cores; commits are made one after the
    other, because they are in one Python process. An epoch has as many tasks as its part of the cluster has cores, and
    as many buckets."""
    tasks = max(1, cluster.slots // demand.streams)
    load = demand.load(seconds, tasks, cluster.executors)
    ring0 = [model.part("tasks", load) / tasks] * (tasks * demand.streams)
    # Each key is in one bucket, so a hot key makes its bucket late.
    shares = _shares(min(demand.keys, 20_000), demand.skew, tasks)
    fixed = model.part("state", replace(load, partials=0.0, merged=0.0, closed=0.0))
    work = model.part("state", load) - fixed
    ring1 = [fixed / tasks + work * share for share in shares] * demand.streams
    bridged = demand.streams * load.partials * model.bridge_bytes / 1e6
    across = bridged * (cluster.executors - 1) / cluster.executors
    late, by = cluster.straggler_share, cluster.straggler_factor
    return Phases(
        plan=demand.streams / min(demand.streams, cluster.driver_cores) * (model.part("plan", load) + demand.spark_cpu),
        ring0=makespan(slowed(ring0, late, by), cluster.slots, cluster.launch),
        shuffle=across / (cluster.network_mb_s * cluster.executors),
        ring1=makespan(slowed(ring1, late, by, seed=2), cluster.slots, cluster.launch),
        commit=demand.streams * model.part("commit", load),
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
    share = found.driver / period
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
