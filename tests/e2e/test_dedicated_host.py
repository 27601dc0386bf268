"""The dedicated host: pipelines with a streaming query of their own give the rows of Spark's batch SQL.

A few queries at a time run on one hub, over two streams, and their input is cut into several epochs. The streams end,
so all windows close. No row is late under any cut.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from headrace.errors import HeadraceError
from tests.e2e.events import COLUMNS, as_json, events
from tests.e2e.kills import LONG
from tests.e2e.support import Row, assert_same_rows, last_per_group, put, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.hub.hub import Hub

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS, SEED, WAVE = 240, 5, 8
CLICKS = "cid BIGINT, ref BIGINT, who STRING, w INT, cts TIMESTAMP"
JOIN = "events e {kind} JOIN clicks c ON e.id = c.ref AND c.cts BETWEEN e.ts - INTERVAL 30 SECONDS AND "
JOIN += "e.ts + INTERVAL 30 SECONDS"
EMIT = re.compile(r" EMIT (CHANGES|ON CLOSE)$")


@dataclass(frozen=True)
class Query:
    """`keys` is given for output on change: the first columns name the group, and the last row of each counts. With
    `forced` a cheaper host could run the query, too."""

    sql: str
    keys: int | None = None
    forced: bool = False


def joined(select: str, kind: str = "", rest: str = "") -> Query:
    return Query(f"SELECT {select} FROM {JOIN.format(kind=kind)}{rest}")


QUERIES = {
    # joins of two streams
    "inner": joined("e.id, c.w"),
    "inner_filtered": joined("e.id, c.who, c.w", rest=" WHERE e.v > 20 AND c.w < 70"),
    "inner_on_key": Query("SELECT e.id, c.w FROM events e JOIN clicks c ON e.id = c.ref"),
    "inner_using": Query("SELECT id, w FROM events JOIN (SELECT ref AS id, w FROM clicks) USING (id)"),
    "left": joined("e.id, c.w", "LEFT"),
    "left_filtered": joined("e.id, c.w, c.cts", "LEFT", " WHERE e.kind = 'a'"),
    "right": joined("e.v, c.cid", "RIGHT"),
    "full": joined("e.id, c.cid", "FULL OUTER"),
    "semi": joined("e.id, e.device", "LEFT SEMI"),
    "join_expression": joined("e.id, upper(c.who) AS u, e.v + c.w AS s"),
    "join_udf": joined("e.id, plus_one(c.w) AS y"),
    "join_variables": joined("e.id, c.w * factor AS f, label", rest=" WHERE e.v > limit_of_v"),
    "join_of_subqueries": Query(
        "SELECT a.id, b.w FROM (SELECT id, ts FROM events WHERE ok) a JOIN (SELECT ref, w, cts FROM clicks "
        "WHERE w > 10) b ON a.id = b.ref AND b.cts >= a.ts - INTERVAL 30 SECONDS AND b.cts <= a.ts + INTERVAL 1 MINUTE"
    ),
    "join_with_static": Query(
        "SELECT e.id, c.w, d.weight FROM events e JOIN clicks c ON e.id = c.ref JOIN dim d ON e.device = d.name"
    ),
    "self_join": Query(
        "SELECT a.id, b.id AS other FROM events a JOIN events b ON a.id = b.id + 1 AND b.ts >= a.ts - INTERVAL 1 MINUTE"
    ),
    "join_then_window": Query(
        "SELECT window.start AS s, count(*) AS n FROM (SELECT e.ts FROM events e JOIN clicks c ON e.id = c.ref AND "
        "c.cts BETWEEN e.ts - INTERVAL 30 SECONDS AND e.ts + INTERVAL 30 SECONDS) GROUP BY window(ts, '1 minute')"
    ),
    "windows_joined": Query(
        "SELECT a.s, a.n, b.m FROM (SELECT window, window.start AS s, count(*) AS n FROM events "
        "GROUP BY window(ts, '1 minute')) a JOIN (SELECT window, count(*) AS m FROM clicks GROUP BY "
        "window(cts, '1 minute')) b ON a.window = b.window"
    ),
    "with_join": Query(
        "WITH big AS (SELECT id, ts, v FROM events WHERE v > 30) SELECT big.id, c.w FROM big JOIN clicks c "
        "ON big.id = c.ref"
    ),
    # unions of streams
    "union_all": Query("SELECT id, ts FROM events WHERE v > 50 UNION ALL SELECT cid, cts FROM clicks WHERE w > 50"),
    "union_all_window": Query(
        "SELECT window.start AS s, what, count(*) AS n FROM (SELECT ts, 'e' AS what FROM events UNION ALL "
        "SELECT cts, 'c' FROM clicks) GROUP BY window(ts, '1 minute'), what"
    ),
    "union": Query("SELECT kind AS k FROM events UNION SELECT who FROM clicks"),
    # DISTINCT
    "distinct_of_join": Query("SELECT DISTINCT e.kind, c.who FROM events e JOIN clicks c ON e.id = c.ref"),
    "distinct_udf": Query("SELECT DISTINCT shout(device) AS d FROM events"),
    "distinct_forced": Query("SELECT DISTINCT kind, ok FROM events", forced=True),
    "distinct_with_time": Query("SELECT DISTINCT device, ts FROM events WHERE v < 9", forced=True),
    # aggregates that the rings do not have
    "sketch": Query("SELECT window.start AS s, hll_sketch_estimate(hll_sketch_agg(id)) AS n FROM events "
    "GROUP BY window(ts, '2 minutes')"),
    "sketch_groups": Query("SELECT kind, hll_sketch_estimate(hll_sketch_agg(v)) AS n FROM events GROUP BY kind", 1),
    "count_min": Query("SELECT window.start AS s, length(count_min_sketch(v, 0.5d, 0.5d, 1)) AS n FROM events "
    "GROUP BY window(ts, '2 minutes')"),
    # aggregates of aggregates
    "max_of_counts": Query(
        "SELECT s, max(n) AS top FROM (SELECT window, window.start AS s, kind, count(*) AS n FROM events "
        "GROUP BY window(ts, '1 minute'), kind) GROUP BY window, s"
    ),
    "window_of_window": Query(
        "SELECT window.start AS s, sum(n) AS total, max(n) AS top FROM (SELECT window AS w, count(*) AS n "
        "FROM events GROUP BY window(ts, '30 seconds')) GROUP BY window(w, '2 minutes')",
        forced=True,
    ),
    "window_of_window_keys": Query(
        "SELECT window.start AS s, kind, avg(n) AS mean FROM (SELECT window AS w, kind, count(*) AS n "
        "FROM events GROUP BY window(ts, '30 seconds'), kind) GROUP BY window(w, '2 minutes'), kind",
        forced=True,
    ),
    # windows that the rings do not have, and pipes
    "window_by_name": Query(
        "SELECT w.start AS s, kind, count(*) AS n FROM (SELECT window(ts, '1 minute') AS w, * FROM events) "
        "GROUP BY w, kind"
    ),
    "computed_gap": Query(
        "SELECT session_window.start AS s, kind, count(*) AS n FROM events "
        "GROUP BY session_window(ts, if(kind = 'a', '2 seconds', '5 seconds')), kind"
    ),
    "pivot": Query(
        "SELECT w.start AS s, a, b FROM (SELECT window(ts, '1 minute') AS w, kind, v FROM events) "
        "PIVOT (sum(v) FOR kind IN ('a', 'b'))"
    ),
    "pipe_groups": Query("FROM events |> WHERE v > 20 |> AGGREGATE count(*) AS n, max(x) AS m GROUP BY kind", 1),
    "pipe_join": Query("FROM events |> JOIN clicks ON id = ref |> WHERE w > 20 |> SELECT id, w"),
    # rows of one stream without a partner
    "left_without_partner": joined("e.id, e.device", "LEFT", " WHERE c.cid IS NULL"),
    # what cheaper hosts run, too
    "projection": Query("SELECT id, upper(device) AS d FROM events WHERE v > 50", forced=True),
    "nothing": Query("SELECT id FROM events WHERE v > 1000", forced=True),
    "nothing_in_windows": Query(
        "SELECT window.start AS s, count(*) AS n FROM events WHERE v > 1000 GROUP BY window(ts, '1 minute')",
        forced=True,
    ),
    "windows": Query(
        "SELECT window.start AS s, kind, count(*) AS n, sum(v) AS t, avg(x) AS a, max(price) AS p FROM events "
        "GROUP BY window(ts, '1 minute'), kind", forced=True,
    ),
    "windows_having": Query(
        "SELECT window.end AS e, device, min(v) AS lo FROM events WHERE v IS NOT NULL "
        "GROUP BY window(ts, '2 minutes'), device HAVING count(*) > 1", forced=True,
    ),
    "hopping": Query(
        "SELECT window.start AS s, count(*) AS n FROM events GROUP BY window(ts, '2 minutes', '1 minute')", forced=True
    ),
    "sessions": Query(
        "SELECT session_window.start AS s, session_window.end AS e, kind, count(*) AS n FROM events "
        "GROUP BY session_window(ts, '10 seconds'), kind", forced=True,
    ),
    "windows_on_change": Query(
        "SELECT window.start AS s, kind, count(*) AS n FROM events GROUP BY window(ts, '1 minute'), kind EMIT CHANGES",
        keys=2, forced=True,
    ),
    "groups": Query("SELECT kind, count(*) AS n, sum(v) AS t FROM events GROUP BY kind", keys=1, forced=True),
    "global": Query("SELECT count(*) AS n, max(v) AS m FROM events", keys=0, forced=True),
    "decimals": Query(
        "SELECT window.start AS s, sum(price) AS p, avg(price) AS a FROM events GROUP BY window(ts, '2 minutes')",
        forced=True,
    ),
    "static_left": Query("SELECT e.id, d.weight FROM events e LEFT JOIN dim d ON e.device = d.name", forced=True),
    "explode": Query("SELECT id, w FROM events LATERAL VIEW explode(split(device, ' ')) t AS w", forced=True),
}  # fmt: skip
# One of each kind. The others take minutes.
SHORT = [
    "inner_filtered",
    "left",
    "join_variables",
    "union_all_window",
    "distinct_of_join",
    "sketch",
    "max_of_counts",
    "nothing_in_windows",
    "window_by_name",
    "computed_gap",
]
_REST = [name for name in QUERIES if name not in SHORT]
WAVES = [SHORT, *(_REST[i : i + WAVE] for i in range(0, len(_REST), WAVE))]


def clicks(count: int) -> list[dict[str, Any]]:
    """A click for most events, up to 15 seconds before or after it, and some that are of no event."""
    rng, found = random.Random(9), list[dict[str, Any]]()
    for row in events(count, SEED):
        if rng.random() < 0.6:
            at = row["ts"] + timedelta(seconds=rng.uniform(-15, 15))
            ref = row["id"] if rng.random() < 0.8 else 10_000 + row["id"]
            who = rng.choice(["ann", "bob", None])
            found.append({"cid": len(found), "ref": ref, "who": who, "w": rng.randrange(100), "cts": at})
    return found


def click_json(row: dict[str, Any]) -> str:
    return json.dumps({**row, "cts": row["cts"].strftime("%Y-%m-%dT%H:%M:%S.%fZ")})


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    own = spark.newSession()
    own.conf.set("spark.sql.shuffle.partitions", "1")
    own.udf.register("plus_one", lambda x: None if x is None else float(x) + 1, "double")
    own.udf.register("shout", lambda s: None if s is None else s.upper() + "!", "string")
    own.sql("DECLARE VARIABLE factor DECIMAL(5, 2) DEFAULT 2.50")
    own.sql("DECLARE VARIABLE limit_of_v INT DEFAULT 40")
    own.sql("DECLARE VARIABLE label STRING DEFAULT 'it''s \"here\"'")
    names = [("d1", 3), ("d2", 30), ("Dröhn-3", 5), ("none", 9)]
    own.createDataFrame(names, "name STRING, weight INT").createOrReplaceTempView("dim")
    return own


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows of both streams, each in three files."""
    base = tmp_path_factory.mktemp("dedicated")
    rows, clicked = [as_json(r) for r in events(ROWS, SEED)], [click_json(r) for r in clicks(ROWS)]
    for i in range(3):
        put(base / "events" / f"{i}.json", rows[i * 80 : (i + 1) * 80])
        third = len(clicked) // 3
        put(base / "clicks" / f"{i}.json", clicked[i * third : (i + 1) * third if i < 2 else None])
    return base


