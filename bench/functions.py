"""Rows per second of every function and cast of the shared host, beside Spark's `select` of the same expression.

Both engines read the needed columns of one Parquet file and evaluate the expression on one core: Spark in a job of one
task whose rows go nowhere, we with the SQL that a task runs, in DuckDB with one thread, to Arrow. Only processor time
counts: that of Spark's task thread without its collector and compiler threads, and that of our thread. The time for one
row, taken right before, is subtracted from both, so that the cost of starting a job does not count. The best of several
runs counts. A time below a millisecond counts as one: what is left of such a time is noise. An expression that takes us
longer for a few rows is measured over fewer rows, in both engines.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from bench.function_cases import Entry, entries
from bench.function_rows import SCHEMA, table
from bench.report import Report, environment, main
from headrace.exec import duck
from headrace.model.definitions import StreamDef
from headrace.model.program import Expression, Meaning
from headrace.model.schema import NESTED, field_at
from headrace.spark.java import find_java
from headrace.sql import Select, parse_script, plan_pipeline
from headrace.state.catalog import Catalog

ROWS, RUNS = (200_000, 2) if "--quick" in sys.argv else (400_000, 3)
FEWER, LONG = ROWS // 10, 0.1  # rows for an expression that takes so many seconds for a tenth of the rows
# --only map_keys,size measures the entries of these functions.
ONLY = frozenset(sys.argv[sys.argv.index("--only") + 1].split(",") if "--only" in sys.argv else ())
REQUIRED_MEDIAN, REQUIRED_EACH = 2.0, 0.5
_SHORTEST = 1e-3  # seconds; what is subtracted may be more than what was measured
MEANING = Meaning()


@dataclass(frozen=True, slots=True)
class Speed:
    """Rows per second of one entry in both engines."""

    entry: Entry
    ours: float
    spark: float

    @property
    def ratio(self) -> float:
        return self.ours / self.spark


class Ours:
    """Plans an expression once, then evaluates it as a task does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names = Catalog().with_stream(StreamDef("v", SCHEMA, None, 0, "generator", "json", {}))

    def plan(self, text: str) -> tuple[Expression, list[int]]:
        """The expression, and the indexes of the columns that it reads."""
        (statement,) = parse_script(f"SELECT {text} AS r FROM v")
        assert isinstance(statement, Select)
        planned = plan_pipeline(statement, self.names, MEANING)
        (output,) = planned.program.ring0.outputs
        return output, list(planned.program.view.indexes(len(SCHEMA))) or [0]

    def seconds(self, expression: Expression, columns: Sequence[int], path: Path) -> float:
        """The processor time of one evaluation."""
        names = [field_at(SCHEMA, i).name for i in columns]  # a field of a struct is read alone, too
        start = time.thread_time()
        rows = pq.read_table(path, columns=names, use_threads=False)
        rows = rows.flatten() if any(i >= NESTED for i in columns) else rows
        rows = rows.rename_columns([f"c{i}" for i in columns])
        duck.run(MEANING, f"SELECT {duck.select_list([expression])} FROM v", {"v": rows})
        return time.thread_time() - start


class Spark:
    """A session with one core."""

    def __init__(self) -> None:
        from pyspark.sql import SparkSession

        os.environ["JAVA_HOME"] = str(find_java())
        builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.ui.showConsoleProgress", "false")
        for kept in ("retainedJobs", "retainedStages"):  # Spark forgets them after 1000, also one that has just ended
            builder = builder.config(f"spark.ui.{kept}", str(10**9))
        self.session = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
        self.session.sparkContext.setLogLevel("ERROR")
        self.group = 0

    def seconds(self, text: str, path: Path) -> float:
        """The processor time of the task that evaluates an expression over a file."""
        context = self.session.sparkContext
        self.group += 1
        context.setJobGroup(str(self.group), text)
        frame = self.session.read.schema(SCHEMA.ddl).parquet(str(path))
        frame.selectExpr(f"{text} AS r").write.format("noop").mode("overwrite").save()
        tracker, store = context.statusTracker(), context._jsc.sc().statusStore()
        jobs: Sequence[Any] = tracker.getJobIdsForGroup(str(self.group))
        infos = [info for job in jobs if (info := tracker.getJobInfo(job)) is not None]
        stages = [stage for info in infos for stage in info.stageIds]
        return sum(_task_seconds(store, stage) for stage in stages)


