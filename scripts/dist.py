"""Build the wheel and the sdist into dist/, and try the wheel as a new user would: `python scripts/dist.py`.

It installs the wheel into an empty environment and runs `headrace doctor` and the demo there. The wheel is built from
the sdist, so both are tried.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scripts.wheel import ROOT, Installed, build, clean_environment, install, package_files, wheel_files

# What a new user must see: the first run says that it compiles, and the demo ends with its count.
_PROMISED = ("compiling the kernels for this machine", "pipelines shared one read of")


def main() -> None:
    """Build, compare the contents, install, run."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--duration", type=float, default=20, help="seconds of the demo")
    duration = arguments.parse_args().duration
    target = ROOT / "dist"
    shutil.rmtree(target, ignore_errors=True)
    wheel, sdist = build(target)
    for path in (sdist, wheel):
        print(f"built {path.relative_to(ROOT)} ({path.stat().st_size / 1e6:.1f} MB)", flush=True)
    if missing := package_files() - wheel_files(wheel):
        sys.exit(f"the wheel lacks {sorted(missing)}")
    with tempfile.TemporaryDirectory(prefix="headrace-dist-") as scratch:
        began = time.monotonic()
        installed = install(wheel, Path(scratch) / "venv")
        print(f"installed in {time.monotonic() - began:.0f} s: {_sizes(installed)}", flush=True)
        _try(installed, Path(scratch), duration)
    print("the wheel installs into an empty environment and runs the demo there")


def _sizes(installed: Installed) -> str:
    more = f" and {', '.join(installed.unsized)}, built earlier" if installed.unsized else ""
    return f"{installed.downloaded / 1e6:.0f} MB downloaded or cached{more}; {installed.size / 1e6:.0f} MB on disk"


def _try(installed: Installed, scratch: Path, duration: float) -> None:
    environment = clean_environment(scratch / "cache")
    for words in (["doctor"], ["demo", "--duration", str(duration)]):
        command = [str(installed.bin / "headrace"), *words]
        print(f"$ headrace {' '.join(words)}", flush=True)
        done = subprocess.run(
            command, cwd=scratch, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        print(done.stdout, end="", flush=True)
        if done.returncode:
            sys.exit(f"failed with exit code {done.returncode}: headrace {' '.join(words)}")
    if absent := [text for text in _PROMISED if text not in done.stdout]:
        sys.exit(f"the demo did not print {absent}")


if __name__ == "__main__":
    main()
