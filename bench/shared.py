"""N windowed pipelines on one JSON stream of twenty columns, beside N ordinary Structured Streaming queries.

Every pipeline needs three columns and has a filter of its own; windows of a minute, 100 keys, count and sum. How both
are set up and how a figure is taken (warm-up left out) is in bench/streaming.py. Contenders take turns, each run
in a new query with a new checkpoint, and the best run of each counts: a noisy neighbour hits both. With 32 of them both
run once, because Spark takes minutes.

Two tables follow: one pipeline that needs 1, 3, 10 or 20 of the twenty columns, and 300 pipelines at a fixed rate.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from bench import feed
from bench.processes import usage
from bench.report import Report, environment, main
from bench.streaming import Build, plain, plain_settings, session, shared
from headrace.spark.session import QUERY_SETTINGS, Engine

QUICK = "--quick" in sys.argv
FILE_ROWS = 12_500 if QUICK else 125_000
WARM, MEASURED, PER_EPOCH = 2, 16, 4  # files
KEYS = 100
COUNTS = (1, 8, 32)
ROUNDS = {1: 3, 8: 2, 32: 1}
RATE, RATE_SECONDS, RATE_PIPELINES = 5000, 10 if QUICK else 60, 300
Say = Callable[[str], None]


def select(number: int) -> str:
    """Pipeline `number`: no two have the same filter, and each keeps less than the one before."""
    return (
        "SELECT window.start, user, count(*) AS n, sum(value) AS total FROM s "
        f"WHERE value >= {number * 3} GROUP BY window(ts, '1 minute'), user"
    )


def build(number: int) -> Build:
    """The same for plain Spark."""

    def query(rows: DataFrame) -> DataFrame:
        kept = rows.where(f.col("value") >= number * 3)
        return kept.groupBy(f.window("ts", "1 minute"), "user").agg(f.count("*"), f.sum("value"))

    return query


def compare(engine: Engine, work: Path, files: list[Path], say: Say) -> dict[str, float]:
    """The best seconds of each contender, by name."""
    warm, measured = files[:WARM], files[WARM:]
    best: dict[str, float] = {}

    def note(name: str, turn: int, seconds: float) -> None:
        best[name] = min(seconds, best.get(name, seconds))
        rate = len(measured) * FILE_ROWS / seconds
        say(f"  {name}, round {turn + 1}: {seconds:.2f} s, {rate:,.0f} rows/s")

    for count in COUNTS:
        for turn in range(ROUNDS[count]):
            place = work / f"{count}-{turn}"
            with shared(engine, place / "ours", [select(i) for i in range(count)], PER_EPOCH, FILE_ROWS) as (_, run):
                run(warm)
                note(f"headrace {count}", turn, run(measured))
            fields = ("ts", "user", "value")
            with plain(engine, place / "spark", fields, [build(i) for i in range(count)], PER_EPOCH) as run:
                run(warm)
                note(f"spark {count}", turn, run(measured))
    return best


def by_columns(engine: Engine, work: Path, files: list[Path], say: Say) -> dict[int, float]:
    """Rows/s of one pipeline by how many of the columns it needs: the event time, and a count of each other one."""
    found: dict[int, float] = {}
    for turn in range(2):
        for needed in (1, 3, 10, 20):
            counts = ", ".join(f"count({name}) AS n_{name}" for name, _, _ in feed.COLUMNS[1:needed]) or "count(*) AS n"
            text = f"SELECT window.start, {counts} FROM s GROUP BY window(ts, '1 minute')"
            with shared(engine, work / f"columns-{needed}-{turn}", [text], PER_EPOCH, FILE_ROWS) as (_, run):
                run(files[:WARM])
                rate = (len(files) - WARM) * FILE_ROWS / run(files[WARM:])
            found[needed] = max(rate, found.get(needed, 0.0))
    for needed, rate in found.items():
        say(f"  {needed:2} of 20 columns: {rate:,.0f} rows/s")
    return found


def at_a_rate(engine: Engine, work: Path, say: Say) -> dict[str, float]:
    """300 pipelines while `RATE` rows a second arrive, in a file every half second: processor, memory, lag."""
    part = RATE // 2
    files = feed.write(work / "drops", RATE_SECONDS * 2 + 2, part, KEYS)
    selects = [select(i) for i in range(RATE_PIPELINES)]
    lags: list[tuple[float, int]] = []
    with shared(engine, work / "rate", selects, PER_EPOCH * 1000, part) as (hub, run):
        run(files[:2])
        cpu, began = usage()[0], time.monotonic()
        for number, file in enumerate(files[2:]):
            time.sleep(max(0.0, began + number * 0.5 - time.monotonic()))
            feed.give(work / "rate" / "in", [file])
            lags.append((time.monotonic() - began, (number + 3) * part - hub.streams["s"].status().rows))
        seconds = time.monotonic() - began
        after, memory = usage()
        run([])
        settled = time.monotonic() - began - seconds
    half = [max(lag for at, lag in lags if first <= at < first + seconds / 2) for first in (0.0, seconds / 2)]
    say(
        f"  {RATE_PIPELINES} pipelines, {RATE:,} rows/s for {seconds:.0f} s: {(after - cpu) / seconds:.2f} cores, "
        f"{memory / 1e6:,.0f} MB in all processes (the JVM's heap is allowed 4 GB), lag at most {half[0] / RATE:.1f} s "
        f"in the first half and {half[1] / RATE:.1f} s in the second, {settled:.1f} s after the last row all was done"
    )
    return {"cores": (after - cpu) / seconds, "bytes": memory, "lag_first": half[0] / RATE, "lag_last": half[1] / RATE}


def measure(say: Say) -> Report:
    report = Report(facts=environment("pyspark", "duckdb", "pyarrow"))
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as scratch:
        work = Path(scratch)
        files = feed.write(work / "data", WARM + MEASURED, FILE_ROWS, KEYS)
        rows = MEASURED * FILE_ROWS
        engine = session(work)
        try:
            say(
                f"plain Spark: {plain_settings(engine.cores)}, maxFilesPerTrigger {PER_EPOCH}, schema of 3 fields, noop"
            )
            say(f"headrace: {QUERY_SETTINGS}, max_epoch_bytes of {PER_EPOCH} files, noop")
            say(f"{rows:,} rows in {MEASURED} files, {PER_EPOCH} files an epoch; warm-up: {WARM} files before")
            best = compare(engine, work, files, say)
            columns = by_columns(engine, work, files, say)
            rate = at_a_rate(engine, work, say)
        finally:
            engine.stop()
    report.facts["rows_per_s"] = {name: round(rows / seconds) for name, seconds in best.items()}
    report.facts["rows_per_s_by_columns"] = {str(needed): round(found) for needed, found in columns.items()}
    report.facts["at_a_rate"] = {name: round(value, 2) for name, value in rate.items()}
    for count, bound in ((8, 6.0), (32, 12.0)):
        ratio = best[f"spark {count}"] / best[f"headrace {count}"]
        report.require(f"shared_n{count}_over_spark", ratio, bound, "at least", "x")
    report.require("shared_n32_over_n1", best["headrace 32"] / best["headrace 1"], 3.0, "at most", "x")
    report.require("lag_second_half_over_first", rate["lag_last"] / rate["lag_first"], 1.5, "at most", "x")
    return report


if __name__ == "__main__":
    main(__doc__ or "", measure)
