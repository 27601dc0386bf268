"""One topic, read by Spark's own Kafka source in a batch and by headrace: the same rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.connectors.broker import BrokerMissing, packages
from tests.connectors.servers import missing
from tests.connectors.test_kafka_source import look
from tests.connectors.topics import Topics
from tests.e2e.support import assert_same_rows
from tests.shared.mini import Mini

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# In a process of its own: the jars must be there when the JVM starts.
_BATCH = """
import json, sys
from headrace.model.program import Meaning
from headrace.spark.session import start
from pathlib import Path
address, topic, out = sys.argv[1:]
engine = start("local[2]", Path(out).with_suffix(".log"), Meaning())
rows = (
    engine.spark.read.format("kafka").option("kafka.bootstrap.servers", address).option("subscribe", topic).load()
    .selectExpr("partition", "offset", "CAST(key AS STRING) AS key",
                "from_json(CAST(value AS STRING), 'a BIGINT, b STRING, c DOUBLE') AS v", "value IS NULL AS gone")
    .where("NOT gone").selectExpr("partition", "offset", "key", "v.a", "v.b", "v.c", "v.a % 7 AS m")
    .where("a IS NULL OR a % 3 <> 1").collect()
)
Path(out).write_text(json.dumps([list(row) for row in rows]))
engine.stop()
"""


def test_spark_and_headrace_read_the_same_rows(mini: Mini, topics: Topics, tmp_path: Path) -> None:
    try:
        jars = sorted(packages(Path(__file__).parents[2] / "bench" / "pom.xml").glob("*.jar"))
    except BrokerMissing as problem:
        missing(f"no Kafka source of Spark: {problem}")
    topic = topics.make(partitions=3)
    for partition in range(3):
        numbers = range(partition * 200, partition * 200 + 200)
        rows = [{"a": i, "b": None if i % 11 == 0 else f"b\n{i}", "c": i / 8, "more": "x"} for i in numbers]
        topics.write(topic, rows, partition=partition, key=f"k{partition}")
        topics.write(topic, [None, json.dumps({"b": "no a"})], partition=partition)
    mini.hub.sql(f"""
        CREATE STREAM s (a BIGINT, b STRING, c DOUBLE, p INT METADATA FROM 'partition', o BIGINT METADATA FROM 'offset',
          k STRING METADATA FROM 'key') WITH (source = 'kafka', format = 'json', topics = '{topic}',
          kafka.bootstrap.servers = '{topics.address}');
        CREATE PIPELINE q INTO out AS SELECT p, o, k, a, b, c, a % 7 AS m FROM s WHERE a IS NULL OR a % 3 <> 1
    """)
    look(mini)
    found = [tuple(row) for values in mini.checkpoint.kept.values() for row in values]
    out = tmp_path / "rows.json"
    env = os.environ | {"PYSPARK_SUBMIT_ARGS": f"--jars {','.join(map(str, jars))} pyspark-shell"}
    ended = subprocess.run(
        [sys.executable, "-c", _BATCH, topics.address, topic, str(out)], env=env, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    wanted = [tuple(row) for row in json.loads(out.read_text())]
    assert len(wanted) > 300
    assert_same_rows(found, wanted, "Spark's batch of the topic")
