"""The harness with a system of its own making: what it does with answers, failures and processes that end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.peers import contender as contenders
from bench.peers.comparison import QUICK, compare
from bench.peers.contender import Contender, ContenderFailed
from bench.peers.environments import System, sources

SCRIPT = """
import os, time
from bench.peers.worker import serve

class Fake:
    def versions(self): return {"fake": "1"}
    def check(self, workload, count, files, out):
        if count == 1: raise ValueError("no such query")
        if count == 2: os._exit(3)
        if count == 3: time.sleep(60)
        print("chatter on standard output")
    def time(self, workload, count, warm, measured, place, mark):
        mark("begin")
        until = time.process_time() + 0.2
        while time.process_time() < until: pass
        mark("end")
        return 0.5
    def close(self): pass

serve(Fake)
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> System:
    (tmp_path / "fake_system.py").write_text(SCRIPT)
    here = sources(System("x", "x"))
    monkeypatch.setattr(contenders, "sources", lambda system: [*here, tmp_path])
    return System("fake", "fake_system")


@pytest.fixture
def running(fake: System, tmp_path: Path) -> Contender:
    return Contender(fake, tmp_path / "log", Path(sys.prefix))


def test_a_run_is_timed_with_the_cpu_of_its_processes(running: Contender, tmp_path: Path) -> None:
    assert running.versions == {"fake": "1"}
    running.check("a", 8, [], tmp_path / "out")
    began: list[int] = []
    timed = running.time("a", 8, [], [], tmp_path / "place", begun=lambda: began.append(1))
    assert timed.seconds == 0.5 and timed.cpu >= 0.1 and timed.peak > 1_000_000 and began == [1]
    running.close()


def test_a_failure_is_reported_and_the_next_request_is_served(running: Contender, tmp_path: Path) -> None:
    with pytest.raises(ContenderFailed, match="ValueError: no such query"):
        running.check("a", 1, [], tmp_path / "out")
    running.check("a", 8, [], tmp_path / "out")
    running.close()


def test_a_process_that_ends_is_reported(running: Contender, tmp_path: Path) -> None:
    with pytest.raises(ContenderFailed, match="fake ended"):
        running.check("a", 2, [], tmp_path / "out")
    with pytest.raises(ContenderFailed):
        running.check("a", 8, [], tmp_path / "out")
    running.close()


def test_a_process_that_does_not_answer_is_killed(
    running: Contender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contenders, "LIMIT_SECONDS", 0.3)
    with pytest.raises(ContenderFailed, match="fake ended"):
        running.check("a", 3, [], tmp_path / "out")
    running.close()


def test_a_system_with_wrong_output_has_no_time(fake: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes nothing at all, so every row is missing."""
    monkeypatch.setattr("bench.peers.comparison.FILE_ROWS", 200)
    counts = {"a": {"fake": (8,), "gone": (8,)}}
    effort = type(QUICK)(measured={"a": 1}, rounds=1, checked=1, queries=8, counts=counts)
    gone = System("gone", "no_such_module")
    said: list[str] = []
    found = compare("a", effort, [fake, gone], tmp_path / "work", said.append)
    assert found.runs == {} and set(found.problems) == {"fake", "gone"}
    assert "rows missing" in found.problems["fake"] and "no_such_module" in found.problems["gone"]
    assert any("fake has no valid time" in line for line in said)
