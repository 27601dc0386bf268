"""docs/migrating.md: its headrace half runs, on a hub without Spark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.app.init import write_example
from tests.code import ROOT
from tests.shared.running import RunningQueries


def test_the_job_on_headrace_runs_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "migrating.md").read_text(encoding="utf-8")
    before, after = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    compile(before, "migrating.md", "exec")
    write_example(tmp_path / "first")
    monkeypatch.chdir(tmp_path / "first")
    monkeypatch.setattr("headrace.hub.hub.SparkLauncher", lambda *_: RunningQueries())
    exec(compile(after, "migrating.md", "exec"), {"spark": None})
    for sink, count in (("alarms", 37), ("minutes", 36)):
        files = Path("after", sink).glob("part-*")
        assert sum(len(file.read_text().splitlines()) for file in files) == count
