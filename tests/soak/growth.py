"""Nothing grows: pipelines come and go for thousands of epochs, and files, bytes and memory stay where they were.

    python -m tests.soak.growth --epochs 2000

Two streams (a generator, and small files) run with pipelines into memory, jsonl and parquet sinks. Every turn creates,
replaces, stops, starts or drops some. Along the way the state directory, what file sinks keep beside their output, and
the memory of every process are sampled. A straight line is fitted to the second half of the samples; how much it rises
over that half must stay below a stated bound. What is measured grows with nothing but the number of epochs: output
files and the log of the files that were read are left out, because they grow with the data.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import headrace
from bench.report import Report
from headrace.hub.hub import Hub

LIVE = 6  # pipelines that stay declared at a time
SAMPLES = 60
MAINTENANCE_SECONDS = 60  # Spark deletes old state files this often


@dataclass
class Churn:
    """Creates, replaces, stops, starts and drops pipelines of a hub, one step per turn."""

    hub: Hub
    root: Path
    sinks: tuple[str, ...] = ("kept", "lines", "columns")
    made: int = 0
    live: list[str] = field(default_factory=list)

    def declare(self) -> None:
        """The streams, the sinks, and a pipeline on each stream that stays."""
        (self.root / "in").mkdir(exist_ok=True)
        self.hub.sql(f"""
            CREATE STREAM ticks (id BIGINT, k STRING, x DOUBLE, ts TIMESTAMP,
              WATERMARK FOR ts AS ts - INTERVAL 1 SECOND)
              WITH (source = 'generator', format = 'json', rate = '50');
            CREATE STREAM files (id BIGINT, k STRING) WITH (source = 'files', format = 'json', path = '{self.root}/in');
            CREATE SINK kept WITH (type = 'memory', max_rows = '1000');
            CREATE SINK lines WITH (type = 'jsonl', path = '{self.root}/lines');
            CREATE SINK columns WITH (type = 'parquet', path = '{self.root}/columns');
            CREATE PIPELINE stays INTO kept AS SELECT id FROM ticks;
            CREATE PIPELINE stays_too INTO kept AS SELECT id FROM files""")

    def turn(self) -> None:
        """One step: a pipeline comes, another is replaced, stopped, started or dropped."""
        n = self.made
        self.made += 1
        name, sink = f"p{n}", self.sinks[n % len(self.sinks)]
        queries = (
            f"SELECT id, k FROM ticks WHERE x > {n}",
            "SELECT k, count(*) AS n, max(x) AS x FROM ticks GROUP BY k",
            "SELECT window.start AS w, k, count(*) AS n FROM ticks GROUP BY window(ts, '2 seconds'), k",
            "SELECT k, count(*) AS n FROM files GROUP BY k",
        )
        self.hub.sql(f"CREATE PIPELINE {name} INTO {sink} AS {queries[n % len(queries)]}")
        self.live.append(name)
        if n % 3 == 0:
            self.feed(n)
        if n % 5 == 1:
            self.hub.sql(f"STOP PIPELINE {self.live[0]}")
        elif n % 5 == 3:
            self.hub.sql(f"START PIPELINE {self.live[0]}")
        if len(self.live) > LIVE:
            self.hub.sql(f"DROP PIPELINE {self.live.pop(0)}")

    def feed(self, n: int) -> None:
        """A small file for the stream `files`; those of long ago are removed."""
        aside, path = self.root / "next.json", self.root / "in" / f"{n:06}.json"
        aside.write_text("".join(f'{{"id": {n * 10 + i}, "k": "k{i}"}}\n' for i in range(10)))
        os.rename(aside, path)
        (self.root / "in" / f"{n - 300:06}.json").unlink(missing_ok=True)

    def kept(self) -> dict[str, float]:
        """Files and bytes that are kept beside output and input. Files younger than Spark's maintenance are left
        out: their number follows the speed of the epochs, and a leak grows old."""
        state = _files(self.root / "state", lambda path: "source" not in path.parts)
        old = _files(self.root / "state", lambda path: "source" not in path.parts and _old(path))
        beside = [f for name in ("lines", "columns") for f in _files(self.root / name / "_headrace", lambda path: True)]
        plans = [size for path, size in state if path.parent.name == "plans"]
        return {
            "state files": float(len(old)),
            "state kilobytes": sum(size for _, size in old) / 1e3,
            "manifests and staged files": float(len(beside)),
            "kilobytes of the largest plan": max(plans, default=0) / 1e3,
        }


def _old(path: Path) -> bool:
    return time.time() - path.stat().st_mtime > 3 * MAINTENANCE_SECONDS


def _files(directory: Path, wanted: Callable[[Path], bool]) -> list[tuple[Path, int]]:
    found = []
    for path in directory.rglob("*"):
        try:
            if path.is_file() and wanted(path):
                found.append((path, path.stat().st_size))
        except OSError:  # removed meanwhile
            continue
    return found


def rise(values: list[float]) -> float:
    """How much a straight line below the second half of `values` rises over that half. It goes through the smallest
    of every few neighbours: Spark removes old state files once a minute, and garbage collectors run at any time."""
    half = values[len(values) // 2 :]
    each = max(1, len(half) // 6)
    lows = [min(half[at : at + each]) for at in range(0, len(half) - each + 1, each)]
    if len(lows) < 2:
        return 0.0
    slope, _ = np.polyfit(np.arange(len(lows)), lows, 1)
    return float(slope) * (len(lows) - 1)


# What may rise over the second half: noise of allocators and of Spark's retention, but not a leak. In 2,000 epochs the
# second half has about 380 pipelines: one file for each would be 380, one entry in a plan 500 kB.
BOUNDS = {
    "state files": (120.0, ""),
    "state kilobytes": (200.0, " kB"),
    "manifests and staged files": (12.0, ""),
    "kilobytes of the largest plan": (10.0, " kB"),
    "driver MB": (15.0, " MB"),
    "JVM heap MB": (15.0, " MB"),
    "workers MB": (40.0, " MB"),
}


def memory() -> dict[str, float]:
    """Resident memory of this process and of all of Spark's Python processes together, and the JVM's heap after GC."""
    from pyspark import SparkContext

    gc.collect()
    context: Any = SparkContext._active_spark_context
    runtime = context._jvm.java.lang.Runtime.getRuntime()
    runtime.gc()
    heap = (runtime.totalMemory() - runtime.freeMemory()) / 1e6
    jvm = int(context._gateway.proc.pid)
    workers = [_resident(pid) for pid in _below(os.getpid()) - {jvm}]
    return {"driver MB": _resident(os.getpid()), "JVM heap MB": heap, "workers MB": sum(workers)}


def _below(root: int) -> set[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {root}


def _resident(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:
        return 0.0


def measure(epochs: int, say: Callable[[str], None]) -> Report:
    """Churn until both streams together have run so many epochs."""
    samples: dict[str, list[float]] = {name: [] for name in BOUNDS}
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        with headrace.connect(root / "state") as hub:
            churn = Churn(hub, root)
            churn.declare()
            done = 0
            while done < epochs:
                churn.turn()
                done = sum(hub.runtime(name).progress.epoch + 1 for name in ("ticks", "files"))
                if done >= (len(samples["driver MB"]) + 1) * epochs / SAMPLES:
                    sample = churn.kept() | memory()
                    for name, value in sample.items():
                        samples[name].append(value)
                    facts = ", ".join(f"{name} {value:.0f}" for name, value in sample.items())
                    say(f"{done} epochs, {churn.made} pipelines, {time.monotonic() - began:.0f} s: {facts}")
    report = Report()
    for name, (bound, unit) in BOUNDS.items():
        report.require(f"rise of {name}", rise(samples[name]), bound, "at most", unit)
    report.facts |= {"epochs": done, "pipelines": churn.made, "seconds": round(time.monotonic() - began)}
    report.facts |= {f"last {name}": round(values[-1], 1) for name, values in samples.items()}
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description="Churn pipelines, and see that nothing grows.")
    parser.add_argument("--epochs", type=int, default=2000, help="epochs of both streams together")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    arguments = parser.parse_args()
    out = sys.stderr if arguments.json else sys.stdout
    report = measure(arguments.epochs, lambda text: print(text, file=out, flush=True))
    if arguments.json:
        figures = [{"name": f.name, "value": f.value, "required": f.bound, "ok": f.ok} for f in report.figures]
        print(json.dumps({"figures": figures, **report.facts}, indent=2))
    else:
        for name, value in report.facts.items():
            print(f"{name}: {value}")
        for figure in report.figures:
            print(figure.line())
    return 0 if all(f.ok for f in report.figures) else 1


if __name__ == "__main__":
    sys.exit(main())
