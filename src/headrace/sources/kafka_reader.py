"""Reads ranges of Kafka partitions in a task.

A range ends at an offset, not after a number of messages: offsets have gaps where a transaction ended or was aborted,
and where a topic was compacted. So a task reads a partition until it gets a message or the end of the log at or after
the end of the range. Messages come in batches; they are copied into one buffer per batch and partition.

A worker keeps its consumer between tasks, because a connection takes longer than a small epoch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from headrace.brokers.connection import ANSWER_SECONDS, KafkaConnection, Noted, library
from headrace.errors import BrokerDenied, BrokerUnreachable, DataLost, HeadraceError, UnknownTopic
from headrace.formats.format_kind import Format
from headrace.formats.packing import EMPTY_MESSAGE, LOST, TOMBSTONE, MessageFormat
from headrace.formats.text import TextRecords
from headrace.sources.kafka_facts import MessageFacts
from headrace.sources.kafka_offsets import PartitionKey, PartitionRange
from headrace.sources.source_kind import RawChunk

BATCH = 16_384  # messages that are taken from the client at once
WAIT = 0.05  # seconds; the client waits that long for a full batch
CHUNK = 4 << 20  # bytes of messages that are decoded at once; see headrace.sources.reading.CHUNK
PATIENCE = 60.0  # seconds without a message or an answer, after which a task gives up and the epoch is run again
_DEFAULTS: dict[str, object] = {
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",  # a lost offset is reported, never skipped in silence
    "isolation.level": "read_committed",
    # The client stops fetching when so much waits, and looks again after the backoff. With its defaults (64 MB and 1 s)
    # it idles most of the time, and fetches far beyond the end of a range.
    "queued.max.messages.kbytes": 8192,
    "fetch.queue.backoff.ms": 2,
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 200,
    "topic.metadata.refresh.interval.ms": 30_000,
}
OnLoss = Literal["fail", "skip"]


def lost(what: str, **params: Any) -> DataLost:
    """The error for messages that are gone."""
    return DataLost(
        what,
        advice="They were deleted before they were read: by the topic's retention, or with the topic. To continue "
        "without them, CREATE OR REPLACE STREAM with the same definition and on_data_loss = 'skip'.",
        **params,
    )


@dataclass(frozen=True, slots=True)
class KafkaSplit:
    """The ranges that one task reads. `lost` offsets are gone, as the planner found; this split counts them."""

    connection: KafkaConnection
    group: str
    ranges: tuple[PartitionRange, ...]
    on_loss: OnLoss
    lost: int = 0

    def read(self, fmt: Format) -> Iterator[RawChunk]:
        assert isinstance(fmt, MessageFormat), "CREATE STREAM rejects other formats"
        if self.lost:
            yield RawChunk("kafka", 0, b"", left_out={LOST: self.lost})
        if self.ranges:
            yield from _SplitReader(self, fmt).chunks()


@dataclass(slots=True)
class _Unread:
    """What is left of a range. `waiting` are messages that are not in a chunk yet."""

    end: int
    at: int
    waiting: list[Any] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)  # of these messages
    bytes: int = 0
    quiet: float = 0.0  # since when there were only errors, on the monotonic clock


class _SplitReader:
    """One reading of a split."""

    def __init__(self, split: KafkaSplit, fmt: MessageFormat) -> None:
        self._split, self._format = split, fmt
        self._keeps_empty = isinstance(fmt, TextRecords)  # an empty message is an empty text
        self._lib = library()
        self._topics = {name: number for number, name in enumerate(sorted({r.topic for r in split.ranges}))}
        self._open: dict[PartitionKey, _Unread] = {}
        for r in split.ranges:
            self._open[r.topic, r.partition] = _Unread(r.end, r.begin)
        self._consumer: Any = None
        self._noted = Noted()

    def chunks(self) -> Iterator[RawChunk]:
        self._consumer, self._noted = _borrow(self._split.connection, self._split.group)
        whole = False
        try:
            self._assign()
            arrived = time.monotonic()
            while self._open:
                left = sum(u.end - u.at for u in self._open.values())
                with self._split.connection.asking("read", self._noted):
                    messages = self._consumer.consume(max(1, min(BATCH, left)), WAIT)
                if messages:
                    arrived = time.monotonic()
                    yield from self._take(messages)
                elif time.monotonic() - arrived > PATIENCE:
                    raise self._silent()
            self._consumer.unassign()
            whole = True
        finally:
            if not whole:
                _discard(self._consumer)

    def _partition(self, key: PartitionKey, offset: int) -> Any:
        return self._lib.TopicPartition(*key, offset)

    def _assign(self) -> None:
        """Continue with every open range where it is."""
        self._consumer.assign([self._partition(key, unread.at) for key, unread in self._open.items()])

    def _take(self, messages: list[Any]) -> Iterator[RawChunk]:
        """Add the messages of a batch. Errors and ends of partitions count after them: they are about what follows."""
        errors: list[Any] = []
        if any(map(self._lib.Message.error, messages)):
            errors = [m for m in messages if m.error() is not None]
            messages = [m for m in messages if m.error() is None]
        for key, batch in self._by_partition(messages):
            if key in self._open:
                yield from self._add(key, batch)
        for m in errors:
            yield from self._error(m)

    def _by_partition(self, messages: list[Any]) -> Iterator[tuple[PartitionKey, list[Any]]]:
        """The messages of each partition, in order. The client gives long runs of one partition."""
        if not messages:
            return
        if len(self._split.ranges) == 1:
            yield next(iter(self._open), ("", -1)), messages
            return
        count, kind = len(messages), self._lib.Message
        codes = np.fromiter(map(kind.partition, messages), np.int64, count)
        if len(self._topics) > 1:
            names = map(kind.topic, messages)
            codes += np.fromiter((self._topics.get(name, -1) << 32 for name in names), np.int64, count)
        cuts = np.flatnonzero(np.diff(codes)) + 1
        if len(cuts) > count // 8:  # short runs, from many partitions with few messages
            order = np.argsort(codes, kind="stable")
            messages, codes = [messages[i] for i in order.tolist()], codes[order]
            cuts = np.flatnonzero(np.diff(codes)) + 1
        for low, high in pairwise([0, *cuts.tolist(), count]):
            yield (messages[low].topic(), messages[low].partition()), messages[low:high]

    def _add(self, key: PartitionKey, batch: list[Any]) -> Iterator[RawChunk]:
        unread = self._open[key]
        unread.quiet = 0.0
        last = batch[-1].offset()
        if last >= unread.end:
            batch = [m for m in batch if m.offset() < unread.end]
        unread.at = last + 1
        values = list(map(self._lib.Message.value, batch))
        unread.waiting += batch
        unread.values += values
        unread.bytes += sum(map(len, filter(None, values)))
        if unread.bytes >= CHUNK:
            yield from self._chunk(key, unread)
        if unread.at >= unread.end:
            yield from self._finish(key)

    def _finish(self, key: PartitionKey) -> Iterator[RawChunk]:
        unread = self._open.pop(key)
        yield from self._chunk(key, unread)
        if self._open:
            self._consumer.incremental_unassign([self._partition(key, unread.at)])

    def _chunk(self, key: PartitionKey, unread: _Unread) -> Iterator[RawChunk]:
        messages, values = unread.waiting, unread.values
        unread.waiting, unread.values, unread.bytes = [], [], 0
        left_out: dict[str, int] = {}
        if not all(values):
            tombstones = sum(v is None for v in values)
            empty = 0 if self._keeps_empty else sum(v == b"" for v in values)
            left_out = {r: n for r, n in ((TOMBSTONE, tombstones), (EMPTY_MESSAGE, empty)) if n}
            messages = [m for m, v in zip(messages, values, strict=True) if v or (v is not None and self._keeps_empty)]
            values = [m.value() for m in messages]
        origin = f"kafka:{key[0]}/{key[1]}"
        if not values:
            if left_out:
                yield RawChunk(origin, 0, b"", left_out=left_out)
            return

        def offsets() -> Any:
            return np.fromiter(map(self._lib.Message.offset, messages), np.int64, len(messages))

        packed = self._format.pack(values, offsets)
        yield RawChunk(
            origin,
            0,
            packed.data,
            left_out=left_out,
            packed=packed,
            facts=MessageFacts(*key, messages),
        )

    def _error(self, message: Any) -> Iterator[RawChunk]:
        """Act on an error about one partition."""
        error, key = message.error(), (message.topic(), message.partition())
        unread = self._open.get(key)
        kinds = self._lib.KafkaError
        if unread is None:
            return
        if error.code() == kinds._PARTITION_EOF:
            if message.offset() >= unread.end:
                yield from self._finish(key)
            elif self._quiet_for(unread) > ANSWER_SECONDS:  # the log is shorter than it was
                yield from self._lose(key, unread, unread.end)
            else:
                self._assign()
            return
        if error.code() == kinds._AUTO_OFFSET_RESET:
            yield from self._out_of_range(key, unread)
            return
        problem = self._split.connection.coded(error, f"read {key[0]}/{key[1]}", self._noted)
        if isinstance(problem, UnknownTopic):
            if self._quiet_for(unread) > ANSWER_SECONDS:  # it was deleted
                yield from self._lose(key, unread, unread.end)
        elif isinstance(problem, BrokerDenied) or self._quiet_for(unread) > PATIENCE:
            raise problem

    def _quiet_for(self, unread: _Unread) -> float:
        """For how many seconds a partition has had only errors."""
        now = time.monotonic()
        unread.quiet = unread.quiet or now
        return now - unread.quiet

    def _out_of_range(self, key: PartitionKey, unread: _Unread) -> Iterator[RawChunk]:
        with self._split.connection.asking(f"ask for the offsets of {key[0]}/{key[1]}", self._noted):
            low, _ = self._consumer.get_watermark_offsets(self._partition(key, 0), ANSWER_SECONDS)
        yield from self._lose(key, unread, min(unread.end, low) if low > unread.at else unread.end)
        if key in self._open:
            self._assign()

    def _lose(self, key: PartitionKey, unread: _Unread, until: int) -> Iterator[RawChunk]:
        """The messages of a partition from here to `until` are gone."""
        if self._split.on_loss == "fail":
            raise lost(
                f"the messages {unread.at} to {until - 1} of {key[0]}/{key[1]} are gone",
                topic=key[0],
                partition=key[1],
                offset=unread.at,
            )
        yield RawChunk(f"kafka:{key[0]}/{key[1]}", 0, b"", left_out={LOST: until - unread.at})
        unread.at = until
        if unread.at >= unread.end:
            yield from self._finish(key)

    def _silent(self) -> HeadraceError:
        waiting = ", ".join(f"{t}/{p}" for t, p in list(self._open)[:5])
        return BrokerUnreachable(
            f"{waiting}: no message from {self._split.connection.servers} for {PATIENCE:.0f} s: "
            f"{self._noted.text or 'no error was reported'}",
            advice="Check that the broker runs. The stream tries again by itself.",
            servers=self._split.connection.servers,
        )


# The consumer of this worker, which runs one task at a time.
_kept: dict[Any, tuple[Any, Noted]] = {}


def _borrow(connection: KafkaConnection, group: str) -> tuple[Any, Noted]:
    key = (connection.key, group)
    found = _kept.pop(key, None)
    while _kept:
        _kept.popitem()[1][0].close()
    if found is None:
        noted = Noted()
        found = (connection.consumer({**_DEFAULTS, "group.id": group}, noted), noted)
    found[1].clear()
    _kept[key] = found
    return found


def _discard(consumer: Any) -> None:
    """Close a consumer that may be in the middle of something."""
    for key in [k for k, (kept, _) in _kept.items() if kept is consumer]:
        del _kept[key]
    if consumer is not None:
        consumer.close()
