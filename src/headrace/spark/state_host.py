"""Ring 1 inside Spark's stateful operator: one call per lane and epoch, state in Spark's state store.

The operator is the same for every pipeline and never changes, so Spark can always restart it. The messages to a lane
say which pipeline it belongs to. A pipeline's own failure becomes an `error` message. A failure of Spark's state store
is raised, because no pipeline has caused it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Row as SparkRow
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from headrace.base.faults import crash_point
from headrace.bridge.alignment import align_tasks
from headrace.bridge.messages import (
    STREAM_LANE,
    LaneEnd,
    LaneEpoch,
    MessageKind,
    Receipt,
    Row,
    decode,
    encode,
    in_order,
)
from headrace.bridge.reports import Failure, LaneReport
from headrace.bridge.rows import decode_rows
from headrace.bridge.spark_rows import stage_rows
from headrace.control.signals import Barrier
from headrace.errors import InternalError
from headrace.exec.aggregates import schema_of
from headrace.exec.failures import failure_text
from headrace.model.codec import load
from headrace.model.program import PipelineDef
from headrace.model.status import Traffic
from headrace.ring1.lane import advance
from headrace.ring1.lane_state import NOTHING, BlobKey, LaneStep, Outcome
from headrace.ring1.packed import PackedStore
from headrace.sinks.delivery import stage
from headrace.sinks.sink_kind import SinkKey
from headrace.spark.state_calls import get_many, update_many
from headrace.spark.worker_memory import keep_freed_memory

_DATA = StructType([StructField("data", BinaryType())])
_KEY = StructType(
    [StructField("start", LongType()), StructField("end", LongType()), StructField("part", IntegerType())]
)


class SparkStore:
    """A lane's `Store` in Spark. The header is a value state and the blobs are a map state, so an epoch rewrites only
    the blobs that it touches."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        # Types instead of DDL strings: the JVM would parse a string, which takes three round trips per task and epoch.
        self._header = handle.getValueState("header", _DATA)
        self._blobs = handle.getMapState("blobs", _KEY, _DATA)

    def header(self) -> bytes | None:
        found = self._header.get()
        return None if found is None else bytes(found[0])

    def set_header(self, data: bytes) -> None:
        self._header.update((data,))

    def get(self, key: BlobKey) -> bytes | None:
        found = self._blobs.getValue(tuple(key))
        return None if found is None else bytes(found[0])

    def get_many(self, keys: Sequence[BlobKey]) -> list[bytes | None]:
        return get_many(self._blobs, keys)

    def put(self, key: BlobKey, data: bytes) -> None:
        self._blobs.updateValue(tuple(key), (data,))

    def put_many(self, blobs: Sequence[tuple[BlobKey, bytes]]) -> None:
        update_many(self._blobs, blobs)

    def remove(self, key: BlobKey) -> None:
        self._blobs.removeKey(tuple(key))

    def clear(self) -> None:
        self._header.clear()
        self._blobs.clear()


@lru_cache(maxsize=1024)
def _pipeline(text: str) -> PipelineDef:
    return load(PipelineDef, text)


