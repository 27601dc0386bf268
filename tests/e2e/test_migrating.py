"""docs/migrating.md: both versions of its job run, and write the same rows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.app.init import write_example
from tests.code import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def rows(directory: Path) -> list[Any]:
    lines = [line for file in directory.glob("part-*") for line in file.read_text().splitlines()]
    return sorted((json.loads(line) for line in lines), key=lambda row: json.dumps(row, sort_keys=True))


def test_the_job_on_headrace_writes_the_rows_of_the_job_on_structured_streaming(
    spark_of_the_run: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "migrating.md").read_text(encoding="utf-8")
    before, after = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    write_example(tmp_path / "first")
    # Spark resolves relative paths in the directory in which its JVM was started.
    place = tmp_path / "first"
    before = re.sub(r'"(data|before/[\w/]+)"', rf'"{place}/\1"', before)
    monkeypatch.chdir(place)
    session = spark_of_the_run.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    for code in (before, after):
        exec(compile(code, "migrating.md", "exec"), {"spark": session})
    for sink, count in (("alarms", 37), ("minutes", 36)):
        assert len(rows(place / "after" / sink)) == count
        assert rows(place / "after" / sink) == rows(place / "before" / sink)
