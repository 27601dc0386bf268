"""How a streaming query of Spark ended, or why it did not start. The queries of streams and those of pipelines on the
dedicated host share it."""

from __future__ import annotations

from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from headrace.errors import HeadraceError, StreamFailed, kind_of
from headrace.spark.causes import cause_of, from_state
from headrace.spark.checkpoint_damage import state_damage


def not_started(problem: Exception, checkpoint: Path) -> HeadraceError:
    """The coded error for a query that did not start. The message of py4j is the name of a call and a page of stack
    traces."""
    cause = _with_damage(cause_of(problem), checkpoint)
    kind = kind_of(cause)
    return StreamFailed(cause) if kind is None else kind(cause.split("] ", 1)[1])


def wait_for_end(query: StreamingQuery, checkpoint: Path) -> str | None:
    """Wait until a query ends. Returns why it failed; None if it was stopped."""
    try:
        query.awaitTermination()
    except StreamingQueryException as failure:
        cause = cause_of(failure)
        return _with_damage(cause, checkpoint) if from_state(failure) else cause
    except Exception as failure:  # the JVM is gone, and the query with it
        return f"Spark is gone: {failure}"
    return None


def newest_epoch(query: StreamingQuery) -> tuple[int, float] | None:
    """The newest epoch that Spark has reported, and how many milliseconds it took from its planning to its commit."""
    try:
        progress = query.lastProgress
    except Exception:  # the JVM is gone; `wait_for_end` reports that
        return None
    if progress is None or "addBatch" not in progress["durationMs"]:
        return None
    return int(progress["batchId"]), float(progress["durationMs"]["triggerExecution"])


def _with_damage(cause: str, checkpoint: Path) -> str:
    """A cause that has a code says enough."""
    return cause if kind_of(cause) is not None else state_damage(checkpoint, cause)
