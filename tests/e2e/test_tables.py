"""Parquet files that Spark wrote are read, and joined files that Spark reads are written. The oracle is Spark's batch
SQL on the same files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.sinks.rolling import ROLLED
from tests.e2e.support import Row, assert_same_rows, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

QUERY = "SELECT id, price, at, pos.lat AS lat, tags, m, day FROM {table} WHERE id % 3 <> 1"


def test_parquet_of_spark_comes_back_to_spark_in_joined_files(spark: SparkSession, tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    made = spark.range(3000).selectExpr(
        "CAST(id AS INT) AS id",
        "CAST(id / 7 AS DECIMAL(10,2)) AS price",
        "timestamp_millis(id * 7919) AS at",
        "IF(id % 5 = 0, NULL, named_struct('lat', id / 4D, 'unread', 'x')) AS pos",
        "IF(id % 4 = 0, NULL, array('a', CAST(id AS STRING))) AS tags",
        "map('k', id) AS m",
        "date_add(DATE '1960-01-01', CAST(id AS INT)) AS day",
        "'not declared' AS more",
    )
    made.repartition(3).write.option("parquet.block.size", "16384").parquet(str(source))
    with headrace.connect(tmp_path / "state", spark=spark, buckets=1) as hub:
        hub.sql(
            "CREATE STREAM s (id BIGINT, price DECIMAL(12,2), at TIMESTAMP, pos STRUCT<lat: DOUBLE, unread: STRING>, "
            "tags ARRAY<STRING>, m MAP<STRING, BIGINT>, day DATE) WITH (source = 'files', format = 'parquet', "
            f"path = '{source}', max_epoch_bytes = '20000');"
            f"CREATE SINK out WITH (type = 'parquet', path = '{target}', roll_size = '1GiB');"
            f"CREATE PIPELINE p INTO out AS {QUERY.format(table='s')}"
        )
        until(lambda: hub.streams["s"].status().rows == 3000, "all rows")
        assert hub.streams["s"].status().epoch >= 2
        assert not list(target.glob("part-*"))
        assert ROLLED in str(hub.sql("EXPLAIN PIPELINE p")[0])
    assert len(list(target.glob("part-*"))) == 1  # of all epochs and tasks
    wanted = [frozen(row) for row in spark.read.parquet(str(source)).selectExpr(
        "CAST(id AS BIGINT) AS id", "CAST(price AS DECIMAL(12,2)) AS price", "at", "pos.lat AS lat", "tags", "m", "day"
    ).where("id % 3 <> 1").collect()]  # fmt: skip
    assert_same_rows([frozen(row) for row in spark.read.parquet(str(target)).collect()], wanted, "Spark's rows")


def frozen(row: Row) -> Row:
    """A row whose lists and maps can be counted."""
    return tuple(tuple(v) if isinstance(v, list) else repr(v) if isinstance(v, dict) else v for v in row)
