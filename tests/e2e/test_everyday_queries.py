"""Everyday queries run on the host that is expected, and give the rows of Spark's batch SQL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from tests.e2e.everyday_queries import DEDICATED, EPOCH, ORDERS, PAYMENTS, SHARED, orders, payments
from tests.e2e.kills import LONG
from tests.e2e.support import Row, assert_same_rows, put, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]
_MANY = list(DEDICATED.items())
# A query on the dedicated host is a streaming query of its own, so only a few run at once.
WAVES = {"shared": SHARED, "epoch": EPOCH, "dedicated-1": dict(_MANY[:6]), "dedicated-2": dict(_MANY[6:])}


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    own = spark.newSession()
    own.conf.set("spark.sql.shuffle.partitions", "1")
    own.udf.register("tax", lambda x: None if x is None else x * 0.19, "double")
    own.sql("DECLARE VARIABLE rate DOUBLE DEFAULT 1.5")
    own.sql("DECLARE VARIABLE least_qty INT DEFAULT 1")
    users = [("ann", "Ann", 3), ("bob", "Bob", 1), ("zed", "Zed", 2)]
    own.createDataFrame(users, "user STRING, name STRING, tier INT").createOrReplaceTempView("users")
    return own


@pytest.fixture(scope="module")
def inputs(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("everyday")
    session.table("users").write.parquet(str(base / "users"))
    made = [json.dumps(row) for row in orders()]
    paid = [json.dumps(row) for row in payments(orders())]
    for i in range(2):
        put(base / "orders" / f"{i}.json", made[i * 80 : (i + 1) * 80])
        put(base / "payments" / f"{i}.json", paid[i * 48 : (i + 1) * 48 if i == 0 else None])
    return base


def oracle(session: SparkSession, inputs: Path, queries: dict[str, str]) -> dict[str, list[Row]]:
    """What Spark's batch SQL gives."""
    for name, columns in (("orders", ORDERS), ("payments", PAYMENTS)):
        session.read.schema(columns).json(str(inputs / name)).createOrReplaceTempView(name)
    try:
        return {name: rows_of(session.sql(text).toArrow()) for name, text in queries.items()}
    finally:
        session.catalog.dropTempView("orders")
        session.catalog.dropTempView("payments")


def test_enough_queries_are_tried() -> None:
    assert len(SHARED) + len(EPOCH) + len(DEDICATED) >= 40


@LONG
@pytest.mark.parametrize("wave", WAVES)
def test_every_query_gives_the_rows_of_spark_batch(
    wave: str, session: SparkSession, inputs: Path, tmp_path: Path
) -> None:
    queries = {name: text.replace("{users}", str(inputs / "users")) for name, text in WAVES[wave].items()}
    wanted = oracle(session, inputs, queries)
    assert [name for name, rows in wanted.items() if not rows] == []
    problems = []
    with headrace.connect(tmp_path / "state", spark=session) as hub:
        hub.sql(
            f"CREATE STREAM orders ({ORDERS}, WATERMARK FOR at AS at - INTERVAL 20 SECONDS) WITH (source = 'files', "
            f"format = 'json', path = '{inputs / 'orders'}', max_epoch_bytes = '20kb');"
            f"CREATE STREAM payments ({PAYMENTS}, WATERMARK FOR pat AS pat - INTERVAL 40 SECONDS) "
            f"WITH (source = 'files', format = 'json', path = '{inputs / 'payments'}');"
            "CREATE SINK m WITH (type = 'memory', max_rows = '100000')"
        )
        hub.sql(";".join(f"CREATE PIPELINE p_{name} INTO m AS {text}" for name, text in queries.items()))
        assert hub.wait_until_end(600)
        for name in queries:
            status = hub.pipelines[f"p_{name}"].status()
            if status.state == "failed" or status.host != wave.split("-")[0]:
                problems.append(f"{name}: {status.host} {status.error}")
                continue
            found = [_hashable(row) for row in rows_of(hub.pipelines[f"p_{name}"].results())]
            try:
                assert_same_rows(found, [_hashable(row) for row in wanted[name]], name)
            except AssertionError as problem:
                problems.append(str(problem))
    assert not problems, "\n".join(problems)


def _hashable(value: Any) -> Any:
    """A row or a nested value that can be counted."""
    if isinstance(value, dict):
        return tuple((k, _hashable(v)) for k, v in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value
