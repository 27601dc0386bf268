"""Runs one workload on all systems: first their outputs are checked, then they take turns for a number of rounds.

A system whose output differs from the reference, that fails or that cannot be installed has no time; `problems` says
why. In odd rounds the systems run in reverse order. A run that takes longer than `LONG_SECONDS` is not repeated.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench import feed
from bench.peers.contender import Contender, ContenderFailed, Timed
from bench.peers.environments import SYSTEMS, CannotInstall, System
from bench.peers.events import write_events
from bench.peers.reference import Reference
from bench.peers.workloads import WORKLOADS, Workload
from headrace.spark.java import find_java

FILE_ROWS, WARM = 50_000, 2
LONG_SECONDS = 30.0
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured: files of each workload, rounds, files and most queries in the check, and the N of each
    system by workload."""

    measured: Mapping[str, int]
    rounds: int
    checked: int
    queries: int
    counts: Mapping[str, Mapping[str, tuple[int, ...]]]
    once: tuple[int, ...] = ()  # these N have one round

    def rounds_of(self, count: int) -> int:
        return 1 if count in self.once else self.rounds


_CURVE = (1, 2, 4, 8, 16, 32, 64, 128)
FULL = Effort(
    measured={"a": 16, "b": 40, "c": 16, "d": 8},
    rounds=3,
    checked=2,
    queries=32,
    counts={
        "a": {"headrace": _CURVE, "before": (8,), "spark": (1, 8), "flink": _CURVE, "duckdb": _CURVE},
        "b": {"headrace": (8, 32), "spark": (8,), "flink": (8, 32), "duckdb": (8, 32)},
        "c": {"headrace": _CURVE, "spark": (1, 8, 32), "flink": _CURVE, "duckdb": _CURVE},
        "d": dict.fromkeys(("headrace", "spark", "flink", "duckdb"), (11,)),
    },
    once=(2, 4, 16, 64, 128),
)
QUICK = Effort(
    measured=dict.fromkeys("abcd", 4),
    rounds=1,
    checked=1,
    queries=11,
    counts={
        "a": {"headrace": (1, 8, 32), "before": (8,), "spark": (8,), "flink": (8,), "duckdb": (1, 8, 32)},
        "b": {"headrace": (8, 32), "flink": (8, 32), "duckdb": (8, 32)},
        "c": {"headrace": (1, 32), "spark": (32,), "flink": (32,), "duckdb": (1, 32)},
        "d": dict.fromkeys(("headrace", "spark", "flink", "duckdb"), (11,)),
    },
)


