"""The rows of a shared stream for the user's own Spark code:

    hub.spark.readStream.format("headrace").option("stream", "sensors").option("columns", "device, temp").load()

The stream is still read and decoded once: a reader is a temporary pipeline of it, which hands the chosen columns over
in a feed (`headrace.sinks.feed_log`). An offset is a position in that feed, so a batch can be read again. The feed
belongs to one Spark query and is deleted when that query ends, or when the hub closes (`headrace.hub.readers`).

Spark calls `schema` in a short-lived process, and `StreamRows` in the planning process of the query. Both know the hub
only by its state directory and by its socket for notices.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from headrace.base.unknown import unknown
from headrace.errors import MissingOption, ReaderGone, UnknownColumn, UnknownOption, UnknownStream
from headrace.model.program import StreamDef
from headrace.model.schema import Schema
from headrace.sinks.feed_log import FeedLog, FeedSegment, read_segments
from headrace.state.catalog import CatalogFile
from headrace.state.notices import RowsUnwanted, RowsWanted, send_notice
from headrace.state.reader_answers import ANSWERS, ReaderAnswer, answer_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

FORMAT = "headrace"
OPTIONS = ("stream", "columns")
# A reader joins the stream like a pipeline, and a busy machine needs a while for that.
ANSWER_SECONDS = 120.0
ASK_SECONDS = 0.5
BATCH_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class HubAddress:
    """How the processes of Spark reach the hub."""

    directory: str
    port: int
    token: str


def data_source(hub: HubAddress) -> type[DataSource]:
    """The class that `spark.dataSource.register` takes. It carries the address of the hub by value."""
    return type("HubRows", (SharedRows,), {"hub": hub})


class SharedRows(DataSource):
    """`format("headrace")`. Options: stream, columns."""

    hub: ClassVar[HubAddress]

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return ", ".join("`" + f.name.replace("`", "``") + f"` {f.type.ddl}" for f in self._columns()[1])

    def streamReader(self, schema: StructType) -> StreamRows:
        stream, columns = self._columns()
        return StreamRows(self.hub, stream.name, columns.names)

    def _columns(self) -> tuple[StreamDef, Schema]:
        """The stream and its chosen columns. Raises UnknownOption, MissingOption, UnknownStream and UnknownColumn."""
        given = {name.lower(): value for name, value in self.options.items()}
        for name in given:
            if name not in OPTIONS:
                raise unknown(UnknownOption, "option", name, OPTIONS, of=f"the format '{FORMAT}'", param="option")
        if "stream" not in given:
            raise MissingOption(
                f"the format '{FORMAT}' needs the option 'stream'", advice="Name a stream of the hub.", option="stream"
            )
        catalog = CatalogFile(Path(self.hub.directory)).read()
        stream = catalog.stream(given["stream"])
        if stream is None:
            raise unknown(UnknownStream, "stream", given["stream"], catalog.stream_names())
        chosen = [name.strip() for name in given.get("columns", "").split(",") if name.strip()]
        fields = []
        for name in chosen:
            index = stream.schema.index(name)
            if index is None:
                owner = f"stream '{stream.name}'"
                raise unknown(UnknownColumn, "column", name, stream.schema.names, of=owner, stream=stream.name)
            fields.append(stream.schema[index])
        return stream, Schema(tuple(fields)) if fields else stream.schema


@dataclass(frozen=True)
class RowsPartition(InputPartition):
    """Segments for one task, by value."""

    directory: str
    segments: tuple[FeedSegment, ...]


class StreamRows(DataSourceStreamReader):
    """Plans the batches of one reader in the planning process of its query, and reads segments in the tasks."""

    def __init__(self, hub: HubAddress, stream: str, columns: Sequence[str]) -> None:
        self.hub, self.stream, self.columns = hub, stream, tuple(columns)
        self.reader = ""

    def initialOffset(self) -> dict[str, Any]:
        """Ask the hub for the rows, and wait until the reader has joined the stream. Raises what the hub answers."""
        self.reader = uuid.uuid4().hex
        deadline = time.monotonic() + ANSWER_SECONDS
        while (answer := self._answer(self.reader)) is None:
            if time.monotonic() > deadline:
                raise ReaderGone(
                    f"the hub of {self.hub.directory} did not answer within {ANSWER_SECONDS:g} s",
                    advice="Check that it is open, and start the query again.",
                    stream=self.stream,
                )
            self._send(RowsWanted, columns=json.dumps(self.columns))
            time.sleep(ASK_SECONDS)
        if answer.problem:
            raise ReaderGone(
                f"stream {self.stream} cannot be read: {answer.problem}",
                advice="Start the query again when it can.",
                stream=self.stream,
            )
        return {"reader": self.reader, "position": 0}

    def _answer(self, reader: str) -> ReaderAnswer | None:
        return answer_of(Path(self.hub.directory) / ANSWERS, reader)

    def _send(self, kind: Any, **more: str) -> None:
        send_notice(
            self.hub.port, self.hub.token, kind(stream=self.stream, pid=os.getpid(), reader=self.reader, **more)
        )

    def _log(self, offset: dict[str, Any]) -> FeedLog:
        """The feed of an offset. Raises ReaderGone after the hub has deleted it."""
        if offset["reader"] != self.reader or not self._feed.directory.is_dir():
            raise ReaderGone(
                f"the rows of stream {self.stream} that this query had not read are gone: a reader ends with its query "
                "and with the hub",
                advice="Start the query with a new checkpoint location. For a query that survives a restart, create a "
                "pipeline into a sink and read that.",
                stream=self.stream,
            )
        return self._feed

    @cached_property
    def _feed(self) -> FeedLog:
        answer = self._answer(self.reader) if self.reader else None
        return FeedLog(Path(answer.directory if answer is not None else "/nonexistent"))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        log, at, taken = self._log(start), int(start["position"]), 0
        for epoch in log.epochs(at):
            if taken and taken + epoch.bytes > BATCH_BYTES:
                break
            at, taken = epoch.position + 1, taken + epoch.bytes
        return {"reader": self.reader, "position": at}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        log = self._log(start)
        segments = [s for e in log.epochs(int(start["position"]), int(end["position"])) for s in e.segments]
        return [RowsPartition(str(log.segments), (segment,)) for segment in segments]

    def commit(self, end: dict[str, Any]) -> None:
        self._log(end).advance(self.reader, int(end["position"]))

    def stop(self) -> None:
        self._send(RowsUnwanted)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RowsPartition)
        return read_segments(Path(partition.directory), partition.segments)
