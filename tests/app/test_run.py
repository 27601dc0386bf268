"""`headrace run` and `headrace demo` as a user runs them: real processes, real Spark, real signals."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

HEADRACE = [sys.executable, "-m", "headrace.app.cli"]
EXAMPLES = Path(__file__).parents[2] / "examples"
LIMIT = 180

ENDLESS = """
CREATE STREAM s (n BIGINT, ts TIMESTAMP, temp DOUBLE, WATERMARK FOR ts AS ts - INTERVAL 1 SECOND)
WITH (source = 'generator', format = 'json', rate = '500');
CREATE SINK out WITH (type = 'jsonl', path = 'out');
CREATE PIPELINE all_rows INTO out AS SELECT n FROM s;
"""


def numbers(directory: Path) -> list[int]:
    return sorted(json.loads(line)["n"] for path in directory.glob("part-*") for line in path.read_text().splitlines())


@contextmanager
def started(*arguments: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """A `headrace` process in its own process group, as a terminal starts it. The group is killed after the test."""
    child = subprocess.Popen([*HEADRACE, *arguments], cwd=cwd, stdout=-1, stderr=-1, text=True, start_new_session=True)
    try:
        yield child
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


class Screen:
    """A process in a pseudo-terminal, and what it has shown."""

    def __init__(self, pid: int, end: int) -> None:
        self._pid, self._end, self.text, self.code = pid, end, "", -1

    def read_until(self, wanted: str) -> None:
        deadline = time.monotonic() + LIMIT
        while wanted not in self.text:
            assert time.monotonic() < deadline, self.text
            assert self._read(), self.text

    def _read(self) -> bool:
        """Read what is there. False if the process has closed the terminal."""
        if not select.select([self._end], [], [], 0.5)[0]:
            return True
        try:
            found = os.read(self._end, 1 << 16)
        except OSError:  # the other end is closed
            return False
        self.text += found.decode("utf-8", "replace")
        return bool(found)

    def press(self, key: bytes) -> None:
        os.write(self._end, key)

    def until_end(self) -> str:
        deadline = time.monotonic() + LIMIT
        while self._read():
            assert time.monotonic() < deadline, self.text
        self.code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return self.text


@contextmanager
def in_terminal(*arguments: str, cwd: Path) -> Iterator[Screen]:
    """A `headrace` process whose input and output are a terminal."""
    pid, end = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        os.execve(HEADRACE[0], [*HEADRACE, *arguments], {**os.environ, "TERM": "xterm", "COLUMNS": "120"})
    screen = Screen(pid, end)
    try:
        yield screen
    finally:
        if screen.code == -1:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(end)


def group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for_rows(directory: Path, more_than: int, child: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + LIMIT
    while len(numbers(directory)) <= more_than:
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < deadline, "no rows"
        time.sleep(0.2)


def test_a_script_over_files_ends_by_itself_and_running_it_again_duplicates_nothing(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("out", ".headrace"))
    source = [
        json.loads(line) for path in (tmp_path / "data").rglob("*.ndjson") for line in path.read_text().splitlines()
    ]
    counts: list[int] = []
    for _ in range(2):
        answer = subprocess.run(
            [*HEADRACE, "run", "clicks.sql", "--until-end"], cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT
        )
        assert answer.returncode == 0, answer.stderr
        pages = [
            json.loads(line) for p in (tmp_path / "out/pages").glob("part-*") for line in p.read_text().splitlines()
        ]
        counts.append(sum(page["clicks"] for page in pages))
    assert counts == [len(source)] * 2


def test_ctrl_c_drains_and_exits_0_and_the_next_run_continues_where_it_stopped(tmp_path: Path) -> None:
    (tmp_path / "app.sql").write_text(ENDLESS)
    with started("run", "app.sql", cwd=tmp_path) as child:
        wait_for_rows(tmp_path / "out", 100, child)
        os.killpg(child.pid, signal.SIGINT)  # to the whole group, like a terminal
        out, err = child.communicate(timeout=LIMIT)
        assert child.returncode == 0, err
        assert "created pipeline all_rows" in out
        assert "Traceback" not in err
    first = numbers(tmp_path / "out")
    assert first == list(range(len(first)))
    with started("run", "app.sql", cwd=tmp_path) as child:
        wait_for_rows(tmp_path / "out", len(first) + 100, child)
        os.killpg(child.pid, signal.SIGINT)
        assert child.stderr is not None
        assert any("Ctrl-C again" in line for line in child.stderr)  # two signals at once would count as one
        os.killpg(child.pid, signal.SIGINT)
        child.communicate(timeout=LIMIT)
        assert child.returncode == 130
    both = numbers(tmp_path / "out")
    assert both == list(range(len(both)))


def test_a_terminal_shows_the_live_view_and_ctrl_c_is_answered_at_once_while_spark_starts(tmp_path: Path) -> None:
    (tmp_path / "app.sql").write_text(ENDLESS.replace("rate = '500'", "rows = '1000'"))
    with in_terminal("run", "app.sql", "--until-end", "--ui", "--conf", "spark.app.name=mine", cwd=tmp_path) as screen:
        text = screen.until_end()
    assert screen.code == 0, text
    assert "starting Spark on local[*] ..." in text
    assert "Spark's web page is on http://127.0.0.1:" in text
    assert "stream s" in text
    assert text.index("100% of ") < text.index("all_rows (finished) 1.0k rows out")  # the bar, then the totals
    log = (tmp_path / ".headrace" / "spark.log").read_text()
    assert "Submitted application: mine" in log
    assert "broadcast" not in log
    with in_terminal("run", "app.sql", cwd=tmp_path) as screen:
        screen.read_until("starting Spark")
        screen.press(b"\x03")
        asked = time.monotonic()
        screen.read_until("stopping as soon as the start is done")
        assert time.monotonic() - asked < 5
        text = screen.until_end()
    assert screen.code == 0, text


def test_a_pipeline_that_fails_is_reported_and_gives_exit_code_1(tmp_path: Path) -> None:
    script = ENDLESS.replace("SELECT n FROM s", "SELECT n / (n - 50) AS n FROM s").replace(
        "rate = '500'", "rows = '100'"
    )
    (tmp_path / "app.sql").write_text(script)
    answer = subprocess.run(
        [*HEADRACE, "run", "app.sql", "--until-end"], cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT
    )
    assert answer.returncode == 1, answer.stderr
    assert "pipeline all_rows failed" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_the_demo_ends_by_itself_with_results_and_deletes_its_files(tmp_path: Path) -> None:
    began = time.monotonic()
    answer = subprocess.run(
        [*HEADRACE, "demo", "--duration", "25"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert answer.returncode == 0, answer.stderr
    assert time.monotonic() - began > 25
    for name in ("alarms", "climate", "volume", "power"):
        assert f"{name}: the last of" in answer.stdout
        assert f"{name}: the last of 0 rows" not in answer.stdout
    assert "of 20 columns were decoded" in answer.stdout
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("headrace")] == []


def test_an_invalid_master_is_a_coded_error_and_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "app.sql").write_text(ENDLESS)
    with started("run", "app.sql", "--master", "nonsense", cwd=tmp_path) as child:
        _, errors = child.communicate(timeout=LIMIT)
        assert child.returncode == 2
        assert "[SPARK_NOT_STARTED] Spark did not start with master nonsense" in errors
        assert "spark.log" in errors
        deadline = time.monotonic() + LIMIT
        while group_lives(child.pid):
            assert time.monotonic() < deadline, "a process is left"
            time.sleep(0.2)
