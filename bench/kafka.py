"""Pipelines over a Kafka topic of JSON messages, beside Spark's own Kafka source and beside a plain consumer.

A broker runs on loopback (tests/connectors/broker.py). Every pipeline needs three of twenty columns, has a filter, and
counts and sums per minute and key, as in bench/shared.py. How figures are taken:

- *8 pipelines beside 8 plain queries*: both read the whole topic in one session, warm: a first part of the topic is
  worked off before the clock runs. Spark's source hands bytes to `from_json` with a schema of the three columns.
- *one pipeline beside a consumer that only reads*: MB of values per second of processor time, in one process each. The
  consumer takes batches and adds up their sizes. The pipeline is a task of an epoch: it reads its range of the topic,
  decodes it and aggregates. Threads of the client count for both.

The messages are written in one transaction, and its commit starts the clock: from then on all of them can be read.
Contenders take turns, and the best run of each counts. The broker's own work counts for nobody.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

import headrace
from bench import feed
from bench.report import Report, environment, main
from bench.shared import build, select
from bench.streaming import plain_settings, session
from headrace.base.collecting import collection_paused
from headrace.bridge.messages import MessageKind, decode
from headrace.bridge.reports import PlannedEpoch, TaskReport
from headrace.model.definitions import PipelineDef, SinkDef
from headrace.model.plan_version import PlanVersion
from headrace.model.program import Meaning
from headrace.ring0.task import run_task
from headrace.ring0.task_input import TaskInput
from headrace.sources.kafka import KAFKA
from headrace.spark.session import Engine
from headrace.spark.worker_memory import keep_freed_memory
from headrace.sql import CreatePipeline, CreateStream, define_stream, parse_script, plan_pipeline
from headrace.state.catalog import Catalog
from tests.connectors.broker import Broker, packages
from tests.connectors.topics import Topics

QUICK = "--quick" in sys.argv
WARM_ROWS, ROWS = (20_000, 60_000) if QUICK else (50_000, 500_000)
KEYS, PARTITIONS, PIPELINES, ROUNDS = 100, 4, 8, 2
LIMIT_SECONDS = 900.0
FIELDS = ("ts", "user", "value")
Say = Callable[[str], None]


class Load:
    """A topic whose messages arrive when they are asked for."""

    def __init__(self, topics: Topics, work: Path) -> None:
        self.topics, self.topic = topics, topics.make(PARTITIONS, retention_ms="-1")
        warm, measured = WARM_ROWS, ROWS
        files = feed.write(work / "data", 1, warm + measured, KEYS)
        lines = files[0].read_bytes().splitlines()
        self.parts = {"warm": lines[:warm], "measured": lines[warm:]}
        self.bytes = sum(map(len, self.parts["measured"]))

    def give(self, part: str) -> Callable[[], float]:
        """Write messages in one transaction. The function commits it, and returns when that was done: from then on all
        messages can be read."""
        settings: Any = {
            "bootstrap.servers": self.topics.address,
            "transactional.id": uuid.uuid4().hex,
            "transaction.timeout.ms": 600_000,
            "linger.ms": 20,
            "log_level": 0,
        }
        producer: Any = Producer(settings)
        producer.init_transactions()
        producer.begin_transaction()
        for number, line in enumerate(self.parts[part]):
            while True:
                try:
                    producer.produce(self.topic, line, partition=number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.flush()

        def commit() -> float:
            producer.commit_transaction()
            return time.monotonic()

        return commit


def declaration(load: Load, **options: str) -> str:
    """CREATE STREAM s over the topic."""
    columns = ", ".join(f"{name} {kind}" for name, kind, _ in feed.COLUMNS)
    given = {
        "source": "kafka",
        "format": "json",
        "kafka.bootstrap.servers": load.topics.address,
        "topics": load.topic,
        "group": uuid.uuid4().hex,
    } | options
    listed = ", ".join(f"{name} = '{value}'" for name, value in given.items())
    return f"CREATE STREAM s ({columns}, WATERMARK FOR ts AS ts - INTERVAL 1 SECOND) WITH ({listed})"


def ours(engine: Engine, work: Path, load: Load) -> Callable[[], float]:
    """The hub works off the warm-up. The function waits for the rest, and returns when it was done."""
    hub = headrace.connect(work / "state", spark=engine.spark)
    pipelines = ";".join(f"CREATE PIPELINE p{i} INTO out AS {select(i)}" for i in range(PIPELINES))
    sink = "CREATE SINK out WITH (type = 'memory', max_rows = '1000')"
    hub.sql(f"{declaration(load)};{sink};{pipelines}")
    _until(lambda: hub.streams["s"].status().rows >= WARM_ROWS)

    def measured() -> float:
        _until(lambda: hub.streams["s"].status().rows >= WARM_ROWS + ROWS)
        done = time.monotonic()
        hub.close()
        return done

    return measured


def theirs(engine: Engine, work: Path, load: Load) -> Callable[[], float]:
    """The same with one plain query per pipeline."""
    spark = engine.spark.newSession()
    for key, value in plain_settings(engine.cores).items():
        spark.conf.set(key, value)
    schema = ", ".join(f"{name} {kind}" for name, kind, _ in feed.COLUMNS if name in FIELDS)
    queries: list[StreamingQuery] = []
    for number in range(PIPELINES):
        source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", load.topics.address)
        source = source.option("kafka.isolation.level", "read_committed")
        messages = source.option("subscribe", load.topic).option("startingOffsets", "earliest").load()
        parsed = messages.select(f.from_json(f.col("value").cast("string"), schema).alias("r")).select("r.*")
        writer = build(number)(parsed.withWatermark("ts", "1 second")).writeStream.format("noop").outputMode("append")
        queries.append(writer.option("checkpointLocation", str(work / f"checkpoint-{number}")).start())
    for query in queries:
        query.processAllAvailable()

    def measured() -> float:
        for query in queries:
            query.processAllAvailable()
        done = time.monotonic()
        for query in queries:
            query.stop()
        return done

    return measured


def compare(engine: Engine, work: Path, topics: Topics, say: Say) -> dict[str, float]:
    """The best seconds of each contender, from the moment in which all messages can be read."""
    best: dict[str, float] = {}
    for turn in range(1 if QUICK else ROUNDS):
        for name, start in (("headrace", ours), ("spark", theirs)):
            place = work / f"{name}-{turn}"
            place.mkdir()
            load = Load(topics, place)
            load.give("warm")()
            measured = start(engine, place, load)
            began = load.give("measured")()
            seconds = measured() - began
            say(f"  {name}, {PIPELINES} pipelines, round {turn + 1}: {seconds:.2f} s, {ROWS / seconds:,.0f} rows/s")
            best[name] = min(seconds, best.get(name, seconds))
            topics.delete(load.topic)
    return best


def per_core(topics: Topics, work: Path, say: Say) -> dict[str, float]:
    """MB of values per second of processor time: a consumer that only reads, and a task of one pipeline."""
    load = Load(topics, work)
    load.give("measured")()
    best: dict[str, float] = {}
    for turn in range(3):
        for name, run in (("consumer", _consume), ("task", _task(load, work))):
            rows, cpu, seconds = run(load)
            assert rows == ROWS, f"{name}: {rows} of {ROWS} rows"
            rate, wall = load.bytes / 1e6 / cpu, load.bytes / 1e6 / seconds
            say(f"  {name}, round {turn + 1}: {rate:.0f} MB per second of processor time, {wall:.0f} MB/s")
            best[name] = max(rate, best.get(name, 0.0))
    return best


Measured = tuple[int, float, float]  # rows, seconds of processor time, seconds


def _consume(load: Load) -> Measured:
    """Read the whole topic and add up the sizes of the values, in a process of its own."""
    given = [sys.executable, "-m", "bench.plain_consumer", load.topics.address, load.topic, str(PARTITIONS)]
    answer = subprocess.run(given, check=True, capture_output=True, text=True).stdout
    rows, size, cpu, seconds = json.loads(answer)
    assert size == load.bytes
    return rows, cpu, seconds


def _task(load: Load, work: Path) -> Callable[[Load], Measured]:
    """A task that reads the whole topic for one pipeline, as an epoch with one task would."""
    created, asked = parse_script(f"{declaration(load)}; CREATE PIPELINE p INTO out AS {select(0)}")
    assert isinstance(created, CreateStream) and isinstance(asked, CreatePipeline)
    stream = define_stream(created, Meaning())
    planned = plan_pipeline(asked, Catalog().with_stream(stream).with_sink(SinkDef("out", "noop", {})), Meaning())
    pipeline = PipelineDef("p", 1, (), planned.program, 1)
    plan = PlanVersion(1, stream, (pipeline,))
    source = KAFKA.make(stream, work / "source", time.time)
    start = source.initial()
    (split,) = source.splits(start, source.latest(start, None), 1)

    def run(load: Load) -> Measured:
        given = TaskInput(plan, split, 0, PlannedEpoch(epoch=0, tasks=1, checkpoint="c", now=time.time_ns() // 1000))
        rows = 0
        cpu, began = time.process_time(), time.monotonic()
        keep_freed_memory()
        with collection_paused():  # as headrace.spark.epochs.read_partition does
            for messages in run_task(given):
                for message in messages:
                    if message.kind == int(MessageKind.REPORT):
                        rows = decode(TaskReport, message.payload).rows
        return rows, time.process_time() - cpu, time.monotonic() - began

    return run


def _until(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not fact():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {LIMIT_SECONDS:g} s")
        time.sleep(0.02)


def _with_jars(jars: Sequence[Path]) -> None:
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {','.join(map(str, jars))} pyspark-shell"


def measure(say: Say) -> Report:
    report = Report(facts=environment("pyspark", "duckdb", "pyarrow", "confluent-kafka"))
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as scratch:
        work = Path(scratch)
        _with_jars(sorted(packages(Path(__file__).with_name("pom.xml")).glob("*.jar")))
        broker = Broker(work / "broker").start()
        try:
            topics = Topics(broker.address)
            say(f"{ROWS:,} messages of about 350 bytes in {PARTITIONS} partitions; warm-up: {WARM_ROWS:,} before")
            (work / "core").mkdir()
            core = per_core(topics, work / "core", say)
            engine = session(work)
            try:
                best = compare(engine, work, topics, say)
            finally:
                engine.stop()
        finally:
            broker.kill()
    report.facts["mb_per_cpu_second"] = {name: round(rate) for name, rate in core.items()}
    report.facts["rows_per_s"] = {name: round(ROWS / seconds) for name, seconds in best.items()}
    report.require("kafka_n8_over_spark", best["spark"] / best["headrace"], 6.0, "at least", "x")
    report.require("kafka_n1_over_plain_consumer", core["task"] / core["consumer"], 0.5, "at least", "x")
    return report


if __name__ == "__main__":
    main(__doc__ or "", measure)
