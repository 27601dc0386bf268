"""What is installed is complete, and installs are repeatable."""

from __future__ import annotations

import configparser
import importlib
import re
import subprocess
import tomllib
import zipfile
from pathlib import Path, PurePosixPath

import headrace
from headrace.formats import FORMATS
from headrace.sinks import SINKS
from headrace.sources import SOURCES
from scripts.wheel import build_wheel, package_files, wheel_files

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def required(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=!~\[; ]", line)[0].lower() for line in requirements}


def test_the_wheel_has_every_file_and_every_entry_point_of_the_package(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path)
    files = wheel_files(wheel)
    assert files == package_files()
    assert {PurePosixPath(name).suffix for name in files} >= {".py", ".sql", ".properties", ".html", ".js", ".typed"}
    with zipfile.ZipFile(wheel) as archive:
        (facts,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
        declared = configparser.ConfigParser(interpolation=None)
        declared.read_string(archive.read(facts).decode())
    assert declared["console_scripts"]["headrace"] == "headrace.app.entry:main"
    for group, kinds in (("headrace.sources", SOURCES), ("headrace.sinks", SINKS), ("headrace.formats", FORMATS)):
        assert set(declared[group]) == set(kinds)
        for module, _, name in (value.partition(":") for value in declared[group].values()):
            assert f"{module.replace('.', '/')}.py" in files
            assert hasattr(importlib.import_module(module), name)


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


def test_the_page_of_versions_agrees_with_what_is_installed_and_allowed() -> None:
    page = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
    rows = {m[1].lower(): (m[2], m[3]) for m in re.finditer(r"^\| (\w+) \| ([\d., ]+) \| (.+) \|$", page, re.MULTILINE)}
    locked = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    words = {">=": "{} or newer", "<": "below {}", "==": "exactly this version"}

    def said(bounds: str) -> str:
        return ", ".join(words[sign].format(v) for sign, v in re.findall(r"(>=|<|==)([\d.]+)", bounds))

    for requirement in PROJECT["project"]["dependencies"]:
        name, bounds = re.fullmatch(r"([\w-]+)(.+)", requirement).groups()  # type: ignore[union-attr]
        if name in rows:
            tested, allowed = rows[name]
            assert tested == locked[name]
            assert allowed == said(bounds)
    assert {"python", "pyspark", "java", "pyarrow", "duckdb", "pandas", "sqlglot"} == rows.keys()
    assert rows["python"][1] == said(PROJECT["project"]["requires-python"])
