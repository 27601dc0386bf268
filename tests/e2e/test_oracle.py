"""The oracle: pipelines give the results of Spark's batch SQL on the same files, for every division into epochs and
tasks.

All queries run as pipelines of one stream at once, once per cut into files, tasks and epochs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace
from tests.e2e.events import COLUMNS, DELAY, as_csv, as_json, events
from tests.e2e.support import Row, assert_same_rows, last_per_group, put, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS, SEED = 4500, 11
# Computed columns of the stream. Spark computes the same in a view.
COMPUTED = {
    "tenfold": ("DECIMAL(15,2)", "coalesce(price, 1) * 10"),
    "label": ("STRING", "concat(kind, '/', device)"),
    "minute": ("TIMESTAMP", "to_timestamp(date_format(ts, 'yyyy-MM-dd HH:mm'), 'yyyy-MM-dd HH:mm')"),
}


@dataclass(frozen=True)
class Query:
    """`sql` runs in both engines; `spark` replaces it where Spark's batch SQL is different. `keys` is given for
    output on change: the first columns name the group, and the last row of each counts."""

    sql: str
    spark: str = ""
    keys: int | None = None


QUERIES = {
    "filter_with_nulls": Query("SELECT id, device, v FROM events WHERE v > 50 OR x IS NULL"),
    "three_valued_logic": Query(
        "SELECT id, ok AND v > 3 AS both, ok OR v > 3 AS either, coalesce(device, 'none') AS device, v + 1 AS next "
        "FROM events WHERE NOT ok OR v IS NULL"
    ),
    "strings": Query(
        "SELECT id, upper(device) AS u, length(device) AS n, substring(device, 2, 3) AS part, "
        "concat(kind, '-', device) AS both FROM events WHERE device LIKE 'd%' OR device LIKE '%\"%'"
    ),
    "casts_and_case": Query(
        "SELECT id, CAST(v AS STRING) AS text, CAST(v AS DECIMAL(12,3)) AS exact, "
        "CASE WHEN v < 10 THEN 'low' WHEN v < 50 THEN 'mid' END AS band, price * 2 AS twice "
        "FROM events WHERE kind = 'a'"
    ),
    "dates_and_times": Query(
        "SELECT id, day, date_add(day, 1) AS tomorrow, year(at) AS y, month(at) AS m, "
        "at + INTERVAL 90 MINUTES AS later, date_trunc('hour', ts) AS hour FROM events "
        "WHERE day >= DATE'2024-02-29' OR at < TIMESTAMP'2025-06-01 00:00:00'"
    ),
    "computed_columns": Query("SELECT id, label, tenfold, minute FROM events WHERE label LIKE 'a/%'"),
    "computed_keys": Query(
        "SELECT window.start AS start, label, minute, sum(tenfold) AS total FROM events "
        "GROUP BY window(ts, '2 minutes'), label, minute"
    ),
    "lateral_aliases_and_names": Query(
        "SELECT t.id AS end, v + 1 AS next, next * 2 AS order, CAST(device AS VARCHAR(2)) AS device "
        "FROM (SELECT id, v, device, kind FROM events) AS t(id, v, device, kind) WHERE kind = 'b'"
    ),
    "large_in": Query(
        f"SELECT id, device IN ({', '.join(repr(f'd{i}') for i in range(2000))}) AS listed FROM events "
        f"WHERE id IN ({', '.join(str(7 * i) for i in range(3000))}) AND v NOT IN (1, 2, 3)"
    ),
    "union_all": Query(
        "SELECT id, v AS value, kind FROM events WHERE v > 90 UNION ALL SELECT id, price, device FROM events "
        "WHERE price > 900 UNION ALL SELECT -1, NULL, 'x' FROM events WHERE id < 3"
    ),
    "union_all_in_windows": Query(
        "SELECT window.start AS start, what, count(*) AS n, sum(value) AS total FROM "
        "(SELECT ts, kind AS what, v AS value FROM events WHERE ok UNION ALL SELECT ts, device, v + 1 FROM events "
        "WHERE v IS NOT NULL) GROUP BY window(ts, '3 minutes'), what"
    ),
    "top_of_each_window": Query(
        "SELECT start, device, n, total FROM (SELECT *, row_number() OVER (PARTITION BY start ORDER BY n DESC, device) "
        "AS r FROM (SELECT window.start AS start, device, count(*) AS n, sum(v) AS total FROM events "
        "GROUP BY window(ts, '1 minute'), device)) WHERE r <= 3"
    ),
    "ranks_by_kind": Query(
        "SELECT * FROM (SELECT window.end AS end, kind, device, max(v) AS high, "
        "rank() OVER (PARTITION BY window, kind ORDER BY max(v) DESC) AS r, "
        "dense_rank() OVER (PARTITION BY kind, window ORDER BY max(v) NULLS LAST) AS d FROM events "
        "GROUP BY window(ts, '2 minutes', '1 minute'), kind, device HAVING count(*) > 1) WHERE r <= 2 OR d = 1"
    ),
    "rollup": Query(
        "SELECT kind, ok, grouping(kind) AS g, grouping_id() AS gi, count(*) AS n, sum(v) AS total FROM events "
        "GROUP BY ROLLUP(kind, ok)",
        keys=4,
    ),
    "cube_in_windows": Query(
        "SELECT window.start AS start, kind, ok, grouping_id() AS gi, count(DISTINCT device) AS devices, "
        "max(price) AS high FROM events GROUP BY window(ts, '3 minutes'), CUBE(kind, ok) HAVING count(*) > 5"
    ),
    "grouping_sets_in_windows": Query(
        "SELECT window.end AS end, device, upper(kind) AS kind, grouping(device) AS g, count(*) AS n FROM events "
        "GROUP BY window(ts, '3 minutes'), GROUPING SETS ((device, upper(kind)), (device), (device), ())"
    ),
    "group_by_all": Query(
        "SELECT window(ts, '2 minutes').start AS start, upper(device) AS u, count(*) AS n, n + max(v) AS m "
        "FROM events GROUP BY ALL"
    ),
    "nothing": Query("SELECT id, device FROM events WHERE v > 1000000"),
    "nothing_in_windows": Query(
        "SELECT window.start AS start, count(*) AS n FROM events WHERE v > 1000000 GROUP BY window(ts, '1 minute')"
    ),
    "windows": Query(
        "SELECT window.start AS start, window.end AS end, count(*) AS n, count(v) AS nv, sum(v) AS total, "
        "avg(x) AS mean FROM events GROUP BY window(ts, '1 minute')"
    ),
    "windows_by_nullable_keys": Query(
        "SELECT window.start AS start, device, ok, count(*) AS n, min(v) AS low, max(x) AS high, min(at) AS first_at, "
        "max(day) AS last_day FROM events GROUP BY window(ts, '3 minutes'), device, ok"
    ),
    "decimals_in_windows": Query(
        "SELECT window.start AS start, kind, sum(price) AS total, avg(price) AS mean, min(price) AS low FROM events "
        "WHERE price IS NOT NULL GROUP BY window(ts, '2 minutes'), kind"
    ),
    "hopping_windows": Query(
        "SELECT window.start AS start, kind, count(*) AS n, sum(price) AS total FROM events "
        "GROUP BY window(ts, '2 minutes', '30 seconds'), kind"
    ),
    "cumulating_windows": Query(
        "SELECT window_start AS start, window_end AS end, kind, count(*) AS n FROM "
        "CUMULATE(TABLE events, DESCRIPTOR(ts), INTERVAL 1 MINUTE, INTERVAL 4 MINUTES) "
        "GROUP BY window_start, window_end, kind",
        spark="SELECT start, end, kind, count(*) AS n FROM (SELECT kind, w.start AS start, "
        "explode(sequence(step.end, w.end, INTERVAL 1 MINUTE)) AS end FROM "
        "(SELECT kind, window(ts, '4 minutes') AS w, step FROM "
        "(SELECT kind, ts, window(ts, '1 minute') AS step FROM events))) GROUP BY start, end, kind",
    ),
    "sessions": Query(
        "SELECT session_window.start AS start, session_window.end AS end, device, count(*) AS n, sum(v) AS total "
        "FROM events GROUP BY session_window(ts, '8 seconds'), device"
    ),
    "windows_with_having": Query(
        "SELECT window.start AS start, device, count(*) AS n, bool_or(ok) AS any_ok FROM events "
        "WHERE kind <> 'b' GROUP BY window(ts, '1 minute'), device HAVING count(*) > 3 AND max(v) IS NOT NULL"
    ),
    "windows_on_change": Query(
        "SELECT window.start AS start, kind, count(*) AS n, max(price) AS high FROM events "
        "GROUP BY window(ts, '1 minute'), kind EMIT CHANGES",
        spark="SELECT window.start AS start, kind, count(*) AS n, max(price) AS high FROM events "
        "GROUP BY window(ts, '1 minute'), kind",
        keys=2,
    ),
    "groups": Query(
        "SELECT device, kind, count(*) AS n, sum(price) AS total, avg(v) AS mean, min(device) AS same FROM events "
        "GROUP BY device, kind",
        keys=2,
    ),
    "global": Query(
        "SELECT count(*) AS n, count(x) AS nx, sum(x) AS total, min(device) AS low, max(ts) AS newest, "
        "bool_and(ok) AS all_ok FROM events",
        keys=0,
    ),
}


@dataclass(frozen=True)
class Cut:
    """How the same rows reach the stream: where files end, how much an epoch reads, how far groups are spread."""

    format: str
    files: tuple[int, ...]
    epoch_bytes: str
    buckets: int
    epochs: range = field(default=range(1, 1000))


CUTS = {
    # One epoch of one file: its three tasks cut it at bytes, in the middle of records.
    "one file, one epoch, three tasks": Cut("json", (), "256mb", 1, range(1, 3)),
    # Epochs of 97 kB end in the middle of records, too; files end after rows 1, 2, 1000, ...
    "seven files, many epochs": Cut("json", (1, 2, 1000, 1001, 2500, 4499), "97kb", 3, range(8, 40)),
    "csv, three files, epochs of several tasks": Cut("csv", (1500, 3001), "300kb", 3, range(2, 20)),
}


def write_cut(directory: Path, cut: Cut, lines: list[str]) -> None:
    bounds = [0, *cut.files, len(lines)]
    for number, (a, b) in enumerate(pairwise(bounds)):
        # Every other file has no newline after its last record: the file's end ends it.
        put(directory / f"{number:03}.{cut.format}", lines[a:b], newline_at_end=number % 2 == 0)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, object]]:
    return list(events(ROWS, SEED))


@pytest.fixture(scope="module")
def oracle(
    spark: SparkSession, rows: list[dict[str, object]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Row]]:
    """Spark's batch answers, by query. Both formats hold the same data for Spark, so it is asked about one."""
    directory = tmp_path_factory.mktemp("oracle")
    put(directory / "all.json", map(as_json, rows))
    put(directory / "all.csv", map(as_csv, rows))
    session = spark.newSession()
    # Small data, each query once: compiling them would take most of the time.
    for key, value in {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.shuffle.partitions": "1",
    }.items():
        session.conf.set(key, value)
    reader = session.read.schema(COLUMNS).option("mode", "FAILFAST")
    frame = reader.json(str(directory / "all.json")).cache()
    assert_same_rows(
        rows_of(reader.csv(str(directory / "all.csv"), escape='"').toArrow()), rows_of(frame.toArrow()), "csv and json"
    )
    frame.selectExpr("*", *(f"{e} AS {n}" for n, (_, e) in COMPUTED.items())).createOrReplaceTempView("events")
    answers = {name: rows_of(session.sql(q.spark or q.sql).toArrow()) for name, q in QUERIES.items()}
    frame.unpersist()
    # An oracle without rows proves nothing.
    assert [name for name, answer in answers.items() if not answer] == ["nothing", "nothing_in_windows"]
    assert any(row[1] is None for row in answers["windows_by_nullable_keys"])
    return answers


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_pipelines_say_what_spark_batch_says(
    cut: Cut,
    spark: SparkSession,
    rows: list[dict[str, object]],
    oracle: dict[str, list[Row]],
    tmp_path: Path,
) -> None:
    write_cut(tmp_path / "in", cut, [(as_json if cut.format == "json" else as_csv)(row) for row in rows])
    computed = ", ".join(f"{name} {kind} AS {text}" for name, (kind, text) in COMPUTED.items())
    script = [
        f"CREATE STREAM events ({COLUMNS}, {computed}, WATERMARK FOR ts AS ts - INTERVAL {DELAY}) "
        "WITH (source = 'files', "
        f"format = '{cut.format}', path = '{tmp_path / 'in'}', max_epoch_bytes = '{cut.epoch_bytes}')",
        "CREATE SINK m WITH (type = 'memory', max_rows = '1000000')",
        *(f"CREATE PIPELINE {name} INTO m AS {query.sql}" for name, query in QUERIES.items()),
    ]
    with headrace.connect(tmp_path / "state", spark=spark, buckets=cut.buckets) as hub:
        hub.sql(";\n".join(script))
        assert hub.wait_until_end(180)
        status = hub.streams["events"].status()
        assert status.rows == ROWS and not status.bad
        assert status.epoch + 1 in cut.epochs
        for name, query in QUERIES.items():
            pipeline = hub.pipelines[name]
            assert pipeline.status().late == 0, name
            found = rows_of(pipeline.results())
            if query.keys is not None:
                found = last_per_group(found, query.keys)
            assert_same_rows(found, oracle[name], name)


