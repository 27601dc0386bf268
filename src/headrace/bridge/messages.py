"""Messages from Ring 0 to Ring 1, and from both to the driver: one row per message, in one fixed Spark schema.

A row is (instance, bucket, task, seq, kind, payload). A *lane* is one bucket of one instance, and a *pool* all lanes of
one bucket: messages to it have a key of their own (`headrace.bridge.pools`). Spark groups by (instance, bucket), so a
pool has one consumer, and one producer per task. Within an epoch each task sends a pool the events of its lanes, then
its watermark, then the epoch's barrier, then the ends of lanes. `in_order` restores that order over all tasks. Instance
0 is the stream's own lane, which carries task reports to the driver. Lanes of instances that are not pooled
(`PipelineDef`) get their messages one by one, under their own number.

The kind decides the form of the payload. Rows are encoded by `headrace.bridge.rows`. All other payloads are frozen
dataclasses (`headrace.bridge.reports` and below), written by `encode` and read by `decode`. The Spark schema never
changes, because Spark could not restart the query otherwise. Payloads may change: they carry `VERSION`, and rows carry
a magic number of their own.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from headrace.bridge import wire
from headrace.errors import InternalError
from headrace.sinks.sink_kind import Staged

T = TypeVar("T")

VERSION = 4
STREAM_LANE = 0
# A batch costs about 20 us to make, and more on the receiving side, so many small messages share one.
BATCH_MESSAGES = 256
BATCH_BYTES = 2 * 1024 * 1024
_RECEIPT = struct.Struct("<iqqII")  # version, instance, rows, bytes of the names of sink and file


class MessageKind(IntEnum):
    """The kinds of message, in the order in which one task sends them to one lane."""

    EVENTS = 1  # partial aggregates; to a pool, those of many lanes (`headrace.bridge.packs`)
    WATERMARK = 2  # LaneEpoch: the task's highest event time, and the facts of the epoch that the lane needs
    BARRIER = 3  # Barrier: the task has nothing more for the lane in this epoch
    EOF = 4  # LaneEnd, to a pool PooledEnd: the pipeline ends or starts again in this lane
    OUTPUT = 5  # to the driver, Receipt: what a sink has staged
    ERROR = 6  # to the driver, Failure: a pipeline or one of its sinks failed
    REPORT = 7  # to the driver, TaskReport or PoolReport: what a task, a pool or a lane did
    NO_EPOCH = 8  # to the driver, empty: Spark ran a batch for which no epoch was planned
    STAGED = 9  # to the driver, RowsForSpark: rows for the Spark query of a pipeline on the epoch host


class Row(NamedTuple):
    """A message as Spark carries it."""

    instance: int
    bucket: int
    task: int
    seq: int
    kind: int
    payload: bytes


SPARK_DDL = "instance BIGINT, bucket INT, task INT, seq INT, kind INT, payload BINARY"
_FIELDS: list[pa.Field[Any]] = [
    pa.field("instance", pa.int64()),
    pa.field("bucket", pa.int32()),
    pa.field("task", pa.int32()),
    pa.field("seq", pa.int32()),
    pa.field("kind", pa.int32()),
    pa.field("payload", pa.binary()),
]
ARROW = pa.schema(_FIELDS)


def to_batch(rows: list[Row]) -> pa.RecordBatch:
    """The messages as an Arrow batch with the schema of `SPARK_DDL`.

    It is built from buffers. Arrow takes 8 us to inspect a Python sequence of two numbers, and would copy every payload
    into a buffer that grows with each.
    """
    numbers = np.array([row[:-1] for row in rows], np.int64).reshape(-1, len(_FIELDS) - 1)
    payloads = [row.payload for row in rows]
    offsets = np.fromiter(accumulate(map(len, payloads), initial=0), np.int32, len(rows) + 1)
    arrays = [
        _array(f.type, len(rows), numbers[:, i].astype(np.int64 if f.type == pa.int64() else np.int32).data)
        for i, f in enumerate(_FIELDS[:-1])
    ]
    arrays.append(_array(pa.binary(), len(rows), offsets.data, b"".join(payloads)))
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW)


def _array(kind: pa.DataType, rows: int, *buffers: bytes | memoryview) -> pa.Array[Any]:
    return pa.Array.from_buffers(kind, rows, [None, *map(pa.py_buffer, buffers)], 0)


def batches(messages: Iterable[list[Row]]) -> Iterator[pa.RecordBatch]:
    """Group messages into batches for Spark: at least BATCH_MESSAGES messages or BATCH_BYTES bytes, except the last."""
    waiting: list[Row] = []
    size = 0
    for rows in messages:
        waiting += rows
        size += sum(len(row.payload) for row in rows)
        if len(waiting) >= BATCH_MESSAGES or size >= BATCH_BYTES:
            yield to_batch(waiting)
            waiting, size = [], 0
    if waiting:
        yield to_batch(waiting)


def in_order(rows: Iterable[Row]) -> list[Row]:
    """The messages of one lane by kind, task and sequence number: a re-run of the epoch sees the same order."""
    return sorted(rows, key=lambda r: (r.kind, r.task, r.seq))


def encode(message: object) -> bytes:
    """A dataclass as a payload: the version, a space, then JSON."""
    return b"%d %b" % (VERSION, wire.write(message))


def decode(kind: type[T], payload: bytes) -> T:
    """The message that `encode` wrote. Raises InternalError if it has another version."""
    version, _, text = payload.partition(b" ")
    if version != b"%d" % VERSION:
        raise InternalError(f"a message has version {version[:20]!r}, but this release reads version {VERSION}")
    return wire.read(kind, text)


@dataclass(frozen=True, slots=True)
class LaneEpoch:
    """A task's watermark message to a lane.

    `max_time` is None when the task saw no event time. `staging` is the directory for large staged rows. Only task 0
    sends the `program` (a PipelineDef, to a pool a list of them, packed by `headrace.model.codec`), so Ring 1 needs
    nothing but its messages.
    """

    epoch: int
    tasks: int
    checkpoint: str
    watermark: int | None
    max_time: int | None
    delay: int
    staging: str = ""
    program: bytes = b""

    def encode(self) -> bytes:
        """JSON, a zero byte, then the program."""
        facts = [VERSION, self.epoch, self.tasks, self.checkpoint, self.watermark, self.max_time, self.delay]
        facts.append(self.staging)
        return b"%b\0%b" % (json.dumps(facts).encode(), self.program)

    @staticmethod
    def decode(payload: bytes) -> LaneEpoch:
        facts, _, program = payload.partition(b"\0")
        version, *values = json.loads(facts)
        if version != VERSION:
            raise InternalError(f"a watermark message has version {version}, but this release reads version {VERSION}")
        return LaneEpoch(*[*values, program])


@dataclass(frozen=True, slots=True)
class LaneEnd:
    """An end message: a pipeline leaves the lane, starts again in it, or its input is over.

    `flush` closes all windows, `drop` deletes the state after that, `reset` deletes the state from before this epoch.
    """

    flush: bool
    drop: bool = False
    reset: bool = False


@dataclass(frozen=True, slots=True)
class PooledEnd:
    """An end message to one lane of a pool. `program` is the PipelineDef of one that has left the plan, as JSON."""

    lane: int
    end: LaneEnd
    program: str = ""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a sink has staged for an instance in this epoch, for the driver to commit."""

    instance: int
    sink: str
    staged: Staged

    def encode(self) -> bytes:
        """Numbers, the names of sink and file, then the staged rows, if the receipt carries them. An epoch has hundreds
        of receipts, and JSON would take five times as long."""
        sink, file = self.sink.encode(), self.staged.file.encode()
        facts = _RECEIPT.pack(VERSION, self.instance, self.staged.rows, len(sink), len(file))
        return b"".join((facts, sink, file, self.staged.data))

    @staticmethod
    def decode(payload: bytes) -> Receipt:
        version, instance, rows, sink, file = _RECEIPT.unpack_from(payload)
        if version != VERSION:
            raise InternalError(f"a receipt has version {version}, but this release reads version {VERSION}")
        named = _RECEIPT.size + sink
        data = named + file
        staged = Staged(rows, payload[named:data].decode(), payload[data:])
        return Receipt(instance, payload[_RECEIPT.size : named].decode(), staged)
