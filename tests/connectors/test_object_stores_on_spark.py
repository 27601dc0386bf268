"""Object stores on real Spark: tasks read and stage objects with the credentials that travel with their work, for
pipelines without and with state and for the epoch host. The oracle is Spark's SQL on the same rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

import headrace
from tests.connectors.s3_server import BUCKET, S3Server
from tests.e2e.support import assert_same_rows, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

QUERIES = {
    "plain": "SELECT a, k FROM {s} WHERE a % 3 <> 1",
    "grouped": "SELECT k, count(*) AS n, sum(a) AS total FROM {s} GROUP BY k",
    "spark": "SELECT a, soundex(k) AS code FROM {s} WHERE a % 5 = 0",
}


def test_pipelines_of_every_kind_read_and_write_objects(spark_of_the_run: SparkSession, tmp_path: Path) -> None:
    spark, server = spark_of_the_run, S3Server(tmp_path / "log")
    try:
        store = server.store("spark")
        rows = [{"a": i, "k": f"key{i % 4}"} for i in range(2000)]
        for part in range(4):
            lines = "".join(json.dumps(row) + "\n" for row in rows[part::4])
            store.put(f"in/{part}.jsonl", lines.encode())
        with headrace.connect(tmp_path / "state", spark=spark) as hub:
            statements = [
                f"CREATE STREAM s (a BIGINT, k STRING) WITH (source = 'files', format = 'json', "
                f"path = 's3://{BUCKET}/spark/in', {server.options})"
            ]
            for name, query in QUERIES.items():
                kind = "delta" if name == "plain" else "parquet"
                path = f"s3://{BUCKET}/spark/{name}"
                statements += [
                    f"CREATE SINK {name}_out WITH (type = '{kind}', path = '{path}', {server.options})",
                    f"CREATE PIPELINE {name} INTO {name}_out AS {query.format(s='s')}",
                ]
            hub.sql(";\n".join(statements))  # one script: all pipelines begin with the first row
            until(lambda: hub.streams["s"].status().rows >= 2000, "all rows", 300)
            hub.sql("; ".join(f"STOP PIPELINE {name}" for name in QUERIES))
        made: Any = spark.createDataFrame([tuple(row.values()) for row in rows], "a BIGINT, k STRING")
        made.createOrReplaceTempView("all_rows")
        for name, query in QUERIES.items():
            wanted = [tuple(row) for row in spark.sql(query.format(s="all_rows")).collect()]
            assert_same_rows(read(store, name), wanted, name)
    finally:
        server.stop()


def read(store: Any, name: str) -> list[tuple[Any, ...]]:
    if name == "plain":
        from deltalake import DeltaTable

        from headrace.sinks.delta import delta_options

        table: Any = DeltaTable(store.url(name), storage_options=delta_options(store.access)).to_pyarrow_table()
    else:
        table = ds.dataset(store.path(name), format="parquet", filesystem=store.files).to_table()
    return [tuple(row.values()) for row in table.to_pylist()]