def oracle(session: SparkSession, inputs: Path, names: list[str]) -> dict[str, list[Row]]:
    """What Spark's batch SQL gives for some of the queries."""
    session.read.schema(COLUMNS).json(str(inputs / "events")).createOrReplaceTempView("events")
    session.read.schema(CLICKS).json(str(inputs / "clicks")).createOrReplaceTempView("clicks")
    try:
        return {name: rows_of(session.sql(EMIT.sub("", QUERIES[name].sql)).toArrow()) for name in names}
    finally:
        session.catalog.dropTempView("events")
        session.catalog.dropTempView("clicks")


def script(base: Path) -> list[str]:
    return [
        f"CREATE STREAM events ({COLUMNS}, WATERMARK FOR ts AS ts - INTERVAL 60 SECONDS) WITH (source = 'files', "
        f"format = 'json', path = '{base / 'events'}', max_epoch_bytes = '20kb')",
        f"CREATE STREAM clicks ({CLICKS}, WATERMARK FOR cts AS cts - INTERVAL 60 SECONDS) WITH (source = 'files', "
        f"format = 'json', path = '{base / 'clicks'}')",
        "CREATE SINK m WITH (type = 'memory', max_rows = '1000000')",
    ]


def test_enough_queries_are_tried() -> None:
    assert len(QUERIES) >= 40


