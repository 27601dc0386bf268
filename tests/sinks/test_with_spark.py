"""Spark reads what the sinks write, and our JSON is Spark's JSON. The session is as plain as a user's: it runs in a
process of its own, and a hub on it works as well."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.model.definitions import SinkDef
from headrace.sinks import SINKS, SinkKey
from headrace.spark.java import find_java
from tests.sinks.test_formats import FULL, OUTPUT

PROGRAM = '''
import sys
import headrace
from pyspark.sql import SparkSession
parquet, jsonl, back, written = sys.argv[1:]
spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
         .config("spark.sql.session.timeZone", "UTC").getOrCreate())
rows = spark.read.parquet(parquet)
print(rows.schema.simpleString())
rows.coalesce(1).write.parquet(back)
rows.coalesce(1).write.json(written)
same = spark.read.schema(rows.schema).json(jsonl)
spark.conf.set("spark.sql.shuffle.partitions", "1")  # two rows in 200 partitions are 200 tasks
assert same.exceptAll(rows).count() == 0 and rows.exceptAll(same).count() == 0, same.collect()
spark.conf.unset("spark.sql.shuffle.partitions")  # the hub gets the session as plain as it was
with headrace.connect(back + "-state", spark=spark) as hub:
    hub.sql(f"""CREATE STREAM s (n BIGINT) WITH (source = 'generator', format = 'json', rows = '100');
                CREATE SINK out WITH (type = 'memory');
                CREATE PIPELINE p INTO out AS SELECT count(*) AS c FROM s""")
    hub.wait_until_end()
    assert hub.pipelines["p"].results().to_pylist() == [{"c": 100}]
spark.stop()
'''


@pytest.mark.spark
def test_spark_reads_both_formats_and_writes_the_same_json(tmp_path: Path) -> None:
    # Spark's writer cuts timestamps to milliseconds and its set operations do not take maps.
    names = [name for name in OUTPUT.names if name != "attrs"]
    row = {**FULL, "at": datetime(2024, 2, 29, 12, 0, 0, 123000, UTC), "price": Decimal("12.30")}
    schema = pa.schema([OUTPUT.arrow.field(name) for name in names])
    table = pa.Table.from_pylist([{n: row[n] for n in names}, dict.fromkeys(names)], schema=schema)
    key = SinkKey("c", 1, 0)
    for kind in ("parquet", "jsonl"):
        sink = SinkDef("s", kind, {"path": str(tmp_path / kind)})
        SINKS[kind].driver(sink, OUTPUT).commit(key, [SINKS[kind].task(sink).stage(table, key)])
    # What a crash leaves behind must not be read either.
    (tmp_path / "parquet" / "_headrace" / "staging" / "x").mkdir(parents=True)
    (tmp_path / "parquet" / "_headrace" / "staging" / "x" / "0.staged").write_bytes(b"half")
    arguments = [str(tmp_path / part) for part in ("parquet", "jsonl", "back", "written")]
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        # The JVM lives for seconds: its optimizing compiler costs more than it saves.
        env={
            **os.environ,
            "JAVA_HOME": str(find_java()),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1",
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert answer.returncode == 0, answer.stderr[-3000:]
    assert "at:timestamp,wall:timestamp_ntz" in answer.stdout
    assert "price:decimal(38,2)" in answer.stdout
    assert pq.read_table(tmp_path / "back").cast(schema).equals(table)
    ours, sparks = (
        sorted((json.loads(line) for path in tmp_path.glob(pattern) for line in path.read_text().splitlines()), key=len)
        for pattern in ("jsonl/part-*", "written/part-*")
    )
    assert ours == sparks
