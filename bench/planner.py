"""Planning time as a multiple of sqlglot's own parse time for the same text.

Two loads: a `SELECT *` over a stream of 5,000 columns, its declaration included, and 300 different pipelines over one
stream. Both sides start from text, in one process, in turn; the figure is the median ratio over the rounds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import sqlglot

from bench.report import Report, environment, main
from headrace.model.definitions import SinkDef
from headrace.model.program import Meaning
from headrace.sql import CreatePipeline, CreateStream, define_stream, parse_script, plan_pipeline
from headrace.state.catalog import Catalog

COLUMNS, PIPELINES, ROUNDS = 5000, 300, 5
REQUIRED = 6.0

_SHAPES = (
    "SELECT device, temp FROM s WHERE temp > {i} AND site = 'north'",
    "SELECT device, count(*) AS n, avg(temp) AS t FROM s WHERE hum < {i} GROUP BY window(ts, '1 minute'), device",
    "SELECT site, sum(price) AS total FROM s WHERE device <> 'd{i}' GROUP BY site HAVING sum(price) > {i}",
    "SELECT CASE WHEN temp > {i} THEN 'hot' ELSE 'fair' END AS label, upper(device) AS d FROM s WHERE ok",
    "SELECT max(temp) AS high, min(temp) AS low FROM (SELECT temp, ts FROM s WHERE id % 7 = 3 AND temp < {i}) q",
)
_STREAM = (
    "CREATE STREAM s (id BIGINT, device STRING, site STRING, temp DOUBLE, hum DOUBLE, price DECIMAL(10,2), ok BOOLEAN, "
    "ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 10 SECONDS) WITH (source = 'generator', format = 'json')"
)


def wide() -> tuple[Callable[[], None], Callable[[], None]]:
    """Ours and sqlglot's work for `SELECT *` over 5,000 columns."""
    columns = ", ".join(f"column_{i} {('INT', 'DOUBLE', 'STRING')[i % 3]}" for i in range(COLUMNS))
    create = f"CREATE STREAM wide ({columns}) WITH (source = 'generator', format = 'json')"
    spark_create = f"CREATE TABLE wide ({columns}) USING json"
    query = "CREATE PIPELINE p INTO out AS SELECT * FROM wide"

    def ours() -> None:
        names = _names(create)
        (statement,) = parse_script(query)
        assert isinstance(statement, CreatePipeline)
        assert len(plan_pipeline(statement, names, Meaning()).program.output) == COLUMNS

    def theirs() -> None:
        sqlglot.parse_one(spark_create, read="spark")
        sqlglot.parse_one("SELECT * FROM wide", read="spark")

    return ours, theirs


def many() -> tuple[Callable[[], None], Callable[[], None]]:
    """Ours and sqlglot's work for 300 pipelines over one stream."""
    queries = [_SHAPES[i % len(_SHAPES)].format(i=i) for i in range(PIPELINES)]
    names = _names(_STREAM)
    script = ";\n".join(f"CREATE PIPELINE p{i} INTO out AS {query}" for i, query in enumerate(queries))
    # sqlglot does not read a window in GROUP BY; a function of the same length stands for it
    readable = [query.replace("window(ts, '1 minute')", "windew(ts, '1 minute')") for query in queries]

    def ours() -> None:
        for statement in parse_script(script):
            assert isinstance(statement, CreatePipeline)
            plan_pipeline(statement, names, Meaning())

    def theirs() -> None:
        for query in readable:
            sqlglot.parse_one(query, read="spark")

    return ours, theirs


def _names(create: str) -> Catalog:
    names = Catalog()
    (statement,) = parse_script(create)
    assert isinstance(statement, CreateStream)
    names = names.with_stream(define_stream(statement, Meaning()))
    names = names.with_sink(SinkDef("out", "memory", {}))
    return names


def _seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _ratio(pair: tuple[Callable[[], None], Callable[[], None]]) -> tuple[float, float]:
    ours, theirs = pair
    ours()  # warm-up
    theirs()
    measured = [(_seconds(ours), _seconds(theirs)) for _ in range(ROUNDS)]
    return statistics.median(a / b for a, b in measured), statistics.median(a for a, _ in measured)


def measure(say: Callable[[str], None]) -> Report:
    report = Report(facts=environment("sqlglot", "duckdb"))
    for name, pair in (("select_star_5000_columns", wide()), ("pipelines_300", many())):
        ratio, seconds = _ratio(pair)
        say(f"{name}: {seconds * 1000:.0f} ms, {ratio:.2f} times sqlglot's parse")
        report.facts[f"{name}_ms"] = round(seconds * 1000)
        report.require(f"{name}_over_parse", ratio, REQUIRED, "at most", "x")
    return report


if __name__ == "__main__":
    main(__doc__ or "", measure)
