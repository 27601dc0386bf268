"""One epoch on E executors, as a list of phases: planning, Ring 0 tasks, shuffle, Ring 1 tasks, commit.

Pure arithmetic, no clock: durations come from a cost model (`bench/scale/model.py`). The driver's phases are serial;
tasks are handed out one after the other to free cores, in order, as Spark does. A straggler is a task that takes a
multiple of its time. Keys may be skewed (Zipf): a bucket gets the share of the keys that hash into it.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

LONGEST_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """Executors, the driver, and what is between them. `launch` is the driver's time to hand out a task."""

    executors: int
    cores: int = 4
    network_mb_s: float = 1000.0
    driver_cores: int = 8
    launch: float = 0.004
    straggler_share: float = 0.02
    straggler_factor: float = 3.0

    @property
    def slots(self) -> int:
        return self.executors * self.cores


@dataclass(frozen=True, slots=True)
class Phases:
    """Seconds of one epoch."""

    plan: float
    ring0: float
    shuffle: float
    ring1: float
    commit: float

    @property
    def total(self) -> float:
        return self.plan + self.ring0 + self.shuffle + self.ring1 + self.commit

    @property
    def driver(self) -> float:
        return self.plan + self.commit

    def largest(self) -> str:
        """The phase that takes longest."""
        return max(("plan", "ring0", "shuffle", "ring1", "commit"), key=lambda name: float(getattr(self, name)))


def makespan(durations: Sequence[float], slots: int, launch: float = 0.0) -> float:
    """When the last task ends: each task, in order, starts on the core that is free first, and not before the driver
    has handed it out, which takes it `launch` for each task."""
    free = [0.0] * slots
    last = 0.0
    for number, duration in enumerate(durations):
        start = max(heapq.heappop(free), (number + 1) * launch)
        heapq.heappush(free, start + duration)
        last = max(last, start + duration)
    return last


def slowed(durations: Sequence[float], share: float, factor: float, seed: int = 1) -> list[float]:
    """The durations with `share` of them, chosen by `seed`, multiplied by `factor`."""
    chosen = random.Random(seed)
    return [duration * factor if chosen.random() < share else duration for duration in durations]


@cache
def zipf(keys: int, exponent: float) -> Sequence[float]:
    """The share of the rows of each key, the largest first; exponent 0 is even."""
    weights = [1.0 / (rank + 1) ** exponent for rank in range(keys)]
    total = sum(weights)
    return tuple(weight / total for weight in weights)


def bucket_shares(shares: Sequence[float], buckets: int, bucket_of: Callable[[int], int]) -> list[float]:
    """The share of the rows of each bucket, if key i is in bucket `bucket_of(i)`."""
    found = [0.0] * buckets
    for key, share in enumerate(shares):
        found[bucket_of(key)] += share
    return found


def spread(key: int, buckets: int) -> int:
    """A bucket for key `key`, evenly over all keys (splitmix64)."""
    mixed = (key + 1) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
    return (mixed ^ mixed >> 31) % buckets


def stable_period(epoch: Callable[[float], float], least: float = 0.05) -> float | None:
    """The shortest time between two epochs that the work keeps up with: `epoch(seconds of input)` is the time an
    epoch takes, which does not fall when there is more input. None if it falls behind however long epochs are."""
    if epoch(LONGEST_SECONDS) > LONGEST_SECONDS:
        return None
    low, high = least, LONGEST_SECONDS
    if epoch(low) <= low:
        return low
    while high - low > 0.01 * high:
        middle = (low * high) ** 0.5
        if epoch(middle) <= middle:
            high = middle
        else:
            low = middle
    return high
