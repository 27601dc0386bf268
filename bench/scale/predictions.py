"""Predicted against measured: epochs in one process, and the runs of bench-peers on Spark.

The model is fitted on small epochs (up to 80,000 rows, up to 24 pipelines) and has to predict larger ones. For runs on
Spark two more numbers are needed, the CPU of Spark itself per epoch and per MB; they are fitted from the runs with one
and with 16 pipelines, and the others are predicted.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.peers.comparison import FILE_ROWS, WARM, Comparison
from bench.peers.run_spark import PER_EPOCH
from bench.peers.workloads import WORKLOADS
from bench.report import Report
from bench.scale.calibration import FILTERS, WIDE, WINDOWS, Measured, load_of, observe
from bench.scale.model import CostModel, fit, nonnegative

WITHIN = 0.25
FITTED_ON = (1, 16)
Say = Callable[[str], None]


def calibrate(say: Say, quick: bool) -> tuple[CostModel, list[Measured]]:
    """Measure small epochs and fit the model."""
    found: list[Measured] = []
    for name in ("a", "b", "c"):
        for count in (1, 6, 24):
            for rows in (2_000, 80_000) if quick else (2_000, 20_000, 80_000):
                found.append(observe(WORKLOADS[name], count, rows, warm=2, measured=2 if quick else 4))
        found.append(observe(WORKLOADS[name], 6, 10_000, tasks=8, warm=2, measured=2))
    for workload, count in ((WIDE, 1), (WINDOWS, 4), (WINDOWS, 12), (FILTERS, 6)):
        for rows in (10_000, 80_000):
            found.append(observe(workload, count, rows, warm=2, measured=2))
    bridge = statistics.median(one.bridge_bytes for one in found if one.observation.load.partials > 10_000)
    state = statistics.median(one.state_bytes for one in found if one.observation.load.partials > 10_000)
    model = fit([one.observation for one in found], bridge, state)
    for part, costs in model.coefficients.items():
        shown = ", ".join(f"{cost * 1e6:.3g} us per {name}" for name, cost in costs.items() if cost > 0)
        say(f"  {part}: {shown}")
    say(f"  over the bridge: {bridge:.0f} bytes per partial row; state: {state:.0f} bytes per group")
    return model, found


def judge(report: Report, name: str, predicted: float, measured: float, say: Say, unit: str) -> None:
    """A line for a prediction, and its figure: the ratio of the larger to the smaller, less one."""
    error = max(predicted, measured) / min(predicted, measured) - 1
    say(f"  {name}: predicted {predicted:.3g} {unit}, measured {measured:.3g} {unit} ({predicted / measured - 1:+.0%})")
    report.require(f"predicted {name}", error, WITHIN, "at most")


def check_epochs(report: Report, model: CostModel, say: Say, quick: bool) -> None:
    """Epochs of the size that bench-peers has, in one process: two and a half times the largest in the fit."""
    cases = (
        {"a": (8, 32), "b": (8, 32), "c": (8, 32)} if quick else {"a": (1, 8, 32, 128), "b": (8, 32), "c": (1, 8, 32)}
    )
    for name, counts in cases.items():
        for count in counts:
            seen = observe(WORKLOADS[name], count, PER_EPOCH * FILE_ROWS, warm=2, measured=2).observation
            judge(report, f"({name}) N = {count}, CPU of an epoch", model.total(seen.load), seen.total, say, "s")


@dataclass(frozen=True, slots=True)
class SparkCosts:
    """CPU of Spark's processes in a run of bench-peers that is not ours: per epoch, and per MB over the bridge."""

    epoch: float
    bridged_mb: float


def check_peers(report: Report, model: CostModel, stored: Mapping[str, Any], say: Say) -> SparkCosts | None:
    """The CPU seconds of headrace's process tree in the stored runs of bench-peers."""
    runs: list[tuple[str, int, float, float, float]] = []  # name, N, ours, bridged MB, measured
    for name in ("a", "b", "c"):
        if name not in stored:
            continue
        found = Comparison.of(stored[name]["result"])
        for count, rounds in found.runs.get("headrace", {}).items():
            ours, bridged, epochs = run_cost(model, name, count, found)
            runs.append((name, count, ours, bridged, statistics.median(run.cpu for run in rounds)))
    if not runs:
        say("  no runs of bench-peers are stored here: run it first, and this again")
        return None
    epochs = found.rows / FILE_ROWS / PER_EPOCH
    fitted = [run for run in runs if run[1] in FITTED_ON and run[0] != "b"]
    matrix = np.array([[epochs, bridged] for _, _, _, bridged, _ in fitted])
    left = np.array([max(cpu - ours, 0.0) for _, _, ours, _, cpu in fitted])
    per_epoch, per_mb = nonnegative(matrix, left)
    say(f"  Spark itself: {per_epoch:.2f} s of CPU per epoch, {per_mb * 1000:.1f} ms per MB over the bridge")
    for name, count, ours, bridged, cpu in runs:
        if count not in FITTED_ON or name == "b":
            guess = ours + per_epoch * epochs + per_mb * bridged
            judge(report, f"({name}) N = {count} on Spark, CPU", guess, cpu, say, "s")
    return SparkCosts(per_epoch, per_mb)


def run_cost(model: CostModel, name: str, count: int, found: Comparison) -> tuple[float, float, float]:
    """Our CPU seconds, MB over the bridge and epochs of a run."""
    workload, rows = WORKLOADS[name], PER_EPOCH * FILE_ROWS
    queries = workload.first(count)
    epochs = found.rows / rows
    ours = bridged = 0.0
    for number in range(round(epochs)):
        first = WARM * FILE_ROWS + number * rows
        load = load_of(workload, queries, range(first, first + rows), 2, found.bytes / 1e6 / epochs)
        ours += model.total(load)
        bridged += load.partials * model.bridge_bytes / 1e6
    return ours, bridged, epochs


def errors(report: Report) -> Sequence[float]:
    """The relative errors of all predictions."""
    return [figure.value for figure in report.figures if figure.name.startswith("predicted ")]
