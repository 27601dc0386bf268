"""Chains on Spark: the rows are those of Spark's batch SQL over the nested query, and no kill loses or doubles one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace
from tests.e2e.chain_kills import ChainCase
from tests.e2e.events import COLUMNS, DELAY, as_json, events
from tests.e2e.kills import LONG
from tests.e2e.support import assert_same_rows, put, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS, SEED = 600, 11
# Streams that are made of others, with the query that feeds each.
STREAMS = {
    "clean": "SELECT ts, device, kind, v, x FROM events WHERE v IS NOT NULL",
    "minutes": "SELECT window.end AS t, device, count(*) AS n, sum(v) AS total FROM clean "
    "GROUP BY window(ts, '1 minute'), device",
    "loud": "SELECT ts, soundex(device) AS s, v FROM clean WHERE v > 10",
}
QUERIES = {
    "use_often": "SELECT device, v FROM clean WHERE kind = 'a'",
    "again": "SELECT upper(kind) AS k, v * 2 AS w FROM clean WHERE v < 50",
    "aggregate_of_aggregate": "SELECT window.start AS h, device, max(n) AS top, sum(total) AS s, count(*) AS c "
    "FROM minutes GROUP BY window(t, '10 minutes'), device",
    "sessions_of_windows": "SELECT session_window.start AS b, session_window.end AS e, device, sum(n) AS n "
    "FROM minutes GROUP BY session_window(t, '3 minutes'), device",
    "over_the_epoch_host": "SELECT window.start AS h, s, count(*) AS n, sum(v) AS total FROM loud "
    "GROUP BY window(ts, '5 minutes'), s",
    "on_the_epoch_host": "SELECT t, initcap(device) AS d, soundex(device) AS s, n FROM minutes WHERE n > 1",
    "of_a_view": "SELECT t, n FROM big",
}


def host(name: str) -> str:
    return " WITH (host = 'epoch')" if name in ("loud", "on_the_epoch_host") else ""


def test_every_query_over_a_chain_gives_the_rows_of_spark_batch(spark: SparkSession, tmp_path: Path) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "1")
    rows = [as_json(row) for row in events(ROWS, SEED)]
    (tmp_path / "in").mkdir()
    script = [
        f"CREATE STREAM events ({COLUMNS}, WATERMARK FOR ts AS ts - INTERVAL {DELAY}) WITH (source = 'files', "
        f"format = 'json', path = '{tmp_path / 'in'}', max_epoch_bytes = '40kb')",
        "CREATE SINK m WITH (type = 'memory', max_rows = '1000000')",
        *(f"CREATE PIPELINE of_{n} INTO STREAM {n}{host(n)} AS {query}" for n, query in STREAMS.items()),
        "CREATE VIEW big AS SELECT * FROM minutes WHERE n > 2",
        *(f"CREATE PIPELINE {n} INTO m{host(n)} AS {query}" for n, query in QUERIES.items()),
    ]
    with headrace.connect(tmp_path / "state", spark=session, buckets=2) as hub:
        for statement in script:  # one query starts at a time, before there is any row
            hub.sql(statement)
        for i in range(3):
            put(tmp_path / "in" / f"{i}.json", rows[i * 200 : (i + 1) * 200])
        assert hub.wait_until_end(400)
        found = {name: rows_of(hub.pipelines[name].results()) for name in QUERIES}
        late = {name: p.status().late for name, p in hub.pipelines.items() if p.status().late}
        hosts = {name: p.status().host for name, p in hub.pipelines.items()}
        (explained,) = hub.sql("EXPLAIN PIPELINE over_the_epoch_host")
    assert late == {}, "no row is late in a stream that inherits its watermark"
    assert (hosts["of_loud"], hosts["on_the_epoch_host"], hosts["over_the_epoch_host"]) == ("epoch", "epoch", "shared")
    assert "as far as pipeline of_loud has come" in explained.text, "Spark says that ts is passed on"
    put(tmp_path / "all.json", rows)
    session.read.schema(COLUMNS).json(str(tmp_path / "all.json")).createOrReplaceTempView("events")
    for name, query in [*STREAMS.items(), ("big", "SELECT * FROM minutes WHERE n > 2")]:
        session.sql(query).createOrReplaceTempView(name)
    for name, query in QUERIES.items():
        wanted = rows_of(session.sql(query).toArrow())
        assert wanted, name
        assert_same_rows(found[name], wanted, name)


@LONG
def test_a_chain_that_is_killed_over_and_over_loses_and_doubles_nothing(tmp_path: Path) -> None:
    case = ChainCase(tmp_path, rows=900, epoch_bytes=8_000).prepare()
    # The driver dies when an epoch is in the feed and not yet in Spark's log; then between two outlets of a pipeline.
    assert case.run("after-feed-manifest@4", seconds=600) == -9
    assert case.run("between-sinks@3", seconds=600) == -9
    assert case.run(seconds=600) == 0
    case.check()
