"""What crosses from Ring 0 to Ring 1, and from both to the driver: one row per message, one fixed Spark schema.

A row is (instance, bucket, task, seq, kind, payload). A *lane* is one (instance, bucket): one consumer by construction,
because Spark groups by it, and one producer per task. Within an epoch each task sends to a lane: events, then its
watermark, then the epoch's barrier, then eof if the lane ends; `in_order` restores that order over all tasks.
Instance 0 is the stream's own lane: task reports, on their way to the driver.

The payload's form depends on the kind and starts with nothing clever: JSON for control, Arrow IPC for rows. The schema
never changes (Spark could not restart otherwise); what may change is inside and carries `VERSION`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import pyarrow as pa

from headrace.errors import InternalError
from headrace.sinks.base import Staged

VERSION = 1
STREAM_LANE = 0
MAX_PAYLOAD = 8 * 1024 * 1024
_MAGIC = b"HRT1"
_PREFIX = struct.Struct("<4sI")


class Kind(IntEnum):
    """The kinds in the order in which one task sends them to one lane."""

    EVENTS = 1  # partial aggregates, Arrow IPC
    WATERMARK = 2  # LaneEpoch as JSON: this task's highest event time, and what the lane must know of the epoch
    BARRIER = 3  # JSON {"kind", "id"}: the task has nothing more for the lane in this epoch
    EOF = 4  # JSON {"flush", "drop", "reset"}: a life of the lane ends
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
    """Messages as the one Arrow batch form that Spark checks against `SPARK_DDL`."""
    columns = zip(*rows, strict=True) if rows else [()] * len(ARROW)
    return pa.RecordBatch.from_arrays(
        [pa.array(list(c), type=f.type) for c, f in zip(columns, ARROW, strict=True)], schema=ARROW
    )


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
        return json.dumps(
            [VERSION, self.epoch, self.tasks, self.checkpoint, self.watermark, self.max_time, self.delay, self.program]
        ).encode()

    @staticmethod
    def decode(payload: bytes) -> LaneEpoch:
        version, *values = json.loads(payload)
        if version != VERSION:
            raise InternalError(f"a watermark message has version {version}, this is {VERSION}")
        return LaneEpoch(*values)


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


def encode_table(table: pa.Table) -> bytes:
    """Rows as Arrow IPC behind eight bytes that name the version (eight, so that the buffers stay aligned)."""
    sink = pa.BufferOutputStream()
    sink.write(_PREFIX.pack(_MAGIC, VERSION))
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def decode_table(payload: bytes) -> pa.Table:
    """What `encode_table` wrote; zero-copy over `payload`."""
    magic, version = _PREFIX.unpack_from(payload)
    if magic != _MAGIC or version != VERSION:
        raise InternalError(f"a table payload has version {version}, this is {VERSION}")
    return pa.ipc.open_stream(pa.py_buffer(payload).slice(_PREFIX.size)).read_all()


def payloads(table: pa.Table, max_rows: int = 1 << 31) -> Iterator[bytes]:
    """`table` in payloads of at most `max_rows` rows and `MAX_PAYLOAD` bytes (a single larger row still travels,
    alone)."""
    if table.num_rows > max_rows:
        for at in range(0, table.num_rows, max_rows):
            yield from payloads(table.slice(at, max_rows))
        return
    if table.num_rows <= 1 or table.nbytes <= MAX_PAYLOAD:
        payload = encode_table(table)  # somewhat larger than the rows: names, lengths, padding
        if table.num_rows <= 1 or len(payload) <= MAX_PAYLOAD:
            yield payload
            return
    half = table.num_rows // 2
    yield from payloads(table.slice(0, half))
    yield from payloads(table.slice(half))
