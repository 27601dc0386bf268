"""A run of `headrace` that gets killed: its script, its input, the expected output, and the files that must not remain.

Used by the short test and by the soak. Needs no Spark to know what is right: the answer is worked out in plain Python.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from headrace.state.progress import read_applied
from tests.e2e.support import put, until

# Some start Spark again and again, others run many streaming queries. There is a short version of each: in process
# (`tests/shared/test_chains.py`), in the test of all hosts (`tests/e2e/test_kill.py`), or beside it.
LONG = pytest.mark.skipif(
    "HEADRACE_LONG" not in os.environ, reason="takes minutes: make soak-hosts or make test-dedicated"
)
# Every fault point of src/headrace.
POINTS = (
    "after-offset-log",
    "after-task-file",
    "after-staging",
    "after-epoch-queries",
    "between-manifest-and-rename",
    "between-renames",
    "between-sinks",
    "after-manifests",
    "after-feed-segment",
    "after-feed-manifest",
    "after-dedicated-staging",
    "after-dedicated-commit",
    "after-dedicated-progress",
)
# Fault points of sinks that this run does not have. Tests of those sinks fail there in process.
ELSEWHERE = (
    "after-roll-record",
    "between-delivery-and-cleanup",
    "between-messages-and-marker",
    "between-renames-and-log",
    "between-roll-and-delete",
)
_START = datetime(2026, 1, 1, tzinfo=UTC)
_SINKS = (
    "rows_parquet",
    "rows_jsonl",
    "rowsbyspark_parquet",
    "windows_parquet",
    "windows_jsonl",
    "windowsdedicated_parquet",
)


@dataclass
class Case:
    """A directory with input, a script and, after runs, sinks and state. Rows are in order of time: none is late."""

    root: Path
    rows: int
    epoch_bytes: int
    said: str = ""

    @property
    def outputs(self) -> list[Path]:
        return [self.root / sink for sink in _SINKS]

    def prepare(self) -> Case:
        """Write the input, three files, and the script: a stateless and a windowed pipeline with two sinks each, one
        on the epoch host, one on the dedicated host, and dead letters for the records that are rejected by all."""
        lines = [line for i in range(self.rows) for line in self.lines(i)]
        third = len(lines) // 3
        for number in range(3):
            part = lines[number * third : (number + 1) * third if number < 2 else None]
            put(self.root / "in" / f"{number}.json", part)
        sinks = (
            f"CREATE SINK {path.name} WITH (type = '{path.name.split('_')[1]}', path = '{path}')"
            for path in [*self.outputs, self.letters]
        )
        script = [
            *sinks,
            "CREATE STREAM s (id BIGINT, k STRING, v BIGINT, ts TIMESTAMP, "
            "WATERMARK FOR ts AS ts - INTERVAL 3 SECONDS) WITH (source = 'files', format = 'json', "
            f"path = '{self.root / 'in'}', max_epoch_bytes = '{self.epoch_bytes}', "
            f"on_error = 'dead_letter', dead_letter_sink = '{self.letters.name}')",
            "CREATE PIPELINE plain INTO rows_parquet, rows_jsonl AS SELECT id, k, v FROM s WHERE v % 3 <> 0",
            "CREATE PIPELINE sparked INTO rowsbyspark_parquet WITH (host = 'epoch') AS "
            "SELECT id, k, v FROM s WHERE v % 3 <> 0",
            "CREATE PIPELINE counted INTO windows_parquet, windows_jsonl AS "
            "SELECT unix_seconds(window.start) AS start, k, count(*) AS n, sum(v) AS total FROM s "
            "GROUP BY window(ts, '10 seconds'), k",
            "CREATE PIPELINE own INTO windowsdedicated_parquet WITH (host = 'dedicated') AS "
            "SELECT unix_seconds(window.start) AS start, k, count(*) AS n, sum(v) AS total FROM s "
            "GROUP BY window(ts, '10 seconds'), k",
        ]
        (self.root / "app.sql").write_text(";\n".join(script))
        return self

    @property
    def letters(self) -> Path:
        return self.root / "letters_jsonl"

    def lines(self, i: int) -> list[str]:
        """Row `i`, for some followed by a record that is no row, and one with a value that both pipelines reject."""
        bad = [f'{{"id": {i}', json.dumps({**self.row(i), "v": "many"})] if i % 20 == 0 else []
        return [json.dumps(self.row(i)), *bad]

    def row(self, i: int) -> dict[str, Any]:
        moment = _START + timedelta(milliseconds=100 * i)
        return {"id": i, "k": f"k{i % 5}" if i % 7 else None, "v": i * 31 % 1000, "ts": moment.isoformat()}

    # --- running ----------------------------------------------------------------------------------

    def start(self, fault: str | None = None) -> subprocess.Popen[str]:
        """`headrace run app.sql --until-end` in a session of its own."""
        command = [sys.executable, "-m", "headrace.app.cli", "run", "app.sql", "--until-end", "--state-dir", "state"]
        env = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_FAULT")}
        if fault is not None:
            env["HEADRACE_FAULT"] = fault
        return subprocess.Popen(
            command,
            cwd=self.root,
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, fault: str | None = None, seconds: float = 600) -> int:
        """The exit code of a run; -9 when it was killed. Nothing of it is left when this returns."""
        return self._ended(self.start(fault), seconds)

    def run_and_kill_after(self, seconds: float, how: signal.Signals = signal.SIGKILL) -> int:
        """A run that gets a signal after `seconds`, wherever it is then; 0 when it ended by itself or in order."""
        child = self.start()
        deadline = time.monotonic() + seconds
        while child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        if child.poll() is None:
            os.kill(child.pid, how)
        return self._ended(child, 400)

    def run_and_terminate_in_epoch(self, epoch: int) -> str:
        """A run that gets SIGTERM when it has planned `epoch` or a later one. Returns its standard error."""
        child = self._start_and_wait_for(epoch)
        os.kill(child.pid, signal.SIGTERM)
        self._ended(child, 400)
        return self.said

    def run_and_kill_in_epoch(self, epoch: int, seconds: float) -> None:
        """A run that gets SIGKILL `seconds` after it has planned `epoch` or a later one."""
        child = self._start_and_wait_for(epoch)
        time.sleep(seconds)
        os.kill(child.pid, signal.SIGKILL)
        self._ended(child, 400)

    def _start_and_wait_for(self, epoch: int) -> subprocess.Popen[str]:
        child = self.start()
        applied = self.root / "state" / "streams" / "s"
        until(lambda: child.poll() is not None or planned(applied) >= epoch, f"epoch {epoch} is planned", 400)
        return child

    def _ended(self, child: subprocess.Popen[str], seconds: float) -> int:
        try:
            _, errors = child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            for pid in session_of(child.pid):
                os.kill(pid, signal.SIGKILL)
            child.communicate()
            raise
        self.said = errors
        until(lambda: not session_of(child.pid), f"the processes of run {child.pid} are gone", 120)
        assert child.returncode in (0, -signal.SIGKILL), errors
        return child.returncode

    # --- what must be -----------------------------------------------------------------------------

    def check(self) -> None:
        """Every sink holds each row exactly once, and no partial output remains."""
        rows = [self.row(i) for i in range(self.rows)]
        plain = Counter((r["id"], r["k"], r["v"]) for r in rows if r["v"] % 3)
        counts: Counter[tuple[int, str | None]] = Counter()
        totals: Counter[tuple[int, str | None]] = Counter()
        for r in rows:
            second = int(datetime.fromisoformat(r["ts"]).timestamp())
            group = (second - second % 10, r["k"])
            counts[group] += 1
            totals[group] += r["v"]
        windows = Counter((start, k, n, totals[start, k]) for (start, k), n in counts.items())
        for path in self.outputs:
            wanted = plain if path.name.startswith("rows") else windows
            columns = ("id", "k", "v") if path.name.startswith("rows") else ("start", "k", "n", "total")
            found = Counter(read(path, columns))
            assert found == wanted, (
                f"{path.name}: {found.total()} rows, wanted {wanted.total()}; "
                f"too many: {list((found - wanted).items())[:5]}, missing: {list((wanted - found).items())[:5]}"
            )
        reasons = (None, "bad_json", "bad_integer")
        sent = Counter((reasons[n], line) for i in range(self.rows) for n, line in enumerate(self.lines(i)) if n)
        letters = Counter((r, base64.b64decode(raw).decode()) for r, raw in read(self.letters, ("reason", "raw")))
        assert letters == sent, f"{letters.total()} dead letters, wanted {sent.total()}"
        for path in [*self.outputs, self.letters]:
            assert not [p for p in (path / "_headrace" / "staging").rglob("*") if p.is_file()], path.name
            assert not [p for p in path.iterdir() if not p.name.startswith(("part-", "_headrace"))], path.name
        assert not list((self.root / "state").rglob("staged/*"))


def planned(directory: Path) -> int:
    """The newest epoch that a stream has planned; -1 before the first."""
    applied = read_applied(directory)
    return -1 if applied is None else applied.epoch


def read(path: Path, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """The rows that a reader of the sink sees."""
    if path.name.endswith("parquet"):
        rows = pq.read_table(path).to_pylist()
    else:  # NULLs are left out of JSON lines
        rows = [json.loads(line) for part in path.glob("part-*") for line in part.read_text().splitlines()]
    return [tuple(row.get(column) for column in columns) for row in rows]


def session_of(leader: int) -> list[int]:
    """The live processes of the session that `leader` began: itself, its JVM, all Python workers."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it ended meanwhile
                continue
            if int(fields[3]) == leader and fields[0] != "Z":
                found.append(int(entry.name))
    return found
