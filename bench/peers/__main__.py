"""headrace beside N Spark queries, Flink's statement set and DuckDB's single pass, in one run.

Same bytes, same machine, alternating order, medians of the rounds. The outputs of every system are compared with one
reference before a time counts. CPU time and memory are those of whole process trees. Workloads: see
bench/peers/workloads.py and bench/peers/latency.py. Results are kept in .peers/results.json; `python -m
bench.peers.tables --write` puts them into docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.peers import flame
from bench.peers.comparison import FULL, QUICK, WARM, Effort, Say, compare, systems_of, write
from bench.peers.contender import Contender
from bench.peers.environments import ROOT, SYSTEMS
from bench.peers.figures import judge, judge_latency, judge_memory
from bench.peers.latency import Latency
from bench.peers.memory import per_pipeline
from bench.peers.tables import costs, keep, latencies, rates, stored
from bench.peers.workloads import WORKLOADS
from bench.report import Report, environment, finish
from headrace.spark.java import find_java

PARTS = (*WORKLOADS, "e", "memory", "flame")
PICTURE = ROOT / "docs" / "images" / "peers-flame.svg"
TITLE = "headrace's Python processes, epochs of 32 different pipelines: share of the samples"
COMBINATIONS = [f"{rate}:{count}" for rate in (5_000, 50_000) for count in (1, 8, 32, 300)]
QUICK_COMBINATIONS = ["50000:32", "5000:300", "50000:300"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.add_argument("--quick", action="store_true", help="fewer rows, rounds and N: about 7 minutes instead of 25")
    parser.add_argument(
        "--only", help=f"some of {', '.join(PARTS)}, with commas; all without it, with --quick all but flame"
    )
    parser.add_argument("--systems", default=",".join(SYSTEMS), help=f"some of {', '.join(SYSTEMS)}, with commas")
    options = parser.parse_args()
    parts = (
        options.only.split(",") if options.only else [part for part in PARTS if part != "flame" or not options.quick]
    )
    names = options.systems.split(",")
    unknown = (set(parts) - set(PARTS)) | (set(names) - set(SYSTEMS))
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")

    def say(text: str) -> None:
        print(text, file=sys.stderr if options.json else sys.stdout, flush=True)

    report = run(parts, names, options.quick, say)
    if options.json:
        report.facts["results"] = {part: found for part, found in stored().items() if part in parts}
    sys.exit(finish(report, options.json))


def run(parts: list[str], names: list[str], quick: bool, say: Say) -> Report:
    """Run the parts one after the other. Each is stored as soon as it is done."""
    report = Report(facts=environment("pyspark", "duckdb", "pyarrow"))
    effort = QUICK if quick else FULL
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headrace-peers-") as scratch:
        for part in (name for name in PARTS if name in parts):
            load, before = os.getloadavg()[1], len(report.figures)
            try:
                found = _part(part, effort, names, quick, Path(scratch) / part, report, say)
            except Exception as failure:  # the other parts still run; this one is short
                say(f"  {part} failed: {type(failure).__name__}: {failure}")
                report.require(f"{part}_failed", 1, 0, "at most")
                continue
            keep(
                part,
                {
                    "result": found,
                    "figures": [figure.line() for figure in report.figures[before:]],
                    "quick": quick,
                    "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
                    "load": [load, os.getloadavg()[1]],
                    "cores": os.cpu_count(),
                },
            )
    report.facts["minutes"] = round((time.monotonic() - began) / 60, 1)
    return report


def _part(part: str, effort: Effort, names: list[str], quick: bool, work: Path, report: Report, say: Say) -> Any:
    """Run one part, add its figures to the report, return its result for JSON."""
    if part in WORKLOADS:
        found = compare(part, effort, systems_of(names), work, say)
        say("\n".join(["", *rates(found), "", *costs(found), ""]))
        report.facts.setdefault("versions", found.versions)
        report.facts[f"{part}_cpu_over_headrace"] = found.cpu_ratios()
        judge(report, found)
        return found.plain()
    if part == "e":
        seen = watch(QUICK_COMBINATIONS if quick else COMBINATIONS, 8 if quick else 15, say)
        say("\n".join(["", *latencies([Latency(**one) for one in seen]), ""]))
        judge_latency(report, [Latency(**one) for one in seen])
        return seen
    if part == "memory":
        grown = per_pipeline(work, say)
        judge_memory(report, grown)
        return grown
    return draw_flame(effort, work, say)


def watch(combinations: list[str], seconds: int, say: Say) -> list[dict[str, Any]]:
    """Workload (e), in a process of its own."""
    command = [sys.executable, "-m", "bench.peers.latency", "--seconds", str(seconds), *combinations]
    found = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                found.append(json.loads(line))
                say(f"  (e) {line.strip()}")
    if process.returncode:
        say(f"  (e) ended with code {process.returncode}")
    return found


def draw_flame(effort: Effort, work: Path, say: Say) -> dict[str, object]:
    """Sample epochs of workload (c) with 32 pipelines, draw the picture, name the three largest costs."""
    work.mkdir()
    files = write(WORKLOADS["c"], work / "data", WARM + effort.measured["c"])
    contender = Contender(SYSTEMS["headrace"], work / "log", find_java())
    try:
        contender.time("c", 32, files[:WARM], files[WARM:], work / "warm")
        with flame.Recorder(contender.pid, work / "raw") as recorder:
            contender.time("c", 32, files[:WARM], files[WARM:], work / "measured", begun=recorder.start)
    finally:
        contender.close()
    stacks = recorder.stacks
    shares = flame.costs(stacks)
    PICTURE.write_text(flame.draw(stacks, TITLE))
    for name, share in shares[:3]:
        say(f"  flame: {share:.0%} {name}, most in {flame.hottest(stacks, name)}")
    return {name: round(share, 3) for name, share in shares}


if __name__ == "__main__":
    main()