@pytest.mark.parametrize("wave", [0, *(pytest.param(wave, marks=LONG) for wave in range(1, len(WAVES)))])
def test_every_query_gives_the_rows_of_spark_batch(
    wave: int, session: SparkSession, inputs: Path, tmp_path: Path
) -> None:
    queries = {name: QUERIES[name] for name in WAVES[wave]}
    wanted = oracle(session, inputs, list(queries))
    assert {name for name, rows in wanted.items() if not rows} <= {"nothing", "nothing_in_windows"}
    created = [
        f"CREATE PIPELINE p_{name} INTO m {'WITH (host = ' + repr('dedicated') + ')' if q.forced else ''} AS {q.sql}"
        for name, q in queries.items()
    ]
    problems = []
    with headrace.connect(tmp_path / "state", spark=session) as hub:
        hub.sql(";\n".join([*script(inputs), *created]))
        assert hub.wait_until_end(600)
        for name, query in queries.items():
            pipeline = hub.pipelines[f"p_{name}"]
            status = pipeline.status()
            if status.state == "failed" or status.host != "dedicated":
                problems.append(f"{name}: {status.host} {status.error}")
                continue
            found = rows_of(pipeline.results())
            found = found if query.keys is None else last_per_group(found, query.keys)
            try:
                assert_same_rows(found, wanted[name], name)
                assert status.waiting_rows == 0
            except AssertionError as problem:
                problems.append(str(problem))
        for name in queries:
            hub.sql(f"DROP PIPELINE p_{name}")
        left = [str(p) for p in (tmp_path / "state").rglob("*") if {"feeds", "dedicated"} & set(p.parts)]
        assert left == [], "nothing is left on disk after DROP"
    assert not problems, "\n".join(problems)