def test_late_rows_are_counted_to_the_last_one(spark: SparkSession, tmp_path: Path) -> None:
    """Every third row is three minutes old: with many small epochs most of those are late, none uncounted."""
    count = 3000
    lines = [
        f'{{"id": {i}, "ts": "2026-01-01T{(i // 60 - (3 if i % 3 == 0 else 0) + 60) // 60:02}:'
        f'{(i // 60 - (3 if i % 3 == 0 else 0) + 60) % 60:02}:{i % 60:02}Z"}}'
        for i in range(count)
    ]
    put(tmp_path / "in" / "0.json", lines)
    with headrace.connect(tmp_path / "state", spark=spark, buckets=1) as hub:
        hub.sql(
            f"""CREATE STREAM s (id BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 10 SECONDS)
            WITH (source = 'files', format = 'json', path = '{tmp_path / "in"}', max_epoch_bytes = '12kb');
            CREATE SINK m WITH (type = 'memory');
            CREATE PIPELINE w INTO m AS
              SELECT window.start AS start, count(*) AS n FROM s GROUP BY window(ts, '1 minute');
            CREATE PIPELINE h INTO m AS
              SELECT window.start AS start, count(*) AS n FROM s WHERE id % 2 = 0 GROUP BY window(ts, '1 minute');
            CREATE PIPELINE every_row INTO m AS SELECT id FROM s"""
        )
        assert hub.wait_until_end(180)
        for name, rows_in in (("w", count), ("h", count // 2)):
            late = hub.pipelines[name].status().late
            assert late > rows_in // 10
            assert sum(n for _, n in rows_of(hub.pipelines[name].results())) + late == rows_in
        assert hub.pipelines["every_row"].results().num_rows == count
