"""Time per small epoch for 1, 8, 32 and 300 windowed pipelines on one stream, beside one plain Spark stateful query.

All run in one session on the same small files, one file an epoch, into sinks that do nothing, four rounds each
(--quick: one, with fewer epochs). The figure is the median over the rounds of Spark's own `triggerExecution`, warm-up
epochs left out. The JVM warms up over dozens of epochs, so every other round has the opposite order.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import functions as f

import headrace
from bench.report import Report, environment, main
from headrace.model.program import Meaning
from headrace.spark.session import QUERY_SETTINGS, Engine, start

QUICK = "--quick" in sys.argv
WARM, MEASURED, ROUNDS = (4, 10, 1) if QUICK else (12, 20, 4)
ROWS = 200
LIMIT_SECONDS = 60.0
PIPELINES = (1, 8, 32, 300)


class Feed:
    """A directory that gets one small file at a time, as if it had just been written."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self.files = 0

    def drop(self) -> None:
        base = self.files * ROWS
        lines = [
            json.dumps({"device": f"d{i % 10}", "ts": _time(base + i), "value": i, "other": "x" * 40})
            for i in range(ROWS)
        ]
        hidden = self.directory / f".{self.files:06}.json"
        hidden.write_text("\n".join(lines) + "\n")
        os.rename(hidden, self.directory / f"{self.files:06}.json")
        self.files += 1


def _time(i: int) -> str:
    """A tenth of a second an event, so every few epochs close a window of ten seconds."""
    second = i // 10
    return f"2026-01-01T{second // 3600 % 24:02}:{second // 60 % 60:02}:{second % 60:02}.{i % 10}00Z"


@contextmanager
def shared(engine: Engine, work: Path, count: int) -> Iterator[Callable[[], float]]:
    """`count` pipelines on one headrace stream."""
    feed = Feed(work / "in")
    with headrace.connect(work / "state", spark=engine.spark) as hub:
        pipelines = ";".join(
            f"CREATE PIPELINE p{i} INTO out AS SELECT window.start, device, count(*) AS n, sum(value) AS total "
            f"FROM s WHERE value % 400 <> {i} GROUP BY window(ts, '10 seconds'), device"
            for i in range(count)
        )
        feed.drop()
        hub.sql(
            "CREATE STREAM s (device STRING, ts TIMESTAMP, value BIGINT, other STRING, "
            "WATERMARK FOR ts AS ts - INTERVAL 1 SECOND) "
            f"WITH (source = 'files', format = 'json', path = '{feed.directory}');"
            f"CREATE SINK out WITH (type = 'noop');{pipelines}"
        )
        stream = hub.streams["s"]

        def epoch() -> float:
            before = stream.status().epoch
            feed.drop()
            return until(lambda: s.epoch_ms if (s := stream.status()).epoch > before else None)

        until(lambda: 1.0 if stream.status().epoch >= 0 else None)
        yield epoch


@contextmanager
def plain(engine: Engine, work: Path) -> Iterator[Callable[[], float]]:
    """One ordinary Structured Streaming query over the same kind of files, tuned by hand like ours."""
    feed = Feed(work / "in")
    spark = engine.spark.newSession()
    for key, value in (QUERY_SETTINGS | {"spark.sql.shuffle.partitions": str(engine.cores)}).items():
        spark.conf.set(key, value)
    feed.drop()
    rows = spark.readStream.schema("device STRING, ts TIMESTAMP, value BIGINT").json(str(feed.directory))
    kept = rows.withWatermark("ts", "1 second").where("value % 40 <> 0")
    windows = kept.groupBy(f.window("ts", "10 seconds"), "device").agg(f.count("*"), f.sum("value"))
    writer = windows.writeStream.format("noop").outputMode("append")
    query = writer.option("checkpointLocation", str(work / "checkpoint")).start()

    def last() -> tuple[int, float]:
        progress = query.lastProgress
        if progress is None or "addBatch" not in progress["durationMs"]:
            return -1, 0.0
        return int(progress["batchId"]), float(progress["durationMs"]["triggerExecution"])

    def epoch() -> float:
        before = last()[0]
        feed.drop()
        return until(lambda: now[1] if (now := last())[0] > before else None)

    try:
        until(lambda: 1.0 if last()[0] >= 0 else None)
        yield epoch
    finally:
        query.stop()


def until(look: Callable[[], float | None]) -> float:
    deadline = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < deadline:
        found = look()
        if found is not None:
            return found
        time.sleep(0.02)
    raise TimeoutError("an epoch took more than a minute")


def measure(say: Callable[[str], None]) -> Report:
    report = Report(facts=environment("pyspark", "duckdb", "pyarrow"))
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as scratch:
        work = Path(scratch)
        engine = start(None, work / "spark.log", Meaning())
        try:
            names = ["spark", *(f"n{n}" for n in PIPELINES)]
            for turn in range(ROUNDS):
                for name in names if turn % 2 == 0 else reversed(names):
                    place = work / f"{name}-{turn}"
                    place.mkdir()
                    runner = plain(engine, place) if name == "spark" else shared(engine, place, int(name[1:]))
                    with runner as epoch:
                        for _ in range(WARM):
                            epoch()
                        found = [epoch() for _ in range(MEASURED)]
                    times.setdefault(name, []).extend(found)
                    say(f"round {turn + 1} of {ROUNDS}: {name}: {statistics.median(found):.0f} ms an epoch")
        finally:
            engine.stop()
    medians = {name: statistics.median(values) for name, values in times.items()}
    report.facts["epoch_ms"] = {name: round(value) for name, value in medians.items()}
    report.require("epoch_n32_over_n1", medians["n32"] / medians["n1"], 2.5, "at most", "x")
    report.require("epoch_n8_over_plain_spark", medians["n8"] / medians["spark"], 1.6, "at most", "x")
    report.require("epoch_n300_over_plain_spark", medians["n300"] / medians["spark"], 4.0, "at most", "x")
    return report


if __name__ == "__main__":
    main(__doc__ or "", measure)
