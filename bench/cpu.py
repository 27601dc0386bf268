"""CPU time of our own Python per tiny epoch, without Spark, for 1, 32 and 300 pipelines on one stream.

An epoch is one small file of JSON rows with twenty columns. The pipelines are of one family (same window, same key, a
filter each) or different: eight key sets, eight window sizes, ten columns, one in eight without state. All figures are
means over epochs in which windows of every size close, after every statement has run twice. CPU time, because a busy
machine changes it least. A full garbage collection comes before the epochs that are measured: otherwise one that
creating the pipelines has made due falls into some runs and not into others, and takes as long as 20 epochs of one
pipeline.
"""

from __future__ import annotations

import gc
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench import feed
from bench.in_process import LocalHub
from bench.report import Report, environment, main

QUICK = "--quick" in sys.argv
WARM, MEASURED = (18, 8) if QUICK else (18, 16)
ROWS = 250  # a quarter of a second of event time
COUNTS = (1, 32, 300)
BOUNDS = {32: 3.0, 300: 15.0}
KEYS = ("user", "region", "level", "ok", "user, region", "region, level", "level, ok", "user, ok")
SECONDS = (0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2)
VALUES = ("value", "seq", *(f"x{n}" for n in range(8)))


def one_family(number: int) -> str:
    """Pipeline `number` of a family: no two have the same filter."""
    return (
        "SELECT window.start, user, count(*) AS n, sum(value) AS total FROM s "
        f"WHERE value >= {number} GROUP BY window(ts, '1 second'), user"
    )


def different(number: int) -> str:
    """Pipeline `number` of those that differ in keys, window, columns and filter. The first one has state, too."""
    column, other = VALUES[number % 10], VALUES[(number // 10 + 3) % 10]
    if number % 8 == 7:
        rare = f"{column} > {900 + number % 50} AND level = {number % 5}"
        return f"SELECT user, {column} AS a, {other} AS b FROM s WHERE {rare}"
    keys, seconds = KEYS[number % 8], SECONDS[number // 8 % 8]
    return (
        f"SELECT window.start, {keys}, count(*) AS n, sum({column}) AS total, max({other}) AS top FROM s "
        f"WHERE {other} >= {number} GROUP BY window(ts, '{round(seconds * 1000)} milliseconds'), {keys}"
    )


def cpu(select: Callable[[int], str], count: int, work: Path) -> tuple[float, dict[str, float]]:
    """Milliseconds of CPU per epoch, whole and by part."""
    given = feed.write(work / "made", WARM + MEASURED + 1, ROWS, keys=100)
    (work / "in").mkdir()
    local = LocalHub(work / "state")
    try:
        pipelines = ";".join(f"CREATE PIPELINE p{i} INTO out AS {select(i)}" for i in range(count))
        feed.give(work / "in", given[:1])
        made = (
            f"{feed.declaration(work / 'in')}; CREATE SINK out WITH (type = 'memory', max_rows = '1000'); {pipelines}"
        )
        local.hub.sql(made)
        query = local.query
        while query.step():
            pass
        for number, file in enumerate(given[1:]):
            if number == WARM:
                gc.collect()  # else one that creating the pipelines has made due may come now
                query.seconds.clear()
            feed.give(work / "in", [file])
            while not query.step():  # the source looks for new files again after it has been idle
                pass
        failed = [name for name, p in local.hub.pipelines.items() if p.status().state != "running"]
        if failed:
            raise RuntimeError(f"these pipelines do not run: {failed}")
    finally:
        local.hub.close(drain=False)
    parts = {name: value / MEASURED * 1000 for name, value in query.seconds.items()}
    return sum(parts.values()), parts


def measure(say: Callable[[str], None]) -> Report:
    report = Report(facts=environment("duckdb", "pyarrow"))
    for name, select in (("one_family", one_family), ("different", different)):
        found: dict[int, float] = {}
        for count in COUNTS:
            with tempfile.TemporaryDirectory(prefix="headrace-bench-") as scratch:
                found[count], parts = cpu(select, count, Path(scratch))
            shown = ", ".join(f"{part} {ms:.1f}" for part, ms in parts.items())
            say(f"{name}, {count} pipelines: {found[count]:.1f} ms of CPU an epoch ({shown})")
        report.facts[f"{name}_cpu_ms"] = {f"n{count}": round(ms, 1) for count, ms in found.items()}
        for count, bound in BOUNDS.items():
            report.require(f"{name}_n{count}_over_n1", found[count] / found[1], bound, "at most", "x")
    return report


if __name__ == "__main__":
    main(__doc__ or "", measure)
