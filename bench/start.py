"""From the shell to the first row: `headrace run` with one pipeline, beside a plain PySpark script with the same query.

Both read the same JSON file, filter it, and print rows to the console. The clock starts before the process does and
stops at the first row on standard output. The two alternate, and the medians over the rounds count. The phases are seen
from outside: the lines that `headrace run` logs, and the processes that appear below it. CPU time until then is that of
the whole process tree; a busy machine changes it less than the time on the clock.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bench import feed
from bench.processes import usage
from bench.report import Report, environment, main
from headrace.spark.java import find_java

QUICK = "--quick" in sys.argv
ROUNDS = 2 if QUICK else 5
REQUIRED_SECONDS = 6.0
LIMIT_SECONDS = 180.0
MARK = "first-row"  # every row has it
_SELECT = f"SELECT '{MARK}' AS mark, user, value FROM s WHERE value >= 10"
# What is started below the command, by a part of its command line, in the order in which it appears.
_PROCESSES = (
    ("java", "the JVM has started"),
    ("pyspark.sql.worker.lookup_data_sources", "Spark looks for data sources"),
    ("pyspark.sql.worker.create_data_source", "Spark creates the source"),
    ("python_streaming_source_runner", "the planner of the stream has started"),
    ("transform_with_state_driver_worker", "Spark asks for the state of the operator"),
    ("plan_data_source_read", "Spark plans the read"),
    ("spark.daemon", "the fork server of the workers has started"),
)
_PLAIN = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
rows = spark.readStream.schema(sys.argv[2]).json(sys.argv[1])
rows.createOrReplaceTempView("s")
query = spark.sql(sys.argv[3]).writeStream.format("console").option("checkpointLocation", sys.argv[4]).start()
query.awaitTermination()
"""


class Started:
    """A command that runs. `phases` are the seconds after which something was first seen."""

    def __init__(self, command: list[str], work: Path, env: dict[str, str]) -> None:
        self.phases: dict[str, float] = {}
        self.cpu = 0.0
        self._began, self._name = time.monotonic(), command[0]
        self._row = threading.Event()
        self._process = subprocess.Popen(
            command,
            cwd=work,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for stream, see in ((self._process.stdout, self._see_row), (self._process.stderr, self._see_line)):
            threading.Thread(target=self._read, args=(stream, see), daemon=True).start()

    def _read(self, stream: object, see: Callable[[str], None]) -> None:
        for line in stream:  # type: ignore[attr-defined]
            see(line)

    def _see(self, what: str) -> None:
        self.phases.setdefault(what, time.monotonic() - self._began)

    def _see_row(self, line: str) -> None:
        if MARK in line and not self._row.is_set():
            self._see("first row")
            self._row.set()

    def _see_line(self, line: str) -> None:
        for phase in ("starting Spark", "runs after", "starting stream"):
            if phase in line:
                self._see({"runs after": "the Spark session is there"}.get(phase, phase))

    def first_row(self) -> float:
        """The seconds until the first row. Ends the command."""
        try:
            while not self._row.wait(0.02):
                self._look()
                if self._process.poll() is not None or time.monotonic() - self._began > LIMIT_SECONDS:
                    raise RuntimeError(f"no row came from {self._name}")
            self.cpu = usage(self._process.pid)[0]
        finally:
            self._end()
        return self.phases["first row"]

    def _look(self) -> None:
        """See which processes have appeared in the command's session. Some are forks that kept the name of the process
        that they were forked from, so these are not seen."""
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.getsid(int(entry.name)) == self._process.pid:
                    line = (entry / "cmdline").read_bytes().decode(errors="replace")
                    for part, phase in _PROCESSES:
                        if part in line.replace("\0", " ") and (part != "java" or line.split("\0")[0].endswith("java")):
                            self._see(phase)
            except OSError:  # it has just ended
                continue

    def _end(self) -> None:
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def _headrace(work: Path, data: Path) -> list[str]:
    script = f"{feed.declaration(data)};\nCREATE SINK out WITH (type = 'console');\n"
    (work / "app.sql").write_text(script + f"CREATE PIPELINE p INTO out AS {_SELECT};\n")
    return [str(Path(sys.executable).with_name("headrace")), "run", "app.sql", "--state-dir", str(work / "state")]


def _plain(work: Path, data: Path) -> list[str]:
    (work / "plain.py").write_text(_PLAIN)
    columns = ", ".join(f"{name} {kind}" for name, kind, _ in feed.COLUMNS)
    return [sys.executable, "plain.py", str(data), columns, _SELECT, str(work / "checkpoint")]


def measure(say: Callable[[str], None]) -> Report:
    report = Report(facts=environment("pyspark", "duckdb", "pyarrow"))
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    env |= {"JAVA_HOME": str(find_java()), "PYSPARK_PYTHON": sys.executable}
    seconds: dict[str, list[float]] = {"headrace": [], "spark": []}
    used: dict[str, list[float]] = {"headrace": [], "spark": []}
    phases: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-start-") as scratch:
        data = Path(scratch) / "in"
        feed.write(data, 1, 1000, keys=100)
        for number in range(1 + ROUNDS):  # the first round only fills the file cache
            for name, made in (("headrace", _headrace), ("spark", _plain))[:: 1 if number % 2 else -1]:
                work = Path(scratch) / f"{name}-{number}"
                work.mkdir()
                started = Started(made(work, data), work, env)
                took = started.first_row()
                cost = f"{took:.1f} s, {started.cpu:.1f} s of CPU (load {os.getloadavg()[0]:.1f})"
                say(f"round {number}, {name}: first row after {cost}")
                if number:
                    seconds[name].append(took)
                    used[name].append(started.cpu)
                    for phase, after in started.phases.items() if name == "headrace" else ():
                        phases.setdefault(phase, []).append(after)
    for phase, found in sorted(phases.items(), key=lambda item: statistics.median(item[1])):
        say(f"{statistics.median(found):6.2f} s  {phase}")
    ours, theirs = (statistics.median(seconds[name]) for name in ("headrace", "spark"))
    report.facts["phases_s"] = {phase: round(statistics.median(found), 2) for phase, found in phases.items()}
    report.facts["cpu_s"] = {name: round(statistics.median(found), 1) for name, found in used.items()}
    report.facts["plain_spark_s"] = round(theirs, 2)
    report.facts["over_plain_spark"] = round(ours / theirs, 2)
    report.require("first_row_seconds", ours, REQUIRED_SECONDS, "at most", " s")
    return report


if __name__ == "__main__":
    main(__doc__ or "", measure)
