"""One Spark streaming query per shared stream. Its plan is generic and never changes; the pipelines are data.

stream source (Ring 0 in its tasks) -> group by lane -> state host (Ring 1, sinks staged) -> foreachBatch (commit)
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException

from headrace.bridge.messages import SPARK_DDL, Row
from headrace.durable import private_directory
from headrace.spark.committer import EpochCommitter
from headrace.spark.session import QUERY_SETTINGS, Engine
from headrace.spark.source import NAME, StreamDataSource
from headrace.spark.state_host import LaneProcessor
from headrace.streams.checkpoint import CHECKPOINT, location
from headrace.streams.progress import read_progress
from headrace.streams.spark_log import mend_logs, sync_epoch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


class StreamQuery:
    """The running query of one stream. Start it once; after `stop` make a new one.

    `ended` is called in a thread of its own when the query ends, with the reason, or None when it was stopped.
    """

    def __init__(
        self,
        engine: Engine,
        name: str,
        directory: Path,
        committer: EpochCommitter,
        options: dict[str, str],
        ended: Callable[[str | None], None],
    ) -> None:
        checkpoint = directory / CHECKPOINT
        session = engine.spark.newSession()  # settings of its own, also on a session that was handed in
        for key, value in (QUERY_SETTINGS | {"spark.sql.shuffle.partitions": str(engine.cores)}).items():
            session.conf.set(key, value)
        session.dataSource.register(StreamDataSource)
        rows = (
            session.readStream.format(NAME).schema(SPARK_DDL).options(**options, parallelism=str(engine.cores)).load()
        )
        lanes = rows.groupBy("instance", "bucket").transformWithState(
            statefulProcessor=LaneProcessor(), outputStructType=SPARK_DDL, outputMode="Update", timeMode="None"
        )

        def commit(batch: DataFrame, batch_id: int) -> None:
            rows = [Row(r[0], r[1], r[2], r[3], r[4], bytes(r[5])) for r in batch.collect()]
            sync_epoch(checkpoint, batch_id)
            committer.commit(rows)

        writer: Any = lanes.writeStream.foreachBatch(commit).outputMode("update").queryName(name)
        private_directory(checkpoint)
        mend_logs(checkpoint, read_progress(directory).epoch)
        self._query: StreamingQuery = writer.option("checkpointLocation", location(checkpoint)).start()
        self._ended = ended
        self._watch = threading.Thread(target=self._wait, name=f"headrace-query-{name}", daemon=True)
        self._watch.start()

    def _wait(self) -> None:
        problem: str | None = None
        try:
            self._query.awaitTermination()
        except StreamingQueryException as failure:
            problem = in_short(str(failure))
        except Exception as failure:  # the JVM is gone, and the query with it
            problem = f"Spark is gone: {failure}"
        self._ended(problem)

    def last_epoch(self) -> tuple[int, float] | None:
        """The newest epoch that Spark has reported, and the milliseconds from its planning to its commit."""
        progress = self._query.lastProgress
        if progress is None or "addBatch" not in progress["durationMs"]:
            return None
        return int(progress["batchId"]), float(progress["durationMs"]["triggerExecution"])

    def stop(self) -> None:
        """End the query. An epoch in flight is given up and will be run again: nothing of it is lost or doubled."""
        with contextlib.suppress(StreamingQueryException):
            self._query.stop()
        if self._watch is not threading.current_thread():
            self._watch.join(timeout=5)


def in_short(text: str) -> str:
    """The heart of a failure that Spark reports with a page of stack traces: our own coded error if there is one, else
    the death of a worker, else the last line of the Python traceback, else the first line."""
    coded = re.findall(r"^headrace\.errors\.\w+: (\[[A-Z_]+\] (?:.+\n?)+)", text, re.MULTILINE)
    if coded:
        return str(coded[-1]).strip()
    died = re.search(r"^.*(?:Python worker exited unexpectedly|ExecutorLostFailure).*$", text, re.MULTILINE)
    if died:
        return died[0].strip()
    raised = re.findall(r"^[\w.]+(?:Error|Exception|Failed): .+$", text, re.MULTILINE)
    return str(raised[-1]) if raised else text.strip().split("\n", 1)[0]
