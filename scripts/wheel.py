"""Build headrace's wheel and sdist, and install a wheel into an empty environment. Used by dist.py, first_hour.py and
tests/test_packaging.py."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "headrace"
# What a build of the wheel reads.
_SOURCES = ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in")
_UNITS = {"kB": 1e3, "MB": 1e6, "GB": 1e9}


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment with headrace. `downloaded` counts the bytes that pip names, cached or not; `unsized` are the
    packages whose size it does not name, because it built them from source earlier."""

    bin: Path
    size: int
    downloaded: int
    unsized: tuple[str, ...]


def build(target: Path, clone: Path = ROOT) -> tuple[Path, Path]:
    """Build the sdist of a clone, and from the sdist the wheel, into `target`. Returns (wheel, sdist)."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), str(clone)]
    _run(command)
    (wheel,), (sdist,) = target.glob("*.whl"), target.glob("*.tar.gz")
    return wheel, sdist


def build_wheel(scratch: Path, *, any_version: bool = False) -> Path:
    """Build only the wheel, from a copy of the sources: the tree of the clone stays as it is. With `any_version` pip
    installs it with every Python from 3.11 and every Spark from 4.2, to find out which of them work."""
    copy, target = scratch / "copy", scratch / "wheels"
    shutil.copytree(PACKAGE, copy / "src" / "headrace", ignore=shutil.ignore_patterns("__pycache__"))
    for name in _SOURCES:
        shutil.copy(ROOT / name, copy / name)
    if any_version:
        project = (copy / "pyproject.toml").read_text(encoding="utf-8")
        project = re.sub(r'requires-python = "[^"]*"', 'requires-python = ">=3.11"', project)
        project = re.sub(r'"pyspark[^"]*"', '"pyspark>=4.2"', project)
        (copy / "pyproject.toml").write_text(project, encoding="utf-8")
    target.mkdir()
    code = f"from setuptools.build_meta import build_wheel; build_wheel({str(target)!r})"
    _run([sys.executable, "-c", code], cwd=copy)
    (wheel,) = target.glob("*.whl")
    return wheel


def package_files() -> set[str]:
    """The files that a wheel must have, by their paths in it."""
    found = (p for p in PACKAGE.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return {p.relative_to(PACKAGE.parent).as_posix() for p in found}


def wheel_files(wheel: Path) -> set[str]:
    """The files that a wheel has, without its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def install(wheel: Path, into: Path, extras: str = "") -> Installed:
    """Make the environment `into` with this wheel and the tested versions of what it needs."""
    _run([sys.executable, "-m", "venv", str(into)])
    pip = [str(into / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-color", "install"]
    said = _run([*pip, "--progress-bar", "off", "--constraint", str(ROOT / "constraints.txt"), f"{wheel}{extras}"])
    size = sum(p.stat().st_size for p in into.rglob("*") if p.is_file() and not p.is_symlink())
    return Installed(into / "bin", size, *_downloads(said.splitlines()))


def _downloads(lines: Iterable[str]) -> tuple[int, tuple[str, ...]]:
    """The sizes in pip's lines `Downloading a.whl (3.8 MB)` and `Using cached a.whl (3.8 MB)`.

    >>> _downloads(["  Using cached a-1.whl (1.5 MB)", "Using cached pyspark-4.3.0-py3.whl", "Downloading b (2 kB)"])
    (1502000, ('pyspark',))
    """
    total, unsized = 0.0, []
    for line in lines:
        if found := re.match(r"\s*(?:Downloading|Using cached) (\S+)(?: \(([\d.]+) (kB|MB|GB)\))?", line):
            if found[2] is None:
                unsized.append(re.split(r"-\d", found[1])[0])
            elif not found[1].endswith(".metadata"):
                total += float(found[2]) * _UNITS[found[3]]
    return round(total), tuple(unsized)


def clean_environment(cache: Path | None) -> dict[str, str]:
    """The environment of a user who has just installed headrace: no other headrace to import, and nothing compiled if
    `cache` is an empty directory."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "HEADRACE", "SPARK", "PYSPARK"))}
    kept |= {} if cache is None else {"XDG_CACHE_HOME": str(cache)}
    return {**kept, "COLUMNS": "120", "TERM": "dumb"}


def _run(command: list[str], cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}\nfailed: {' '.join(command)}")
    return done.stdout
