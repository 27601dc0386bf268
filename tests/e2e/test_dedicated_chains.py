"""Streams that are made of the output of a pipeline on the dedicated host: the rows of Spark's batch SQL over the
nested query, event time that moves although no row comes, and no row lost or doubled by kills, restarts and replaced
pipelines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.errors import HeadraceError, UnfinishedRows
from headrace.sinks.feed_log import FeedLog, stream_feed
from headrace.state.restore import restore
from tests.e2e.chain_kills import DedicatedChainCase
from tests.e2e.events import COLUMNS, DELAY, as_json, events
from tests.e2e.kills import LONG
from tests.e2e.support import assert_same_rows, put, rows_of, until
from tests.e2e.two_streams import START, Streams, found

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.hub.hub import Hub

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = 300
NEAR = "a.kind = b.kind AND a.device = b.device AND "
NEAR += "b.ts BETWEEN a.ts - INTERVAL 10 SECONDS AND a.ts + INTERVAL 5 SECONDS"
FED = {
    "matched": f"SELECT a.ts AS t, b.ts AS u, a.device, a.v, b.id FROM events a JOIN others b ON {NEAR}",
    "perhaps": f"SELECT b.id, b.ts AS u, a.ts AS t, a.v FROM events a LEFT JOIN others b ON {NEAR}",
    "all_rows": "SELECT ts, device, v FROM events UNION ALL SELECT ts, device, id AS v FROM others",
    "busiest": "SELECT w.end AS e, max(n) AS top FROM (SELECT window AS w, device, count(*) AS n FROM events "
    "GROUP BY window(ts, '1 minute'), device) GROUP BY w",
}
QUERIES = {
    "counts": "SELECT window.start AS s, device, count(*) AS n, sum(v) AS total FROM matched "
    "GROUP BY window(t, '2 minutes'), device",
    "outer_counts": "SELECT window.start AS s, count(*) AS n, count(id) AS matched FROM perhaps "
    "GROUP BY window(t, '2 minutes')",
    "union_counts": "SELECT window.start AS s, count(*) AS n, sum(v) AS total FROM all_rows "
    "GROUP BY window(ts, '2 minutes')",
    "top_of_tops": "SELECT window.start AS s, max(top) AS top, count(*) AS n FROM busiest "
    "GROUP BY window(e, '5 minutes')",
    "join_of_chains": "SELECT window.start AS s, count(*) AS n FROM (SELECT m.t FROM matched m JOIN busiest b ON "
    "b.top > m.v AND b.e BETWEEN m.t AND m.t + INTERVAL 1 MINUTE AND b.top % 2 = m.v % 2) "
    "GROUP BY window(t, '5 minutes')",
}


def test_what_is_made_of_the_output_of_joins_gives_the_rows_of_spark_batch(spark: SparkSession, tmp_path: Path) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "1")
    given = {"events": events(ROWS, 3), "others": events(ROWS, 4)}
    lines = {name: [as_json(row) for row in rows] for name, rows in given.items()}
    for name in lines:
        (tmp_path / name).mkdir()
    script = [
        *(
            f"CREATE STREAM {name} ({COLUMNS}, WATERMARK FOR ts AS ts - INTERVAL {DELAY}) WITH (source = 'files', "
            f"format = 'json', path = '{tmp_path / name}')"
            for name in lines
        ),
        "CREATE SINK m WITH (type = 'memory', max_rows = '1000000')",
        *(f"CREATE PIPELINE of_{name} INTO STREAM {name} AS {query}" for name, query in FED.items()),
        *(f"CREATE PIPELINE {name} INTO m AS {query}" for name, query in QUERIES.items()),
    ]
    with headrace.connect(tmp_path / "state", spark=session, buckets=2) as hub:
        for statement in script:
            hub.sql(statement)
        for part in range(3):
            for name, all_lines in lines.items():
                put(tmp_path / name / f"{part}.json", all_lines[part * 100 : part * 100 + 100])
        assert hub.wait_until_end(500)
        rows = {name: rows_of(hub.pipelines[name].results()) for name in QUERIES}
        statuses = {name: p.status() for name, p in hub.pipelines.items()}
        (explained,) = hub.sql("EXPLAIN PIPELINE counts")
    assert {name: s.late for name, s in statuses.items() if s.late} == {}, "no row is late in a stream that inherits"
    assert {s.state for s in statuses.values()} == {"finished"}
    assert {statuses[f"of_{name}"].host for name in FED} == {statuses["join_of_chains"].host} == {"dedicated"}
    assert "as far as pipeline of_matched has come" in explained.text
    for name, all_lines in lines.items():
        put(tmp_path / f"{name}.json", all_lines)
        session.read.schema(COLUMNS).json(str(tmp_path / f"{name}.json")).createOrReplaceTempView(name)
    for name, query in FED.items():
        session.sql(query).createOrReplaceTempView(name)
    for name, query in QUERIES.items():
        wanted = rows_of(session.sql(query).toArrow())
        assert wanted, name
        assert_same_rows(rows[name], wanted, name)


def test_the_life_of_a_stream_of_a_join(streams: Streams) -> None:
    """Time moves through a join that emits nothing; what does not fit is refused; replacing, a savepoint, dropping."""
    near = "a.id = b.id AND b.ts BETWEEN a.ts - INTERVAL 2 SECONDS AND a.ts + INTERVAL 2 SECONDS"
    begin, state = int(START.timestamp()), streams.base / "state"
    with headrace.connect(state, spark=streams.session) as hub:
        hub.sql(streams.script())
        with pytest.raises(UnfinishedRows):
            hub.sql(
                "CREATE PIPELINE u INTO STREAM x WITH (host = 'dedicated') AS SELECT k, count(*) AS n FROM a GROUP BY k"
            )
        hub.sql(f"CREATE PIPELINE j INTO m AS SELECT a.ts, a.id, b.k FROM a JOIN b ON {near}")
        hub.sql("CREATE STREAM pairs AS PIPELINE j")
        hub.sql(
            "CREATE PIPELINE tens INTO m AS SELECT unix_seconds(window.start) AS s, count(*) AS n FROM pairs "
            "GROUP BY window(ts, '10 seconds')"
        )
        (described,) = hub.sql("DESCRIBE STREAM pairs")
        assert "the output of pipeline j" in str(described.render())
        for name, seconds in {"a": range(0, 10), "b": range(0, 8)}.items():
            streams.give(hub, name, seconds)
        until(lambda: len(found(hub, "j")) == 8, "the join has its rows", 300)
        # Neither of these finds a partner, and yet the window of the pairs closes.
        streams.give(hub, "a", range(30, 31))
        streams.give(hub, "b", range(40, 41))
        until(lambda: found(hub, "tens") == [(begin, 8)], "the window closes without a row", 300)
        hub.savepoint("cut", timeout=300)
        # A replaced pipeline goes on feeding the stream: the instances never write at once.
        hub.sql(f"CREATE OR REPLACE PIPELINE j INTO m AS SELECT a.ts, a.id, upper(b.k) AS k FROM a JOIN b ON {near}")
        for name in "ab":
            streams.give(hub, name, range(50, 55))
        until(lambda: len(found(hub, "j")) == 5, "the new query has its rows", 300)
        for name in "ab":
            streams.give(hub, name, range(90, 91))
        until(lambda: (begin + 50, 5) in found(hub, "tens"), "its rows are in the stream", 300)
        assert hub.pipelines["tens"].status().late == 0
        with pytest.raises(HeadraceError) as caught:
            hub.sql("DROP PIPELINE j")
        assert caught.value.code == "IN_USE"
        hub.sql("DROP PIPELINE j CASCADE")
        assert "pairs" not in hub.streams and "tens" not in hub.pipelines
        assert [p for p in streams.left() if not p.startswith("savepoints")] == []
        assert not (state / "streams" / "pairs").exists()
    # The savepoint has the join, the rows between, and the window that was open in between: the same rows once more.
    restore(state / "savepoints" / "cut", streams.base / "again", rewind=True)
    with headrace.connect(streams.base / "again", spark=streams.session) as hub:
        for name in "ab":
            wait_for_rows(hub, name, 15)
        until(lambda: (begin + 50, 5) in found(hub, "tens"), "the restored chain goes on", 300)
        assert len([row for row in found(hub, "tens") if row[0] == begin + 50]) == 1


@LONG
def test_a_join_waits_for_a_stream_of_its_output_that_is_full(streams: Streams) -> None:
    """The stream of the output pauses the query, its feeds fill, and then the streams below pause. Nothing is lost."""
    with headrace.connect(streams.base / "state", spark=streams.session) as hub:
        hub.sql(streams.script())
        hub.sql(
            "CREATE PIPELINE j INTO m WITH (backpressure = 'pause', feed_limit = '4kb') AS "
            "SELECT a.ts, a.id, a.k FROM a JOIN b ON a.id = b.id"
        )
        hub.sql("CREATE STREAM pairs AS PIPELINE j WITH (backpressure = 'pause', max_backlog = '4kb')")
        feed = FeedLog(stream_feed(streams.base / "state" / "streams" / "pairs"))
        for i in range(4):  # nobody reads the pairs
            for name in "ab":
                put(streams.base / name / f"{i}.json", big_rows(range(i * 20, i * 20 + 20)))
            wait_for_rows(hub, "a", min(20 * i + 20, 40))
        until(lambda: hub.streams["a"].status().paused_by == ["j"], "the stream below names who pauses it", 300)
        assert 0 < feed.backlog().rows < 80
        hub.sql("CREATE PIPELINE all_pairs INTO m AS SELECT id FROM pairs")
        until(lambda: len(found(hub, "all_pairs")) == 80, "all rows come when there is room", 300)
        assert len(set(found(hub, "all_pairs"))) == 80


def wait_for_rows(hub: Hub, stream: str, rows: int) -> None:
    until(lambda: hub.streams[stream].status().rows >= rows, "the rows are read", 300)


def big_rows(seconds: range) -> list[str]:
    return [f'{{"id": {s}, "k": "{"x" * 400}", "ts": "2026-01-01T00:{s // 60:02}:{s % 60:02}Z"}}' for s in seconds]


@LONG
def test_a_chain_of_a_join_that_is_killed_over_and_over_loses_and_doubles_nothing(tmp_path: Path) -> None:
    case = DedicatedChainCase(tmp_path, rows=600, epoch_bytes=8_000).prepare()
    # The driver dies when a batch is staged; when it is in the stream and not in the other sink or in Spark's log.
    assert case.run("after-dedicated-staging@3", seconds=600) == -9
    assert case.run("after-feed-manifest@4", seconds=600) == -9
    assert case.run("after-dedicated-commit@2", seconds=600) == -9
    assert case.run("after-dedicated-progress@2", seconds=600) == -9
    assert case.run(seconds=600) == 0
    case.check()
