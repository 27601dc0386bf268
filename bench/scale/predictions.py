"""Predicted against measured: epochs in one process, and the runs of bench-peers on Spark.

The model is fitted on small epochs (up to 300,000 rows, up to 64 pipelines) and on the driver's, and has to predict
larger ones. For runs on Spark three more numbers are needed: the CPU of Spark itself per epoch and in the first
round, in which Java's compilers are busy, and what a partial row costs more there. On one machine partial rows travel
as files, but there two tasks work at once and share the caches and the memory's bandwidth. The three are fitted from
the runs with one and with 16 pipelines, and the others are predicted.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.peers.comparison import FILE_ROWS, WARM, Comparison
from bench.peers.run_spark import PER_EPOCH
from bench.peers.workloads import WORKLOADS
from bench.report import Report
from bench.scale.calibration import FILTERS, WIDE, WINDOWS, Measured, load_of, observe
from bench.scale.model import CostModel, Observation, fit, nonnegative

WITHIN = 0.25
FITTED_ON = (1, 16)
FULL_ROWS, QUICK_ROWS = (2_000, 20_000, 80_000, 300_000), (2_000, 40_000, 160_000)  # of the epochs for the fit
# Of those that are predicted: what bench-peers reads at once in (a) and (c), and half of it.
FULL_EPOCH, QUICK_EPOCH = 16 * FILE_ROWS, 8 * FILE_ROWS
Say = Callable[[str], None]


def calibrate(say: Say, quick: bool, driver: Sequence[Observation] = ()) -> CostModel:
    """Measure small epochs and fit the model on them, and on those of the `driver`."""
    found: list[Measured] = []
    for name in ("a", "b", "c"):
        for count in (1, 6, 24):
            for rows in QUICK_ROWS if quick else FULL_ROWS:
                found.append(observe(WORKLOADS[name], count, rows, warm=2, measured=2 if quick else 3))
        found.append(observe(WORKLOADS[name], 6, 10_000, tasks=8, warm=2, measured=2))
    found += [observe(WORKLOADS["a"], 64, rows, warm=2, measured=2) for rows in (80_000, 160_000)]
    for workload, count in ((WIDE, 1), (WINDOWS, 4), (WINDOWS, 12), (FILTERS, 6)):
        for rows in (10_000, 80_000):
            found.append(observe(workload, count, rows, warm=2, measured=2))
    carried = [observe(WORKLOADS[name], 24, 40_000, warm=2, measured=2, one_machine=False) for name in ("a", "b", "c")]
    bridge = statistics.median(one.bridge_bytes for one in carried)
    state = statistics.median(one.state_bytes for one in found if one.observation.load.partials > 10_000)
    model = fit([*(one.observation for one in found), *driver], bridge, state)
    for part, costs in model.coefficients.items():
        shown = ", ".join(f"{cost * 1e6:.3g} us per {name}" for name, cost in costs.items() if cost > 0)
        say(f"  {part}: {shown}")
    say(f"  on a cluster, over the bridge: {bridge:.0f} bytes per partial row; state: {state:.0f} bytes per group")
    return model


def judge(report: Report, name: str, predicted: float, measured: float, say: Say, unit: str) -> None:
    """A line for a prediction, and its figure: the ratio of the larger to the smaller, less one."""
    error = max(predicted, measured) / min(predicted, measured) - 1
    say(f"  {name}: predicted {predicted:.3g} {unit}, measured {measured:.3g} {unit} ({predicted / measured - 1:+.0%})")
    report.require(f"predicted {name}", error, WITHIN, "at most")


def check_epochs(report: Report, model: CostModel, say: Say, quick: bool) -> None:
    """Epochs in one process that are two and a half times as large as the largest in the fit."""
    cases = (
        {"a": (8, 32), "b": (8, 32), "c": (8, 32)} if quick else {"a": (1, 8, 32, 128), "b": (8, 32), "c": (1, 8, 32)}
    )
    for name, counts in cases.items():
        for count in counts:
            rows = QUICK_EPOCH if quick else FULL_EPOCH
            seen = observe(WORKLOADS[name], count, rows, warm=2, measured=2).observation
            judge(report, f"({name}) N = {count}, CPU of an epoch", model.total(seen.load), seen.total, say, "s")


def check_driver(report: Report, model: CostModel, seen: Observation, say: Say) -> None:
    """The driver's CPU with more pipelines and tasks at once than in the fit."""
    parts = ("plan", "commit")
    predicted, measured = sum(model.part(part, seen.load) for part in parts), sum(seen.seconds[part] for part in parts)
    pipelines, tasks = seen.load.pipelines, seen.load.tasks
    judge(report, f"{pipelines:,} pipelines, {tasks} tasks, CPU of the driver", predicted, measured, say, "s")


