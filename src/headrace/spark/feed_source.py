"""A feed as Spark sees it: a streaming Python data source whose offset is a position in the feed.

The feed is a log of committed epochs (`headrace.sinks.feed_log`), so a range of positions can be read again after a
crash. Every batch ends with one punctuation row that carries the watermark of the *stream*. It is marked by the column
`PUNCTUATION`, and the query drops it after the watermark has seen it. So windows and joins close even if the pipeline's
own filter lets nothing through.

**How windows close at the end.** Spark closes windows in the batch *after* the one that moved the watermark. It adds
that batch by itself, but forgets to when the query is restarted in between, and nothing in its log says whether the
batch was run. So the batch is part of the offset here: the offset after an ending epoch is first not `closed`, and
then `closed`, without any row between the two. A query whose newest committed offset is `closed` has emitted
everything. For the same reason the first offset of a restarted query differs from the last one of the query before
(`run`): windows that could close when that query was killed do not wait for more rows.

As in `headrace.spark.source`, Spark loads this module in short-lived processes that only ask for the schema. It
therefore imports almost nothing at the top.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from headrace.sinks.feed_log import FeedEpoch, FeedLog, FeedSegment

FEED_FORMAT = "headrace_feed"
PUNCTUATION = "__headrace_punctuation"
# The time of the row that closes all windows when the input is over: 9999-12-31, the latest that every type can print.
END_OF_TIME = 253_402_214_400_000_000
# Epochs are small when the query keeps up. When it is behind, a batch takes epochs until they have this many bytes: 64
# MB of Arrow are about a million rows of eight columns, a few seconds of work.
BATCH_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class FeedPartition(InputPartition):
    """Segments for one task, by value. With `punctuation` the task adds a row that has this event time."""

    directory: str
    segments: tuple[FeedSegment, ...]
    punctuation: int | None = None


class FeedDataSource(DataSource):
    """`spark.readStream.format("headrace_feed")`. Options: stream, directory, start, event_time, parallelism, delay_us,
    closes, and the schema."""

    @classmethod
    def name(cls) -> str:
        return FEED_FORMAT

    def streamReader(self, schema: StructType) -> FeedReader:
        return FeedReader(dict(self.options), schema.fieldNames())


class FeedReader(DataSourceStreamReader):
    """Plans batches in the planning process, and reads segments in the tasks."""

    def __init__(self, options: dict[str, str], names: Sequence[str]) -> None:
        self.options, self.names = options, list(names)

    @cached_property
    def log(self) -> FeedLog:
        from pathlib import Path

        from headrace.sinks.feed_log import FeedLog

        return FeedLog(Path(self.options["directory"]))

    @cached_property
    def run(self) -> str:
        """Names the planning process: each start of the query has its own."""
        return uuid.uuid4().hex

    @property
    def closes(self) -> bool:
        """True if the end of the input closes all windows."""
        return self.options["closes"] == "true"

    def initialOffset(self) -> dict[str, Any]:
        return self._offset(int(self.options["start"]))

    def _offset(self, position: int, closed: bool = False) -> dict[str, Any]:
        """The name of the stream is part of the offset: Spark's log does not say which line belongs to which source."""
        return {"stream": self.options["stream"], "position": position, "closed": closed, "run": self.run}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The position after the epochs that fit into one batch; `start` if there is nothing to do."""
        at, began = int(start["position"]), int(self.options["start"])
        if self.closes and at > began and self.log.epoch(at - 1).ending:
            # What follows is for another query: the watermark of this one is at the end of time.
            again = start["closed"] and start["run"] == self.run
            return start if again else self._offset(at, closed=True)
        until = batch_end(self.log, at, closes=self.closes)
        if until > at:
            return self._offset(until)
        restarted = start["run"] != self.run and at > began and bool(self.options.get("event_time"))
        return self._offset(at) if restarted else start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The segments of a range of positions, spread over the tasks, and the newest watermark."""
        epochs = self.log.epochs(int(start["position"]), int(end["position"]))
        directory = str(self.log.segments)
        spread = shares(epochs, int(self.options["parallelism"]))
        found = [FeedPartition(directory, tuple(share)) for share in spread if share]
        punctuation = self._punctuation(epochs)
        if punctuation is not None or not found:
            found.append(FeedPartition(directory, (), punctuation))
        return found

    def _punctuation(self, epochs: Sequence[FeedEpoch]) -> int | None:
        """The event time of the punctuation row: the query subtracts the delay again."""
        if not epochs or not self.options.get("event_time"):
            return None
        if self.closes and epochs[-1].ending:
            return END_OF_TIME
        watermark = epochs[-1].watermark
        return None if watermark is None else watermark + int(self.options["delay_us"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from pathlib import Path

        import pyarrow as pa

        from headrace.sinks.feed_log import read_segments
        from headrace.spark.worker_memory import keep_freed_memory

        assert isinstance(partition, FeedPartition)
        keep_freed_memory()
        for batch in read_segments(Path(partition.directory), partition.segments):
            mark = pa.repeat(pa.scalar(False), batch.num_rows)
            yield pa.RecordBatch.from_arrays([*batch.columns, mark], names=self.names)
        if partition.punctuation is not None:
            yield self._punctuation_row(partition.punctuation)

    def _punctuation_row(self, at: int) -> pa.RecordBatch:
        import base64

        import pyarrow as pa

        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.options["schema"])))
        time = self.options["event_time"]
        arrays = [
            pa.array([at], pa.int64()).cast(field.type) if field.name == time else pa.nulls(1, field.type)
            for field in schema
        ]
        return pa.RecordBatch.from_arrays([*arrays, pa.array([True])], names=self.names)


def batch_end(log: FeedLog, at: int, closes: bool = False, end: int | None = None) -> int:
    """The position after the epochs from `at` on that fit into one batch, up to `end`. With `closes` an ending epoch is
    the last one."""
    until, waiting = at, 0
    for epoch in log.epochs(at, end):
        if until > at and waiting + epoch.bytes > BATCH_BYTES:
            break
        waiting, until = waiting + epoch.bytes, epoch.position + 1
        if closes and epoch.ending:
            break
    return until


def shares(epochs: Sequence[FeedEpoch], tasks: int) -> list[list[FeedSegment]]:
    """The segments of epochs, spread over tasks."""
    found: list[list[FeedSegment]] = [[] for _ in range(max(1, tasks))]
    sizes = [0] * len(found)
    for segment in (s for epoch in epochs for s in epoch.segments):
        least = sizes.index(min(sizes))
        found[least].append(segment)
        sizes[least] += segment.bytes
    return found
