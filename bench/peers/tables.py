"""The results of bench-peers as Markdown: `python -m bench.peers.tables` prints those that are stored.

With --write it puts them into docs/benchmarks.md, between the two comments there, and draws the plots.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.peers.comparison import Comparison
from bench.peers.environments import CACHE, ROOT
from bench.peers.latency import Latency
from bench.peers.workloads import WORKLOADS
from scripts import plots

RESULTS = CACHE / "results.json"
PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- results of bench-peers -->", "<!-- end of the results of bench-peers -->"
ORDER = ("headrace", "flink", "spark", "duckdb")


def rates(found: Comparison) -> Iterator[str]:
    """Rows/s by N, a column for each system; the spread of the rounds behind it."""
    yield "| rows/s | " + " | ".join(ORDER) + " |"
    yield "|---|" + "---|" * len(ORDER)
    for count in _counts(found):
        yield f"| N = {count} | " + " | ".join(_rate(found, name, count) for name in ORDER) + " |"


def costs(found: Comparison) -> Iterator[str]:
    """CPU seconds and peak memory of the process trees, by N."""
    yield "| CPU seconds, peak MB | " + " | ".join(ORDER) + " |"
    yield "|---|" + "---|" * len(ORDER)
    for count in _counts(found):
        yield f"| N = {count} | " + " | ".join(_cost(found, name, count) for name in ORDER) + " |"


def latencies(found: Sequence[Latency]) -> Iterator[str]:
    """Percentiles and lag by rate and N."""
    columns = "row p50, s | row p99, s | window p50, s | window p99, s | lag, first half, s | second half, s"
    yield f"| rows/s | N | {columns} |"
    yield "|---|---|" + "---|" * 6
    for one in sorted(found, key=lambda one: (one.rate, one.count)):
        shown = " | ".join(
            "" if value is None else f"{value:.2f}"
            for value in (one.row_p50, one.row_p99, one.window_p50, one.window_p99, one.lag_first, one.lag_second)
        )
        yield f"| {one.rate:,} | {one.count} | {shown} |"


def page(parts: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """All stored parts, for docs/benchmarks.md."""
    for name, workload in WORKLOADS.items():
        if name in parts:
            found = Comparison.of(parts[name]["result"])
            yield from (
                "",
                f"({name}) {workload.title}: {found.rows:,} rows, {found.bytes / 1e6:.0f} MB. {_when(parts[name])}",
            )
            yield from (
                "",
                *rates(found),
                "",
                f"![Rows/s of ({name})](images/bench-peers-{name}.svg)",
                "",
                *costs(found),
            )
            for system, problem in found.problems.items():
                yield from ("", f"{system} has no valid time: {' '.join(problem.split())[:300]}")
    if "e" in parts:
        yield from ("", f"(e) latency. {_when(parts['e'])}", "")
        yield from latencies([Latency(**one) for one in parts["e"]["result"]])
    if "flame" in parts:
        shares = list(parts["flame"]["result"].items())[:3]
        told = ", ".join(f"{name} {share:.0%}" for name, share in shares)
        yield from (
            "",
            f"The largest costs of epochs of 32 different pipelines, in samples of the Python processes: {told}.",
        )
        yield from ("", "![Flame graph of epochs with 32 different pipelines](images/peers-flame.svg)")
    yield from ("", "```", *(line for part in parts.values() for line in part["figures"]), "```", "")


def _when(part: Mapping[str, Any]) -> str:
    effort = "QUICK=1, " if part["quick"] else ""
    return f"{effort}{part['date']}, load {part['load'][0]:.0f} to {part['load'][1]:.0f} on {part['cores']} cores."


def _counts(found: Comparison) -> list[int]:
    return sorted({count for name in ORDER for count in found.runs.get(name, {})})


def _rate(found: Comparison, system: str, count: int) -> str:
    runs = found.runs.get(system, {}).get(count)
    if not runs or system in found.problems:
        return ""
    rates = sorted(found.rows / run.seconds for run in runs)
    middle = found.rows / statistics.median(run.seconds for run in runs)
    return f"{middle:,.0f}" + (f" ({rates[0]:,.0f}-{rates[-1]:,.0f})" if len(rates) > 1 else "")


def _cost(found: Comparison, system: str, count: int) -> str:
    runs = found.runs.get(system, {}).get(count)
    if not runs or system in found.problems:
        return ""
    cpu = statistics.median(run.cpu for run in runs)
    return f"{cpu:.1f}, {max(run.peak for run in runs) / 1e6:,.0f}"


def keep(name: str, part: Mapping[str, Any]) -> None:
    """Store a part beside the others, of this or an earlier run."""
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(stored() | {name: part}, indent=1))


def stored() -> dict[str, Any]:
    """All stored parts by name."""
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return found


def main() -> None:
    text = "\n".join(page(stored()))
    if "--write" not in sys.argv:
        print(text)
        return
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
    for path, picture in plots.plots().items():
        path.write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
