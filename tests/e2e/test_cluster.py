"""The whole path on a cluster with two executors: what `local[*]` hides (pickling, imports, paths) shows here.

Runs `headrace run --master local-cluster[2,1,1024]` in a process of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.kills import Case, planned, session_of
from tests.e2e.support import until

pytestmark = [pytest.mark.spark, pytest.mark.slow]

HEADRACE = (sys.executable, "-m", "headrace.app.cli")

# Python imports this by itself when it starts. It notes every file that a process on an executor opens, lists, makes or
# removes; executors run below `work`, the driver and its planning processes do not.
SPY = """
import os, sys
_home, _log = os.environ["SPY_EXECUTORS"], os.environ["SPY_LOG"]
if os.getcwd().startswith(_home):
    _out = os.open(_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    def _note(event, arguments):
        if event in ("open", "os.listdir", "os.scandir", "os.mkdir", "os.rename", "os.remove", "os.rmdir"):
            os.write(_out, f"{event} {arguments[0]}\\n".encode("utf-8", "replace"))
    sys.addaudithook(_note)
"""


def own_spark_home(directory: Path) -> Path:
    """A Spark home like the installed one whose `work` directory is ours: executors leave their files there."""
    import pyspark

    directory.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (directory / entry.name).symlink_to(entry)
    return directory


def kill_an_executor(session: int) -> None:
    """Kill one executor of a run with SIGKILL, as the operating system does when memory runs out."""
    for pid in session_of(session):
        if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
            return
    raise AssertionError("there is no executor")


def test_two_executors_give_the_right_rows_although_one_is_killed_and_tasks_leave_the_state_directory_alone(
    tmp_path: Path,
) -> None:
    case = Case(tmp_path / "case", rows=12_000, epoch_bytes=300_000).prepare()
    (tmp_path / "spy").mkdir()
    (tmp_path / "spy" / "sitecustomize.py").write_text(SPY)
    home = own_spark_home(tmp_path / "spark")
    log = tmp_path / "spy.log"
    path = os.pathsep.join([str(tmp_path / "spy"), *filter(None, [os.environ.get("PYTHONPATH")])])
    child = subprocess.Popen(
        [*HEADRACE, "run", "app.sql", "--until-end", "--state-dir", "state", "--master", "local-cluster[2,1,1024]"],
        cwd=case.root,
        env={
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            # Executors live for seconds here: the optimizing compiler of a JVM costs them more than it saves.
            "PYSPARK_SUBMIT_ARGS": "--conf spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1 pyspark-shell",
            "PYTHONPATH": path,
            "SPY_EXECUTORS": str(home / "work"),
            "SPY_LOG": str(log),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        until(lambda: planned(case.root / "state" / "streams" / "s") >= 1 or child.poll() is not None, "it runs", 600)
        kill_an_executor(child.pid)
        _, errors = child.communicate(timeout=600)
    finally:
        for pid in session_of(child.pid) if child.poll() is None else []:
            os.kill(pid, signal.SIGKILL)
    assert child.returncode == 0, errors
    case.check()
    until(lambda: not session_of(child.pid), "executors and workers are gone", 120)
    executors = {p.name for p in (home / "work").glob("app-*/*")}
    assert len(executors) > 2, "another one took the place of the one that was killed"
    touched = log.read_text().splitlines()
    # The spy was there: tasks read the input and staged files for the sinks.
    assert any(str(case.root / "in") in line for line in touched)
    assert any("_headrace/staging" in line for line in touched)
    state, feeds = str(case.root / "state"), str(case.root / "state" / "streams" / "s" / "feeds")
    assert [line for line in touched if state in line and feeds not in line] == []
    assert any(feeds in line for line in touched), "only the rows for the dedicated host are there"
