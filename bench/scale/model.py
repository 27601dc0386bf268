"""The cost model: CPU seconds of an epoch's parts as sums of coefficients times counts.

The counts (`Load`) describe an epoch: rows, bytes, tasks, pipelines, families, groups. The coefficients are fitted from
runs in one process without Spark (`bench/scale/calibration.py`), each part by itself, and none may be negative.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

PARTS = ("plan", "tasks", "state", "commit")


@dataclass(frozen=True, slots=True)
class Load:
    """One epoch. `columns` are decoded; `families` have a pass each; `doubles` pipelines sum a DOUBLE, with
    compensation; `partials` are the rows that all tasks send to Ring 1, `merged` those of them that wait in the state
    or meet rows of other tasks before their window closes, `closed` the rows that windows emit."""

    rows: float
    megabytes: float
    columns: int
    tasks: int
    pipelines: int
    families: int
    stateless: int
    doubles: int
    partials: float
    merged: float
    closed: float

    def counts(self) -> dict[str, float]:
        """By name, what the costs are proportional to."""
        windowed = self.pipelines - self.stateless
        return {
            "epoch": 1.0,
            "task": float(self.tasks),
            "pipeline": float(self.pipelines),
            "task x pipeline": float(self.tasks * self.pipelines),
            "task x family": float(self.tasks * self.families),
            "MB": self.megabytes,
            "value": self.rows * self.columns,
            "row x family": self.rows * self.families,
            "row x windowed pipeline": self.rows * windowed,
            "row x stateless pipeline": self.rows * self.stateless,
            "row x sum of doubles": self.rows * self.doubles,
            "partial row": self.partials,
            "merged row": self.merged,
            "closed row": self.closed,
        }


# What each part of an epoch depends on.
DEPENDS: Mapping[str, tuple[str, ...]] = {
    "plan": ("epoch", "task", "pipeline", "task x pipeline"),
    "tasks": (
        "task", "task x pipeline", "task x family", "MB", "value", "row x family", "row x windowed pipeline",
        "row x stateless pipeline", "row x sum of doubles", "partial row",
    ),
    "state": ("epoch", "pipeline", "task x pipeline", "partial row", "merged row", "closed row"),
    "commit": ("epoch", "task", "pipeline", "task x pipeline"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Observation:
    """A measured epoch: CPU seconds by part."""

    name: str
    load: Load
    seconds: Mapping[str, float]

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


@dataclass(frozen=True, slots=True)
class CostModel:
    """CPU seconds per unit of each count, by part of the epoch; bytes per partial row over the bridge; bytes of state
    per group."""

    coefficients: Mapping[str, Mapping[str, float]]
    bridge_bytes: float = 0.0
    state_bytes: float = 0.0

    def part(self, part: str, load: Load) -> float:
        counts = load.counts()
        return sum(cost * counts[name] for name, cost in self.coefficients[part].items())

    def total(self, load: Load) -> float:
        return sum(self.part(part, load) for part in PARTS)


def fit(observations: Sequence[Observation], bridge_bytes: float = 0.0, state_bytes: float = 0.0) -> CostModel:
    """The coefficients with the least sum of squared relative errors, part by part."""
    found: dict[str, dict[str, float]] = {}
    for part, names in DEPENDS.items():
        matrix = np.array([[one.load.counts()[name] for name in names] for one in observations])
        measured = np.array([one.seconds[part] for one in observations])
        # An error counts relative to the part, but a part below a twentieth of its epoch not for more than that.
        weight = 1.0 / np.maximum(measured, [one.total / 20 for one in observations])
        found[part] = dict(zip(names, nonnegative(matrix * weight[:, None], measured * weight), strict=True))
    return CostModel(found, bridge_bytes, state_bytes)


def nonnegative(matrix: np.ndarray, target: np.ndarray) -> list[float]:
    """Least squares without negative coefficients (Lawson and Hanson's active sets)."""
    scale = np.maximum(np.linalg.norm(matrix, axis=0), 1e-300)
    scaled, count = matrix / scale, matrix.shape[1]
    solution, passive = np.zeros(count), np.zeros(count, dtype=bool)
    for _ in range(10 * count):
        gradient = scaled.T @ (target - scaled @ solution)
        gradient[passive] = -np.inf
        best = int(np.argmax(gradient))
        if gradient[best] <= 1e-10:
            break
        passive[best] = True
        while True:
            trial = np.zeros(count)
            trial[passive] = np.linalg.lstsq(scaled[:, passive], target, rcond=None)[0]
            if (trial[passive] > 0).all():
                break
            falling = passive & (trial <= 0)
            step = np.min(solution[falling] / (solution[falling] - trial[falling]))
            solution = solution + step * (trial - solution)
            passive &= solution > 1e-12
            solution[~passive] = 0.0
            if not passive.any():
                break
        solution = trial if passive.any() else solution
    return [float(value) for value in solution / scale]


def distinct(rows: float, cells: float) -> float:
    """How many of `cells` groups `rows` rows meet that are spread evenly over them."""
    return cells * -math.expm1(-rows / cells) if cells else 0.0
