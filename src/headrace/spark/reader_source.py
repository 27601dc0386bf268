"""The data source for user code: `hub.spark.readStream.format("headrace").option("stream", "sensors")`.

It reads the feed of a pipeline that the hub declares for it (`headrace.hub.readers`). An offset is a position in the
feed, so the checkpoint of the user's query makes it exactly once, as with any other source of Spark.

**When the feed forgets.** Spark asks for the offset after `start` only when the batch that ended at `start` is in its
log of commits. So `latestOffset` lets the feed forget what is before `start`. The method `commit` comes with the
*next* batch: with a full feed the stream pauses, no next batch comes, and nothing would ever be released.

**One query for each reader.** The position in the feed belongs to one checkpoint. A query with a new checkpoint takes
the reader over, from the first row that was not released. The query before it then stops with READER_TAKEN. The
owner is the name of the feed's only consumer, and part of every offset.

As in `headrace.spark.feed_source`, Spark loads this module in short-lived processes, so it imports almost nothing at
the top.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from headrace.spark.feed_source import FeedPartition, batch_end, shares

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from headrace.sinks.feed_log import FeedLog
    from headrace.state.reader_calls import ReaderPlace

READER_FORMAT = "headrace"


class ReaderDataSource(DataSource):
    """`spark.readStream.format("headrace")`. `register_readers` makes a class of it that knows its hub."""

    port: ClassVar[int] = 0
    token: ClassVar[str] = ""
    tasks: ClassVar[int] = 1

    @classmethod
    def name(cls) -> str:
        return READER_FORMAT

    def schema(self) -> str:
        return self._place(dict(self.options), opening=False).ddl

    def streamReader(self, schema: StructType) -> ReaderOfFeed:
        return ReaderOfFeed(dict(self.options), schema, port=self.port, token=self.token, tasks=self.tasks)

    def _place(self, options: dict[str, str], opening: bool) -> ReaderPlace:
        from headrace.state.reader_calls import ReaderCall, call_hub

        return call_hub(self.port, self.token, ReaderCall(options, opening))


class ReaderOfFeed(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches in the planning process, and reads segments in the tasks."""

    def __init__(self, options: dict[str, str], schema: StructType, port: int, token: str, tasks: int) -> None:
        self.options, self.schema, self.port, self.token, self.tasks = options, schema, port, token, tasks
        self._claimed, self._last = None, None

    _claimed: int | None  # the position at which this query took the reader over
    _last: int | None

    @cached_property
    def place(self) -> ReaderPlace:
        """The pipeline and its feed. The first call declares the pipeline if it is not declared."""
        from headrace.state.reader_calls import ReaderCall, call_hub

        options = dict(self.options)
        if "pipeline" not in options:
            options.setdefault("columns", ", ".join(self._quoted()))
        found = call_hub(self.port, self.token, ReaderCall(options, opening=True))
        self._require_schema(found)
        return found

    def _quoted(self) -> list[str]:
        return ["`" + name.replace("`", "``") + "`" for name in self.schema.fieldNames()]

    def _require_schema(self, place: ReaderPlace) -> None:
        from headrace.errors import BadOption

        kinds = [field.dataType.simpleString() for field in self.schema.fields]
        found = [f"{name} {kind}" for name, kind in zip(self._quoted(), kinds, strict=True)]
        if _plain(", ".join(found)) != _plain(place.ddl):
            raise BadOption(
                f"the columns of pipeline {place.pipeline} are {place.ddl}, and the schema is {', '.join(found)}",
                advice="Leave out schema(...), or use the types of the stream and cast later.",
                option="schema",
            )

    @cached_property
    def log(self) -> FeedLog:
        from pathlib import Path

        from headrace.sinks.feed_log import FeedLog

        return FeedLog(Path(self.place.directory))

    @cached_property
    def own(self) -> str:
        """The owner that a query with a new checkpoint becomes."""
        return f"reader-{uuid.uuid4().hex}"

    def _offset(self, position: int, owner: str) -> dict[str, Any]:
        return {
            "pipeline": self.place.pipeline,
            "instance": self.place.instance,
            "position": position,
            "owner": owner,
            "after": self.log.epoch(position - 1).identity if position else "",
        }

    def initialOffset(self) -> dict[str, Any]:
        """The first position that was not released. It is the same when batch 0 is run again: nothing is released
        before that batch is committed."""
        from headrace.sinks.feed_lock import feed_locked

        with feed_locked(self.log.directory):  # the manifest before the position stays until a consumer advances
            return self._offset(self.log.needed_from() or 0, self.own)

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self.log.end()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The position after the epochs that fit into one batch; `start` if there is nothing to do."""
        from headrace.sinks.feed_lock import feed_locked

        owner = str(start["owner"])
        self._require_same(start)
        if owner == self.own and self._claimed is None:
            self._claim()
        at = self._begin(start)
        with feed_locked(self.log.directory, make=True):
            self._require_owner(owner)
            self._require_known(start)
            self.log.advance(owner, at)
        until = batch_end(self.log, at, end=self._last)
        return self._offset(until, owner) if until > int(start["position"]) else start

    def _claim(self) -> None:
        """Become the only consumer of the feed."""
        from headrace.base.durable import private_directory, state_errors
        from headrace.sinks.feed_lock import feed_locked

        with state_errors(self.log.directory):
            private_directory(self.log.directory)
        with feed_locked(self.log.directory, make=True):
            self._claimed = self.log.register(self.own)
            for other in self.log.consumers():
                if other != self.own:
                    self.log.unregister(other)

    def _begin(self, start: dict[str, Any]) -> int:
        """Where a batch begins. The query before this one may have released rows after `initialOffset` read the
        position, until this one took the reader over."""
        at = int(start["position"])
        return max(at, self._claimed or 0) if start["owner"] == self.own else at

    def _require_owner(self, owner: str) -> None:
        from headrace.errors import ReaderTaken, UnknownPipeline

        if self.log.position_of(owner) is not None:
            return
        name = self.place.pipeline
        if not self.log.consumers():
            raise UnknownPipeline(
                f"pipeline {name} was dropped", advice="Start a new query, with a new checkpoint.", name=name
            )
        raise ReaderTaken(
            f"another query, with another checkpoint, reads pipeline {name}",
            advice="A reader serves one query. Give each query a reader of its own: option('name', ...), or another "
            "pipeline INTO SPARK READER.",
            name=name,
        )

    def _require_same(self, start: dict[str, Any]) -> None:
        from headrace.errors import UnknownPipeline

        name = self.place.pipeline
        if int(start["instance"]) != self.place.instance:
            raise UnknownPipeline(
                f"pipeline {name} was dropped or replaced since this checkpoint was made",
                advice="Its rows are gone. Start the query with a new checkpoint.",
                name=name,
            )

    def _require_known(self, offset: dict[str, Any]) -> None:
        """Refuse an offset that is not of this feed. After a restore the feed has other epochs at the same positions.
        `after` names the epoch before the position, whose manifest always stays. Older checkpoints do not have it."""
        from headrace.errors import EpochMismatch

        name, at, after = self.place.pipeline, int(offset["position"]), offset.get("after")
        if at < self._begin(offset):
            return  # the query before this one has released the epoch since `initialOffset`
        if at > self.log.end():
            problem = f"the checkpoint of the query is ahead of pipeline {name}"
        elif at and after and not self._is_at(at - 1, after):
            problem = f"pipeline {name} has other rows than those that the checkpoint of the query counts"
        else:
            return
        raise EpochMismatch(
            problem,
            advice="The state directory was restored, or is not the one of the checkpoint. Restore a checkpoint of "
            "the same time, or start the query with a new one.",
            name=name,
        )

    def _is_at(self, position: int, identity: str) -> bool:
        return self.log.path(position).exists() and self.log.epoch(position).identity == identity

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._require_same(end)
        self._require_owner(str(end["owner"]))  # else its rows may be released
        for offset in (start, end):
            self._require_known(offset)
        epochs = self.log.epochs(self._begin(start), int(end["position"]))
        directory = str(self.log.segments)
        found = [FeedPartition(directory, tuple(share)) for share in shares(epochs, self.tasks) if share]
        return found or [FeedPartition(directory, ())]

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: `latestOffset` has released it."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from pathlib import Path

        from headrace.sinks.feed_log import read_segments
        from headrace.spark.worker_memory import keep_freed_memory

        assert isinstance(partition, FeedPartition)
        keep_freed_memory()
        yield from read_segments(Path(partition.directory), partition.segments)


def _plain(ddl: str) -> str:
    """Columns in one spelling. There is no JVM in the planning process that could parse them."""
    return "".join(ddl.lower().replace("`", "").split())


_registered: dict[int, str] = {}  # the token of the hub whose source a session has, by the id of the session


def register_readers(session: SparkSession, port: int, token: str) -> None:
    """Let the format `headrace` of this session mean the hub with this port. Frames that are loaded keep their hub."""
    inner: Any = session._jsparkSession
    if _registered.get(inner.hashCode()) == token:  # another hub may get the port of one that is closed
        return
    # A class that is not in its module is pickled by value, with these attributes.
    attributes = {"port": port, "token": token, "tasks": session.sparkContext.defaultParallelism}
    with _active(session):
        session.dataSource.register(type(ReaderDataSource.__name__, (ReaderDataSource,), attributes))
    _registered[inner.hashCode()] = token


@contextmanager
def _active(session: SparkSession) -> Iterator[None]:
    """Make a session the active one of this thread. Spark refuses to register a format in a session that has none yet
    if the active session, which may be another one, has a format of that name."""
    jvm: Any = session.sparkContext._jvm
    sessions = jvm.org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(session._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()
