"""Every query of the shared host's oracle gives the same rows on the epoch host and on the dedicated host, or is
refused there with a code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.errors import HeadraceError
from tests.e2e.events import COLUMNS, DELAY, as_json, events
from tests.e2e.kills import LONG
from tests.e2e.support import Row, assert_same_rows, last_per_group, put, rows_of
from tests.e2e.test_oracle import COMPUTED, QUERIES
from tests.e2e.two_streams import START, Streams, found

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.hub.hub import Hub

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS, SEED, WAVE = 400, 11, 7
# What the dedicated host cannot run when it is forced. Spark's streaming has no OVER and no count(DISTINCT), and Spark
# has no CUMULATE. The epoch host runs all of them.
REFUSED = {
    "top_of_each_window": "UNSUPPORTED_STATEFUL",
    "ranks_by_kind": "UNSUPPORTED_STATEFUL",
    "cube_in_windows": "UNSUPPORTED_STATEFUL",
    "cumulating_windows": "SPARK_REFUSED",
}
# Spark takes the key window(...).start of GROUP BY ALL for no window, so it emits changes: two columns name the group.
CHANGES = {"group_by_all": 2}
SAMPLE = ["computed_keys", "union_all_in_windows", "windows_on_change", "top_of_each_window"]
_REST = [name for name in QUERIES if name not in SAMPLE]
WAVES = [SAMPLE, *(_REST[i : i + WAVE] for i in range(0, len(_REST), WAVE))]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("three-hosts")
    rows = [as_json(row) for row in events(ROWS, SEED)]
    for i in range(2):
        put(base / f"{i}.json", rows[i * ROWS // 2 : (i + 1) * ROWS // 2])
    return base


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    own = spark.newSession()
    own.conf.set("spark.sql.shuffle.partitions", "1")
    return own


def oracle(session: SparkSession, inputs: Path, names: list[str]) -> dict[str, list[Row]]:
    """What Spark's batch SQL gives."""
    frame = session.read.schema(COLUMNS).json(str(inputs))
    frame.selectExpr("*", *(f"{e} AS {n}" for n, (_, e) in COMPUTED.items())).createOrReplaceTempView("events")
    try:
        return {name: rows_of(session.sql(QUERIES[name].spark or QUERIES[name].sql).toArrow()) for name in names}
    finally:
        session.catalog.dropTempView("events")


def refusal(hub: Hub, statement: str) -> str:
    """The code with which a statement is refused; empty if it is not."""
    try:
        hub.check(statement)
    except HeadraceError as problem:
        return problem.code
    return ""


@pytest.mark.parametrize("wave", [0, *(pytest.param(wave, marks=LONG) for wave in range(1, len(WAVES)))])
def test_every_query_gives_the_rows_of_spark_batch_on_the_other_hosts(
    wave: int, session: SparkSession, inputs: Path, tmp_path: Path
) -> None:
    wanted = oracle(session, inputs, WAVES[wave])
    computed = ", ".join(f"{name} {kind} AS {text}" for name, (kind, text) in COMPUTED.items())
    problems = []
    with headrace.connect(tmp_path / "state", spark=session, buckets=2) as hub:
        hub.sql(
            f"CREATE STREAM events ({COLUMNS}, {computed}, WATERMARK FOR ts AS ts - INTERVAL {DELAY}) "
            f"WITH (source = 'files', format = 'json', path = '{inputs}', max_epoch_bytes = '40kb'); "
            "CREATE SINK m WITH (type = 'memory', max_rows = '1000000')"
        )
        created = {
            (host, name): f"CREATE PIPELINE {host}_{name} INTO m WITH (host = '{host}') AS {QUERIES[name].sql}"
            for host in ("epoch", "dedicated")
            for name in WAVES[wave]
        }
        refused = {key: code for key, statement in created.items() if (code := refusal(hub, statement))}
        expected = {("dedicated", name): code for name, code in REFUSED.items() if name in wanted}
        if refused != expected:
            problems.append(f"refused: {refused}, expected: {expected}")
        hub.sql(";\n".join(statement for key, statement in created.items() if key not in refused))
        assert hub.wait_until_end(600)
        for host, name in (key for key in created if key not in refused):
            pipeline = hub.pipelines[f"{host}_{name}"]
            status = pipeline.status()
            if status.state == "failed" or status.host != host or status.late:
                problems.append(f"{host} {name}: {status.host} {status.state} {status.late} late {status.error}")
                continue
            query = hub.record(pipeline.name).definition.program.dedicated
            found, keys = rows_of(pipeline.results()), QUERIES[name].keys
            if query is not None:
                keys = CHANGES.get(name, keys)
                assert (query.mode == "append") == (keys is None), f"{name} runs in the mode {query.mode}"
            try:
                assert_same_rows(found if keys is None else last_per_group(found, keys), wanted[name], f"{host} {name}")
            except AssertionError as problem:
                problems.append(str(problem))
    assert not problems, "\n".join(problems)


CLOSING = {
    "windows": "SELECT unix_seconds(window.start) AS s, count(*) AS n FROM a WHERE id < 3 "
    "GROUP BY window(ts, '10 seconds')",
    "sessions": "SELECT unix_seconds(session_window.start) AS s, count(*) AS n FROM a WHERE id < 3 "
    "GROUP BY session_window(ts, '5 seconds'), id < 9",
}


def test_a_filter_that_passes_nothing_still_closes_windows_on_every_host(streams: Streams) -> None:
    hosts = ("shared", "epoch", "dedicated")
    made = {f"{host}_{kind}": (host, query) for host in hosts for kind, query in CLOSING.items()}
    with headrace.connect(streams.base / "state", spark=streams.session) as hub:
        hub.sql(streams.script())
        hub.sql(";".join(f"CREATE PIPELINE {n} INTO m WITH (host = '{host}') AS {q}" for n, (host, q) in made.items()))
        streams.give(hub, "a", range(0, 5))
        hub.streams["a"].sync(300)
        assert {name: found(hub, name) for name in made} == {name: [] for name in made}
        streams.give(hub, "a", range(20, 25))  # no filter lets these through, but time goes on
        hub.streams["a"].sync(300)
        assert {name: found(hub, name) for name in made} == {name: [(int(START.timestamp()), 3)] for name in made}
