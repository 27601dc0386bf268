"""`headrace check` from the shell: how long a user or an editor waits for its answer.

Beside it, in the same rounds: the start of Python alone, and the import of PyArrow, which planning needs for its types.
The script is the one that `headrace init` writes. The figures are medians over the rounds, with compiled bytecode as an
installed package has it. They are times and no ratios, so they mean something only on a quiet machine.
"""

from __future__ import annotations

import os
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


def _seconds(command: list[str], project: Path) -> float:
    began = time.perf_counter()
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(command, cwd=project, check=True, stdout=subprocess.DEVNULL, env=variables)
    return time.perf_counter() - began


def measure(say: Callable[[str], None]) -> Report:
    report = Report(facts=environment("pyarrow", "sqlglot"))
    commands = _commands()
    with tempfile.TemporaryDirectory(prefix="headrace-check-") as scratch:
        subprocess.run([commands["check"][0], "init", "p"], cwd=scratch, check=True, stdout=subprocess.DEVNULL)
        project = Path(scratch) / "p"
        measured = [{name: _seconds(c, project) for name, c in commands.items()} for _ in range(1 + ROUNDS)]
    for name in commands:
        median = statistics.median(m[name] for m in measured[1:])  # the first round only fills the file cache
        say(f"{name}: {median * 1000:.0f} ms")
        report.facts[f"{name}_ms"] = round(median * 1000)
    for name in ("check", "check_json"):
        median = statistics.median(m[name] for m in measured[1:])
        report.require(f"{name}_seconds", median, REQUIRED_SECONDS, "at most", " s")
    return report


if __name__ == "__main__":
    main(__doc__ or "", measure)
