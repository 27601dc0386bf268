"""A hub that starts Spark by itself: one owner per directory, and closing it leaves neither processes nor threads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.kills import Case, session_of
from tests.e2e.support import until

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# Prints its threads after closing, then waits until its standard input ends, so that its processes can be counted.
PROGRAM = """
import json, subprocess, sys, threading
import headrace

with headrace.connect("state") as hub:
    hub.sql(open("app.sql").read())
    command = [sys.executable, "-m", "headrace.app.cli", "run", "app.sql", "--state-dir", "state"]
    second = subprocess.run(command, capture_output=True, text=True)
    ended = hub.wait_until_end(120)
# py4j may leave a daemon thread that waits on a closed connection; it does not keep the process alive.
threads = [t.name for t in threading.enumerate() if not t.daemon or t.name.startswith("headrace")]
print(json.dumps({"ended": ended, "code": second.returncode, "stderr": second.stderr, "threads": threads}), flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_refused_and_a_closed_hub_leaves_nothing_running(tmp_path: Path) -> None:
    case = Case(tmp_path, rows=500, epoch_bytes=100_000).prepare()
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert child.stdin is not None and child.stdout is not None
    try:
        answer = json.loads(child.stdout.readline())
        assert answer["ended"]
        assert answer["code"] == 2 and "[STATE_IN_USE]" in answer["stderr"]
        assert answer["threads"] == ["MainThread"]
        until(lambda: session_of(child.pid) == [child.pid], "Spark and its workers are gone", 20)
    finally:
        child.stdin.close()
        child.stdout.close()
        child.wait(60)
    case.check()
