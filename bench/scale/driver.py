"""The driver's work per epoch, planning and commit, in CPU time: by rows, by pipelines, by tasks.

It must not grow with rows. Its growth with pipelines (to 1,000) and tasks (to 200) is measured and told. It runs in one
process without Spark; what Spark's own scheduler takes per task comes on top (`Cluster.launch` of the simulator).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.peers.workloads import WORKLOADS
from bench.report import Report
from bench.scale.calibration import observe
from bench.scale.model import Observation

ROWS_BOUND = 1.3  # times the driver's CPU when an epoch has 100 times the rows
_A = WORKLOADS["a"]


def measure(report: Report, say: Callable[[str], None], quick: bool) -> list[Observation]:
    """Measure the driver, add the required figure, return what was seen for the model: last the most pipelines and
    tasks."""
    found: list[Observation] = []

    def driver(pipelines: int, tasks: int, rows: int, epochs: int, cold: bool = False) -> float:
        warm = 3 if epochs > 2 else 2
        one = observe(_A, pipelines, rows, tasks=tasks, warm=warm, measured=epochs, cold=cold).observation
        if not cold:
            found.append(one)
        plan, commit = one.seconds["plan"] * 1000, one.seconds["commit"] * 1000
        say(
            f"  {pipelines} pipelines, {tasks} tasks, {rows:,} rows: driver {plan + commit:.1f} ms of CPU "
            f"(plan {plan:.1f}, commit {commit:.1f}){', empty caches' if cold else ''}"
        )
        return plan + commit

    # Cold, because here the tasks run in the same process: those with many rows would empty its caches, others not.
    few = min(driver(8, 2, 500, 12, cold=True) for _ in range(3))
    many = min(driver(8, 2, 50_000, 12, cold=True) for _ in range(3))
    report.require("driver_cpu_rows_x100", many / few, ROWS_BOUND, "at most", "x")
    by_pipelines = {n: driver(n, 2, 500, 4) for n in _steps((1, 10, 100, 300, 1000), quick)}
    by_tasks = {n: driver(8, n, 4_000, 4) for n in _steps((2, 20, 200), quick)}
    driver(300, 100, 4_000, 2)
    report.facts["driver_ms_by_pipelines"] = {str(n): round(ms, 1) for n, ms in by_pipelines.items()}
    report.facts["driver_ms_by_tasks"] = {str(n): round(ms, 1) for n, ms in by_tasks.items()}
    report.facts["driver_ms_1000_pipelines_200_tasks"] = round(driver(1000, 200, 4_000, 1), 1)
    return found


def _steps(steps: Sequence[int], quick: bool) -> Sequence[int]:
    return steps[:: len(steps) - 1] if quick else steps
