"""How fast formats decode, beside pyarrow, polars, duckdb and Spark: same bytes, one run, one core each.

Rounds are interleaved and the best of each contender counts, so that a noisy neighbour hits all of them. polars may
leave timestamps as text, because it parses them slowly: that favours it.
"""

from __future__ import annotations

import os

os.environ["POLARS_MAX_THREADS"] = "1"

import multiprocessing
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from bench.report import Report, environment, main
from headrace.bridge.reports import PlannedEpoch
from headrace.formats import FORMATS
from headrace.formats.format_kind import Format
from headrace.model.definitions import PipelineDef, SinkDef, StreamDef
from headrace.model.plan_version import PlanVersion
from headrace.model.program import Expression, Meaning, PipelineProgram, Ring0Program
from headrace.model.schema import Field, Schema, View, parse_type
from headrace.ring0.task import run_task
from headrace.ring0.task_input import TaskInput
from headrace.sources import SOURCES
from headrace.sources.extent import Extent
from headrace.sources.reading import CHUNK, FileRange, FileSplit
from headrace.sources.source_kind import RawChunk
from headrace.spark.java import find_java

NAMED = (("device", "STRING"), ("ts", "TIMESTAMP"), ("temp", "DOUBLE"), ("hum", "DOUBLE"), ("pressure", "DOUBLE"),
         ("voltage", "DOUBLE"), ("status", "STRING"), ("ok", "BOOLEAN"), ("seq", "BIGINT"), ("n", "INT"))  # fmt: skip
SCHEMA = Schema(tuple(Field(n, parse_type(t)) for n, t in (*NAMED, *((f"x{i}", "DOUBLE") for i in range(10)))))
WIDE = Schema(tuple(Field(f"w{i}", parse_type("DOUBLE")) for i in range(1000)))
THREE, ALL = [0, 1, 2], list(range(20))
DUCK = {"STRING": "VARCHAR", "TIMESTAMP": "TIMESTAMPTZ", "INT": "INTEGER"}
POLARS: dict[str, Any] = {
    "STRING": pl.String, "TIMESTAMP": pl.Datetime("us", "UTC"), "DOUBLE": pl.Float64, "BOOLEAN": pl.Boolean,
    "BIGINT": pl.Int64, "INT": pl.Int32,
}  # fmt: skip


def generate(path: Path, fmt: str, schema: Schema, size: int) -> int:
    """Write about `size` bytes of sensor data; returns the exact size."""
    stream = StreamDef("bench", schema, 1 if len(schema) == 20 else None, 0, "generator", fmt, {"disorder": "0.05"})
    with tempfile.TemporaryDirectory() as state:
        source = SOURCES["generator"].make(stream, Path(state), time.time)
        end = source.latest(source.initial(), size)
        maker = FORMATS[fmt].make(schema, {})
        with open(path, "wb") as out:
            for split in source.splits(source.initial(), end, 1):
                for chunk in split.read(maker):
                    out.write(chunk.data)
    return path.stat().st_size


def split_of(path: Path) -> FileSplit:
    """The whole file as a task would read it."""
    fd = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        return FileSplit((FileRange(Extent.of(fd, str(path), 0, size, sealed=True), 0, size),))
    finally:
        os.close(fd)


def decode(path: Path, fmt: Format, wanted: Sequence[int]) -> int:
    """Decode a file on the path of a task; rows."""
    rows = 0
    for chunk in split_of(path).read(fmt):
        decoded = fmt.decode(chunk.data, wanted, chunk.origin, chunk.offset)
        assert not decoded.bad
        rows += decoded.rows
    return rows


def decode_filtered(path: Path, fmt: Format, wanted: Sequence[int], keep: float) -> int:
    """Parse the filter's column first (seq), the others only for the rows that it keeps: a share of `keep`."""
    rows = 0
    every = round(1 / keep)
    for chunk in split_of(path).read(fmt):
        index = fmt.index(chunk.data, [8], chunk.origin, chunk.offset)
        seq: Any = index.parse([8]).columns[8]
        selection = np.flatnonzero(seq.to_numpy() % every == 0)
        rows += index.parse([c for c in wanted if c != 8], selection).rows
    return rows


