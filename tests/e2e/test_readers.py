"""Shared streams in the user's own Spark code: `readStream.format("headrace")`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace
from tests.e2e.support import put, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.hub.hub import Hub

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def give(place: Path, begin: int, end: int) -> None:
    put(place / "in" / f"{begin:06}.json", [f'{{"id": {i}, "k": "k{i % 3}", "v": {i * 2}}}' for i in range(begin, end)])


def feeds(hub: Hub) -> list[Path]:
    return [*hub.directory.rglob("feeds/*"), *hub.directory.rglob("readers/*")]


def test_user_code_reads_a_shared_stream_and_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "1")
    (tmp_path / "in").mkdir()
    with headrace.connect(tmp_path / "state", spark=session) as hub:
        hub.sql(
            f"CREATE STREAM s (id BIGINT, k STRING, v BIGINT) WITH (source = 'files', format = 'json', "
            f"path = '{tmp_path / 'in'}'); CREATE SINK m WITH (type = 'memory');"
            "CREATE PIPELINE p INTO m AS SELECT id FROM s"
        )
        reader = hub.spark.readStream.format("headrace")
        for options, code in (
            ({"stream": "none"}, "UNKNOWN_STREAM"),
            ({"stream": "s", "columns": "id, w"}, "UNKNOWN_COLUMN"),
            ({"stream": "s", "path": "x"}, "UNKNOWN_OPTION"),
            ({}, "MISSING_OPTION"),
        ):
            with pytest.raises(Exception, match=code):
                hub.spark.readStream.format("headrace").options(**options).load()
        frame = reader.option("stream", "S").option("columns", "v, id").load()
        assert frame.columns == ["v", "id"]
        out, log = tmp_path / "out", tmp_path / "log"
        first = frame.where("id % 2 = 0").writeStream.format("parquet").start(str(out), checkpointLocation=str(log))
        second = frame.writeStream.format("memory").queryName("seen").start()
        until(lambda: len(hub.streams["s"].status().subscribers) == 3, "both readers have joined")
        assert hub.streams["s"].status().decoding_columns == ["id", "v"]
        for part in range(3):
            give(tmp_path, part * 20, part * 20 + 20)
        until(lambda: session.table("seen").count() == 60, "all rows are seen")
        until(lambda: session.read.schema("v BIGINT, id BIGINT").parquet(str(out)).count() == 30, "and written")
        rows = session.read.parquet(str(out)).collect()
        assert sorted((r.v, r.id) for r in rows) == [(i * 2, i) for i in range(0, 60, 2)]
        first.stop()
        until(lambda: len(feeds(hub)) < 6 and len(hub.streams["s"].status().subscribers) == 2, "its feed is deleted")
        give(tmp_path, 60, 70)
        until(lambda: session.table("seen").count() == 70, "the other one goes on")
        again = frame.writeStream.format("parquet").start(str(out), checkpointLocation=str(log))
        with pytest.raises(Exception, match="READER_GONE"):
            again.awaitTermination(90)
        second.stop()
        until(lambda: not feeds(hub), "nothing is left")
        third = frame.writeStream.format("memory").queryName("third").start()
        until(lambda: len(hub.streams["s"].status().subscribers) == 2, "it has joined")
    assert not feeds(hub), "the hub takes its readers along"
    third.stop()
