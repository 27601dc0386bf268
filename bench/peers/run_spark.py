"""Plain Structured Streaming: one query for each pipeline, over the same directory of files.

Every query has a schema of only the fields that it needs, as many shuffle partitions as cores, the fast checkpoint
file manager, the state store in memory, and no micro-batches without data while it is timed.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench.peers.queries import Query
from bench.peers.worker import Mark, link, serve
from bench.peers.workloads import Workload

PER_EPOCH = 32  # files: 512 MB, what headrace reads in an epoch by default
_STREAMING = "org.apache.spark.sql.execution.streaming"
_FILE_MANAGER = f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "4g",
    "spark.sql.session.timeZone": "UTC",
    "spark.scheduler.mode": "FAIR",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": str(os.cpu_count()),
    "spark.sql.streaming.checkpointFileManagerClass": _FILE_MANAGER,
    "spark.sql.streaming.stateStore.providerClass": f"{_STREAMING}.state.HDFSBackedStateStoreProvider",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.files.maxPartitionBytes": "128MB",
}


class Spark:
    """One session, N queries at a time."""

    def __init__(self) -> None:
        self._work = Path(tempfile.mkdtemp(prefix="headrace-peers-"))
        self._numbers = itertools.count()
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        builder: Any = SparkSession.builder.appName("peers").master("local[*]")
        for key, value in (SETTINGS | {"spark.local.dir": str(self._work / "local")}).items():
            builder = builder.config(key, value)
        self._spark: SparkSession = builder.getOrCreate()

    def versions(self) -> dict[str, str]:
        return {"pyspark": self._spark.version}

    def check(self, workload: Workload, count: int, files: list[Path], out: Path) -> None:
        inbox = out.parent / f"{out.name}-in"
        link(inbox, files)
        self._spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "true")
        queries = []
        for number, query in enumerate(workload.first(count)):
            writer = self._started(workload, query, inbox).format("parquet").option("path", str(out / str(number)))
            queries.append(writer.trigger(availableNow=True).start())
        for running in queries:
            running.awaitTermination()

    def time(
        self, workload: Workload, count: int, warm: list[Path], measured: list[Path], place: Path, mark: Mark
    ) -> float:
        inbox = place / "in"
        link(inbox, warm)
        self._spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        queries: list[StreamingQuery] = []
        try:
            for query in workload.first(count):
                queries.append(self._started(workload, query, inbox).format("noop").start())
            for running in queries:
                running.processAllAvailable()
            mark("begin")
            began = time.monotonic()
            link(inbox, measured)
            for running in queries:
                running.processAllAvailable()
            seconds = time.monotonic() - began
            mark("end")
        finally:
            for running in queries:
                running.stop()
        return seconds

    def close(self) -> None:
        self._spark.stop()
        shutil.rmtree(self._work, ignore_errors=True)

    def _started(self, workload: Workload, query: Query, inbox: Path) -> Any:
        wanted = {workload.time, *query.needs}
        schema = ", ".join(f"`{name}` {kind}" for name, kind in workload.columns if name in wanted)
        rows = self._spark.readStream.schema(schema).option("maxFilesPerTrigger", PER_EPOCH).json(str(inbox))
        rows.withWatermark(workload.time, "1 second").createOrReplaceTempView("s")
        checkpoint = self._work / f"checkpoint-{next(self._numbers)}"
        writer = self._spark.sql(query.spark).writeStream.outputMode("append")
        return writer.option("checkpointLocation", str(checkpoint))


if __name__ == "__main__":
    serve(Spark)
