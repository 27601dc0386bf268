"""What crosses from Ring 0 to Ring 1, and from both to the driver: one row per message, one fixed Spark schema.

A row is (instance, bucket, task, seq, kind, payload). A *lane* is one (instance, bucket): one consumer by construction,
because Spark groups by it, and one producer per task. Within an epoch each task sends to a lane: events, then its
watermark, then the epoch's barrier, then eof if the lane ends; `in_order` restores that order over all tasks.
Instance 0 is the stream's own lane: task reports, on their way to the driver.

The payload's form depends on the kind: JSON for control, `headrace.bridge.rows` for rows. The schema never changes
(Spark could not restart otherwise); what may change is inside and carries `VERSION`, or for rows their own magic.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.errors import InternalError
from headrace.sinks.base import Staged

VERSION = 1
STREAM_LANE = 0
# A batch costs about 20 us to make, and more on the other side: many small messages share one.
BATCH_MESSAGES = 256
BATCH_BYTES = 2 * 1024 * 1024


class Kind(IntEnum):
    """The kinds in the order in which one task sends them to one lane."""

    EVENTS = 1  # partial aggregates
    WATERMARK = 2  # LaneEpoch: this task's highest event time, and what the lane must know of the epoch
    BARRIER = 3  # JSON {"kind", "id"}: the task has nothing more for the lane in this epoch
    EOF = 4  # LaneEnd as JSON: a life of the lane ends
    OUTPUT = 5  # to the driver: a sink's receipt
    ERROR = 6  # to the driver: the pipeline failed here
    REPORT = 7  # to the driver: what a task or a lane did


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
    """Messages as the one Arrow batch form that Spark checks against `SPARK_DDL`.

    Made of buffers: Arrow takes 8 us to look at a Python sequence of two numbers, and would copy every payload into a
    buffer that grows with each.
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
    """Messages as they are handed over to Spark: as many at a time as are worth a batch."""
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
    """Messages of one lane in the order that makes a re-run equal: by kind, then task, then sequence."""
    return sorted(rows, key=lambda r: (r.kind, r.task, r.seq))


@dataclass(frozen=True, slots=True)
class LaneEpoch:
    """A task's watermark message. `max_time` is None when the task saw no event time. Task 0's carries the `program`
    (a PipelineDef as JSON), so Ring 1 needs nothing but its messages; the others' is empty."""

    epoch: int
    tasks: int
    checkpoint: str
    watermark: int | None
    max_time: int | None
    delay: int
    program: str = ""

    def encode(self) -> bytes:
        """JSON, then a zero byte, then the program as it is: text inside JSON costs a second round of quoting."""
        facts = [VERSION, self.epoch, self.tasks, self.checkpoint, self.watermark, self.max_time, self.delay]
        return b"%b\0%b" % (json.dumps(facts).encode(), self.program.encode())

    @staticmethod
    def decode(payload: bytes) -> LaneEpoch:
        facts, _, program = payload.partition(b"\0")
        version, *values = json.loads(facts)
        if version != VERSION:
            raise InternalError(f"a watermark message has version {version}, this is {VERSION}")
        return LaneEpoch(*[*values, program.decode()])


@dataclass(frozen=True, slots=True)
class LaneEnd:
    """An eof message: a life of the lane ends. `flush` closes what is open, `drop` forgets the state afterwards,
    `reset` forgets what was before this epoch."""

    flush: bool
    drop: bool = False
    reset: bool = False

    def encode(self) -> bytes:
        return encode_json({"flush": self.flush, "drop": self.drop, "reset": self.reset})

    @staticmethod
    def decode(payload: bytes) -> LaneEnd:
        value = decode_json(payload)
        return LaneEnd(value["flush"], value["drop"], value["reset"])


def encode_json(value: dict[str, Any]) -> bytes:
    """A control payload."""
    return json.dumps({"v": VERSION, **value}).encode()


def decode_json(payload: bytes) -> dict[str, Any]:
    """What `encode_json` wrote."""
    value = json.loads(payload)
    if value.get("v") != VERSION:
        raise InternalError(f"a message has version {value.get('v')}, this is {VERSION}")
    return dict(value)


def encode_receipt(instance: int, sink: str, staged: Staged) -> bytes:
    """A sink's receipt: JSON, then a zero byte, then the rows it carries, if any."""
    facts = {"instance": instance, "sink": sink, "rows": staged.rows, "file": staged.file}
    return encode_json(facts) + b"\0" + staged.data


def decode_receipt(payload: bytes) -> tuple[int, str, Staged]:
    """Instance, sink name and receipt, as `encode_receipt` wrote them."""
    facts, _, data = payload.partition(b"\0")
    value = decode_json(facts)
    return value["instance"], value["sink"], Staged(value["rows"], value["file"], data)
