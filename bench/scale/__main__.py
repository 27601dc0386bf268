"""The cost model, fitted and checked; the driver's work; and what larger clusters and loads would need.

Everything runs in one process without Spark, in CPU time. Predictions of runs on Spark use the results that
`make bench-peers` has stored. --quick takes fewer sizes; --only takes some of model, driver, scenarios.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from bench.peers.tables import stored
from bench.report import Report, environment, main
from bench.scale.driver import measure as measure_driver
from bench.scale.model import CostModel, Observation
from bench.scale.predictions import calibrate, check_driver, check_epochs, check_peers, errors
from bench.scale.scenarios import Answer, Demand, fewest
from bench.scale.simulator import Cluster

QUICK = "--quick" in sys.argv
ONLY = sys.argv[sys.argv.index("--only") + 1].split(",") if "--only" in sys.argv else ["model", "driver", "scenarios"]
WITHIN = 10.0  # seconds that an epoch may take
DEMANDS = (
    ("1 GB/s, 32 pipelines", Demand(1000.0, 32)),
    ("1 GB/s, 32 pipelines, skewed keys (Zipf 1.1)", Demand(1000.0, 32, skew=1.1)),
    ("1 GB/s, 32 pipelines, 1,000,000 keys", Demand(1000.0, 32, keys=1_000_000)),
    ("100 MB/s, 1,000 pipelines", Demand(100.0, 1000)),
    ("1 GB/s, 1,000 pipelines", Demand(1000.0, 1000)),
    ("1 GB/s, 1,000 pipelines, executors combine", Demand(1000.0, 1000, combined=True)),
    ("100 streams of 10 MB/s, 8 pipelines each", Demand(10.0, 8, streams=100)),
)


def measure(say: Callable[[str], None]) -> Report:
    report = Report(facts=environment("duckdb", "pyarrow", "numpy"))
    driver: list[Observation] = []
    if "driver" in ONLY:
        say("the driver's work per epoch")
        driver = measure_driver(report, say, QUICK)
    if "model" in ONLY or "scenarios" in ONLY:
        say("the costs, fitted on small epochs")
        model = calibrate(say, QUICK, driver[:-1])
        report.facts["coefficients_us"] = {
            part: {name: round(cost * 1e6, 4) for name, cost in costs.items() if cost > 0}
            for part, costs in model.coefficients.items()
        }
        report.facts["bytes"] = {"bridge_per_partial_row": model.bridge_bytes, "state_per_group": model.state_bytes}
    if "model" in ONLY:
        say("predicted against measured")
        check_epochs(report, model, say, QUICK)
        if driver:
            check_driver(report, model, driver[-1], say)
        check_peers(report, model, stored(), say)
        report.facts["largest_error"] = round(max(errors(report)), 3)
    if "scenarios" in ONLY:
        say(f"what it takes, with executors of 4 cores and epochs of at most {WITHIN:g} s")
        report.facts["scenarios"] = answers(model, say)
    return report


def answers(model: CostModel, say: Callable[[str], None]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, demand in DEMANDS:
        found[name] = told(fewest(model, demand, WITHIN, Cluster(1)), demand)
        say(f"  {name}: {found[name]}")
    return found


def told(answer: Answer | None, demand: Demand) -> str:
    if answer is None:
        return f"no number of executors up to 512 keeps epochs below {WITHIN:g} s"
    phases = answer.phases
    return (
        f"{answer.executors} executors, an epoch every {answer.period:.1f} s (plan {phases.plan:.2f}, Ring 0 "
        f"{phases.ring0:.2f}, shuffle {phases.shuffle:.3f}, Ring 1 {phases.ring1:.2f}, commit {phases.commit:.2f}), "
        f"{answer.first} saturates first, the driver is busy {answer.driver_share:.0%}, "
        f"{answer.state_bytes / 1e9:.1f} GB of state"
    )


if __name__ == "__main__":
    main(__doc__ or "", measure)
