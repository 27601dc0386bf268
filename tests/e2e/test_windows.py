"""Windows, sessions and distinct rows through real epochs: the result does not depend on how the input was cut.

Fifty cuts in one run: fifty groups hold the same events, and each group's events are spread over the epochs in a way of
its own. What each group gets must be what Spark says about the events, in batch and in its own streaming operators.
"""

from __future__ import annotations

import json
import os
import random
from datetime import UTC, datetime, timedelta
from itertools import combinations, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from headrace.hub.hub import Hub
from tests.e2e.support import Row, assert_same_rows, last_per_group, put, rows_of, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

START = datetime(2026, 1, 31, 23, 50, tzinfo=UTC)
COLUMNS = "g INT, k STRING, v INT, x DOUBLE, ts TIMESTAMP"
CUTS = 50
JITTER = 40  # seconds; the delay is as long, so no row is late under any cut


def line(g: int, second: float, k: str | None = None, v: int | None = None, x: float | None = None) -> str:
    ts = (START + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return json.dumps({"g": g, "k": k, "v": v, "x": x, "ts": ts})


def base_events(rng: random.Random) -> list[tuple[float, str | None, int | None, float | None]]:
    """Forty events over ten minutes, with gaps of exactly 20 s, which a session survives, and of more."""
    second, events = 0.0, []
    for _ in range(40):
        second += rng.choice([0.0, 3.5, 20.0, 20.0, 20.000001, 41.0])
        events.append(
            (second, rng.choice(["a", "b", None]), rng.choice([None, 1, 2, 30]), rng.choice([None, 0.5, 1e9, -0.0]))
        )
    return events


QUERIES = {
    "tumble": "SELECT g, window.start AS s, window.end AS e, k, count(*) AS n, sum(v) AS total, avg(x) AS mean "
    "FROM events GROUP BY window(ts, '1 minute'), g, k",
    "hop": "SELECT g, window.start AS s, window.end AS e, count(*) AS n, min(v) AS low, max(x) AS high "
    "FROM events GROUP BY window(ts, '90 seconds', '30 seconds'), g",
    "session": "SELECT g, session_window.start AS s, session_window.end AS e, k, count(*) AS n, sum(v) AS total "
    "FROM events GROUP BY session_window(ts, '20 seconds'), g, k",
    "sessions_of_all": "SELECT g, session_window.start AS s, session_window.end AS e, count(*) AS n, stddev(x) AS sd "
    "FROM events GROUP BY session_window(ts, '20 seconds'), g HAVING count(*) > 1",
    "all_time": "SELECT g, k, count(*) AS n, sum(v) AS total, count(DISTINCT v) AS different FROM events GROUP BY g, k",
    "unique": "SELECT DISTINCT g, k, v FROM events",
    "unique_times": "SELECT DISTINCT g, ts, k FROM events",
}
ON_CHANGE = {"all_time": 2}
CUMULATE = (
    "SELECT g, window_start, window_end, count(*) AS n, sum(v) AS total FROM CUMULATE(TABLE events, DESCRIPTOR(ts), "
    "INTERVAL 1 MINUTE, INTERVAL 3 MINUTES) GROUP BY g, window_start, window_end"
)
# Spark has no CUMULATE: it is the union of windows that begin together.
CUMULATE_IN_SPARK = " UNION ALL ".join(
    f"SELECT g, timestamp_micros(b), timestamp_micros(b + {i} * 60000000), count(*), sum(v) FROM "
    f"(SELECT *, unix_micros(ts) - unix_micros(ts) % 180000000 AS b FROM events) "
    f"WHERE unix_micros(ts) - b < {i} * 60000000 GROUP BY g, b"
    for i in (1, 2, 3)
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files: the events of every group in the group's own order of arrival; the last row closes all windows."""
    rng = random.Random(6)
    events = base_events(rng)
    arrivals = sorted(
        (second + rng.uniform(0, JITTER), line(g, second, k, v, x)) for g in range(CUTS) for second, k, v, x in events
    )
    lines = [text for _, text in arrivals] + [line(-1, 7200)]
    directory = tmp_path_factory.mktemp("cuts")
    bounds = [0, 601, 1402, len(lines)]
    for number, (a, b) in enumerate(pairwise(bounds)):
        path = put(directory / f"{number}.json", lines[a:b], newline_at_end=number % 2 == 0)
        os.utime(path, (number, number))  # Spark reads files in the order of their times, to the millisecond
    return directory


@pytest.fixture(scope="module")
def answers(spark: SparkSession, files: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Row]]:
    """What the pipelines say about the files, without the tick."""
    script = [
        f"CREATE STREAM events ({COLUMNS}, WATERMARK FOR ts AS ts - INTERVAL {JITTER} SECONDS) WITH (source = 'files', "
        f"format = 'json', path = '{files}', max_epoch_bytes = '16kb')",
        "CREATE SINK m WITH (type = 'memory', max_rows = '1000000')",
        *(f"CREATE PIPELINE {name} INTO m AS {sql}" for name, sql in {**QUERIES, "cumulate": CUMULATE}.items()),
    ]
    with headrace.connect(tmp_path_factory.mktemp("state"), spark=spark, buckets=2) as hub:
        hub.sql(";\n".join(script))
        assert hub.wait_until_end(180)
        status = hub.streams["events"].status()
        assert status.rows == CUTS * 40 + 1 and status.epoch > 9
        found: dict[str, list[Row]] = {}
        for name in (*QUERIES, "cumulate"):
            pipeline = hub.pipelines[name].status()
            assert pipeline.late == 0, name
            sent, received = pipeline.sent, pipeline.received
            assert sent == received, name  # every message arrived, and nothing else
            assert sent.rows > 0 and sent.watermarks >= 2 * status.epoch and sent.ends == 2
            rows = rows_of(hub.pipelines[name].results())
            rows = last_per_group(rows, ON_CHANGE[name]) if name in ON_CHANGE else rows
            found[name] = [row for row in rows if row[0] >= 0]
        return found


def test_fifty_cuts_give_one_result(answers: dict[str, list[Row]]) -> None:
    for name, rows in answers.items():
        by_cut: dict[int, list[Row]] = {g: [] for g in range(CUTS)}
        for row in rows:
            by_cut[row[0]].append(row[1:])
        assert by_cut[0], name
        for g in range(1, CUTS):
            assert_same_rows(by_cut[g], by_cut[0], f"{name}, cut {g}")


def test_it_is_what_spark_batch_says(spark: SparkSession, files: Path, answers: dict[str, list[Row]]) -> None:
    session = spark.newSession()
    for key, value in {"spark.sql.codegen.wholeStage": "false", "spark.sql.shuffle.partitions": "1"}.items():
        session.conf.set(key, value)
    session.read.schema(COLUMNS).json(str(files)).where("g >= 0").createOrReplaceTempView("events")
    for name, sql in {**QUERIES, "cumulate": CUMULATE_IN_SPARK}.items():
        assert_same_rows(answers[name], rows_of(session.sql(sql).toArrow()), name)


@pytest.mark.parametrize("name", ["tumble", "hop", "session", "unique_times"])
def test_it_is_what_sparks_own_streaming_operators_say(
    name: str, spark: SparkSession, files: Path, answers: dict[str, list[Row]], tmp_path: Path
) -> None:
    """The same SQL as an ordinary streaming query in append mode, a file at a time; the tick closes what is open."""
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "1")
    source = session.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).json(str(files))
    source.withWatermark("ts", f"{JITTER} seconds").createOrReplaceTempView("events")
    rows: list[Row] = []

    def keep(batch: Any, _: int) -> None:
        rows.extend(rows_of(batch.toArrow()))

    query = session.sql(QUERIES[name]).writeStream.outputMode("append").foreachBatch(keep)
    query.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination(120)
    assert_same_rows(answers[name], [row for row in rows if row[0] >= 0], name)


