"""`hub.spark.readStream.format("headrace")`: user code reads a shared stream with its own streaming query."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, StructField, StructType

import headrace
from headrace.sinks.feed_log import FeedLog, feed_directory
from headrace.spark.reader_source import register_readers
from tests.e2e.support import put, until
from tests.e2e.two_streams import START, Streams

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.hub.hub import Hub

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Seen:
    """Collects the rows of a query by batch, as foreachBatch should be used: a batch that comes again replaces itself.
    `broken` batches raise after they were seen."""

    def __init__(self, broken: frozenset[int] = frozenset()) -> None:
        self.batches: dict[int, list[tuple[object, ...]]] = {}
        self.times: dict[int, int] = {}
        self._broken, self._lock = set(broken), threading.Lock()

    def __call__(self, rows: DataFrame, batch: int) -> None:
        found = [tuple(row) for row in rows.collect()]
        with self._lock:
            again = self.batches.get(batch, found)
            assert sorted(again, key=repr) == sorted(found, key=repr), "a batch that is run again has the same rows"
            self.batches[batch], self.times[batch] = found, self.times.get(batch, 0) + 1
            if batch in self._broken:
                self._broken.discard(batch)
                raise RuntimeError("this batch breaks once")

    @property
    def rows(self) -> list[tuple[object, ...]]:
        return sorted((row for batch in self.batches.values() for row in batch), key=repr)


def reader(hub: Hub, **options: str) -> DataFrame:
    return hub.spark.readStream.format("headrace").options(**options).load()


def feed_of(hub: Hub, pipeline: str) -> FeedLog:
    return FeedLog(feed_directory(hub.runtime("a").directory, hub.record(pipeline).definition.instance))


@pytest.fixture
def hub(streams: Streams) -> Iterator[Hub]:
    with headrace.connect(streams.base / "state", spark=streams.session) as opened:
        opened.sql(streams.script())
        yield opened


class LastSecond(StatefulProcessor):
    """For each key: how many rows came so far, after every batch."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.count = handle.getValueState("count", StructType([StructField("n", LongType())]))

    def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Iterator[pd.DataFrame]:
        known = self.count.get()
        n = (0 if known is None else int(known[0])) + sum(len(piece) for piece in rows)
        self.count.update((n,))
        yield pd.DataFrame({"k": [key[0]], "n": [n]})

    def close(self) -> None:
        """Nothing to release."""


def test_what_only_spark_has_gives_the_rows_of_spark_batch(hub: Hub, streams: Streams) -> None:
    """Custom state in Python, duplicates within the watermark, and Spark's three output modes, on one shared stream."""
    names = ("states", "unique", "appended", "updated", "completed")
    hub.sql("; ".join(f"CREATE PIPELINE {n} INTO SPARK READER AS SELECT id, k, ts FROM a" for n in names))
    streams.give(hub, "a", range(0, 30))
    streams.session.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKS)
    rows = {name: reader(hub, pipeline=name) for name in names}
    timed = {name: frame.withWatermark("ts", "1 minute") for name, frame in rows.items()}
    queries = {
        "states": (
            rows["states"]
            .groupBy("k")
            .transformWithStateInPandas(LastSecond(), "k STRING, n BIGINT", "Update", "None"),
            "update",
        ),
        "unique": (timed["unique"].dropDuplicatesWithinWatermark(["id"]).select("id"), "append"),
        "appended": (
            timed["appended"].groupBy(F.window("ts", "10 seconds")).count().select("window.start", "count"),
            "append",
        ),
        "updated": (rows["updated"].groupBy("k").count(), "update"),
        "completed": (rows["completed"].groupBy("k").count(), "complete"),
    }
    seen = {name: Seen() for name in names}

    def run(name: str) -> None:
        frame, mode = queries[name]
        place = str(streams.base / "checkpoints" / name)
        writer = frame.writeStream.foreachBatch(seen[name]).outputMode(mode).option("checkpointLocation", place)
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(90), name

    for name in ("states", "unique"):  # these go on with their state in a second run
        run(name)
    for seconds in (range(10, 40), range(200, 201)):
        streams.give(hub, "a", seconds)
    for name in names:
        run(name)
    # What Spark batch says about the same files.
    files = streams.session.read.schema("id BIGINT, k STRING, ts TIMESTAMP").json(str(streams.base / "a"))
    counts = [tuple(row) for row in files.groupBy("k").count().collect()]
    closed = files.groupBy(F.window("ts", "10 seconds")).count().select("window.start", "count")
    last = {key: n for batch in sorted(seen["states"].batches) for key, n in seen["states"].batches[batch]}
    assert sorted(last.items()) == sorted(counts)
    assert sorted(seen["unique"].rows) == sorted(tuple(row) for row in files.select("id").distinct().collect())
    final = [tuple(row) for row in closed.filter("start < TIMESTAMP '2026-01-01 00:02:10Z'").collect()]
    assert seen["appended"].rows == sorted(final, key=repr)
    for name in ("updated", "completed"):
        newest = {row[0]: row[1] for batch in sorted(seen[name].batches) for row in seen[name].batches[batch]}
        assert sorted(newest.items()) == sorted(counts), name
    complete = seen["completed"].batches
    assert sorted(complete[max(complete)]) == sorted(counts), "the complete mode shows every group in the newest batch"


