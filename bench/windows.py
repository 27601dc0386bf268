"""Tumbling, hopping and session windows with 10 and with 100,000 keys, beside one plain Spark streaming query each.

One headrace pipeline against one ordinary query: count and sum by window and key over JSON of twenty columns, of which
three are needed. How both are set up and how a figure is taken (warm-up left out) is in bench/streaming.py.
Contenders take turns, each run in a new query with a new checkpoint; the best run of each counts.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from bench import feed
from bench.report import Report, environment, main
from bench.streaming import Build, plain, plain_settings, session, shared
from headrace.spark.session import QUERY_SETTINGS, Engine

QUICK = "--quick" in sys.argv
FILE_ROWS = 25_000 if QUICK else 125_000
# An epoch of headrace reads at most 512 MiB by default, which is twelve of these files: plain Spark may read as many.
WARM, MEASURED, PER_EPOCH = 6, 24, 12
ROUNDS = 1 if QUICK else 2
# Event time goes forward a millisecond a row, so one of 10 keys comes every 10 ms and one of 100,000 every 100 s: these
# gaps end a session now and then.
GAPS = {10: "50 milliseconds", 100_000: "3 minutes"}


def window(kind: str, keys: int) -> tuple[str, Column]:
    """The window in SQL, and as plain Spark's column."""
    if kind == "tumbling":
        return "window(ts, '1 minute')", f.window("ts", "1 minute")
    if kind == "hopping":
        return "window(ts, '1 minute', '20 seconds')", f.window("ts", "1 minute", "20 seconds")
    return f"session_window(ts, '{GAPS[keys]}')", f.session_window("ts", GAPS[keys])


def build(column: Column) -> Build:
    """The query for plain Spark."""

    def query(rows: DataFrame) -> DataFrame:
        return rows.groupBy(column, "user").agg(f.count("*"), f.sum("value"))

    return query


def contest(engine: Engine, work: Path, files: list[Path], kind: str, keys: int) -> dict[str, float]:
    """Rows/s of both contenders."""
    text, column = window(kind, keys)
    name = "session_window" if kind == "session" else "window"
    select = f"SELECT {name}.start, user, count(*) AS n, sum(value) AS total FROM s GROUP BY {text}, user"
    best: dict[str, float] = {}
    for turn in range(ROUNDS):
        ours: Any = shared(engine, work / f"ours-{turn}", [select], PER_EPOCH, FILE_ROWS)
        spark = plain(engine, work / f"spark-{turn}", ("ts", "user", "value"), [build(column)], PER_EPOCH)
        with ours as (_, run):
            run(files[:WARM])
            seconds = {"headrace": run(files[WARM:])}
        with spark as run:
            run(files[:WARM])
            seconds["spark"] = run(files[WARM:])
        for who, took in seconds.items():
            best[who] = max(best.get(who, 0.0), MEASURED * FILE_ROWS / took)
    return best


def measure(say: Callable[[str], None]) -> Report:
    report = Report(facts=environment("pyspark", "duckdb", "pyarrow"))
    table: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as scratch:
        work = Path(scratch)
        engine = session(work)
        try:
            say(
                f"plain Spark: {plain_settings(engine.cores)}, maxFilesPerTrigger {PER_EPOCH}, schema of 3 fields, noop"
            )
            say(f"headrace: {QUERY_SETTINGS}, max_epoch_bytes of {PER_EPOCH} files, noop")
            say(f"{MEASURED * FILE_ROWS:,} rows, {PER_EPOCH * FILE_ROWS:,} an epoch; warm-up: {WARM} files before")
            for keys in (10, 100_000):
                files = feed.write(work / f"data-{keys}", WARM + MEASURED, FILE_ROWS, keys)
                for kind in ("tumbling", "hopping", "session"):
                    found = contest(engine, work / f"{kind}-{keys}", files, kind, keys)
                    table[f"{kind}, {keys:,} keys"] = {who: round(rate) for who, rate in found.items()}
                    rates = f"{found['headrace']:,.0f} and {found['spark']:,.0f} rows/s"
                    ratio = found["headrace"] / found["spark"]
                    say(f"  {kind}, {keys:,} keys: {rates}: {ratio:.2f}")
                    report.require(f"windows_{kind}_{keys}_keys_over_spark", ratio, 2.0, "at least", "x")
        finally:
            engine.stop()
    report.facts["rows_per_s"] = table
    return report


if __name__ == "__main__":
    main(__doc__ or "", measure)
