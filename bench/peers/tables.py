"""The results of bench-peers as Markdown, for docs/benchmarks.md: `python -m bench.peers.tables` prints them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence

from bench.peers.comparison import Comparison
from bench.peers.environments import CACHE
from bench.peers.latency import Latency
from bench.peers.workloads import WORKLOADS

RESULTS = CACHE / "results.json"
ORDER = ("headrace", "flink", "spark", "duckdb")


def rates(found: Comparison) -> Iterator[str]:
    """Rows/s by N, a column for each system; the spread of the rounds behind it."""
    systems = [name for name in ORDER if found.runs.get(name)]
    yield "| rows/s | " + " | ".join(systems) + " |"
    yield "|---|" + "---|" * len(systems)
    for count in sorted({count for name in systems for count in found.runs[name]}):
        yield f"| N = {count} | " + " | ".join(_rate(found, name, count) for name in systems) + " |"


def costs(found: Comparison) -> Iterator[str]:
    """CPU seconds and peak memory of the process trees, by N."""
    systems = [name for name in ORDER if found.runs.get(name)]
    yield "| CPU seconds, peak MB | " + " | ".join(systems) + " |"
    yield "|---|" + "---|" * len(systems)
    for count in sorted({count for name in systems for count in found.runs[name]}):
        yield f"| N = {count} | " + " | ".join(_cost(found, name, count) for name in systems) + " |"


def latencies(found: Sequence[Latency]) -> Iterator[str]:
    columns = "row p50, s | row p99, s | window p50, s | window p99, s | lag, first half, s | second half, s"
    yield f"| rows/s | N | {columns} |"
    yield "|---|---|" + "---|" * 6
    for one in sorted(found, key=lambda one: (one.rate, one.count)):
        shown = " | ".join(
            "" if value is None else f"{value:.2f}"
            for value in (one.row_p50, one.row_p99, one.window_p50, one.window_p99, one.lag_first, one.lag_second)
        )
        yield f"| {one.rate:,} | {one.count} | {shown} |"


def _rate(found: Comparison, system: str, count: int) -> str:
    runs = found.runs[system].get(count)
    if not runs or system in found.problems:
        return ""
    rates = sorted(found.rows / run.seconds for run in runs)
    middle = found.rows / statistics.median(run.seconds for run in runs)
    return f"{middle:,.0f}" + (f" ({rates[0]:,.0f}-{rates[-1]:,.0f})" if len(rates) > 1 else "")


def _cost(found: Comparison, system: str, count: int) -> str:
    runs = found.runs[system].get(count)
    if not runs or system in found.problems:
        return ""
    cpu = statistics.median(run.cpu for run in runs)
    return f"{cpu:.1f}, {max(run.peak for run in runs) / 1e6:,.0f}"


def main() -> None:
    stored = json.loads(RESULTS.read_text())
    for name in sorted(WORKLOADS):
        if name in stored:
            found = Comparison.of(stored[name])
            print(f"\n({name}) {WORKLOADS[name].title}: {found.rows:,} rows, {found.bytes / 1e6:.0f} MB\n")
            print("\n".join([*rates(found), "", *costs(found)]))
    if "e" in stored:
        print("\n(e)\n")
        print("\n".join(latencies([Latency(**one) for one in stored["e"]["latencies"]])))


if __name__ == "__main__":
    main()
