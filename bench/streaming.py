"""One Spark session, and two ways to run SQL over a directory of files in it: headrace, and plain streaming queries.

Both get what they are best with. Plain Spark: a schema of only the fields it needs, as many shuffle partitions as
cores, the fast checkpoint file manager, its in-memory state store, no empty micro-batches, a sink that does nothing.
headrace: its defaults, on the same session, and its own sink that does nothing. Both admit the same amount of input at
a time. The session keeps both of Java's compilers, which headrace's own would not.

How a figure is taken: a variant first works off warm-up files, until it is idle. Then all measured files appear at
once, and the clock runs until the last row is processed and committed by every query.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import headrace
from bench import feed
from headrace.base.hadoop import hadoop_text
from headrace.hub.hub import Hub
from headrace.model.program import Meaning
from headrace.spark.java import find_java
from headrace.spark.session import POOLS, QUERY_SETTINGS, Engine, adopt, errors_to

LIMIT_SECONDS = 900.0
_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"

Build = Callable[[DataFrame], DataFrame]
Run = Callable[[Sequence[Path]], float]


def session(work: Path) -> Engine:
    """A session for both. Spark's chatter goes to a file."""
    os.environ["JAVA_HOME"] = str(find_java())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "4g",
        "spark.sql.session.timeZone": "UTC",
        "spark.python.daemon.module": "headrace.spark.daemon",
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": hadoop_text(POOLS),
        "spark.log.level": "OFF",
        "spark.local.dir": str(work / "local"),
    }
    builder: Any = SparkSession.builder.appName("headrace bench").master("local[*]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    with errors_to(work / "spark.log"):
        return Engine(adopt(builder.getOrCreate(), Meaning()).spark, owned=True)


def plain_settings(cores: int) -> dict[str, str]:
    """What plain Spark runs with, besides the session's own."""
    return {
        "spark.sql.shuffle.partitions": str(cores),
        _FILE_MANAGER: QUERY_SETTINGS[_FILE_MANAGER],
        "spark.sql.streaming.stateStore.providerClass": _HDFS,
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.files.maxPartitionBytes": "128MB",
    }


@contextmanager
def plain(engine: Engine, work: Path, fields: Sequence[str], builds: Sequence[Build], per_epoch: int) -> Iterator[Run]:
    """One ordinary streaming query per build, all over one directory of files. `fields` are the columns they need.

    Yields a function that lets files appear and returns the seconds until every query is done with them.
    """
    inbox = _inbox(work)
    spark = engine.spark.newSession()
    for key, value in plain_settings(engine.cores).items():
        spark.conf.set(key, value)
    schema = ", ".join(f"{name} {kind}" for name, kind, _ in feed.COLUMNS if name in fields)
    queries: list[StreamingQuery] = []

    def run(files: Sequence[Path]) -> float:
        began = time.monotonic()
        feed.give(inbox, files)
        if not queries:
            for number, build in enumerate(builds):
                rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", per_epoch).json(str(inbox))
                writer = build(rows.withWatermark("ts", "1 second")).writeStream.format("noop").outputMode("append")
                queries.append(writer.option("checkpointLocation", str(work / f"checkpoint-{number}")).start())
        for query in queries:
            query.processAllAvailable()
        return time.monotonic() - began

    try:
        yield run
    finally:
        for query in queries:
            query.stop()


@contextmanager
def shared(
    engine: Engine, work: Path, selects: Sequence[str], per_epoch: int, rows: int, host: str = "shared"
) -> Iterator[tuple[Hub, Run]]:
    """One headrace pipeline per SELECT on a host, all on the stream `s`, over files of `rows` rows. See `plain`."""
    inbox = _inbox(work)
    given = 0
    with headrace.connect(work / "state", spark=engine.spark) as hub:

        def run(files: Sequence[Path]) -> float:
            nonlocal given
            began = time.monotonic()
            feed.give(inbox, files)
            given += rows * len(files)
            if "s" not in hub.streams:
                size = per_epoch * _largest(files)
                into = f"INTO out WITH (host = '{host}') AS"
                pipelines = ";".join(f"CREATE PIPELINE p{i} {into} {select}" for i, select in enumerate(selects))
                sink = "CREATE SINK out WITH (type = 'noop')"
                hub.sql(f"{feed.declaration(inbox, max_epoch_bytes=str(size))};{sink};{pipelines}")
            stream = hub.streams["s"]
            while stream.status().rows < given:
                if time.monotonic() - began > LIMIT_SECONDS:
                    raise TimeoutError(f"{stream.status().rows} of {given} rows after {LIMIT_SECONDS:g} s")
                time.sleep(0.05)
            if not hub.runtime("s").drain_dedicated(LIMIT_SECONDS):
                raise TimeoutError(f"a pipeline on the dedicated host has not read all rows after {LIMIT_SECONDS:g} s")
            return time.monotonic() - began

        yield hub, run


def _largest(files: Sequence[Path]) -> int:
    """The size of a file that no other of its directory is larger than: numbers in them grow."""
    return max(path.stat().st_size for path in files[0].parent.iterdir())


def _inbox(work: Path) -> Path:
    inbox = work / "in"
    inbox.mkdir(parents=True)
    return inbox