def _task_seconds(store: Any, stage: int) -> float:
    """The processor time of a stage's tasks. Spark fills it in a little later than the job ends."""
    for _ in range(500):
        nanos = float(store.lastStageAttempt(stage).executorCpuTime())
        if nanos:
            return nanos / 1e9
        time.sleep(0.01)
    raise RuntimeError("Spark does not say how long a task took")


@dataclass(frozen=True, slots=True)
class Files:
    """Parquet files with all rows, with a tenth of them, and with one."""

    large: Path
    medium: Path
    small: Path

    @staticmethod
    def write(folder: Path) -> Files:
        rows = table(ROWS)
        found = Files(folder / "large.parquet", folder / "medium.parquet", folder / "small.parquet")
        for path, count in ((found.large, ROWS), (found.medium, FEWER), (found.small, 1)):
            pq.write_table(rows.slice(0, count), path, row_group_size=ROWS)
        return found


def _speed(entry: Entry, ours: Ours, spark: Spark, files: Files) -> Speed:
    """Both engines' best times for the same rows, less those for one row."""
    expression, columns = ours.plan(entry.text)
    ours.seconds(expression, columns, files.small)
    short = ours.seconds(expression, columns, files.medium) < LONG
    path, rows = (files.large, ROWS) if short else (files.medium, FEWER)

    def net(seconds: Callable[[Path], float]) -> float:
        started = min(seconds(files.small) for _ in range(RUNS))
        return max(_SHORTEST, min(seconds(path) for _ in range(RUNS)) - started)

    mine = net(lambda file: ours.seconds(expression, columns, file))
    theirs = net(lambda file: spark.seconds(entry.text, file))
    return Speed(entry, rows / mine, rows / theirs)


def measured(say: Callable[[str], None]) -> tuple[list[Speed], list[str]]:
    """The speeds of all entries, and the entries that failed in one of the engines, with the reason."""
    found: list[Speed] = []
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        files = Files.write(Path(folder))
        duck.set_clock([MEANING], 1_700_000_000_000_000)
        ours, spark = Ours(files.large), Spark()
        for text in ("i + j", "upper(x)", "d * 2D", "length(x)"):  # warms up the JVM
            for _ in range(5):
                spark.seconds(text, files.medium)
        for entry in (e for e in entries() if not ONLY or e.name.partition("(")[0] in ONLY):
            try:
                found.append(_speed(entry, ours, spark, files))
            except (duckdb.Error, pa.ArrowException, PySparkException, Py4JJavaError) as problem:
                failed.append(f"{entry.text}: {str(problem).strip().splitlines()[0]}")
                say(f"failed: {failed[-1]}")
                continue
            say(f"{found[-1].ratio:8.2f} x  {found[-1].ours / 1e6:8.2f} M rows/s  {entry.text}")
        spark.session.stop()
    return found, failed


def measure(say: Callable[[str], None]) -> Report:
    """Measures all entries and compares them."""
    found, failed = measured(say)
    report = Report(facts=environment("duckdb", "pyspark", "pyarrow"))
    quick = [speed for speed in found if not speed.entry.slow]
    lowest = min(quick, key=lambda speed: speed.ratio)
    report.facts["rows"] = ROWS
    report.facts["entries"] = len(found)
    report.facts["failed"] = failed
    report.facts["marked slow"] = len(found) - len(quick)
    report.facts["below the bound"] = [s.entry.text for s in quick if s.ratio < REQUIRED_EACH]
    report.facts["ratios"] = {s.entry.name: round(s.ratio, 2) for s in sorted(found, key=lambda s: s.ratio)}
    report.facts["rows a second"] = {s.entry.name: [round(s.ours), round(s.spark)] for s in found}
    report.require("entries that failed", len(failed), 0, "at most")
    report.require(
        "median of all entries / Spark", statistics.median(s.ratio for s in found), REQUIRED_MEDIAN, "at least"
    )
    report.require(f"lowest not marked slow ({lowest.entry.name}) / Spark", lowest.ratio, REQUIRED_EACH, "at least")
    return report


if __name__ == "__main__":
    main(__doc__ or "", measure)