def test_the_example_of_the_documentation_runs_and_continues_after_a_stop(streams: Streams) -> None:
    """Bad batches are run again, a stopped query goes on, its rows wait meanwhile, and DROP leaves nothing."""
    script = """
    CREATE STREAM sensors (device STRING, temp DOUBLE, note STRING, ts TIMESTAMP)
    WITH (source = 'files', format = 'json', path = '{}')"""
    source, out = streams.base / "a", streams.base / "out"
    page = (Path(__file__).parents[2] / "docs" / "hosts.md").read_text(encoding="utf-8")
    code = page.split("## Your own Spark code")[1].split("```python\n")[1].split("```")[0]
    for option in ("path", "checkpointLocation"):
        code = code.replace(f'"{option}", "', f'"{option}", "{out}/')
    with headrace.connect(streams.base / "state", spark=streams.session) as hub:
        hub.sql(script.format(source))

        def run() -> Any:
            names: dict[str, Any] = {"hub": hub}
            exec(code, names)
            return names["query"]

        def give(number: int) -> None:
            seconds = range(number * 10 - 10, number * 10)
            put(
                source / f"{number}.json",
                [json.dumps({"device": f"d{i // 3}", "temp": i, "ts": at(i)}) for i in seconds],
            )
            until(lambda: hub.streams["sensors"].status().rows >= 10 * number, "the rows are read")

        query = run()
        until(lambda: "first_of_minute" in hub.pipelines, "the reader is declared")
        give(1)
        until(lambda: written(streams, out), "the first rows are written")
        until(lambda: hub.pipelines["first_of_minute"].status().waiting_rows == 0, "their batch is committed")
        query.stop()
        give(2)
        assert hub.pipelines["first_of_minute"].status().waiting_rows == 10
        query = run()
        until(lambda: hub.pipelines["first_of_minute"].status().waiting_rows == 0, "the rest is read")
        query.processAllAvailable()
        devices = streams.session.read.json(str(source)).select("device").distinct().collect()
        assert sorted(written(streams, out)) == sorted(row[0] for row in devices), "one row of each device"
        hub.sql("DROP PIPELINE first_of_minute")
        problem = until(lambda: query.exception(), "the query ends")
        assert "[UNKNOWN_PIPELINE]" in str(problem)
        assert streams.left() == []


def at(second: int) -> str:
    return (START + timedelta(seconds=second)).isoformat()


def written(streams: Streams, out: Path) -> list[str]:
    """The devices in the output, as Spark's file sink committed them."""
    if not (out / "first_of_minute" / "_spark_metadata" / "0").exists():
        return []
    return [row[0] for row in streams.session.read.parquet(str(out / "first_of_minute")).select("device").collect()]


def test_a_session_gets_the_format_although_the_active_session_has_one_of_its_name(hub: Hub, streams: Streams) -> None:
    other = streams.session.newSession()
    register_readers(other, 1, "of another hub")
    jvm: Any = other.sparkContext._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(other._jsparkSession)
    assert reader(hub, stream="a", columns="id").columns == ["id"]


def test_a_batch_that_breaks_is_run_again_with_the_same_rows_and_errors_have_codes(hub: Hub, streams: Streams) -> None:
    with pytest.raises(PySparkException, match="UNKNOWN_COLUMN"):
        reader(hub, stream="a", columns="idd")
    place = str(streams.base / "checkpoint")
    seen = Seen(broken=frozenset({0}))

    def start() -> Any:
        frame = reader(hub, stream="a", columns="id")
        return frame.writeStream.foreachBatch(seen).option("checkpointLocation", place).start()

    query = start()
    until(lambda: "a_reader" in hub.pipelines, "the reader is declared")
    streams.give(hub, "a", range(0, 20))
    assert "breaks once" in str(until(lambda: query.exception(), "the query ends"))
    query = start()
    streams.give(hub, "a", range(20, 30))
    until(lambda: len(seen.rows) >= 30, "all rows are read")
    assert [row[0] for row in sorted(seen.rows)] == list(range(30))
    assert seen.times[0] == 2
    log = feed_of(hub, "a_reader")
    until(lambda: not list(log.segments.rglob("*/*")), "rows that are committed are forgotten")
    other = reader(hub, stream="a", columns="id").writeStream.foreachBatch(Seen())
    taker = other.option("checkpointLocation", place + "-2").start()
    assert "[READER_TAKEN]" in str(until(lambda: query.exception(), "the older query ends"))
    taker.stop()
