"""One Spark streaming query per shared stream. Its plan is generic and never changes, because pipelines are data.

stream source (Ring 0 in its tasks) -> group by lane -> state host (Ring 1, sinks staged) -> foreachBatch (commit)
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException

from headrace.base.durable import private_directory
from headrace.bridge.messages import SPARK_DDL, Row
from headrace.bridge.spark_rows import open_staging
from headrace.errors import InternalError, StreamFailed
from headrace.spark.committer import EpochCommitter
from headrace.spark.epoch_queries import EpochQueries
from headrace.spark.query_end import newest_epoch, not_started, wait_for_end
from headrace.spark.session import QUERY_SETTINGS, Engine
from headrace.spark.source import NAME, StreamDataSource
from headrace.spark.state_host import LaneProcessor
from headrace.state.checkpoint import CHECKPOINT, location
from headrace.state.leftovers import remove_uncommitted_state
from headrace.state.progress import read_progress
from headrace.state.spark_log import mend_logs, sync_epoch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


# After PLANNER_SECONDS a query that does not stop has its planning process killed, because Spark waits for that without
# a limit. Tasks need no help: Spark kills the Python workers of cancelled tasks after two seconds. After HANG_SECONDS
# Spark's thread does not wait for the commit any more: it hangs in a sink, and may not touch the stream any more when
# it returns. After STOP_SECONDS the query is abandoned.
PLANNER_SECONDS = 6.0
HANG_SECONDS = 14.0
STOP_SECONDS = 20.0
NAMED = 8  # pipelines in a job's description
_log = logging.getLogger(__name__)


class StreamQuery:
    """The running query of one stream. Create it once, and a new one after `stop`.

    `ended` is called in a thread of its own when the query ends, with the reason, or None if it was stopped. `planner`
    returns the process id of the planner, if it is known. `members` returns the names of the pipelines in the newest
    plan, for the descriptions of jobs.
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
        self._let_go: Future[None] = Future()  # done when the streaming thread must not wait for a commit any more
        self._name, self._members = name, members
        self._committer, self._checkpoint = committer, directory / CHECKPOINT
        self._queries = EpochQueries(engine)
        open_staging(directory)
        lanes = _lanes(engine, options)
        writer: Any = lanes.writeStream.foreachBatch(self._commit).outputMode("update").queryName(name)
        private_directory(self._checkpoint)
        mend_logs(self._checkpoint, read_progress(directory).epoch)
        remove_uncommitted_state(self._checkpoint)
        try:
            self._query: StreamingQuery = writer.option("checkpointLocation", location(self._checkpoint)).start()
        except Exception as problem:
            raise not_started(problem, self._checkpoint) from problem
        self._ended, self._planner = ended, planner
        self._watch = threading.Thread(target=self._wait, name=f"headrace-query-{name}", daemon=True)
        self._watch.start()

    def _commit(self, batch: DataFrame, batch_id: int) -> None:
        """Spark calls it for every epoch, in its streaming thread."""
        try:
            with contextlib.suppress(Exception):  # only a name: whatever is wrong fails the commit itself
                batch.sparkSession.sparkContext.setJobDescription(description(self._name, batch_id, self._members()))
            rows = [Row(r[0], r[1], r[2], r[3], r[4], bytes(r[5])) for r in batch.collect()]
            sync_epoch(self._checkpoint, batch_id)
            self._commit_apart(rows)
        except Exception:
            raise
        except BaseException as problem:  # the thread would exit, and Spark would wait forever for its answer
            raise InternalError(
                f"the commit of epoch {batch_id} raised {type(problem).__name__}: {problem}",
                advice="Code in the commit of a sink tried to end the process. The epoch is run again.",
                epoch=batch_id,
            ) from problem

    def _commit_apart(self, rows: list[Row]) -> None:
        """Commit an epoch in another thread, and wait for it. Nothing interrupts a commit that hangs in a sink, and
        Spark starts no other query with this checkpoint while its streaming thread waits. So after HANG_SECONDS `stop`
        lets that thread go."""
        done: Future[None] = Future()

        def commit() -> None:
            try:
                self._committer.commit(rows, self._require_current, self._queries)
                done.set_result(None)
            except BaseException as problem:
                done.set_exception(problem)

        threading.Thread(target=commit, name=f"headrace-commit-{self._name}", daemon=True).start()
        wait([done, self._let_go], return_when=FIRST_COMPLETED)
        if not done.done():
            raise StreamFailed("the query was stopped while its commit hung in a sink")
        done.result()

    def _wait(self) -> None:
        self._ended(wait_for_end(self._query, self._checkpoint))

    def _require_current(self) -> None:
        """Raise when the query was stopped while its commit hung: another query may run by now."""
        if self._over:
            raise StreamFailed("the query of this commit was stopped")

    def last_epoch(self) -> tuple[int, float] | None:
        """The newest epoch that Spark has reported, and how many milliseconds it took from its planning to its
        commit."""
        return newest_epoch(self._query)

    def stop(self) -> None:
        """End the query, in STOP_SECONDS at most. An epoch in flight is aborted and run again later. Nothing of it is
        lost or duplicated."""
        self._over = True
        self._queries.cancel()
        stopping = threading.Thread(target=self._stop, name="headrace-stop", daemon=True)
        stopping.start()
        stopping.join(PLANNER_SECONDS)
        if stopping.is_alive():
            _kill_planner(self._planner())
        stopping.join(HANG_SECONDS - PLANNER_SECONDS)
        if stopping.is_alive() and not self._let_go.done():
            self._let_go.set_result(None)
        stopping.join(STOP_SECONDS - HANG_SECONDS)
        if stopping.is_alive():
            _log.warning("query %s did not stop in %g s and is abandoned", self._query.name, STOP_SECONDS)
        elif self._watch is not threading.current_thread():
            self._watch.join(timeout=5)

    def _stop(self) -> None:
        try:
            self._query.stop()
        except StreamingQueryException:  # `ended` gets the reason
            pass
        except Exception as problem:  # the JVM is gone, or its own timeout has passed
            _log.info("stopping a query: %s", problem)


def description(stream: str, batch: int, pipelines: list[str]) -> str:
    """What Spark's web interface shows for the jobs of an epoch."""
    named = ", ".join(pipelines[:NAMED]) + (f" and {len(pipelines) - NAMED} more" if len(pipelines) > NAMED else "")
    return f"headrace stream {stream}, batch {batch}: {named or 'no pipeline'}"


def _lanes(engine: Engine, options: dict[str, str]) -> DataFrame:
    """The query's plan: the stream source, then the stateful operator by lane."""
    session = engine.spark.newSession()  # it has its own settings, even when the user passed the session
    for key, value in (QUERY_SETTINGS | {"spark.sql.shuffle.partitions": str(engine.cores)}).items():
        session.conf.set(key, value)
    session.dataSource.register(StreamDataSource)
    planning = options | {"parallelism": str(engine.cores), "one_machine": str(engine.one_machine).lower()}
    rows = session.readStream.format(NAME).schema(SPARK_DDL).options(**planning).load()
    return rows.groupBy("instance", "bucket").transformWithState(
        statefulProcessor=LaneProcessor(), outputStructType=SPARK_DDL, outputMode="Update", timeMode="None"
    )


def _kill_planner(pid: int | None) -> None:
    """Kill the planning process, unless it has exited and its process id belongs to another program by now."""
    with contextlib.suppress(OSError):
        if pid is not None and b"spark" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
