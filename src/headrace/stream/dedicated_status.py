"""The counters of a pipeline on the dedicated host or with a Spark reader, from its files. Works while no hub is open,
too."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headrace.errors import HeadraceError
from headrace.model.definitions import PipelineDef
from headrace.model.stored import stored
from headrace.sinks.feed_log import FeedLog, feed_directory
from headrace.state.checkpoint import CHECKPOINT
from headrace.state.dedicated_state import BEGIN, Begin, dedicated_home, newest_turn
from headrace.state.progress import PipelineProgress, read_progress
from headrace.state.spark_log import feed_positions
from headrace.state.state_dir import stream_directory


@dataclass(frozen=True, slots=True)
class DedicatedCounts:
    """`rows_out` rows are in the first sink. `waiting` rows are in feeds and not in the sinks, and `dropped` rows found
    no room in a feed. `skipped` rows were not read because the pipeline lost its state. `late` rows came to an operator
    of the query when its watermark had passed them, as Spark counts them."""

    rows_out: int = 0
    waiting: int = 0
    dropped: int = 0
    skipped: int = 0
    late: int = 0


@dataclass(frozen=True, slots=True)
class DedicatedState:
    """What only a running hub knows: why the query is being restarted, if it is, and how long its newest batch took."""

    problem: str = ""
    batch_ms: float | None = None


def dedicated_counts(pipeline: PipelineDef, state_directory: Path) -> DedicatedCounts:
    """The counters of a pipeline. Damaged files count as nothing: the pipeline fails with the reason."""
    home = dedicated_home(stream_directory(state_directory, pipeline.program.stream.lower()), pipeline)
    turn = newest_turn(home)
    if turn < 0:
        return DedicatedCounts()
    directory = home / str(turn)
    try:
        progress, begin = read_progress(directory), stored(Begin, directory / BEGIN)
        read = feed_positions(directory / CHECKPOINT, progress.epoch) if progress.epoch >= 0 else {}
        waiting = dropped = 0
        for stream in pipeline.streams:
            log = FeedLog(feed_directory(stream_directory(state_directory, stream.lower()), pipeline.instance))
            waiting += log.backlog(read.get(stream)).rows
            dropped += log.dropped()
    except HeadraceError:
        return DedicatedCounts()
    counted = progress.pipelines.get(str(pipeline.instance), PipelineProgress())
    skipped = 0 if begin is None else begin.skipped
    return DedicatedCounts(counted.rows_out, waiting, dropped=dropped, skipped=skipped, late=counted.late)


@dataclass(frozen=True, slots=True)
class UnreadRows:
    """Rows that wait for a Spark reader, and rows that found no room."""

    rows: int = 0
    dropped: int = 0


def unread_rows(pipeline: PipelineDef, directory: Path) -> UnreadRows:
    """The rows of a pipeline that its Spark reader has not read. None without a reader. `directory` is the stream's."""
    if not pipeline.has_reader:
        return UnreadRows()
    log = FeedLog(feed_directory(directory, pipeline.instance))
    try:
        return UnreadRows(log.backlog().rows, log.dropped())
    except HeadraceError:  # a damaged feed: the query that reads it fails with the reason
        return UnreadRows()
