"""Run the core tests with every version of Python and Spark that can be had here: `python -m scripts.matrix`.

Each pair has an environment in .matrix, with the wheel and the tested versions of everything but Spark. A Python that
is not installed is named and left out; `python3.12` on the path and pyenv's versions are found. Exit code 1 if a test
fails.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scripts.wheel import ROOT, build_wheel

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
SPARKS = ("4.2.1", "4.3.0")
# Planning, decoding, state in process, then Spark: windows and the first hour.
CORE = (
    "tests/sql/test_plans.py", "tests/model", "tests/shared/test_info.py", "tests/formats/test_json.py",
    "tests/e2e/test_windows.py", "tests/first_hour",
)  # fmt: skip


def main() -> None:
    """Print a line for each pair."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--python", nargs="+", default=PYTHONS)
    arguments.add_argument("--spark", nargs="+", default=SPARKS)
    given = arguments.parse_args()
    failed = False
    with tempfile.TemporaryDirectory(prefix="headrace-matrix-") as scratch:
        wheel = build_wheel(Path(scratch), any_version=True)
        for version in given.python:
            python = interpreter(version)
            if python is None:
                print(f"left out  python {version}: not installed here", flush=True)
                continue
            for spark in given.spark:
                began = time.monotonic()
                done = _tested(python, version, spark, wheel)
                failed = failed or not done
                verdict = "ok        " if done else "FAILED    "
                print(f"{verdict}python {version}, spark {spark}: {time.monotonic() - began:.0f} s", flush=True)
    sys.exit(failed)


def interpreter(version: str) -> str | None:
    """A Python of this version that runs, None if there is none."""
    found = [shutil.which(f"python{version}")]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found += [str(p) for p in sorted(pyenv.glob(f"{version}.*/bin/python"))]
    for python in found:
        if python is not None and not subprocess.run([python, "-c", ""], capture_output=True).returncode:
            return python
    return None


def _tested(python: str, version: str, spark: str, wheel: Path) -> bool:
    place = ROOT / ".matrix" / f"python-{version}-spark-{spark}"
    inside = str(place / "bin" / "python")
    if not place.exists():
        subprocess.run([python, "-m", "venv", str(place)], check=True)
    constraints = wheel.with_name("constraints.txt")
    locked = (ROOT / "constraints.txt").read_text().splitlines()
    constraints.write_text("\n".join([*(x for x in locked if not x.startswith("pyspark==")), f"pyspark=={spark}"]))
    pip = [inside, "-m", "pip", "--disable-pip-version-check", "install", "-qq", "--constraint", str(constraints)]
    subprocess.run([*pip, "pytest", "hypothesis", "setuptools", str(wheel)], check=True)
    subprocess.run([*pip, "--force-reinstall", "--no-deps", str(wheel)], check=True)  # the version may be the same
    # The wheel is tested, not src. A warning of a library about a newer Python is no failure.
    tests = [inside, "-m", "pytest", "-o", "pythonpath=.", "-W", "default", "-p", "no:cacheprovider", *CORE]
    return subprocess.run(tests, cwd=ROOT).returncode == 0


if __name__ == "__main__":
    main()
