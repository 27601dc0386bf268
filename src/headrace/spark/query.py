"""One Spark streaming query per shared stream. Its plan is generic and never changes; the pipelines are data.

stream source (Ring 0 in its tasks) -> group by lane -> state host (Ring 1, sinks staged) -> foreachBatch (commit)
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException

from headrace.bridge.messages import SPARK_DDL, Row
from headrace.durable import private_directory
from headrace.errors import HeadraceError, InternalError, StreamFailed, kind_of
from headrace.spark.causes import cause_of
from headrace.spark.committer import EpochCommitter
from headrace.spark.session import QUERY_SETTINGS, Engine
from headrace.spark.source import NAME, StreamDataSource
from headrace.spark.state_host import LaneProcessor
from headrace.streams.checkpoint import CHECKPOINT, location
from headrace.streams.leftovers import remove_uncommitted_state
from headrace.streams.progress import read_progress
from headrace.streams.spark_log import mend_logs, sync_epoch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


# A query that does not stop within the first time has its planning process killed: Spark waits for it without a limit.
# Tasks need no help: Spark kills the Python workers of cancelled ones after two seconds. After the second time the
# query is left alone: its commit hangs in a sink, and may not touch the stream any more when it comes back.
PLANNER_SECONDS = 6.0
STOP_SECONDS = 20.0
NAMED = 8  # pipelines in a job's description
_log = logging.getLogger(__name__)


class StreamQuery:
    """The running query of one stream. Start it once; after `stop` make a new one.

    `ended` is called in a thread of its own when the query ends, with the reason, or None when it was stopped.
    `planner` tells the id of the planning process, if that is known. `members` gives the names of the pipelines in the
    newest plan, for the descriptions of jobs.
    """

    def __init__(
        self,
        engine: Engine,
        name: str,
        directory: Path,
        committer: EpochCommitter,
        options: dict[str, str],
        ended: Callable[[str | None], None],
        planner: Callable[[], int | None],
        members: Callable[[], list[str]] = list,
    ) -> None:
        self._over = False
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
            try:
                with contextlib.suppress(HeadraceError):  # a plan that cannot be read fails the commit, not its name
                    batch.sparkSession.sparkContext.setJobDescription(description(name, batch_id, members()))
                rows = [Row(r[0], r[1], r[2], r[3], r[4], bytes(r[5])) for r in batch.collect()]
                sync_epoch(checkpoint, batch_id)
                committer.commit(rows, self._require_current)
            except Exception:
                raise
            except BaseException as problem:  # Spark would wait for ever for the answer of a thread that exits
                raise InternalError(
                    f"the commit of epoch {batch_id} raised {type(problem).__name__}: {problem}",
                    advice="Something in the commit of a sink wanted to end the process. The epoch is run again.",
                    epoch=batch_id,
                ) from problem

        writer: Any = lanes.writeStream.foreachBatch(commit).outputMode("update").queryName(name)
        private_directory(checkpoint)
        mend_logs(checkpoint, read_progress(directory).epoch)
        remove_uncommitted_state(checkpoint)
        try:
            self._query: StreamingQuery = writer.option("checkpointLocation", location(checkpoint)).start()
        except Exception as problem:  # py4j shows the name of the call, and a page of the JVM's causes
            cause = cause_of(problem)
            kind = kind_of(cause)
            raise (StreamFailed(cause) if kind is None else kind(cause.split("] ", 1)[1])) from problem
        self._ended, self._planner = ended, planner
        self._watch = threading.Thread(target=self._wait, name=f"headrace-query-{name}", daemon=True)
        self._watch.start()

    def _wait(self) -> None:
        problem: str | None = None
        try:
            self._query.awaitTermination()
        except StreamingQueryException as failure:
            problem = cause_of(failure)
        except Exception as failure:  # the JVM is gone, and the query with it
            problem = f"Spark is gone: {failure}"
        self._ended(problem)

    def _require_current(self) -> None:
        """Raise when the query was stopped while its commit hung: another may have taken its place."""
        if self._over:
            raise StreamFailed("the query of this commit was stopped")

    def last_epoch(self) -> tuple[int, float] | None:
        """The newest epoch that Spark has reported, and the milliseconds from its planning to its commit."""
        try:
            progress = self._query.lastProgress
        except Exception:  # the JVM is gone; whoever waits for the query says so
            return None
        if progress is None or "addBatch" not in progress["durationMs"]:
            return None
        return int(progress["batchId"]), float(progress["durationMs"]["triggerExecution"])

    def stop(self) -> None:
        """End the query, in STOP_SECONDS at most. An epoch in flight is given up and will be run again: nothing of it
        is lost or doubled."""
        self._over = True
        stopping = threading.Thread(target=self._stop, name="headrace-stop", daemon=True)
        stopping.start()
        stopping.join(PLANNER_SECONDS)
        if stopping.is_alive():
            _kill_planner(self._planner())
        stopping.join(STOP_SECONDS - PLANNER_SECONDS)
        if stopping.is_alive():
            _log.warning("query %s did not stop in %g s and is left alone", self._query.name, STOP_SECONDS)
        elif self._watch is not threading.current_thread():
            self._watch.join(timeout=5)

    def _stop(self) -> None:
        try:
            self._query.stop()
        except StreamingQueryException:  # `ended` gets the reason
            pass
        except Exception as problem:  # the JVM is gone, or its own time limit is over
            _log.info("stopping a query: %s", problem)


def description(stream: str, batch: int, pipelines: list[str]) -> str:
    """What Spark's web interface shows for the jobs of an epoch."""
    named = ", ".join(pipelines[:NAMED]) + (f" and {len(pipelines) - NAMED} more" if len(pipelines) > NAMED else "")
    return f"headrace stream {stream}, batch {batch}: {named or 'no pipeline'}"


def _kill_planner(pid: int | None) -> None:
    """Kill the planning process, unless it is gone and its number belongs to another program by now."""
    with contextlib.suppress(OSError):
        if pid is not None and b"spark" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
