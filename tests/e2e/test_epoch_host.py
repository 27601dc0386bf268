"""The epoch host: pipelines that Spark runs in the commit of each epoch give the rows of Spark's batch SQL.

All queries run as pipelines of one stream on one hub: those of the shared host's oracle with `host = 'epoch'`, and
others that the shared host does not run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from headrace.errors import HeadraceError
from tests.e2e.events import COLUMNS, DELAY, as_json, events
from tests.e2e.kills import LONG
from tests.e2e.spark_only_queries import SPARK_ONLY
from tests.e2e.support import Row, assert_same_rows, last_per_group, put, rows_of
from tests.e2e.test_dedicated_host import QUERIES as DEDICATED
from tests.e2e.test_oracle import QUERIES as OF_THE_SHARED_HOST

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.hub.hub import Hub

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS, SEED = 600, 5
# The queries of the shared host's oracle that also run here, over a stream without computed columns.
_NAMES = (
    "filter_with_nulls", "three_valued_logic", "strings", "casts_and_case", "dates_and_times", "nothing",
    "nothing_in_windows", "windows", "windows_by_nullable_keys", "decimals_in_windows", "hopping_windows",
    "cumulating_windows", "sessions", "windows_with_having", "windows_on_change", "groups", "global",
)  # fmt: skip
SHARED = {name: OF_THE_SHARED_HOST[name] for name in _NAMES}
# `{dim}` is a Parquet path and `{csv}` a CSV path.
QUERIES = {
    # functions that the shared host does not have, or not with these arguments
    "soundex": "SELECT id, soundex(device) AS s FROM events WHERE v > 20",
    "levenshtein": "SELECT id, levenshtein(device, kind) AS d FROM events",
    "format": "SELECT id, format_string('%05d|%s', v, device) AS f FROM events WHERE v IS NOT NULL",
    "weekday": "SELECT id, date_format(ts, 'EEEE, MMMM') AS d FROM events",
    "letters": "SELECT id, date_format(ts, 'F') AS f, date_format(ts, 'HH:mm z') AS z, date_format(ts, 'g v') AS v, "
    "from_unixtime(v, 'yyyy zzzz') AS u FROM events",
    "read_letters": "SELECT id, to_timestamp(concat('2024-02-0', id % 9 + 1, ' 10:00 CET'), 'yyyy-MM-dd HH:mm z') AS t "
    "FROM events",
    "from_utc": "SELECT id, from_utc_timestamp(ts, 'Asia/Tokyo') AS t FROM events WHERE ok",
    "months": "SELECT id, months_between(ts, at) AS m FROM events WHERE at IS NOT NULL",
    "next_day": "SELECT id, next_day(day, 'TU') AS n FROM events WHERE day IS NOT NULL",
    "sentences": "SELECT id, sentences(device) AS s FROM events WHERE device IS NOT NULL",
    "schema_of": "SELECT id, schema_of_json('{\"a\": 1}') AS s FROM events WHERE id < 9",
    "bit_functions": "SELECT id, bit_count(v) AS b, shiftleft(v, 2) AS l FROM events WHERE v >= 0",
    "hashes": "SELECT id, hash(device, v) AS h, xxhash64(kind, x) AS x FROM events",
    "regexp": "SELECT id, regexp_extract_all(device, '([a-z])', 1) AS r FROM events",
    "split_part": "SELECT id, split_part(device, ' ', 1) AS p FROM events",
    "to_json": "SELECT id, to_json(struct(device, v, x)) AS j FROM events WHERE id % 3 = 0",
    "to_csv": "SELECT id, to_csv(struct(kind, v)) AS c FROM events",
    "width_bucket": "SELECT id, width_bucket(v, 0, 100, 5) AS b FROM events WHERE v IS NOT NULL",
    "conv": "SELECT id, conv(CAST(v AS STRING), 10, 16) AS c FROM events WHERE v > 0",
    "try_functions": "SELECT id, try_divide(v, v - 5) AS d, try_to_number(device, '99') AS n FROM events",
    "aes": "SELECT id, base64(sha2(device, 256)) AS s, crc32(device) AS c FROM events WHERE device IS NOT NULL",
    "mask": "SELECT id, mask(device, 'X', 'x', 'n') AS m FROM events",
    "luhn": "SELECT id, luhn_check(CAST(id AS STRING)) AS l FROM events",
    "greatest_of_dates": "SELECT id, greatest(day, CAST(ts AS DATE)) AS g FROM events",
    "intervals": "SELECT id, string(make_interval(0, 1, 0, v, 2)) AS t FROM events WHERE id < 50",
    "struct_of": "SELECT id, named_struct('d', device, 'n', named_struct('v', v)) AS s FROM events",
    "decimals": "SELECT id, price / 3 AS third, round(price, 1) AS r, bround(price, -1) AS b FROM events",
    "date_parts": "SELECT id, weekofyear(ts) AS w, dayofweek(day) AS d, extract(YEAROFWEEK FROM ts) AS y FROM events",
    "typeof": "SELECT id, typeof(price) AS t, nvl2(v, 'v', 'none') AS n FROM events WHERE id < 40",
    "elt": "SELECT id, elt(1 + abs(v) % 2, device, kind) AS e FROM events WHERE v IS NOT NULL",
    "url": "SELECT id, parse_url(concat('http://h/', kind, '?q=', id), 'QUERY', 'q') AS q FROM events",
    "stacked": "SELECT id, stack(2, 'v', CAST(v AS BIGINT), 'id', id) AS (name, value) FROM events WHERE v IS NOT NULL",
    # windows of rows, and pipes
    "window_of_row": "SELECT id, window(ts, '1 minute').start AS s, window(ts, '1 minute').end AS e FROM events",
    "windows_of_row": "SELECT id, window(ts, '2 minutes', '1 minute') AS w FROM events WHERE v > 70",
    "pipe": "FROM events |> WHERE v > 50 |> EXTEND soundex(device) AS s |> SELECT id, s",
    "pipe_after_select": "SELECT id, v FROM events WHERE ok |> WHERE v < 30 |> SET v = v * 2",
    "pipe_join": "FROM events |> JOIN dim ON device = name |> SELECT id, weight",
    # functions of the session
    "table_function": "SELECT e.id, w.word FROM events e, LATERAL words(e.device) w",
    "udf": "SELECT id, plus_one(x) AS y FROM events WHERE x IS NOT NULL",
    "udf_text": "SELECT id, shout(device) AS s FROM events",
    "udf_in_filter": "SELECT id FROM events WHERE plus_one(x) > 10 AND v < 50",
    "udf_twice": "SELECT id, plus_one(plus_one(x)) AS y, shout(kind) AS k FROM events WHERE kind = 'a'",
    "arrow_udf": "SELECT id, doubled(v) AS d FROM events WHERE v IS NOT NULL",
    "udf_struct": "SELECT id, pair(device, v).left AS l, pair(device, v).right AS r FROM events WHERE ok",
    "udf_by_case": "SELECT id, PLUS_ONE(`X`) AS y FROM Events WHERE `KIND` = 'b'",
    "sql_function": "SELECT id, twice(v) AS t FROM events WHERE v > 3",
    "variable": "SELECT id, v * factor AS f FROM events WHERE v > limit_of_v",
    # generators
    "explode_sequence": "SELECT id, explode(sequence(1, 1 + abs(v) % 3)) AS n FROM events WHERE v IS NOT NULL",
    "explode_split": "SELECT id, word FROM events LATERAL VIEW explode(split(device, ' ')) t AS word",
    "outer_explode": "SELECT id, w FROM events LATERAL VIEW OUTER explode(split(nullif(device, 'd1'), ' ')) t AS w",
    "two_views": "SELECT id, a, b FROM events LATERAL VIEW explode(array(1, 2)) t AS a "
    "LATERAL VIEW posexplode(array('x', 'y')) u AS p, b WHERE a = p",
    "json_tuple": "SELECT id, j.a, j.b FROM events "
    "LATERAL VIEW json_tuple(to_json(struct(v AS a, kind AS b)), 'a', 'b') j AS a, b WHERE v > 50",
    "lateral_table": "SELECT id, t.n FROM events, LATERAL (SELECT v + 1 AS n) t WHERE v IS NOT NULL",
    "variants": "SELECT id, variant_get(parse_json(to_json(struct(v))), '$.v', 'int') AS v FROM events WHERE v > 1",
    # JSON
    "from_json": "SELECT id, from_json(concat('{\"a\": ', id, ', \"b\": [1, 2]}'), 'a INT, b ARRAY<INT>') AS j "
    "FROM events",
    "get_json": "SELECT id, get_json_object(to_json(struct(device, v)), '$.v') AS v FROM events WHERE id < 200",
    "json_length": "SELECT id, json_array_length(concat('[', id, ', 2]')) AS n FROM events",
    # lambdas
    "transform": "SELECT id, transform(split(device, ''), (c, i) -> concat(i, c)) AS t FROM events WHERE id < 100",
    "aggregate": "SELECT id, aggregate(array(v, id, 3), 0L, (a, b) -> a + b, a -> a * 2) AS s FROM events WHERE v > 0",
    "sorted": "SELECT id, array_sort(array(v, 7, 50), (a, b) -> b - a) AS s FROM events WHERE v IS NOT NULL",
    # subqueries, WITH and UNION ALL
    "with_chain": "WITH a AS (SELECT id, v * 2 AS w FROM events WHERE v > 5), "
    "b AS (SELECT id, soundex(CAST(w AS STRING)) AS s FROM a) SELECT * FROM b WHERE s IS NOT NULL",
    "with_of_the_same_name": "WITH events AS (SELECT id, soundex(device) AS s FROM events WHERE ok) "
    "SELECT * FROM events",
    "nested": "SELECT q.id, q.s FROM (SELECT id, soundex(kind) AS s, v FROM (SELECT * FROM events)) q WHERE q.v > 9",
    "union_all": "SELECT id, soundex(device) AS s FROM events WHERE v > 70 "
    "UNION ALL SELECT id, kind FROM events WHERE v < 5",
    "scalar_subquery": "SELECT id, (SELECT max(weight) FROM dim) AS m FROM events "
    "WHERE v > (SELECT min(weight) FROM dim)",
    "in_subquery": "SELECT id, device FROM events WHERE device IN (SELECT name FROM dim WHERE weight > 1)",
    "exists_subquery": "SELECT id FROM events e WHERE NOT EXISTS (SELECT 1 FROM dim d WHERE d.name = e.device)",
    "correlated": "SELECT id, (SELECT max(weight) FROM dim d WHERE d.name = e.device) AS w FROM events e",
    "limited_subquery": "SELECT id FROM events WHERE v > (SELECT weight FROM dim ORDER BY weight LIMIT 1)",
    # joins with static tables
    "inner_join": "SELECT e.id, d.weight FROM events e JOIN dim d ON e.device = d.name WHERE e.v > 10",
    "left_join": "SELECT e.id, e.device, d.weight FROM events e LEFT JOIN dim d ON e.device = d.name",
    "right_join": "SELECT e.id, d.weight FROM dim d RIGHT JOIN events e ON e.device = d.name AND e.ok",
    "semi_join": "SELECT id FROM events e LEFT SEMI JOIN dim d ON e.device = d.name",
    "anti_join": "SELECT id FROM events e LEFT ANTI JOIN dim d ON e.device = d.name",
    "cross_join": "SELECT e.id, d.name FROM events e CROSS JOIN dim d WHERE e.v = 7",
    "comma_join": "SELECT e.id, d.weight FROM events e, dim d WHERE e.device = d.name AND e.kind = 'a'",
    "using_join": "SELECT id, kind, label FROM events JOIN kinds USING (kind)",
    "natural_join": "SELECT id, label FROM events NATURAL JOIN kinds WHERE v > 4",
    "two_joins": "SELECT e.id, d.weight, k.label FROM events e LEFT JOIN dim d ON e.device = d.name "
    "JOIN kinds k ON k.kind = e.kind WHERE e.v BETWEEN 3 AND 60",
    "range_join": "SELECT e.id, d.name FROM events e JOIN dim d ON e.v BETWEEN d.weight AND d.weight + 10",
    "parquet_join": "SELECT e.id, d.weight FROM events e JOIN parquet.`{dim}` d ON e.device = d.name",
    "csv_join": "SELECT e.id, c._c1 AS w FROM events e JOIN csv.`{csv}` c ON e.kind = c._c0 WHERE e.v > 10",
    "broadcast_hint": "SELECT /*+ BROADCAST(d) */ e.id, d.weight FROM events e JOIN dim d ON e.device = d.name",
    "udf_and_join": "SELECT e.id, plus_one(d.weight) AS w FROM events e JOIN dim d ON shout(e.device) = shout(d.name)",
    "view_join": "SELECT id, heavy.name FROM events JOIN heavy ON device = heavy.name",
    "no_columns": "SELECT soundex('x') AS s FROM events",
    # views of the hub; the oracle has them as views of the session
    "view": "SELECT id, loud FROM clean WHERE v > 30",
    "view_of_view": "SELECT w.id, w.word FROM words AS w WHERE w.word <> ''",
    "view_and_table": "SELECT c.id, d.weight FROM clean c JOIN dim d ON c.device = d.name AND c.v > 5",
    "views_together": "SELECT id, loud FROM clean WHERE v > 60 UNION ALL SELECT id, word FROM words",
    "hidden_view": "WITH clean AS (SELECT id, soundex(loud) AS s FROM clean) SELECT * FROM clean",
    "groups_of_a_view": "SELECT shout(kind) AS k, count(*) AS n, max(v) AS m FROM plain "
    "GROUP BY window(ts, '10 minutes'), kind",
    # select lists over groups
    "group_names": "SELECT date_format(window.start, 'EEE HH:mm') AS d, kind, count(*) AS n FROM events "
    "GROUP BY window(ts, '5 minutes'), kind",
    "group_udf": "SELECT window.end AS e, plus_one(avg(x)) AS y, shout(kind) AS k FROM events "
    "GROUP BY window(ts, '2 minutes'), kind HAVING plus_one(count(*)) > 3",
    "group_position": "SELECT kind, soundex(max(device)) AS s, sum(v) AS t FROM events "
    "GROUP BY 1, window(ts, '10 minutes')",
}
VIEWS = {
    "clean": "SELECT id, device, v, shout(device) AS loud FROM events WHERE v IS NOT NULL",
    "words": "SELECT id, word FROM clean LATERAL VIEW explode(split(loud, ' ')) t AS word",
    "plain": "SELECT * FROM events WHERE v > 10 AND ok",
}
SETTINGS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}
EMIT = re.compile(r" EMIT (CHANGES|ON CLOSE)$")


class Words:
    """A table function of Python: the words of a text."""

    def eval(self, text: str | None) -> Iterator[tuple[str]]:
        for word in (text or "").split():
            yield (word,)


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """A session with functions, variables and static tables, as a user has them."""
    from pyspark.sql.functions import udf, udtf

    own = spark.newSession()
    for key, value in SETTINGS.items():
        own.conf.set(key, value)
    own.udf.register("plus_one", lambda x: None if x is None else float(x) + 1, "double")
    own.udf.register("shout", lambda s: None if s is None else s.upper() + "!", "string")
    own.udf.register("pair", udf(lambda a, b: (a, b), "struct<left: string, right: int>"))
    own.udf.register("doubled", udf(lambda v: v * 2, "long", useArrow=True))
    words: Any = udtf(Words, returnType="word: string")
    own.udtf.register("any_words", words)
    own.udtf.register("words", words.asDeterministic())
    own.sql("CREATE TEMPORARY FUNCTION twice(x INT) RETURNS INT RETURN x * 2")
    own.sql("DECLARE VARIABLE factor INT DEFAULT 3")
    own.sql("DECLARE VARIABLE limit_of_v INT DEFAULT 40")
    names = [("d1", 3), ("d2", 30), ("Dröhn-3", 5), ("none", 9), ("x,y", 60)]
    dim = own.createDataFrame(names, "name STRING, weight INT")
    dim.createOrReplaceTempView("dim")
    own.createDataFrame([("a", "first"), ("b", "second")], "kind STRING, label STRING").createOrReplaceTempView("kinds")
    own.sql("CREATE TEMPORARY VIEW heavy AS SELECT name FROM dim WHERE weight > 10")
    return own


@pytest.fixture(scope="module")
def places(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    base = tmp_path_factory.mktemp("static")
    session.table("dim").coalesce(1).write.parquet(str(base / "dim"))
    put(base / "kinds.csv", ["a,1", "b,2"])
    return {"dim": str(base / "dim"), "csv": str(base / "kinds.csv")}


def filled(sql: str, places: dict[str, str]) -> str:
    return sql.replace("{dim}", places["dim"]).replace("{csv}", places["csv"])


@pytest.fixture(scope="module")
def hub(session: SparkSession, places: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A hub that has run all queries over all rows, in three epochs or more."""
    base = tmp_path_factory.mktemp("epoch-host")
    rows = [as_json(row) for row in events(ROWS, SEED)]
    for i in range(3):
        put(base / "in" / f"{i}.json", rows[i * 200 : (i + 1) * 200])
    script = [
        f"CREATE STREAM events ({COLUMNS}, WATERMARK FOR ts AS ts - INTERVAL {DELAY}) WITH (source = 'files', "
        f"format = 'json', path = '{base / 'in'}', max_epoch_bytes = '40kb')",
        "CREATE SINK m WITH (type = 'memory', max_rows = '1000000')",
        *(f"CREATE VIEW {name} AS {query}" for name, query in VIEWS.items()),
        *(f"CREATE PIPELINE s_{n} INTO m WITH (host = 'epoch') AS {q.sql}" for n, q in SHARED.items()),
        *(f"CREATE PIPELINE e_{n} INTO m WITH (host = 'epoch') AS {filled(q, places)}" for n, q in QUERIES.items()),
        "CREATE PIPELINE clock INTO m WITH (host = 'epoch') AS SELECT id, soundex(kind) AS s, "
        "current_timestamp() AS now, current_date AS today FROM events WHERE ts < now()",
    ]
    with headrace.connect(base / "state", spark=session, buckets=2) as found:
        found.sql(";\n".join(script))
        assert found.wait_until_end(400)
        yield found