REFUSED = {
    "SELECT e.id, rand() AS r FROM events e JOIN clicks c ON e.id = c.ref": "NON_DETERMINISTIC",
    "SELECT e.id FROM events e JOIN clicks c ON e.id = c.ref ORDER BY e.id": "UNBOUNDED_SORT",
    "SELECT e.id FROM events e LEFT JOIN clicks c ON e.id = c.ref": "UNSUPPORTED_STATEFUL",
    "SELECT id, row_number() OVER (PARTITION BY kind ORDER BY id) AS n FROM events": "UNSUPPORTED_STATEFUL",
    "SELECT id FROM events WHERE v > (SELECT max(w) FROM clicks)": "UNSUPPORTED_STATEFUL",
    "SELECT session_window.start AS s, count(*) AS n FROM events "
    "GROUP BY session_window(ts, if(ok, '2 seconds', '5 seconds'))": "UNSUPPORTED_STATEFUL",
    "SELECT e.nope FROM events e JOIN clicks c ON e.id = c.ref": "SPARK_REFUSED",
    "SELECT e.id, c.cid AS id FROM events e JOIN clicks c ON e.id = c.ref": "DUPLICATE_NAME",
}


@pytest.fixture(scope="module")
def hub(session: SparkSession, inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    with headrace.connect(tmp_path_factory.mktemp("refusing") / "state", spark=session) as found:
        found.sql(";\n".join(script(inputs)))
        yield found


@pytest.mark.parametrize("query", REFUSED)
def test_what_no_host_runs_is_refused_with_a_code(hub: Hub, query: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        hub.check(f"CREATE PIPELINE refused INTO m AS {query}")
    assert caught.value.code == REFUSED[query]
    assert caught.value.span is not None


def test_a_refusal_has_the_reason_that_holds_in_every_output_mode(hub: Hub) -> None:
    """Not that append mode does not fit, if update mode does not help."""
    query = "SELECT kind, count(DISTINCT id) AS n FROM events GROUP BY kind"
    with pytest.raises(HeadraceError) as caught:
        hub.check(f"CREATE PIPELINE refused INTO m WITH (host = 'dedicated') AS {query}")
    assert caught.value.code == "UNSUPPORTED_STATEFUL"
    assert "distinct" in caught.value.message.lower()
    assert "STREAMING_OUTPUT_MODE" not in str(caught.value.params["condition"])


@pytest.mark.parametrize(
    ("query", "instead"),
    [
        ("SELECT id FROM events INTERSECT SELECT ref FROM clicks", "LEFT SEMI JOIN"),
        ("SELECT e.id FROM events e LEFT ANTI JOIN clicks c ON e.id = c.ref", "LEFT JOIN"),
        ("SELECT id FROM events TABLESAMPLE (10 PERCENT)", "xxhash64"),
        ("SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY kind ORDER BY v) AS r FROM events) WHERE r = 1",
         "docs/sql.md"),
    ],
)  # fmt: skip
def test_a_refusal_says_what_to_write_instead(hub: Hub, query: str, instead: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        hub.check(f"CREATE PIPELINE refused INTO m AS {query}")
    assert caught.value.code == "UNSUPPORTED_STATEFUL"
    assert instead in caught.value.advice


def test_explain_names_the_host_the_reason_and_the_filters_of_each_stream(hub: Hub) -> None:
    (answer,) = hub.sql(f"EXPLAIN JSON {QUERIES['inner_filtered'].sql}")
    plan = json.loads(answer.text)
    assert plan["host"]["name"] == "dedicated"
    assert plan["host"]["expression"] == "clicks"
    events_, clicks_ = plan["dedicated"]["inputs"]
    assert events_["filter"] is not None and clicks_["filter"] is not None
    assert [c["name"] for c in clicks_["columns"]] == ["ref", "who", "w", "cts"]
    (formatted,) = hub.sql(f"EXPLAIN FORMATTED {QUERIES['inner'].sql}")
    assert "Join" in formatted.text
