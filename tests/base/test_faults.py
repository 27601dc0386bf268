"""Fault points really kill the process, so these tests use child processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

PROGRAM = """
from headrace.base.faults import fault_point
for step in ("a", "b", "a", "b"):
    fault_point(step)
    print(step, flush=True)
"""


def run(**env: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_FAULT")}
    return subprocess.run([sys.executable, "-c", PROGRAM], env={**clean, **env}, capture_output=True, text=True)


def test_nothing_happens_without_a_requested_fault() -> None:
    assert run().stdout.split() == ["a", "b", "a", "b"]


def test_the_first_visit_dies_by_default() -> None:
    ended = run(HEADRACE_FAULT="b")
    assert (ended.returncode, ended.stdout.split()) == (-signal.SIGKILL, ["a"])


def test_a_later_visit_can_be_chosen() -> None:
    ended = run(HEADRACE_FAULT="b@2")
    assert (ended.returncode, ended.stdout.split()) == (-signal.SIGKILL, ["a", "b", "a"])


def test_another_process_dies_first_when_named() -> None:
    victim = subprocess.Popen(["sleep", "60"])
    try:
        ended = run(HEADRACE_FAULT="a", HEADRACE_FAULT_PID=str(victim.pid))
        assert ended.returncode == -signal.SIGKILL
        assert victim.wait(timeout=10) == -signal.SIGKILL
    finally:
        victim.kill()
        victim.wait()
