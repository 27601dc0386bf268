"""What is installed is complete, and installs are repeatable."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path, PurePosixPath

import headrace

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def required(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=!~\[; ]", line)[0].lower() for line in requirements}


def test_every_data_file_of_the_package_is_installed() -> None:
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["headrace"]
    package = ROOT / "src" / "headrace"
    data = [
        p.relative_to(package).as_posix() for p in package.rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc")
    ]
    data = [name for name in data if "__pycache__" not in name]
    plain = [pattern.removeprefix("**/") for pattern in patterns]
    assert data
    assert [name for name in data if not any(PurePosixPath(name).match(p) for p in plain)] == []


def test_every_direct_dependency_is_locked_to_one_version() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    locked = {line.split("==")[0].lower() for line in lines if "==" in line}
    wanted = required(PROJECT["project"]["dependencies"])
    for extra in PROJECT["project"]["optional-dependencies"].values():
        wanted |= required(extra)
    assert wanted - locked == {"headrace"}  # its own extras
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+|#.*", line)] == []


def test_every_imported_library_is_a_declared_dependency() -> None:
    text = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "src").rglob("*.py"))
    imported = set(re.findall(r"^\s*(?:import|from) (\w+)", text, re.MULTILINE))
    known = {"duckdb", "numba", "numpy", "pandas", "pyarrow", "pyspark", "rich", "sqlglot", "typer", "xxhash"}
    known |= {"cramjam", "lz4", "polars", "snappy", "zstandard"}
    assert (imported & known) - required(PROJECT["project"]["dependencies"]) == set()


def test_the_version_is_said_once() -> None:
    assert headrace.__version__ == PROJECT["project"]["version"]


def test_make_without_a_target_lists_the_targets() -> None:
    answer = subprocess.run(["make", "-s"], cwd=ROOT, capture_output=True, text=True, check=True)
    for target in ("demo", "test", "check", "bench-epoch", "bench-planner", "bench-formats", "clean"):
        assert re.search(rf"^  make {target} +\S", answer.stdout, re.MULTILINE)
