"""`headrace check` from the shell: how long a user or an editor waits for its answer.

Beside it, in the same rounds: the start of Python alone, and the import of PyArrow, which planning needs for its types.
The script is the one that `headrace init` writes. The figures are medians over the rounds, with compiled bytecode as an
installed package has it. The time on the clock means something only on a quiet machine. The CPU time, which is measured
too, is what the command takes on one where nothing else runs.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.report import Report, environment, main

ROUNDS = 15
REQUIRED_SECONDS = 1.0


def _commands() -> dict[str, list[str]]:
    headrace = str(Path(sys.executable).with_name("headrace"))
    return {
        "python": [sys.executable, "-c", ""],
        "pyarrow": [sys.executable, "-c", "import pyarrow"],
        "check": [headrace, "check", "app.sql"],
        "check_json": [headrace, "check", "app.sql", "--json"],
    }


def _seconds(command: list[str], project: Path) -> tuple[float, float]:
    """On the clock, and of CPU."""
    began, used = time.perf_counter(), _children()
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(command, cwd=project, check=True, stdout=subprocess.DEVNULL, env=variables)
    return time.perf_counter() - began, _children() - used


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(say: Callable[[str], None]) -> Report:
    report = Report(facts=environment("pyarrow", "sqlglot"))
    commands = _commands()
    with tempfile.TemporaryDirectory(prefix="headrace-check-") as scratch:
        subprocess.run([commands["check"][0], "init", "p"], cwd=scratch, check=True, stdout=subprocess.DEVNULL)
        project = Path(scratch) / "p"
        measured = [{name: _seconds(c, project) for name, c in commands.items()} for _ in range(1 + ROUNDS)]
    for name in commands:
        # The first round only fills the file cache.
        clock, cpu = (statistics.median(m[name][i] for m in measured[1:]) for i in (0, 1))
        say(f"{name}: {clock * 1000:.0f} ms, {cpu * 1000:.0f} ms of CPU")
        report.facts |= {f"{name}_ms": round(clock * 1000), f"{name}_cpu_ms": round(cpu * 1000)}
        if name.startswith("check"):
            report.require(f"{name}_seconds", clock, REQUIRED_SECONDS, "at most", " s")
            report.require(f"{name}_cpu_seconds", cpu, REQUIRED_SECONDS, "at most", " s")
    return report


if __name__ == "__main__":
    main(__doc__ or "", measure)