@dataclass(frozen=True, slots=True)
class LaneInput:
    """The messages to one lane in one epoch, after every task has delivered its barrier.

    `pipeline` is the instance that has the lane now. It answers the driver under its own number, also in a lane that it
    took over from the pipeline it replaced.
    """

    pipeline: PipelineDef
    key: SinkKey
    barrier: Barrier
    watermark: int | None
    tasks: int
    barriers: int
    events: list[bytes]
    ends: list[LaneEnd]
    staging: str = ""

    @staticmethod
    def read(lane: int, bucket: int, messages: list[Row]) -> LaneInput:
        """Raises MissingInput when a task's messages are missing."""
        epochs = {m.task: LaneEpoch.decode(m.payload) for m in messages if m.kind == MessageKind.WATERMARK}
        barrier = align_tasks(f"lane {lane}/{bucket}", epochs, messages)
        first = epochs[0]
        pipeline = _pipeline(first.program)
        return LaneInput(
            pipeline=pipeline,
            key=SinkKey(first.checkpoint, pipeline.instance, first.epoch),
            barrier=barrier,
            watermark=watermark_after(epochs),
            tasks=len(epochs),
            barriers=sum(m.kind == MessageKind.BARRIER for m in messages),
            events=[m.payload for m in messages if m.kind == MessageKind.EVENTS],
            ends=[decode(LaneEnd, m.payload) for m in messages if m.kind == MessageKind.EOF],
            staging=first.staging,
        )

    def received(self, rows: int) -> Traffic:
        """The messages that arrived, with `rows` partial aggregates in them."""
        return Traffic(
            batches=len(self.events),
            rows=rows,
            watermarks=self.tasks,
            barriers=self.barriers,
            ends=len(self.ends),
        )

    def step(self, events: pa.Table) -> LaneStep:
        """The lane's next step with these partial aggregates."""
        return LaneStep(
            events,
            self.watermark,
            flush=any(e.flush for e in self.ends),
            drop=any(e.drop for e in self.ends),
            reset=any(e.reset for e in self.ends),
            max_groups=self.pipeline.max_groups,
            share=-(-self.pipeline.max_groups // self.pipeline.buckets),
            max_values=self.pipeline.max_group_values,
        )


class LaneProcessor(StatefulProcessor):
    """Spark calls `handleInputRows` once per (instance, bucket) that has messages in the epoch."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        keep_freed_memory()
        self.store = PackedStore(SparkStore(handle))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[SparkRow]:
        messages = in_order(Row(r[0], r[1], r[2], r[3], r[4], bytes(r[5])) for r in rows)
        if key[0] != STREAM_LANE:
            messages = self._advance(int(key[0]), int(key[1]), messages)
        for message in messages:
            yield SparkRow(**message._asdict())

    def close(self) -> None:
        """Nothing is held between epochs."""

    def _advance(self, lane: int, bucket: int, messages: list[Row]) -> list[Row]:
        """Run one lane for one epoch. The answer goes to the driver."""
        began = time.perf_counter()
        given = LaneInput.read(lane, bucket, messages)
        instance, rows, outcome = given.pipeline.instance, 0, NOTHING
        out: list[tuple[MessageKind, bytes]] = []
        try:
            program = given.pipeline.program
            if program.ring1 is None:
                raise InternalError(f"pipeline {given.pipeline.name} has lanes but no state")
            events = decode_rows(given.events, schema_of(program.ring1))
            rows = events.num_rows
            step = given.step(events)
            if step.flush or not step.drop:
                crash_point(f"{given.pipeline.name}/state")
            found = advance(program.ring1, program.meaning, self.store, step)
            out = _staged(given, found)
            outcome = found
        except (PySparkException, OSError, EOFError):
            raise
        except Exception as problem:  # the pipeline's own failure must not stop the others
            out = [(MessageKind.ERROR, encode(Failure(instance, failure_text(problem))))]
        report = LaneReport(
            instance=instance,
            bucket=bucket,
            barrier=given.barrier,
            received=given.received(rows),
            late=outcome.late,
            closed=outcome.closed,
            rows=outcome.rows,
            bytes=outcome.bytes,
            groups=outcome.groups,
            ms=round((time.perf_counter() - began) * 1000, 3),
        )
        out.append((MessageKind.REPORT, encode(report)))
        return [Row(instance, bucket, 0, i, int(kind), payload) for i, (kind, payload) in enumerate(out)]


def _staged(given: LaneInput, outcome: Outcome) -> list[tuple[MessageKind, bytes]]:
    """Stage the lane's output in the pipeline's sinks, or for its Spark query. The receipts, and the sinks that
    failed."""
    if outcome.output is None:
        return []
    instance, lost = given.pipeline.instance, dict[str, str]()
    if given.pipeline.program.spark is not None:
        rows = stage_rows(instance, outcome.output, given.staging)
        return [(MessageKind.STAGED, part.encode()) for part in rows]
    staged = stage(given.pipeline.sinks, outcome.output, given.key, lost)
    return [
        *((MessageKind.OUTPUT, Receipt(instance, sink, receipt).encode()) for sink, receipt in staged),
        *((MessageKind.ERROR, encode(Failure(instance, reason, sink))) for sink, reason in lost.items()),
    ]


def watermark_after(epochs: dict[int, LaneEpoch]) -> int | None:
    """The stream's watermark after this epoch: the highest event time of all tasks minus the delay. It never goes
    back."""
    known = [e.max_time - e.delay for e in epochs.values() if e.max_time is not None]
    known += [e.watermark for e in epochs.values() if e.watermark is not None]
    return max(known) if known else None