@dataclass(frozen=True, slots=True)
class PeerRun:
    """The runs of headrace in bench-peers with `count` pipelines: how many epochs and partial rows, our CPU as
    predicted, and the measured CPU of every round."""

    name: str
    count: int
    epochs: int
    partials: float
    ours: float
    measured: tuple[float, ...]

    @property
    def fitted(self) -> bool:
        return self.count in FITTED_ON and self.name != "b"

    def counts(self, first: float) -> list[float]:
        """What the CPU of Spark is proportional to. `first` is 1 in the first round."""
        return [float(self.epochs), self.partials, first]


def check_peers(report: Report, model: CostModel, stored: Mapping[str, Any], say: Say) -> None:
    """The CPU seconds of headrace's process tree in the stored runs of bench-peers."""
    runs = [run for name in ("a", "b", "c") if name in stored for run in _runs(model, name, stored[name]["result"])]
    fitted = [(run, number, cpu) for run in runs if run.fitted for number, cpu in enumerate(run.measured)]
    if not fitted:
        say("  no runs of bench-peers are stored here: run it first, and this again")
        return
    matrix = np.array([run.counts(float(number == 0)) for run, number, _ in fitted])
    left = np.array([max(cpu - run.ours, 0.0) for run, _, cpu in fitted])
    costs = nonnegative(matrix, left)
    say(
        f"  on Spark: {costs[0]:.2f} s of CPU per epoch, {costs[1] * 1e6:.3f} us per partial row, {costs[2]:.2f} s in "
        "the first round"
    )
    report.facts["spark_cpu"] = {"epoch": costs[0], "partial_row": costs[1], "first_round": costs[2]}
    for run in runs:
        if not run.fitted:
            # The median of several rounds is not that of the first one.
            spark = np.array(run.counts(float(len(run.measured) == 1))) @ np.array(costs)
            label = f"({run.name}) N = {run.count} on Spark, CPU"
            judge(report, label, run.ours + float(spark), statistics.median(run.measured), say, "s")


def _runs(model: CostModel, name: str, result: Mapping[str, Any]) -> Iterator[PeerRun]:
    found = Comparison.of(result)
    workload, per_row = WORKLOADS[name], found.bytes / 1e6 / found.rows
    epochs = epochs_of(found.rows)
    for count, rounds in found.runs.get("headrace", {}).items():
        queries = workload.first(count)
        loads = [load_of(workload, queries, rows, 2, len(rows) * per_row) for rows in epochs]
        yield PeerRun(
            name,
            count,
            len(epochs),
            partials=sum(load.partials for load in loads),
            ours=sum(model.total(load) for load in loads),
            measured=tuple(run.cpu for run in rounds),
        )


def epochs_of(rows: int) -> list[range]:
    """The epochs of a run over `rows` rows, after the warm-up, as numbers of rows: each has as many files as headrace
    reads at once."""
    first, most = WARM * FILE_ROWS, PER_EPOCH * FILE_ROWS
    return [range(first + at, first + min(at + most, rows)) for at in range(0, rows, most)]


def errors(report: Report) -> Sequence[float]:
    """The relative errors of all predictions."""
    return [figure.value for figure in report.figures if figure.name.startswith("predicted ")]