def splits(count: int) -> list[list[list[int]]]:
    """Every way to cut 0..count-1 into runs, in order."""
    places = range(1, count)
    chosen = [c for n in range(count) for c in combinations(places, n)]
    return [[list(range(a, b)) for a, b in pairwise([0, *cut, count])] for cut in chosen]


def test_five_events_in_one_gap_are_one_session_for_every_split_and_across_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each group is one split of the five events over five epochs; each event is exactly the gap after the one before.
    Two more groups: an event that joins two sessions to one, and one that comes a microsecond too late to join."""
    epochs: list[list[str]] = [[] for _ in range(5)]
    ways = splits(5)
    for g, parts in enumerate(ways):
        order = list(range(5))
        random.Random(g).shuffle(order)
        for epoch, members in enumerate(parts):
            epochs[epoch] += [line(g, order[i] * 20) for i in members]
    merge, apart = len(ways), len(ways) + 1
    for epoch, second in enumerate((0, 40, 20)):
        epochs[epoch].append(line(merge, second))
    epochs[1].append(line(apart, 0))
    epochs[4].append(line(apart, 20.000001))
    script = (
        f"CREATE STREAM events ({COLUMNS}, WATERMARK FOR ts AS ts - INTERVAL 1 HOUR) WITH (source = 'files', "
        f"format = 'json', path = '{tmp_path / 'in'}'); "
        "CREATE SINK m WITH (type = 'memory'); CREATE PIPELINE s INTO m AS SELECT g, session_window.start AS s, "
        "session_window.end AS e, count(*) AS n FROM events GROUP BY session_window(ts, '20 seconds'), g"
    )
    sent = 0
    (tmp_path / "in").mkdir()
    for part in ([0, 1, 2], [3, 4]):
        with headrace.connect(tmp_path / "state", spark=spark, buckets=2) as hub:
            if part[0] == 0:
                hub.sql(script)
            else:  # what a restart sees is the state as of the last epoch
                assert hub.pipelines["s"].status().groups >= len(ways)
            for epoch in part:
                sent += len(epochs[epoch])
                put(tmp_path / "in" / f"{epoch}.json", epochs[epoch])
                _until_rows(hub, sent)
                assert hub.pipelines["s"].status().rows_out == 0  # never a part of a session
            if part[-1] == 4:
                assert hub.streams["events"].status().epoch >= 4
                assert hub.wait_until_end(60)
                found = {row[0]: row[1:] for row in rows_of(hub.pipelines["s"].results())}
                rows = rows_of(hub.pipelines["s"].results())
    whole = (START, START + timedelta(seconds=100), 5)
    assert {g: found[g] for g in range(len(ways))} == dict.fromkeys(range(len(ways)), whole)
    assert found[merge] == (START, START + timedelta(seconds=60), 3)
    assert [row[3] for row in rows if row[0] == apart] == [1, 1]
    assert len(rows) == len(ways) + 3


def _until_rows(hub: Hub, count: int) -> None:
    until(lambda: hub.streams["events"].status().rows >= count, f"{count} rows")
