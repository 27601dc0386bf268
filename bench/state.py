"""What an epoch costs that touches 1,000 groups, with 1,000,000 open groups and with 10,000.

For each kind of state (groups over all time that emit on change, windows that emit on close, sessions) two pipelines
run on two streams: one has 10,000 open groups, the other 1,000,000. Then they take turns: a file of 1,000 rows, each of
another group, makes one epoch. The figure is the ratio of the median of Spark's own `triggerExecution`, warm-up epochs
left out. Beside it: one plain Spark query that does the same with 1,000,000 groups and 10,000, for comparison.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import duckdb
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

import headrace
from bench.report import Report, environment, main
from bench.streaming import plain_settings, session
from headrace.spark.session import Engine

QUICK = "--quick" in sys.argv
SMALL, LARGE, TOUCHED = 10_000, 100_000 if QUICK else 1_000_000, 1_000
WARM, MEASURED = (3, 8) if QUICK else (6, 24)
LIMIT_SECONDS = 300.0
KINDS = {
    "changes": "SELECT user, count(*) AS n, sum(value) AS total FROM {s} GROUP BY user EMIT CHANGES",
    "window": (
        "SELECT window.start, user, count(*) AS n, sum(value) AS total FROM {s} GROUP BY window(ts, '1 day'), user"
    ),
    "session": (
        "SELECT session_window.start, user, count(*) AS n, sum(value) AS total FROM {s} "
        "GROUP BY session_window(ts, '12 hours'), user"
    ),
}
Epoch = Callable[[], float]


class Groups:
    """A directory that first gets a row of each of `open` groups, then files that touch 1,000 of them."""

    def __init__(self, directory: Path, groups: int) -> None:
        directory.mkdir(parents=True)
        self.directory, self.groups, self.files = directory, groups, 0
        self.random = random.Random(groups)
        self._write(f"range({groups})")

    def touch(self) -> None:
        chosen = self.random.sample(range(self.groups), TOUCHED)
        self._write(f"(SELECT unnest({chosen}))")

    def _write(self, numbers: str) -> None:
        """Event time goes forward a millisecond a file, so nothing closes."""
        time = f"strftime(TIMESTAMP '2026-01-01 06:00:00' + to_milliseconds({self.files}), '%Y-%m-%dT%H:%M:%S.%gZ')"
        rows = f"SELECT {time} AS ts, 'user-' || i AS \"user\", i % 1000 AS value FROM {numbers} t(i)"
        hidden = self.directory / f".{self.files:06}.json"
        duckdb.sql(f"COPY ({rows}) TO '{hidden}' (FORMAT json)")
        os.rename(hidden, self.directory / f"{self.files:06}.json")
        self.files += 1


@contextmanager
def ours(engine: Engine, work: Path, kind: str, groups: int) -> Iterator[Epoch]:
    """A pipeline with `groups` open groups; each call is one epoch and returns its milliseconds."""
    work /= str(groups)
    source = Groups(work / "in", groups)
    with headrace.connect(work / "state", spark=engine.spark) as hub:
        hub.sql(
            "CREATE STREAM s (ts TIMESTAMP, user STRING, value BIGINT, WATERMARK FOR ts AS ts - INTERVAL 1 SECOND) "
            f"WITH (source = 'files', format = 'json', path = '{source.directory}');"
            "CREATE SINK out WITH (type = 'memory', max_rows = '1000');"
            f"CREATE PIPELINE p INTO out AS {KINDS[kind].format(s='s')}"
        )
        stream = hub.streams["s"]

        def last() -> tuple[int, float]:
            status = stream.status()
            return status.epoch, status.epoch_ms or 0.0

        _until(lambda: stream.status().rows >= groups)
        yield _epochs(source, last)


@contextmanager
def plain(engine: Engine, work: Path, kind: str, groups: int) -> Iterator[Epoch]:
    """The same as one ordinary query."""
    work /= str(groups)
    source = Groups(work / "in", groups)
    spark = engine.spark.newSession()
    for key, value in plain_settings(engine.cores).items():
        spark.conf.set(key, value)
    rows = spark.readStream.schema("ts TIMESTAMP, user STRING, value BIGINT").json(str(source.directory))
    query = _plain(rows.withWatermark("ts", "1 second"), kind).writeStream.format("noop")
    mode = "update" if kind == "changes" else "append"
    running = query.outputMode(mode).option("checkpointLocation", str(work / "checkpoint")).start()

    def last() -> tuple[int, float]:
        progress = running.lastProgress
        if progress is None or "addBatch" not in progress["durationMs"]:
            return -1, 0.0
        return int(progress["batchId"]), float(progress["durationMs"]["triggerExecution"])

    try:
        _until(lambda: last()[0] >= 0)
        yield _epochs(source, last)
    finally:
        running.stop()


def _plain(rows: DataFrame, kind: str) -> DataFrame:
    columns = {"changes": [], "window": [f.window("ts", "1 day")], "session": [f.session_window("ts", "12 hours")]}
    return rows.groupBy(*columns[kind], "user").agg(f.count("*"), f.sum("value"))


def _epochs(source: Groups, last: Callable[[], tuple[int, float]]) -> Epoch:
    def epoch() -> float:
        before = last()[0]
        source.touch()
        _until(lambda: last()[0] > before)
        return last()[1]

    return epoch


def _until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"an epoch took more than {LIMIT_SECONDS:g} s")
        time.sleep(0.02)


def medians(
    contender: Callable[[int], AbstractContextManager[Epoch]], say: Callable[[str], None], name: str
) -> tuple[float, float]:
    """Median milliseconds of an epoch with few and with many open groups; the two take turns."""
    times: dict[int, list[float]] = {SMALL: [], LARGE: []}
    with contender(SMALL) as few, contender(LARGE) as many:
        for turn in range(WARM + MEASURED):
            for groups, epoch in ((SMALL, few), (LARGE, many)):
                took = epoch()
                if turn >= WARM:
                    times[groups].append(took)
    small, large = statistics.median(times[SMALL]), statistics.median(times[LARGE])
    say(f"  {name}: {small:.0f} ms with {SMALL:,} open groups, {large:.0f} ms with {LARGE:,}: {large / small:.2f}")
    return small, large


def measure(say: Callable[[str], None]) -> Report:
    report = Report(facts=environment("pyspark", "duckdb", "pyarrow"))
    table: dict[str, list[int]] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as scratch:
        work = Path(scratch)
        engine = session(work)
        try:
            for kind in KINDS:
                found = medians(partial(ours, engine, work / kind, kind), say, f"headrace, {kind}")
                table[kind] = [round(ms) for ms in found]
                report.require(f"state_{kind}_large_over_small", found[1] / found[0], 1.5, "at most", "x")
            for kind in KINDS:
                beside = medians(partial(plain, engine, work / f"spark-{kind}", kind), say, f"Spark, {kind}")
                table[f"spark {kind}"] = [round(ms) for ms in beside]
        finally:
            engine.stop()
    report.facts["epoch_ms_small_and_large"] = table
    return report


if __name__ == "__main__":
    main(__doc__ or "", measure)
