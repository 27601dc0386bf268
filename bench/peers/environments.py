"""A virtual environment for each system, made once under `.peers` and pinned. headrace runs in this one."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".peers"
INSTALL_SECONDS = 1800
BEFORE = "8bb62b4"  # the revision before the lanes of a bucket were pooled: workload (a) must not become slower


@dataclass(frozen=True, slots=True)
class System:
    """A system: the module that runs it, and what its environment has. No packages: this environment."""

    name: str
    module: str
    packages: tuple[str, ...] = ()
    revision: str = ""  # of this repository; empty: the checkout


SYSTEMS = {
    system.name: system
    for system in (
        System("headrace", "bench.peers.run_headrace"),
        System("before", "bench.peers.run_headrace", revision=BEFORE),
        System("spark", "bench.peers.run_spark", (f"pyspark=={version('pyspark')}",)),
        System("flink", "bench.peers.run_flink", ("apache-flink==2.3.0",)),
        System("duckdb", "bench.peers.run_duckdb", (f"duckdb=={version('duckdb')}", f"pyarrow=={version('pyarrow')}")),
    )
}


def sources(system: System) -> list[Path]:
    """Where Python looks for the system's modules first: this repository, before it an older revision's package."""
    if not system.revision:
        return [ROOT]
    directory = CACHE / f"revision-{system.revision}"
    if not directory.exists():
        made = directory.with_name(directory.name + ".part")
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        archive = subprocess.run(
            ["git", "-C", str(ROOT), "archive", system.revision, "src"], capture_output=True, check=False
        )
        if archive.returncode:
            raise CannotInstall(f"{system.name}: {archive.stderr.decode().strip()}")
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as packed:
            packed.extractall(made, filter="data")
        made.rename(directory)
    return [directory / "src", ROOT]


class CannotInstall(Exception):
    """A system that cannot be had here. The run goes on without it, and its figures are short."""


def python(system: System) -> Path:
    """The interpreter of a system's environment, which is made if it is not there or has other packages."""
    return environment(system.name, system.packages) if system.packages else Path(sys.executable)


def environment(name: str, packages: tuple[str, ...]) -> Path:
    directory = CACHE / name
    stamp, interpreter = directory / "installed.txt", directory / "bin" / "python"
    wanted = "\n".join(packages)
    if stamp.exists() and stamp.read_text() == wanted:
        return interpreter
    print(f"installing {', '.join(packages)} into {directory.relative_to(ROOT)}", file=sys.stderr, flush=True)
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(directory)],
        [str(interpreter), "-m", "pip", "--disable-pip-version-check", "install", "-qq", *packages],
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise CannotInstall(f"{name}: not installed after {INSTALL_SECONDS} s") from None
        if done.returncode:
            raise CannotInstall(f"{name}: {done.stderr.strip()[-500:]}")
    stamp.write_text(wanted)
    return interpreter
