"""Ring 1 inside Spark's stateful operator: one call per pool and epoch, state in Spark's state store.

The operator is the same for every pipeline and never changes, so Spark can always restart it. The messages to a pool
say which pipelines it has. What happens in a call is in `headrace.ring1.lane_run`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Row as SparkRow
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from headrace.base.collecting import collection_paused
from headrace.bridge.messages import STREAM_LANE, Row, in_order
from headrace.bridge.pools import bucket_of
from headrace.ring1.lane_run import run_lane, run_pool
from headrace.ring1.lane_state import BlobKey, Store
from headrace.ring1.packed import PackedStore
from headrace.spark.state_calls import get_many, update_many
from headrace.spark.worker_memory import keep_freed_memory

# Failures of the state store, which no pipeline has caused.
OF_SPARK = (PySparkException, OSError, EOFError)
_DATA = StructType([StructField("data", BinaryType())])
_KEY = StructType(
    [StructField("start", LongType()), StructField("end", LongType()), StructField("part", IntegerType())]
)


class SparkStore:
    """The `Store` of a pool or a lane in Spark. The header is a value state and the blobs are a map state, so an epoch
    rewrites only the blobs that it touches."""

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


class LaneProcessor(StatefulProcessor):
    """Spark calls `handleInputRows` once per (instance, bucket) that has messages in the epoch: for each pool, and for
    each lane that is not pooled."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        keep_freed_memory()
        self.store: Store = SparkStore(handle)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[SparkRow]:
        messages = in_order(Row(r[0], r[1], r[2], r[3], r[4], bytes(r[5])) for r in rows)
        lane, bucket = int(key[0]), int(key[1])
        pooled = bucket_of((lane, bucket))
        if pooled is not None:
            with collection_paused():
                messages = run_pool(pooled, messages, self.store, OF_SPARK)
        elif lane != STREAM_LANE:
            messages = run_lane(
                lane=lane, bucket=bucket, messages=messages, store=PackedStore(self.store), raised=OF_SPARK
            )
        for message in messages:
            yield SparkRow(**message._asdict())

    def close(self) -> None:
        """Nothing is held between epochs."""
