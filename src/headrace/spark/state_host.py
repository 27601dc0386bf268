"""Ring 1 inside Spark's stateful operator: one call per lane and epoch, state in Spark's state store.

The operator is the same for every pipeline and never changes, so Spark can always restart it; which pipeline a lane
belongs to arrives with its messages. A pipeline's own failure becomes an `error` message; a failure of Spark's state
store is raised, because no pipeline is to blame for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Row as SparkRow
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from headrace.base.faults import crash_point
from headrace.bridge.alignment import align_tasks
from headrace.bridge.messages import (
    STREAM_LANE,
    Kind,
    LaneEnd,
    LaneEpoch,
    Row,
    encode_json,
    encode_receipt,
    in_order,
)
from headrace.bridge.rows import decode_rows
from headrace.errors import InternalError
from headrace.exec.aggregates import schema_of
from headrace.exec.failures import failure_text
from headrace.model.codec import load
from headrace.model.program import PipelineDef
from headrace.model.status import Traffic
from headrace.ring1.lane import advance
from headrace.ring1.packed import PackedStore
from headrace.ring1.state import BlobKey, LaneStep, Outcome
from headrace.sinks.base import SinkKey
from headrace.sinks.delivery import stage
from headrace.spark.state_calls import get_many, update_many
from headrace.spark.worker_memory import keep_freed_memory

_DATA = StructType([StructField("data", BinaryType())])
_KEY = StructType(
    [StructField("start", LongType()), StructField("end", LongType()), StructField("part", IntegerType())]
)


class SparkStore:
    """A lane's `Store` in Spark: the header in a value state, blobs in a map state, so only touched blobs are
    rewritten."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        # Types, not DDL texts: Spark would parse a text in the JVM, three round trips per task and epoch.
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


class LaneProcessor(StatefulProcessor):
    """Spark calls `handleInputRows` once per (instance, bucket) that got messages in the epoch."""

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
        began = time.perf_counter()
        epochs = {m.task: LaneEpoch.decode(m.payload) for m in messages if m.kind == Kind.WATERMARK}
        barrier = align_tasks(f"lane {lane}/{bucket}", epochs, messages)
        first = epochs[0]
        pipeline = _pipeline(first.program)
        instance = pipeline.instance  # who has the lane now: its answers go to the driver under that name
        ends = [LaneEnd.decode(m.payload) for m in messages if m.kind == Kind.EOF]
        sent = [m.payload for m in messages if m.kind == Kind.EVENTS]
        received = Traffic(
            batches=len(sent),
            watermarks=len(epochs),
            barriers=sum(m.kind == Kind.BARRIER for m in messages),
            ends=len(ends),
        )
        out: list[tuple[Kind, bytes]] = []
        try:
            program = pipeline.program
            if program.ring1 is None:
                raise InternalError(f"pipeline {pipeline.name} has lanes but no state")
            events = decode_rows(sent, schema_of(program.ring1))
            received += Traffic(rows=events.num_rows)
            step = LaneStep(
                events,
                watermark_after(epochs),
                flush=any(e.flush for e in ends),
                drop=any(e.drop for e in ends),
                reset=any(e.reset for e in ends),
                max_groups=pipeline.max_groups,
                share=-(-pipeline.max_groups // pipeline.buckets),
            )
            if step.flush or not step.drop:
                crash_point(f"{pipeline.name}/state")
            outcome = advance(program.ring1, program.meaning, self.store, step)
            if outcome.output is not None:
                key, lost = SinkKey(first.checkpoint, instance, first.epoch), dict[str, str]()
                for sink, staged in stage(pipeline.sinks, outcome.output, key, lost):
                    out.append((Kind.OUTPUT, encode_receipt(instance, sink, staged)))
                for sink, reason in lost.items():
                    out.append((Kind.ERROR, encode_json({"instance": instance, "sink": sink, "reason": reason})))
            facts = _facts(outcome)
        except (PySparkException, OSError, EOFError):
            raise
        except Exception as problem:  # the pipeline's own failure must not reach its neighbours
            out = [(Kind.ERROR, encode_json({"instance": instance, "reason": failure_text(problem)}))]
            facts = _facts(Outcome(None, 0, 0))
        facts |= {
            "instance": instance,
            "bucket": bucket,
            "received": asdict(received),
            "barrier": [barrier.kind, barrier.id],
            "ms": round((time.perf_counter() - began) * 1000, 3),
        }
        out.append((Kind.REPORT, encode_json(facts)))
        return [Row(instance, bucket, 0, i, int(kind), payload) for i, (kind, payload) in enumerate(out)]


def _facts(outcome: Outcome) -> dict[str, Any]:
    """What the driver adds up over the lanes of a pipeline."""
    return {
        "late": outcome.late,
        "closed": outcome.closed,
        "rows": outcome.rows,
        "bytes": outcome.bytes,
        "groups": outcome.groups,
    }


def watermark_after(epochs: dict[int, LaneEpoch]) -> int | None:
    """The stream's watermark after this epoch: the highest event time of all tasks minus the delay, never going
    back."""
    known = [e.max_time - e.delay for e in epochs.values() if e.max_time is not None]
    known += [e.watermark for e in epochs.values() if e.watermark is not None]
    return max(known) if known else None
