"""`headrace doctor`: checks what a hub needs on this machine, and says what to do about what is missing."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from headrace.base.cache import cache_directory
from headrace.errors import HeadraceError

Verdict = Literal["ok", "warning", "problem"]
# Below this, the first savepoint or a backlog fills the disk.
FREE_BYTES = 2 << 30
# What the workers' Python must be able to import.
_IMPORTS = "import pyarrow, duckdb, numba, pyspark, headrace; print(headrace.__version__)"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of one check. `advice` says what to do, and is empty if all is well."""

    name: str
    verdict: Verdict
    found: str
    advice: str = ""

    def render(self) -> str:
        """One line, and one more with the advice."""
        line = f"{self.verdict:8}{self.name}: {self.found}"
        return f"{line}\n        {self.advice}" if self.advice else line


def diagnose(state_dir: Path, port: int) -> Iterator[Diagnosis]:
    """Run all checks, one after the other."""
    yield from _versions()
    yield _java()
    yield _workers(os.environ.get("PYSPARK_PYTHON") or sys.executable)
    yield _kernels()
    yield _disk(state_dir)
    yield _port(port)


def exit_code(found: list[Diagnosis]) -> int:
    """1 if a check found a problem, else 0."""
    return int(any(d.verdict == "problem" for d in found))


def _versions() -> Iterator[Diagnosis]:
    python = ".".join(map(str, sys.version_info[:3]))
    fine = (3, 11) <= sys.version_info[:2] <= (3, 13)
    advice = "" if fine else "Use Python 3.11, 3.12 or 3.13: headrace is not tested with others."
    yield Diagnosis("python", "ok" if fine else "warning", python, advice)
    for package in ("headrace", "pyspark", "pyarrow", "duckdb", "numba"):
        try:
            yield Diagnosis(package, "ok", metadata.version(package))
        except metadata.PackageNotFoundError:
            yield Diagnosis(package, "problem", "not installed", "Run: pip install headrace")


def _java() -> Diagnosis:
    from headrace.spark.java import find_java

    try:
        return Diagnosis("java", "ok", str(find_java()))
    except HeadraceError as problem:
        return Diagnosis("java", "problem", problem.message, problem.advice)


def _workers(python: str) -> Diagnosis:
    """Checks that the Python of Spark's workers has our packages."""
    try:
        answer = subprocess.run([python, "-c", _IMPORTS], capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.SubprocessError) as problem:
        return Diagnosis("workers", "problem", f"{python} does not run: {problem}", "Correct PYSPARK_PYTHON.")
    if answer.returncode:
        last = (answer.stderr.strip().splitlines() or ["it failed"])[-1]
        return Diagnosis("workers", "problem", f"{python}: {last}", "Install headrace for this Python too.")
    ours, theirs = metadata.version("headrace"), answer.stdout.strip()
    if ours != theirs:
        return Diagnosis(
            "workers", "problem", f"{python} has headrace {theirs}, not {ours}", "Install the same version."
        )
    return Diagnosis("workers", "ok", f"{python} has headrace {theirs}")


def _kernels() -> Diagnosis:
    from headrace.formats import warm

    if warm.compiled():
        return Diagnosis("kernels", "ok", f"compiled, in {cache_directory()}")
    advice = "The first run compiles them (half a minute), or: python -m headrace.ring0.ready_kernels"
    return Diagnosis("kernels", "warning", "not compiled on this machine yet", advice)


def _disk(state_dir: Path) -> Diagnosis:
    where = next(p for p in (state_dir.absolute(), *state_dir.absolute().parents) if p.exists())
    free = shutil.disk_usage(where).free
    found = f"{free / 1e9:.1f} GB free for {state_dir.absolute()}"
    if not os.access(where, os.W_OK):
        return Diagnosis("disk", "problem", f"{where} cannot be written to", "Name another directory with --state-dir.")
    if free < FREE_BYTES:
        return Diagnosis("disk", "warning", found, "Free some space, or name another disk with --state-dir.")
    return Diagnosis("disk", "ok", found)


def _port(port: int) -> Diagnosis:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as problem:
        advice = "headrace serve needs another one: --port. headrace run needs none."
        return Diagnosis("port", "warning", f"{port} is taken: {problem.strerror}", advice)
    return Diagnosis("port", "ok", f"{port} is free")