@pytest.fixture(scope="module")
def oracle(
    session: SparkSession, places: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Row]]:
    directory = tmp_path_factory.mktemp("oracle")
    put(directory / "all.json", map(as_json, events(ROWS, SEED)))
    session.read.schema(COLUMNS).json(str(directory / "all.json")).cache().createOrReplaceTempView("events")
    for name, query in VIEWS.items():
        session.sql(f"CREATE TEMPORARY VIEW {name} AS {query}")
    texts = {f"s_{n}": q.spark or q.sql for n, q in SHARED.items()} | {
        f"e_{n}": filled(q, places) for n, q in QUERIES.items()
    }
    return {name: rows_of(session.sql(EMIT.sub("", text)).toArrow()) for name, text in texts.items()}


def _hashable(value: Any) -> Any:
    """A row or a nested value that can be counted."""
    if isinstance(value, dict):
        return tuple((k, _hashable(v)) for k, v in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


def test_enough_queries_are_tried() -> None:
    assert len(QUERIES) >= 60


def test_every_query_gives_the_rows_of_spark_batch(hub: Hub, oracle: dict[str, list[Row]]) -> None:
    problems = []
    for name, wanted in oracle.items():
        pipeline = hub.pipelines[name]
        status = pipeline.status()
        if status.state == "failed":
            problems.append(f"{name}: {status.error}")
            continue
        keys = SHARED[name[2:]].keys if name.startswith("s_") else None
        found = rows_of(pipeline.results())
        found = found if keys is None else last_per_group(found, keys)
        try:
            assert_same_rows([_hashable(r) for r in found], [_hashable(r) for r in wanted], name)
        except AssertionError as problem:
            problems.append(str(problem))
    assert not problems, "\n".join(problems)


def test_queries_of_the_oracle_are_not_empty(oracle: dict[str, list[Row]]) -> None:
    assert {name for name, rows in oracle.items() if not rows} == {"s_nothing", "s_nothing_in_windows"}


def refused_by_the_rings(hub: Hub, queries: dict[str, str], places: dict[str, str]) -> list[str]:
    """The queries that the shared host cannot run."""
    refused = []
    for name, query in queries.items():
        try:
            hub.check(f"CREATE PIPELINE x INTO m WITH (host = 'shared') AS {filled(query, places)}")
        except HeadraceError:
            refused.append(name)
    return refused


@LONG
def test_more_queries_that_only_spark_runs(session: SparkSession, places: dict[str, str], tmp_path: Path) -> None:
    put(tmp_path / "in" / "all.json", map(as_json, events(200, SEED)))
    session.read.schema(COLUMNS).json(str(tmp_path / "in")).createOrReplaceTempView("events")
    texts = {name: filled(query, places) for name, query in SPARK_ONLY.items()}
    wanted = {name: rows_of(session.sql(text).toArrow()) for name, text in texts.items()}
    session.catalog.dropTempView("events")
    assert [name for name, rows in wanted.items() if not rows] == []
    script = [
        f"CREATE STREAM events ({COLUMNS}, WATERMARK FOR ts AS ts - INTERVAL {DELAY}) WITH (source = 'files', "
        f"format = 'json', path = '{tmp_path / 'in'}')",
        "CREATE SINK m WITH (type = 'memory', max_rows = '1000000')",
        *(f"CREATE PIPELINE {name} INTO m AS {text}" for name, text in texts.items()),
    ]
    problems = []
    with headrace.connect(tmp_path / "state", spark=session, buckets=2) as own:
        own.sql(";\n".join(script))
        assert refused_by_the_rings(own, SPARK_ONLY, places) == list(SPARK_ONLY)
        assert own.wait_until_end(400)
        for name, rows in wanted.items():
            status = own.pipelines[name].status()
            if status.state == "failed" or status.host != "epoch":
                problems.append(f"{name}: {status.host} {status.error}")
                continue
            try:
                found = [_hashable(r) for r in rows_of(own.pipelines[name].results())]
                assert_same_rows(found, [_hashable(r) for r in rows], name)
            except AssertionError as problem:
                problems.append(str(problem))
    assert not problems, "\n".join(problems)


def test_enough_queries_are_beyond_the_shared_host(hub: Hub, places: dict[str, str]) -> None:
    others = [name for name, query in DEDICATED.items() if not query.forced]  # the rest runs on cheaper hosts, too
    assert len(refused_by_the_rings(hub, QUERIES, places)) + len(SPARK_ONLY) + len(others) >= 120


def test_only_pipelines_that_need_spark_are_on_the_epoch_host(hub: Hub) -> None:
    for name in (
        "udf",
        "letters",
        "read_letters",
        "inner_join",
        "scalar_subquery",
        "group_udf",
        "window_of_row",
        "pipe",
        "table_function",
    ):
        (answer,) = hub.sql(f"EXPLAIN JSON {QUERIES[name]}")
        host = json.loads(answer.text)["host"]
        assert host["name"] == "epoch", name
        assert host["expression"], "EXPLAIN names the expression that decided"
    (answer,) = hub.sql("EXPLAIN JSON SELECT id FROM events WHERE v > 3")
    assert json.loads(answer.text)["host"]["name"] == "shared"
    assert hub.pipelines["e_udf"].status().host == "epoch"


def explained(hub: Hub, name: str) -> dict[str, Any]:
    (answer,) = hub.sql(f"EXPLAIN JSON PIPELINE {name}")
    found: dict[str, Any] = json.loads(answer.text)
    return found


def test_the_rings_filter_and_keep_only_what_the_query_needs(hub: Hub) -> None:
    plan = explained(hub, "e_two_joins")
    assert set(plan["stream"]["view"]["columns"].values()) == {"id", "device", "kind", "v"}
    assert plan["ring0"]["filter"] is not None
    assert [c["name"] for c in plan["spark"]["staged"]] == ["id", "device", "kind", "v"]
    assert explained(hub, "e_no_columns")["stream"]["view"]["kind"] == "NONE"
    assert explained(hub, "e_variable")["ring0"]["filter"] is None, "the value of a variable may change"
    assert explained(hub, "e_union_all")["ring0"]["filter"] is None, "the two parts have different filters"


def test_the_clock_is_that_of_the_epoch(hub: Hub) -> None:
    rows = rows_of(hub.pipelines["clock"].results())
    assert len(rows) == ROWS
    assert 1 < len({now for _, _, now, _ in rows}) <= hub.streams["events"].status().epoch + 1
    assert all(now.date() == today for _, _, now, today in rows)
    assert explained(hub, "clock")["ring0"]["filter"] is None, "a condition on the clock is not pushed down"


def test_the_formatted_plan_is_sparks(hub: Hub) -> None:
    (answer,) = hub.sql("EXPLAIN FORMATTED PIPELINE e_udf")
    assert "BatchEvalPython" in answer.text


REFUSED = {
    "SELECT e.id, rand_of(v) AS r FROM events e": "NON_DETERMINISTIC",
    "SELECT e.id, w.word FROM events e, LATERAL any_words(e.device) w": "NON_DETERMINISTIC",
    "SELECT a.id FROM events a LEFT JOIN events b ON a.id = b.id": "UNSUPPORTED_STATEFUL",
    "SELECT id FROM events WHERE v > (SELECT avg(v) FROM events)": "UNSUPPORTED_STATEFUL",
    "SELECT id FROM (SELECT id, row_number() OVER (ORDER BY v) AS n FROM events) WHERE n < 3": "UNSUPPORTED_STATEFUL",
    "SELECT d.name, soundex(e.kind) AS s FROM events e RIGHT JOIN dim d ON d.name = e.device": "UNSUPPORTED_STATEFUL",
    "SELECT d.name FROM events e FULL JOIN dim d ON d.name = e.device": "UNSUPPORTED_STATEFUL",
    "SELECT * FROM (SELECT id FROM events ORDER BY soundex(device)) LATERAL VIEW explode(array(1)) t AS x":
    "UNBOUNDED_SORT",
    "SELECT e.id FROM events e JOIN no_such_table t ON t.a = e.id": "SPARK_REFUSED",
    "SELECT soundex(devise) AS s FROM events": "UNKNOWN_COLUMN",
    "SELECT no_such_function(id) AS s FROM events": "UNKNOWN_FUNCTION",
    "SELECT e.idd FROM events e JOIN dim d ON e.device = d.name": "SPARK_REFUSED",
    "SELECT e.id, e.id FROM events e JOIN dim d ON e.device = d.name": "DUPLICATE_NAME",
    "SELECT make_interval(v) AS i FROM events": "SPARK_REFUSED",
    "SELECT id, soundex(kind) AS s FROM events UNION ALL SELECT weight, name FROM dim": "UNSUPPORTED_STATEFUL",
}  # fmt: skip


@pytest.mark.parametrize("query", REFUSED)
def test_what_cannot_run_epoch_by_epoch_is_refused(hub: Hub, session: SparkSession, query: str) -> None:
    from pyspark.sql.functions import udf

    session.udf.register("rand_of", udf(lambda x: x, "int").asNondeterministic())
    with pytest.raises(HeadraceError) as caught:
        hub.check(f"CREATE PIPELINE refused INTO m AS {query}")
    assert caught.value.code == REFUSED[query]
    assert "shared host" not in caught.value.render()


@pytest.mark.parametrize("query", [q for q, found in REFUSED.items() if found == "NON_DETERMINISTIC"])
def test_a_function_of_the_user_that_is_not_deterministic_is_named(hub: Hub, session: SparkSession, query: str) -> None:
    from pyspark.sql.functions import udf

    session.udf.register("rand_of", udf(lambda x: x, "int").asNondeterministic())
    with pytest.raises(HeadraceError) as caught:
        hub.check(f"CREATE PIPELINE refused INTO m AS {query}")
    assert any(f"{name}()" in caught.value.message for name in ("rand_of", "any_words"))
    assert "deterministic" in caught.value.advice


def test_a_forced_host_is_used_or_refused(hub: Hub) -> None:
    for host in ("shared", "epoch", "dedicated"):
        (planned,) = hub.sql(f"EXPLAIN CREATE PIPELINE p INTO m WITH (host = '{host}') AS SELECT id FROM events")
        assert f"\nhost: {host} " in planned.text
    for option, query, code in [
        ("shared", "SELECT e.id FROM events e JOIN dim d ON e.device = d.name", "UNSUPPORTED_ON_SHARED"),
        ("epoch", "SELECT id, rank() OVER (ORDER BY v) AS r FROM events", "UNSUPPORTED_ON_EPOCH"),
        ("dedicated", "SELECT device, rand() AS r FROM events", "NON_DETERMINISTIC"),
        ("anywhere", "SELECT device FROM events", "BAD_OPTION"),
    ]:
        with pytest.raises(HeadraceError) as caught:
            hub.check(f"CREATE PIPELINE p INTO m WITH (host = '{option}') AS {query}")
        assert caught.value.code == code


def test_nothing_is_left_of_staged_rows_and_views(hub: Hub, session: SparkSession) -> None:
    assert not list(hub.directory.rglob("staged/*"))
    views = [row.viewName for row in session.sql("SHOW VIEWS").collect()]
    assert "dim" in views and not [name for name in views if name.startswith("__headrace")]