Contenders = dict[str, Callable[[], Any]]


def json_contenders(path: Path, wanted: Sequence[int]) -> Contenders:
    fields = [SCHEMA[i] for i in wanted]
    fmt = FORMATS["json"].make(SCHEMA, {})
    con = duckdb.connect()
    con.execute("SET threads = 1")
    kinds = "{" + ", ".join(f"'{f.name}': '{DUCK.get(f.type.ddl, f.type.ddl)}'" for f in fields) + "}"
    sql = f"SELECT * FROM read_json('{path}', format = 'newline_delimited', columns = {kinds})"
    explicit = pa_json.ParseOptions(
        explicit_schema=_arrow(wanted), unexpected_field_behavior="ignore"
    )  # fmt: skip
    every = {f.name: pl.String if f.type.ddl == "TIMESTAMP" else POLARS[f.type.ddl] for f in SCHEMA}
    names = [f.name for f in fields]

    def polars() -> Any:
        return pl.scan_ndjson(path, schema=every).select(names).collect()

    return {
        "headrace": lambda: decode(path, fmt, wanted),
        "duckdb": lambda: con.sql(sql).to_arrow_table(),
        "polars": polars,
        "pyarrow": lambda: pa_json.read_json(
            str(path), read_options=pa_json.ReadOptions(use_threads=False, block_size=4 << 20), parse_options=explicit
        ),
    }


def csv_contenders(path: Path, schema: Schema, wanted: Sequence[int]) -> Contenders:
    fields = [schema[i] for i in wanted]
    names = [f.name for f in fields]
    fmt = FORMATS["csv"].make(schema, {})
    con = duckdb.connect()
    con.execute("SET threads = 1")
    kinds = "{" + ", ".join(f"'{f.name}': '{DUCK.get(f.type.ddl, f.type.ddl)}'" for f in schema) + "}"
    sql = f"SELECT {', '.join(names)} FROM read_csv('{path}', header = false, auto_detect = false, columns = {kinds})"
    every = {f.name: pl.String if f.type.ddl == "TIMESTAMP" else POLARS[f.type.ddl] for f in schema}
    convert = pa_csv.ConvertOptions(column_types={f.name: f.type.arrow for f in fields}, include_columns=names)

    def polars() -> Any:
        return pl.scan_csv(path, has_header=False, schema=every).select(names).collect()

    return {
        "headrace": lambda: decode(path, fmt, wanted),
        "duckdb": lambda: con.sql(sql).to_arrow_table(),
        "polars": polars,
        "pyarrow": lambda: pa_csv.read_csv(
            str(path),
            read_options=pa_csv.ReadOptions(use_threads=False, block_size=4 << 20, column_names=list(schema.names)),
            convert_options=convert,
        ),
    }


def _arrow(wanted: Sequence[int]) -> Any:
    return pa.schema([pa.field(SCHEMA[i].name, SCHEMA[i].type.arrow) for i in wanted])


def spark_contenders(spark: Any, path: Path, fmt: str, wanted: Sequence[int]) -> Contenders:
    """Spark's own readers, with the columns that are wanted, into a sink that does nothing."""
    from pyspark.sql.functions import col, from_json

    ddl = ", ".join(f"{SCHEMA[i].name} {SCHEMA[i].type.ddl}" for i in wanted)
    names = [SCHEMA[i].name for i in wanted]

    def sink(frame: Any) -> None:
        frame.write.format("noop").mode("overwrite").save()

    if fmt == "csv":
        return {"spark": lambda: sink(spark.read.schema(SCHEMA.ddl).csv(str(path)).select(*names))}
    parsed = from_json(col("value"), ddl)
    return {
        "spark reader": lambda: sink(spark.read.schema(ddl).json(str(path))),
        "spark from_json": lambda: sink(spark.read.text(str(path)).select(parsed.alias("r")).select("r.*")),
    }


