"""The first hour on a clean clone: build the wheel, install it into an empty environment, run every step.

`python -m tests.first_hour.whole` compares what is printed with golden.txt; `--update` writes it, `--bin DIR` uses an
environment that has headrace already, and what it has compiled.
"""

from __future__ import annotations

import argparse
import difflib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scripts.wheel import ROOT, build, clean_environment, install
from tests.first_hour.steps import GOLDEN, FirstHour, shown


def main() -> None:
    """Exit code 1 if the printed text is not the golden one."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--update", action="store_true")
    arguments.add_argument("--bin", type=Path)
    given = arguments.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headrace-first-hour-") as scratch:
        work = Path(scratch)
        bin = given.bin or _installed(work)
        print(f"installed after {time.monotonic() - began:.0f} s", flush=True)
        hour = FirstHour(bin, work, clean_environment(work / "cache" if given.bin is None else None))
        hour.whole()
    made = shown(hour.steps)
    print(made)
    print(f"done after {time.monotonic() - began:.0f} s")
    if given.update:
        GOLDEN.write_text(made)
    elif made != GOLDEN.read_text():
        lines = difflib.unified_diff(
            GOLDEN.read_text().splitlines(), made.splitlines(), "golden.txt", "now", lineterm=""
        )
        sys.exit("\n".join(lines))


def _installed(work: Path) -> Path:
    """The scripts of an environment with the wheel of a clean clone."""
    clone = work / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    wheel, _ = build(work / "wheels", clone)
    return install(wheel, work / "venv").bin


if __name__ == "__main__":
    main()
