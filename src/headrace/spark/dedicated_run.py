"""The running Spark query of one pipeline on the dedicated host. `headrace.stream.dedicated_runtime` supervises it."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.errors import AnalysisException, ParseException

from headrace.base.durable import private_directory
from headrace.errors import HeadraceError, InternalError
from headrace.model.definitions import PipelineDef
from headrace.spark.dedicated_committer import DedicatedCommitter
from headrace.spark.dedicated_frame import FeedPlace, dedicated_frame, dedicated_session
from headrace.spark.jvm_plans import late_rows, output_watermark
from headrace.spark.query_end import newest_epoch, not_started, wait_for_end
from headrace.spark.query_failures import query_failure
from headrace.spark.session import Engine
from headrace.state.checkpoint import CHECKPOINT, location
from headrace.state.leftovers import remove_uncommitted_state
from headrace.state.progress import read_progress
from headrace.state.spark_log import mend_logs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

DEDICATED_POOL = "headrace-dedicated"
STOP_SECONDS = 20.0
LOOK_SECONDS = 0.2
_log = logging.getLogger(__name__)


class TendedPipeline(Protocol):
    """The pipeline that a query runs. Any thread may call."""

    @property
    def pipeline(self) -> PipelineDef:
        """The definition, with the sinks that are attached now."""
        ...

    def tend(self) -> None:
        """Called at intervals while the query runs."""
        ...

    def gives_way(self) -> bool:
        """True while its streams read a backlog for other pipelines, and its own rows can wait."""
        ...


class DedicatedSparkQuery:
    """Create it once, and a new one after `stop`. `ended` is called in a thread of its own when the query ends, with
    the reason, or None if it was stopped."""

    def __init__(
        self,
        engine: Engine,
        directory: Path,
        committer: DedicatedCommitter,
        places: dict[str, FeedPlace],
        runtime: TendedPipeline,
        ended: Callable[[str | None], None],
    ) -> None:
        self._over, self._committer, self._runtime, self._ended = False, committer, runtime, ended
        self._draining: tuple[threading.Thread, list[bool]] = threading.Thread(), []  # waits for `drain`
        self._known = threading.Event()  # `self._query` is known; its first batch may begin earlier
        definition, checkpoint = runtime.pipeline, directory / CHECKPOINT
        self._checkpoint = checkpoint
        query = definition.program.dedicated
        if query is None:
            raise InternalError(f"pipeline {definition.name} has no query of its own")
        private_directory(checkpoint)
        mend_logs(checkpoint, read_progress(directory).epoch)
        remove_uncommitted_state(checkpoint)
        committer.release()
        session = dedicated_session(engine)
        context: Any = session.sparkContext
        # Spark's streaming thread inherits the pool of the thread that starts the query.
        context.setLocalProperty("spark.scheduler.pool", DEDICATED_POOL)
        try:
            frame = dedicated_frame(session, query, places, engine.cores)
            writer: Any = frame.writeStream.foreachBatch(self._commit).outputMode(query.mode)
            named = writer.queryName(f"{definition.name}-{definition.instance}")
            self._query: StreamingQuery = named.option("checkpointLocation", location(checkpoint)).start()
        except (AnalysisException, ParseException) as problem:
            raise query_failure(problem, definition) from problem
        except HeadraceError:
            raise
        except Exception as problem:
            raise not_started(problem, checkpoint) from problem
        finally:
            context.setLocalProperty("spark.scheduler.pool", None)
        self._known.set()
        self._watch = threading.Thread(target=self._wait, name=f"headrace-dedicated-{definition.name}", daemon=True)
        self._watch.start()
        threading.Thread(target=self._look_after, name=f"headrace-feeds-{definition.name}", daemon=True).start()

    def _look_after(self) -> None:
        """Release what the feeds need not keep, for as long as the query runs."""
        while not self._over and self._watch.is_alive():
            try:
                self._committer.release()
                self._runtime.tend()
            except HeadraceError as problem:  # the query itself reports a damaged feed; a full disk may get space again
                _log.warning("looking after the feeds of pipeline %s: %s", self._runtime.pipeline.name, problem.message)
            time.sleep(LOOK_SECONDS)

    def _commit(self, rows: DataFrame, batch: int) -> None:
        """Spark calls it for every batch, in its streaming thread."""
        try:
            self._committer.give_way(self)
            pipeline = self._runtime.pipeline
            with contextlib.suppress(Exception):  # only a name: whatever is wrong fails the commit itself
                described = f"headrace pipeline {pipeline.name}, batch {batch}"
                rows.sparkSession.sparkContext.setJobDescription(described)
            self._committer.commit(rows, batch, pipeline, self)
        except Exception:
            raise
        except BaseException as problem:  # the thread would exit, and Spark would wait forever for its answer
            raise InternalError(f"the commit of batch {batch} raised {type(problem).__name__}: {problem}") from problem

    @property
    def pipeline(self) -> PipelineDef:
        """Its definition as it is now."""
        return self._runtime.pipeline

    def current(self) -> bool:
        """False once the query was stopped."""
        return not self._over

    def gives_way(self) -> bool:
        """True while its streams read a backlog for other pipelines, and its own rows can wait."""
        return self._runtime.gives_way()

    def late(self) -> int:
        """How many rows of the newest batch Spark dropped as late. Its operators may see fewer rows than the stream
        has: a window aggregate adds up rows of one group first."""
        if not self._known.wait(STOP_SECONDS):
            raise InternalError("Spark runs a batch of a query that it has not returned")
        return late_rows(self._query)

    def reached(self) -> int | None:
        """How far the event time of the output has come with the newest batch, in microseconds."""
        if not self._known.wait(STOP_SECONDS):
            raise InternalError("Spark runs a batch of a query that it has not returned")
        reached = output_watermark(self._query)
        return None if reached is None else reached * 1000

    def _wait(self) -> None:
        self._ended(wait_for_end(self._query, self._checkpoint))

    def last_epoch(self) -> tuple[int, float] | None:
        """The newest batch that Spark has reported, and how many milliseconds it took."""
        return newest_epoch(self._query)

    def drain(self, timeout: float) -> bool:
        """Wait until everything that the feeds hold is in the sinks, and windows that can close have closed. True if
        that happened in time and without a failure."""
        waiting, done = self._draining
        if not waiting.is_alive():  # else a caller whose time was over has left one that still waits
            done = []
            waiting = threading.Thread(target=self._drain, args=(done,), name="headrace-drain", daemon=True)
            waiting.start()
            self._draining = waiting, done
        waiting.join(timeout)
        return bool(done)

    def _drain(self, done: list[bool]) -> None:
        try:
            self._query.processAllAvailable()
            if self._query.isActive:
                done.append(True)
        except Exception as problem:  # `_wait` reports it
            _log.info("waiting for a query: %s", problem)

    def stop(self) -> None:
        """End the query, in STOP_SECONDS at most. A batch in flight is aborted and run again later."""
        self._over = True
        stopping = threading.Thread(target=self._stop, name="headrace-stop", daemon=True)
        stopping.start()
        stopping.join(STOP_SECONDS)
        if stopping.is_alive():
            _log.warning("query %s did not stop in %g s and is abandoned", self._query.name, STOP_SECONDS)
        elif self._watch is not threading.current_thread():
            self._watch.join(timeout=5)

    def _stop(self) -> None:
        try:
            self._query.stop()
        except Exception as problem:  # `ended` gets the reason; or the JVM is gone
            _log.info("stopping a query: %s", problem)