def race(contenders: Contenders, size: int, rounds: int) -> dict[str, float]:
    """MB/s of each, the best of `rounds` after one for warming up."""
    best = dict.fromkeys(contenders, float("inf"))
    for turn in range(rounds + 1):
        for name, run in contenders.items():
            began = time.perf_counter()
            run()
            if turn:
                best[name] = min(best[name], time.perf_counter() - began)
    return {name: size / seconds / 1e6 for name, seconds in best.items()}


def peak_growth(path: str) -> float:
    """MB that decoding a file adds to the peak of a process which has everything loaded."""
    fmt = FORMATS["json"].make(SCHEMA, {})
    with open(path, "rb") as f:
        head = f.read(100_000)
    fmt.decode(head[: head.rfind(b"\n") + 1], ALL, "x", 0)
    return growth_of(lambda: decode(Path(path), fmt, ALL)) / 1e6


def growth_of(work: Callable[[], object]) -> int:
    """Bytes that `work` adds to the memory of this process at its peak."""
    before = peak = _resident()
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.001):
            peak = max(peak, _resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    work()
    done.set()
    watcher.join()
    return peak - before


def _resident() -> int:
    """Bytes of memory that this process has in use."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@dataclass(frozen=True)
class Repeated:
    """A split of `count` times the same record of a wide CSV file."""

    record: bytes
    count: int

    def read(self, fmt: Format) -> Iterator[RawChunk]:
        step = max(1, CHUNK // len(self.record))
        for first in range(0, self.count, step):
            yield RawChunk("x", first * len(self.record), self.record * min(step, self.count - first))


def judge_wide(text: str, policy: str, size: int) -> int:
    """Run a task over rows of 1,000 columns that all hold `text`, with a pipeline that reads them all; the bytes."""
    options = {"on_error": policy}
    stream = StreamDef("bench", WIDE, None, 0, "files", "csv", options)
    outputs = (Expression("w0", WIDE[0].type, "c0"),)
    program = PipelineProgram(
        "bench", View.all(), Ring0Program(None, outputs), None, Schema(WIDE.fields[:1]), Meaning()
    )
    plan = PlanVersion(1, stream, (PipelineDef("p", 1, (SinkDef("out", "memory", {}),), program, 1),))
    split = Repeated((",".join([text] * 1000) + "\n").encode(), size // 3000)
    for _ in run_task(TaskInput(plan, split, 0, PlannedEpoch(1, 1, "bench"))):
        pass
    return len(split.record) * split.count


def wide_growth(size: int) -> float:
    """Bytes that judging bad values takes at its peak, for each byte of input."""
    judge_wide("NA", "null", 1 << 20)
    grown = growth_of(lambda: judge_wide("NA", "null", size))
    return grown / size


def bad_values(rounds: int, report: Report, say: Callable[[str], None]) -> None:
    """What rows cost whose values are all bad, beside rows of the same length whose values are all good."""
    size = 16 << 20
    speeds = race(
        {
            "all good": partial(judge_wide, "12", "null", size),
            "all bad, null": partial(judge_wide, "NA", "null", size),
            "all bad, skip": partial(judge_wide, "NA", "skip", size),
        },
        size,
        rounds,
    )
    note("csv 1000 of 1000", speeds, report, say)
    slowest = min(speed for name, speed in speeds.items() if name != "all good")
    report.require("bad cells / clean speed", slowest / speeds["all good"], 0.3, "at least")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        report.require("memory of bad cells per input byte", pool.apply(wide_growth, (2 * size,)), 4, "at most", " B")


# case -> (columns, bound against the fastest library, bound against Spark's fastest reader)
BOUNDS = {
    ("json", "3 of 20"): (THREE, 1.3, 4.0), ("json", "20 of 20"): (ALL, 0.9, 3.0),
    ("csv", "3 of 20"): (THREE, 1.0, 5.0), ("csv", "20 of 20"): (ALL, 0.9, None),
}  # fmt: skip
LIBRARIES = ("duckdb", "polars", "pyarrow")


def note(case: str, speeds: dict[str, float], report: Report, say: Callable[[str], None]) -> None:
    for name, speed in speeds.items():
        report.facts[f"{case}, {name}, MB/s"] = round(speed)
        say(f"   {case:24} {name:16} {speed:8.0f} MB/s")


def run(directory: Path, size: int, rounds: int, spark: Any, report: Report, say: Callable[[str], None]) -> None:
    sizes = {fmt: generate(directory / f"data.{fmt}", fmt, SCHEMA, size) for fmt in ("json", "csv")}
    for (fmt, case), (wanted, against_library, against_spark) in BOUNDS.items():
        path = directory / f"data.{fmt}"
        contenders = json_contenders(path, wanted) if fmt == "json" else csv_contenders(path, SCHEMA, wanted)
        contenders |= spark_contenders(spark, path, fmt, wanted)
        speeds = race(contenders, sizes[fmt], rounds)
        note(f"{fmt} {case}", speeds, report, say)
        ours = speeds["headrace"]
        report.require(
            f"{fmt} {case} / fastest library", ours / max(speeds[n] for n in LIBRARIES), against_library, "at least"
        )
        if against_spark is not None:
            fastest = max(v for k, v in speeds.items() if k.startswith("spark"))
            report.require(f"{fmt} {case} / fastest Spark reader", ours / fastest, against_spark, "at least")
    for fmt in ("json", "csv"):
        path, maker = directory / f"data.{fmt}", FORMATS[fmt].make(SCHEMA, {})
        filtered: Contenders = {
            "all rows": partial(decode, path, maker, ALL),
            "1 % of rows": partial(decode_filtered, path, maker, ALL, 0.01),
        }
        speeds = race(filtered, sizes[fmt], rounds)
        note(f"{fmt} 20 of 20, filter", speeds, report, say)
        report.require(
            f"{fmt} filter that keeps 1 % / no filter", speeds["1 % of rows"] / speeds["all rows"], 2.0, "at least"
        )
    wide = directory / "wide.csv"
    wide_size = generate(wide, "csv", WIDE, size)
    note("csv 3 of 1000", race(csv_contenders(wide, WIDE, [0, 500, 999]), wide_size, rounds), report, say)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        grown = pool.apply(peak_growth, (str(directory / "data.json"),))
    report.require("memory of a task above the interpreter", grown, 64, "at most", " MB")
    bad_values(rounds, report, say)
    in_task(directory, spark, report, say)


def in_task(directory: Path, spark: Any, report: Report, say: Callable[[str], None]) -> None:
    """The same work inside a Spark task, on a large file."""
    for (fmt, case), (wanted, _, _) in BOUNDS.items():
        path = directory / f"large.{fmt}"
        if not path.exists():
            piece = (directory / f"data.{fmt}").read_bytes()
            with open(path, "wb") as out:
                while out.tell() < 256 << 20:
                    out.write(piece)
        size = path.stat().st_size

        def work(_: int, path: Path = path, fmt: str = fmt, wanted: Sequence[int] = wanted) -> float:
            maker = FORMATS[fmt].make(SCHEMA, {})
            began = time.perf_counter()
            decode(path, maker, wanted)
            return time.perf_counter() - began

        task = spark.sparkContext.parallelize([0], 1).map(work)
        best = seconds = float("inf")
        for _ in range(6):  # by turns, so that both see the same neighbours; the first in a task loads the kernels
            best = min(best, work(0))
            seconds = min(seconds, task.collect()[0])
        note(f"{fmt} {case}, in a task", {"headrace": size / seconds / 1e6}, report, say)
        report.require(f"{fmt} {case} in a Spark task / alone", best / seconds, 0.7, "at least")


def spark_session() -> Any:
    os.environ["JAVA_HOME"] = str(find_java())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    return (
        builder.master("local[1]")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.executorEnv.PYTHONPATH", os.pathsep.join(sys.path))
        .getOrCreate()
    )


def measure(say: Callable[[str], None]) -> Report:
    """All cases, with Spark."""
    report = Report(facts=environment("pyarrow", "polars", "duckdb", "pyspark", "numba"))
    spark = spark_session()
    try:
        with tempfile.TemporaryDirectory() as directory:
            run(Path(directory), 64 << 20, 3, spark, report, say)
    finally:
        spark.stop()
    return report


if __name__ == "__main__":
    main("How fast formats decode, beside pyarrow, polars, duckdb and Spark.", measure)