@dataclass(slots=True)
class Comparison:
    """The runs of one workload: by system and N, every round's figures; and what went wrong, by system."""

    workload: str
    rows: int
    bytes: int
    runs: dict[str, dict[int, list[Timed]]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def seconds(self, system: str, count: int) -> float | None:
        """The median over the rounds; None if there is no valid time."""
        found = self.runs.get(system, {}).get(count)
        return statistics.median(run.seconds for run in found) if found else None

    def cpu(self, system: str, count: int) -> float | None:
        """The median CPU seconds over the rounds."""
        found = self.runs.get(system, {}).get(count)
        return statistics.median(run.cpu for run in found) if found else None

    def cpu_ratios(self) -> dict[str, float]:
        """CPU seconds of every other system as a multiple of headrace's, by system and N. They depend less on what
        else runs on the machine than times do."""
        found = {}
        for system in self.runs:
            for count in self.runs[system]:
                ours, theirs = self.cpu("headrace", count), self.cpu(system, count)
                if system != "headrace" and system not in self.problems and ours and theirs is not None:
                    found[f"{system} N={count}"] = round(theirs / ours, 2)
        return found

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        runs = {s: {str(n): [asdict(run) for run in rounds] for n, rounds in by.items()} for s, by in self.runs.items()}
        return {
            "workload": self.workload, "rows": self.rows, "bytes": self.bytes, "runs": runs,
            "problems": self.problems, "versions": self.versions,
        }  # fmt: skip

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Comparison:
        runs = {
            s: {int(n): [Timed(**run) for run in rounds] for n, rounds in by.items()} for s, by in plain["runs"].items()
        }
        return cls(plain["workload"], plain["rows"], plain["bytes"], runs, plain["problems"], plain["versions"])


def compare(name: str, effort: Effort, systems: Sequence[System], work: Path, say: Say) -> Comparison:
    """Run workload `name`."""
    workload = WORKLOADS[name]
    counts = effort.counts[name]
    taking = [system for system in systems if system.name in counts]
    files = write(workload, work / "data", WARM + effort.measured[name])
    warm, measured = files[:WARM], files[WARM:]
    result = Comparison(name, len(measured) * FILE_ROWS, sum(path.stat().st_size for path in measured))
    say(f"({name}) {workload.title}: {result.rows:,} rows, {result.bytes / 1e6:.0f} MB, after {WARM} files of warm-up")
    contenders = _start(taking, work, result)
    try:
        most = {name: min(effort.queries, max(counts[name])) for name in contenders}
        _check(workload, most, contenders, warm[: effort.checked], work, result, say)
        for turn in range(effort.rounds):
            order = list(contenders) if turn % 2 == 0 else list(contenders)[::-1]
            for count in sorted({count for by in counts.values() for count in by}):
                for system in order:
                    if count in counts[system] and system not in result.problems and turn < effort.rounds_of(count):
                        _time(contenders[system], name, count, warm, measured, work, result, turn, say)
    finally:
        for contender in contenders.values():
            contender.close()
        shutil.rmtree(work / "data")
    for system, problem in result.problems.items():
        say(f"  {system} has no valid time: {problem}")
    return result


def write(workload: Workload, directory: Path, files: int) -> list[Path]:
    """The input of a workload."""
    if workload.keys:
        directory.parent.mkdir(parents=True, exist_ok=True)
        return feed.write(directory, files, FILE_ROWS, workload.keys)
    return write_events(directory, files, FILE_ROWS)


def _start(systems: Sequence[System], work: Path, result: Comparison) -> dict[str, Contender]:
    java = find_java()

    def start(system: System) -> Contender | str:
        try:
            return Contender(system, work / f"{system.name}.log", java)
        except (CannotInstall, ContenderFailed) as failure:
            return str(failure)

    found: dict[str, Contender] = {}
    with ThreadPoolExecutor(len(systems)) as pool:
        for system, started in zip(systems, pool.map(start, systems), strict=True):
            if isinstance(started, Contender):
                found[system.name] = started
                result.versions |= {k: v for k, v in started.versions.items() if system.name != "before"}
            else:
                result.problems[system.name] = started
    return found


def _check(
    workload: Workload, counts: Mapping[str, int], contenders: Mapping[str, Contender], files: Sequence[Path],
    work: Path, result: Comparison, say: Say,
) -> None:  # fmt: skip
    """Compare the outputs of `counts` queries of every system with the reference."""
    if not counts:
        return
    most = max(counts.values())
    reference = Reference(workload, most, list(files))
    rows = reference.rows()
    try:
        for name, contender in contenders.items():
            count, out = counts[name], work / f"out-{name}"
            try:
                contender.check(workload.name, count, files, out)
                wrong = reference.differences(out, count, closed_only=name == "spark")
            except ContenderFailed as failure:
                wrong = [str(failure)]
            if wrong:
                result.problems[name] = "; ".join(wrong[:3])
            say(f"  {name}: the output of {count} queries " + ("differs" if wrong else "is right"))
            shutil.rmtree(out, ignore_errors=True)
    finally:
        reference.close()
    say(f"  the reference has {rows:,} rows for {most} queries")


def _time(
    contender: Contender, workload: str, count: int, warm: Sequence[Path], measured: Sequence[Path], work: Path,
    result: Comparison, turn: int, say: Say,
) -> None:  # fmt: skip
    found = result.runs.setdefault(contender.name, {}).setdefault(count, [])
    if found and found[0].seconds > LONG_SECONDS:
        return
    place = work / f"time-{contender.name}-{count}-{turn}"
    try:
        timed = contender.time(workload, count, warm, measured, place)
    except ContenderFailed as failure:
        result.problems[f"{contender.name} with N = {count}"] = str(failure)
        return
    finally:
        shutil.rmtree(place, ignore_errors=True)
    found.append(timed)
    rate = result.rows / timed.seconds
    say(
        f"  N = {count}, round {turn + 1}, {contender.name}: {timed.seconds:.2f} s, {rate:,.0f} rows/s, "
        f"{timed.cpu:.1f} s of CPU, {timed.peak / 1e6:,.0f} MB"
    )


def systems_of(names: Sequence[str]) -> list[System]:
    """The systems by name; KeyError for one that does not exist."""
    return [SYSTEMS[name] for name in names]
