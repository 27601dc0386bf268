"""The first hour of a new user: init, check, run, join by Python, savepoint, kill, resume, restore, doctor.

`FirstHour` runs the commands of an installed headrace as a user types them, and keeps what they print. The results are
checked by brute force over the input: nothing is lost, nothing is written twice.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

GOLDEN = Path(__file__).with_name("golden.txt")
LIMIT = 500.0
JOIN = '''
import headrace

with headrace.connect(".headrace/hub.sock") as hub:
    for result in hub.sql("""
        CREATE SINK cold WITH (type = 'jsonl', path = 'out/cold');
        CREATE PIPELINE cold INTO cold AS SELECT device, temp FROM sensors WHERE temp < 12
    """):
        print(result)
    print(hub.pipelines["cold"].status().state)
'''
# Whatever these lines say depends on how fast the machine is, and on what it has compiled before.
_PASSING = re.compile(r"(sensors: |  \S|compil(ing|ed) the kernels|Spark runs; still compiling|epoch \d+ of stream)")
_NORMAL = (
    (re.compile(r"\bepoch \d+"), "epoch N"),
    (re.compile(r"\bSpark [\d.]+ runs"), "Spark VERSION runs"),
    (re.compile(r"is (starting|running): declared"), "is STATE: declared"),
    (re.compile(r"\d+(\.\d+)? (s|GB)\b"), r"N \2"),
    (re.compile(r"^(ok +\w+): \d[\w.]*$", re.MULTILINE), r"\1: VERSION"),
    (re.compile(r"^(ok +(?:java|kernels|workers|disk|port): ).*$", re.MULTILINE), r"\1..."),
)
# What must never be printed.
NOISE = ("nanobind", "Traceback", "WARN ", "Exception", "leaked")


class FirstHour:
    """Runs in `work`, with the scripts of `bin`. `steps` has the text of each step by its command, in order."""

    def __init__(self, bin: Path, work: Path, environment: dict[str, str]) -> None:
        self._bin, self._work, self._environment = bin, work, environment
        self._project = work / "my-project"
        self.steps: dict[str, str] = {}
        self._fed = 0

    def whole(self) -> None:
        """Every step. The steps of `most` and a run from the restored savepoint."""
        self.most()
        self._headrace("run", "app.sql", "--state-dir", "restored", "--until-end")
        self._require_results()

    def most(self) -> None:
        """The steps with two starts of Spark."""
        self._headrace("init", "my-project", cwd=self._work)
        self._headrace("check", "app.sql")
        with self._running("run", "app.sql") as kill:
            self._until(lambda: self._alarms() == self._expected_alarms(), "the results of the first files")
            (self._project / "join.py").write_text(JOIN)
            self._record("python join.py", [str(self._bin / "python"), "join.py"], None)
            self.feed()
            self._until(lambda: len(self._rows("cold")) == 2, "the rows of the pipeline that joined")
            self._headrace("sql", "-c", "SAVEPOINT monday")
            kill()
        self.feed()
        self._headrace("run", "app.sql", "--until-end")
        self._require_results()
        self._headrace("restore", ".headrace/savepoints/monday", "--state-dir", "restored", "--rewind")
        self._headrace("doctor", "--port", "0")

    def feed(self) -> None:
        """Put one more file into the stream, later than all others: 40 rows, 2 of them cold and 9 hot."""
        self._fed += 1
        temps = [10.0] * 2 + [20.0] * 28 + [31.0] * 9 + [30.0]
        rows = [
            {"device": f"d{i % 4}", "ts": f"2026-01-01T0{self._fed}:00:{i:02}Z", "temp": temp, "hum": 50.0}
            for i, temp in enumerate(temps)
        ]
        hidden = self._project / "data" / f".later-{self._fed}"
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
        hidden.rename(self._project / "data" / f"later-{self._fed}.json")

    def _require_results(self) -> None:
        assert self._alarms() == self._expected_alarms()
        assert len(self._rows("cold")) == 2 * self._fed
        minutes = [(row["minute"], row["device"]) for row in self._rows("minutes")]
        assert len(minutes) == len(set(minutes))
        assert sum(row["readings"] for row in self._rows("minutes")) == len(self._input())

    def _input(self) -> list[dict[str, str | float]]:
        files = sorted((self._project / "data").glob("*.json"))
        return [json.loads(line) for path in files for line in path.read_text().splitlines()]

    def _expected_alarms(self) -> list[float]:
        return sorted(float(row["temp"]) for row in self._input() if float(row["temp"]) > 30)

    def _alarms(self) -> list[float]:
        return sorted(row["temp"] for row in self._rows("alarms"))

    def _rows(self, sink: str) -> list[dict[str, float]]:
        files = (self._project / "out" / sink).glob("part-*")
        return [json.loads(line) for path in files for line in path.read_text().splitlines()]

    def _headrace(self, *words: str, cwd: Path | None = None) -> None:
        self._record(f"headrace {' '.join(words)}", [str(self._bin / "headrace"), *words], cwd)

    def _record(self, shown: str, command: list[str], cwd: Path | None) -> None:
        done = subprocess.run(
            command,
            cwd=cwd or self._project,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT,
        )
        assert done.returncode == 0, f"$ {shown}\n{done.stdout}"
        self._keep(shown, done.stdout)

    def _keep(self, shown: str, said: str) -> None:
        assert not [word for word in NOISE if word in said], said
        self.steps[shown] = self._normal(said)

    def _normal(self, said: str) -> str:
        text = "\n".join(line for line in said.splitlines() if not _PASSING.match(line))
        for place, name in ((self._work, "."), (self._bin, "BIN")):
            text = text.replace(str(place), name)
        for pattern, put in _NORMAL:
            text = pattern.sub(put, text)
        return text.strip()

    @contextmanager
    def _running(self, *words: str) -> Iterator[Callable[[], None]]:
        """A command in the background. The function in it kills the command with SIGKILL."""
        log = self._work / "run.log"
        with open(log, "w") as out:
            child = subprocess.Popen(
                [str(self._bin / "headrace"), *words],
                cwd=self._project,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

        def kill() -> None:
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
            self._keep(f"headrace {' '.join(words)} &  # kill -9", log.read_text())

        try:
            yield kill
        except BaseException:
            print(log.read_text())
            raise
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()

    def _until(self, reached: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + LIMIT
        while not reached():
            assert time.monotonic() < deadline, f"waited too long for {what}"
            time.sleep(0.2)


def shown(steps: dict[str, str]) -> str:
    """The steps as text, in the form of the golden file."""
    return "\n\n".join(f"$ {command}\n{said}".rstrip() for command, said in steps.items()) + "\n"


def golden() -> dict[str, str]:
    """The steps of the golden file."""
    parts = re.split(r"^\$ ", GOLDEN.read_text(), flags=re.MULTILINE)[1:]
    commands = [part.partition("\n") for part in parts]
    return {command: said.strip() for command, _, said in commands}
