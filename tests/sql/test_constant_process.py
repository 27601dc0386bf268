"""The process that evaluates constants with regular expressions: it may die at any time, and no plan shows it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pytest

from headrace.errors import HeadraceError
from headrace.model.program import Meaning
from headrace.sql.functions import evaluate as evaluation
from headrace.sql.functions.evaluate import end_thread, evaluate
from tests.code import SOURCE
from tests.sql.support import plan

COUNT = "hr_regex_count('aab', 'a(?=b)')"
QUERY = "SELECT regexp_replace('aab', '(a+)+$|b', 'x') AS a FROM s"
# Python's `re` takes years for this match.
ENDLESS = "SELECT regexp_replace('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab', '(a+)+$', 'x') AS a FROM s"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    end_thread()
    yield
    end_thread()


def child() -> Any:
    """The process that runs now, if one does."""
    evaluator = evaluation._evaluator
    return None if evaluator is None else evaluator._child._process


def wait_for_child(other_than: int | None) -> int:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        process = child()
        if process is not None and process.pid != other_than:
            return int(process.pid)
        time.sleep(0.02)
    raise AssertionError("no process was started")


def planned(query: str = QUERY) -> str:
    (output,) = plan(query).program.ring0.outputs
    return output.sql


def refused(query: str = QUERY) -> HeadraceError:
    with pytest.raises(HeadraceError) as caught:
        plan(query)
    assert caught.value.code == "CONSTANT_NOT_EVALUATED"
    assert caught.value.span is not None and caught.value.span.line == 1, "the error shows the statement"
    return caught.value


def test_a_process_that_was_killed_is_started_again() -> None:
    assert planned() == "'aax'"
    os.kill(child().pid, signal.SIGKILL)
    assert planned() == "'aax'"


def test_a_constant_whose_process_is_killed_twice_is_refused_and_the_next_one_is_planned() -> None:
    with ThreadPoolExecutor(1) as other:
        result = other.submit(refused, ENDLESS)
        first = wait_for_child(None)
        os.kill(first, signal.SIGKILL)
        os.kill(wait_for_child(first), signal.SIGKILL)
        assert result.result(30).params["exit_code"] == -signal.SIGKILL
    assert planned() == "'aax'"


@pytest.mark.parametrize(("python", "code"), [("/bin/false", 1), ("/no/python", None)])
def test_a_process_that_does_not_start_is_an_error_of_its_own(
    monkeypatch: pytest.MonkeyPatch, python: str, code: int | None
) -> None:
    monkeypatch.setattr(sys, "executable", python)
    assert refused().params["exit_code"] == code
    monkeypatch.undo()
    assert planned() == "'aax'"


def test_an_interrupted_constant_is_neither_planned_nor_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise duckdb.InterruptException("interrupted")

    plan("SELECT k FROM s")
    queries = (QUERY, "SELECT 1 + 1 AS a FROM s", "SELECT k RLIKE 'only in this test[0-9]+' AS a FROM s")
    with monkeypatch.context() as patched:
        patched.setattr(evaluation._Evaluator, "_value", interrupted)
        for query in queries:
            refused(query)
    assert [planned(query) for query in queries[:2]] == ["'aax'", "2::INTEGER"]
    assert "regexp_matches" in planned(queries[2])


@pytest.mark.parametrize(
    ("sql", "zone", "kind"),
    [
        ("to_timestamp(253402300799 + {})", "Asia/Tokyo", OverflowError),
        ("1 + {}", "Nowhere/None", duckdb.Error),
        ("CAST('x' || {} AS INTEGER)", "UTC", duckdb.ConversionException),
    ],
)
def test_what_an_evaluation_raises_is_the_same_as_in_this_process(sql: str, zone: str, kind: type[Exception]) -> None:
    assert evaluate(COUNT, "UTC") == 1
    before = child().pid
    raised = []
    for count in ("0", "hr_regex_count('a', 'b(?=c)')"):
        with pytest.raises(kind) as caught:
            evaluate(sql.format(count), zone)
        raised.append((type(caught.value), str(caught.value).split("\n")[0]))
    assert raised[0] == raised[1]
    assert (evaluate(COUNT, "UTC"), child().pid) == (1, before), "the process survives"


@pytest.mark.parametrize("seconds", ["253402300799", "253402300799 + regexp_count('a', 'b(?=c)')"])
def test_a_timestamp_after_the_year_9999_of_the_zone_stays_a_call(seconds: str) -> None:
    made = plan(f"SELECT timestamp_seconds({seconds}) AS a FROM s", Meaning(time_zone="Asia/Tokyo"))
    (output,) = made.program.ring0.outputs
    assert evaluate(f"epoch_us({output.sql})", "Asia/Tokyo") == 253402300799 * 1_000_000


FOUND_BY_PATH = """
import sys
sys.path[:0] = [sys.argv[1], sys.argv[2], "."]
from headrace.sql.functions.evaluate import evaluate
print(evaluate(sys.argv[3], "UTC"))
"""


def test_the_process_finds_modules_where_its_owner_does_and_not_in_the_current_directory(tmp_path: Path) -> None:
    here, path = tmp_path / "here", tmp_path / "path"
    here.mkdir()
    path.mkdir()
    for module in ("duckdb", "queue", "pickle"):
        (here / f"{module}.py").write_text("open('executed', 'w').close()\nraise SystemExit(1)\n")
    marker = tmp_path / "seen"
    (path / "sitecustomize.py").write_text(f"open({str(marker)!r}, 'w').close()\n")  # Python imports it at its start
    # The owner runs elsewhere while it imports, so only its process could find the modules of the directory.
    script = FOUND_BY_PATH.replace("print(", f"import os; os.chdir({str(here)!r}); print(")
    command = [sys.executable, "-P", "-c", script, str(path), str(SOURCE.parent), COUNT]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.stdout.strip(), ended.stderr) == ("1", "")
    assert marker.exists() and not (here / "executed").exists()


def test_the_process_ends_when_it_has_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "IDLE_SECONDS", 0.2)
    assert evaluate(COUNT, "UTC") == 1
    first = wait_for_child(None)
    until = time.monotonic() + 10
    while child() is not None and time.monotonic() < until:
        time.sleep(0.05)
    assert child() is None
    assert evaluate(COUNT, "UTC") == 1
    assert wait_for_child(first) != first


# The second text begins like a pickle of two billion bytes.
@pytest.mark.parametrize("printed", ["hello", "Bzzzzzzzz"])
def test_what_python_prints_when_it_starts_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"print({printed!r}, flush=True)\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert planned(QUERY.replace("aab", f"{printed}b")) == f"'{printed}x'"


def test_processes_that_ended_leave_no_open_files() -> None:
    assert evaluate(COUNT, "UTC") == 1
    end_thread()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        assert evaluate(COUNT, "UTC") == 1
        os.kill(child().pid, signal.SIGKILL)
        assert evaluate(COUNT, "UTC") == 1
        end_thread()
    assert len(os.listdir("/proc/self/fd")) == before
