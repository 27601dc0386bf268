"""The class archive and the worker Python make Spark start faster, and change nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.model.program import Meaning
from headrace.spark import archive, session
from headrace.spark.python import worker_python


def test_an_archive_is_used_only_when_it_was_recorded_for_this_java(tmp_path: Path) -> None:
    java, other = Path("/opt/java"), Path("/opt/other")
    assert archive.using(java, tmp_path) == []
    recorded = archive.location(java, tmp_path)
    recorded.parent.mkdir(parents=True)
    recorded.touch()
    assert f"-XX:SharedArchiveFile={recorded}" in archive.using(java, tmp_path)
    assert archive.using(other, tmp_path) == []


def test_the_worker_python_is_this_one_without_sparks_zips_in_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("SPARK_HOME", "/opt/my spark")
    kept = "/opt/other/pyspark.zip:/a folder/*"
    monkeypatch.setenv("PYTHONPATH", f"/opt/my spark/python/lib/pyspark.zip:{kept}:/opt/my spark/python/lib/py4j.zip")
    program = "import os, sys; print(sys.executable, os.environ['PYTHONPATH'], *sys.argv[1:], sep='|')"
    answer = subprocess.run([worker_python(), "-c", program, "a b"], capture_output=True, text=True, check=True)
    assert answer.stdout == f"{sys.executable}|{kept}|a b\n"


def test_without_a_writable_cache_the_interpreter_itself_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path))
    script = Path(worker_python())
    script.unlink()
    script.mkdir()
    assert worker_python() == sys.executable


@pytest.mark.spark
def test_spark_finds_its_pools_in_a_directory_with_a_space_and_special_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark_of_the_run: SparkSession
) -> None:
    pools = tmp_path / "José 50% [x]" / "pools.xml"
    pools.parent.mkdir()
    pools.write_bytes(session.POOLS.read_bytes())
    monkeypatch.setattr(session, "POOLS", pools)
    settings = session._session_settings("local[1]", tmp_path / "spark.log", Meaning(), java=[], added={})
    jvm: Any = spark_of_the_run._jvm
    found = jvm.org.apache.hadoop.fs.Path(settings["spark.scheduler.allocation.file"])
    files = found.getFileSystem(jvm.org.apache.hadoop.conf.Configuration())
    assert files.getFileStatus(found).getLen() == pools.stat().st_size
