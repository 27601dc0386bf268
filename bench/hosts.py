"""Pipelines on the epoch and dedicated hosts beside ordinary Structured Streaming queries, and small epochs.

`--only epoch,dedicated,small,neighbours` measures some of the four. `--quick` has a tenth of the rows: it shows that
everything runs, and its figures say little, because the fixed cost of a batch outweighs that of its rows.

Throughput: eight stateless pipelines with `host = 'epoch'`, each with a filter of its own, on one JSON
stream of twenty columns of which they need three; and eight ordinary queries with the same SQL. How both are set up and
how a figure is taken (warm-up left out) is in bench/streaming.py. Contenders take turns, four times (three times
below), and the best run counts: Java's compilers are still busy in the first ones.

Dedicated: four windowed aggregates with `host = 'dedicated'` on the same stream, and four ordinary queries with the
same SQL. Both are done when the last row is committed by every query.

Small epochs: files of 200 rows, one an epoch, with one windowed pipeline, and with a pipeline on the epoch host beside
it. The figure is the median of Spark's own `triggerExecution` over all rounds, warm-up epochs left out.

Neighbours: see bench/neighbours.py.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

import headrace
from bench import feed
from bench.epoch import Feed, until
from bench.neighbours import NEIGHBOURS, VARIANTS, seconds_beside
from bench.report import Report, environment, main
from bench.streaming import Build, plain, session, shared
from headrace.spark.session import Engine

QUICK = "--quick" in sys.argv
FILE_ROWS = 12_500 if QUICK else 125_000
# Files. Warm-up is one whole epoch. The shared host reads a million rows in a second: the neighbours of a pipeline that
# waits two seconds in every batch get more, so that they meet several of its batches.
WARM, MEASURED, PER_EPOCH = 4, 8 if QUICK else 24, 4
BESIDE = MEASURED if QUICK else 48
KEYS, PIPELINES, ROUNDS = 100, 8, 1 if QUICK else 2
WARM_EPOCHS, EPOCHS = (8, 10) if QUICK else (15, 25)
HOSTED = "CREATE PIPELINE e INTO out WITH (host = 'epoch') AS SELECT soundex(device) AS d, value FROM s;"
Say = Callable[[str], None]
ONLY = (
    sys.argv[sys.argv.index("--only") + 1].split(",")
    if "--only" in sys.argv
    else ["epoch", "dedicated", "small", "neighbours"]
)
DEDICATED = 4


def select(number: int) -> str:
    """Pipeline `number`: no two have the same filter."""
    return f"SELECT ts, concat(user, soundex(user)) AS who, value * 2 AS twice FROM s WHERE value >= {number * 100}"


def build(number: int) -> Build:
    """The same for plain Spark."""

    def query(rows: DataFrame) -> DataFrame:
        kept = rows.where(f.col("value") >= number * 100)
        return kept.select("ts", f.concat("user", f.soundex("user")).alias("who"), (f.col("value") * 2).alias("twice"))

    return query


def windowed(number: int) -> str:
    """Pipeline `number` on the dedicated host."""
    return (
        "SELECT window.start AS start, user, count(*) AS n, max(value) AS top FROM s "
        f"WHERE value >= {number * 100} GROUP BY window(ts, '10 seconds'), user"
    )


def build_windowed(number: int) -> Build:
    """The same for plain Spark."""

    def query(rows: DataFrame) -> DataFrame:
        groups = rows.where(f.col("value") >= number * 100).groupBy(f.window("ts", "10 seconds"), "user")
        found = groups.agg(f.count("*").alias("n"), f.max("value").alias("top"))
        return found.select(f.col("window.start").alias("start"), "user", "n", "top")

    return query


def dedicated(engine: Engine, work: Path, files: list[Path], say: Say) -> dict[str, float]:
    """The best seconds of four pipelines on the dedicated host, and of four ordinary queries."""
    warm, measured = files[:WARM], files[WARM : WARM + MEASURED]
    best: dict[str, float] = {}
    for turn in range(ROUNDS + 1):
        place = work / f"dedicated-{turn}"
        selects = [windowed(i) for i in range(DEDICATED)]
        with shared(engine, place / "ours", selects, PER_EPOCH, FILE_ROWS, "dedicated") as (hub, run):
            run(warm)
            ours = run(measured)
            assert all(p.status().state == "running" for p in hub.pipelines.values())
        builds = [build_windowed(i) for i in range(DEDICATED)]
        with plain(engine, place / "spark", ("ts", "user", "value"), builds, PER_EPOCH) as run:
            run(warm)
            theirs = run(measured)
        for name, seconds in (("headrace", ours), ("spark", theirs)):
            best[name] = min(seconds, best.get(name, seconds))
            rate = len(measured) * FILE_ROWS / seconds
            say(f"  {DEDICATED} x {name}, dedicated, round {turn + 1}: {seconds:.2f} s, {rate:,.0f} rows/s")
    return best


def throughput(engine: Engine, work: Path, files: list[Path], say: Say) -> dict[str, float]:
    """The best seconds of each contender."""
    warm, measured = files[:WARM], files[WARM : WARM + MEASURED]
    best: dict[str, float] = {}
    for turn in range(ROUNDS + 2):
        place = work / f"turn-{turn}"
        selects = [select(i) for i in range(PIPELINES)]
        with shared(engine, place / "ours", selects, PER_EPOCH, FILE_ROWS, "epoch") as (hub, run):
            run(warm)
            ours = run(measured)
            assert all(p.status().state == "running" for p in hub.pipelines.values())
        with plain(
            engine, place / "spark", ("ts", "user", "value"), [build(i) for i in range(PIPELINES)], PER_EPOCH
        ) as run:
            run(warm)
            theirs = run(measured)
        for name, seconds in (("headrace", ours), ("spark", theirs)):
            best[name] = min(seconds, best.get(name, seconds))
            rate = len(measured) * FILE_ROWS / seconds
            say(f"  {PIPELINES} x {name}, round {turn + 1}: {seconds:.2f} s, {rate:,.0f} rows/s")
    return best


@contextmanager
def small(engine: Engine, work: Path, with_spark: bool) -> Iterator[Callable[[], float]]:
    """A windowed pipeline on small files, alone or with a pipeline on the epoch host."""
    files = Feed(work / "in")
    files.drop()
    with headrace.connect(work / "state", spark=engine.spark) as hub:
        hub.sql(
            "CREATE STREAM s (device STRING, ts TIMESTAMP, value BIGINT, other STRING, "
            "WATERMARK FOR ts AS ts - INTERVAL 1 SECOND) "
            f"WITH (source = 'files', format = 'json', path = '{files.directory}');"
            "CREATE SINK out WITH (type = 'memory', max_rows = '1000');"
            "CREATE PIPELINE w INTO out AS SELECT window.start, device, count(*) AS n, sum(value) AS total "
            "FROM s GROUP BY window(ts, '10 seconds'), device;"
            + (
                "CREATE PIPELINE e INTO out WITH (host = 'epoch') AS SELECT soundex(device) AS d, value FROM s;"
                if with_spark
                else ""
            )
        )
        stream = hub.streams["s"]

        def epoch() -> float:
            before = stream.status().epoch
            files.drop()
            return until(lambda: s.epoch_ms if (s := stream.status()).epoch > before else None)

        until(lambda: 1.0 if stream.status().epoch >= 0 else None)
        yield epoch


def small_epochs(engine: Engine, work: Path, say: Say) -> dict[str, float]:
    """The median milliseconds of an epoch, without and with a pipeline on the epoch host."""
    times: dict[str, list[float]] = {"without": [], "with": []}
    for turn in range(ROUNDS + 1):
        for name, found in times.items():
            place = work / f"small-{name}-{turn}"
            place.mkdir()
            with small(engine, place, name == "with") as epoch:
                for _ in range(WARM_EPOCHS):
                    epoch()
                measured = [epoch() for _ in range(EPOCHS)]
            found.extend(measured)
            say(f"  {name} a pipeline on the epoch host, round {turn + 1}: {statistics.median(measured):.0f} ms")
    return {name: statistics.median(found) for name, found in times.items()}


def neighbours(engine: Engine, work: Path, files: list[Path], say: Say) -> dict[str, float]:
    """The best seconds of the neighbours of a slow pipeline, by its backpressure."""
    best: dict[str, float] = {}
    for turn in range(ROUNDS + 1):
        for variant in VARIANTS:
            place, selects = work / f"neighbours-{turn}-{variant}", [windowed(i) for i in range(NEIGHBOURS)]
            took, behind = seconds_beside(engine, place, variant, selects, files, WARM, FILE_ROWS)
            best[variant] = min(took, best.get(variant, took))
            say(f"  {NEIGHBOURS} neighbours, {variant}, round {turn + 1}: {took:.2f} s; {behind:,} rows behind")
    return best


def measure(say: Say) -> Report:
    report = Report(facts=environment("pyspark", "duckdb", "pyarrow"))
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as scratch:
        work = Path(scratch)
        files = feed.write(work / "data", WARM + BESIDE, FILE_ROWS, KEYS)
        engine = session(work)
        try:
            for part in ONLY:
                before = len(report.figures)
                PARTS[part](engine, work, files, say, report)
                for figure in report.figures[before:]:  # a run that is cut off has said what it knows
                    say(figure.line())
        finally:
            engine.stop()
    return report


def _require_throughput(engine: Engine, work: Path, files: list[Path], say: Say, report: Report) -> None:
    best = throughput(engine, work, files, say)
    report.facts["rows_per_s"] = {name: round(MEASURED * FILE_ROWS / s) for name, s in best.items()}
    report.require("epoch_host_n8_over_spark", best["spark"] / best["headrace"], 4.0, "at least", "x")


def _require_dedicated(engine: Engine, work: Path, files: list[Path], say: Say, report: Report) -> None:
    best = dedicated(engine, work, files, say)
    report.facts["dedicated_rows_per_s"] = {name: round(MEASURED * FILE_ROWS / s) for name, s in best.items()}
    report.require("dedicated_n4_over_spark", best["spark"] / best["headrace"], 1.5, "at least", "x")


def _require_small(engine: Engine, work: Path, files: list[Path], say: Say, report: Report) -> None:
    epochs = small_epochs(engine, work, say)
    report.facts["epoch_ms"] = {name: round(ms) for name, ms in epochs.items()}
    report.require("small_epoch_with_over_without", epochs["with"] / epochs["without"], 1.5, "at most", "x")


def _require_neighbours(engine: Engine, work: Path, files: list[Path], say: Say, report: Report) -> None:
    beside = neighbours(engine, work, files, say)
    for variant in ("drop", "spill"):
        report.require(f"neighbours_of_{variant}", beside["alone"] / beside[variant], 0.9, "at least", "x")


PARTS: dict[str, Callable[[Engine, Path, list[Path], Say, Report], None]] = {
    "epoch": _require_throughput,
    "dedicated": _require_dedicated,
    "small": _require_small,
    "neighbours": _require_neighbours,
}


if __name__ == "__main__":
    main(__doc__ or "", measure)
