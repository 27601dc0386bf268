"""Pools of one stream are in different partitions of Spark."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.sql import SparkSession

from headrace.bridge.pools import MODULUS, POOL, SPREAD_POOL, bucket_of, pool_key, spark_hash

PARTITIONS = [n for n in range(1, 65) if MODULUS % n == 0]


@pytest.mark.parametrize("partitions", PARTITIONS)
def test_as_many_buckets_as_partitions_are_in_a_partition_each(partitions: int) -> None:
    places = np.array([pool_key(True, bucket)[1] for bucket in range(partitions)])
    assert sorted(spark_hash(SPREAD_POOL, places) % partitions) == list(range(partitions))


def test_a_key_names_its_bucket() -> None:
    for bucket in (0, 1, 7, 63, 1679, 1680, 65_535):
        assert bucket_of(pool_key(True, bucket)) == bucket_of(pool_key(False, bucket)) == bucket
        assert 0 <= pool_key(True, bucket)[1] < 2**31
    assert bucket_of((1, 0)) is None
    assert bucket_of((0, 3)) is None


def test_keys_of_state_in_checkpoints_never_change() -> None:
    assert [pool_key(False, bucket) for bucket in range(3)] == [(-1, 0), (-1, 1), (-1, 2)]
    assert [pool_key(True, bucket) for bucket in range(4)] == [
        (-2, 280100864),
        (-2, 71237633),
        (-2, 141492226),
        (-2, 66387971),
    ]


@pytest.mark.spark
def test_the_hash_is_that_of_spark(spark_of_the_run: SparkSession) -> None:
    buckets = np.array([0, 1, 2, 65_536, 2**31 - 1])
    for instance in (POOL, SPREAD_POOL, 2**40 + 7):
        values = ", ".join(f"({instance}L, {bucket})" for bucket in buckets)
        found = spark_of_the_run.sql(f"SELECT hash(a, b) FROM VALUES {values} AS t(a, b)").collect()
        assert [row[0] for row in found] == spark_hash(instance, buckets).tolist()


def test_places_are_looked_for_once_however_many_buckets_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every task goes through all buckets in order, so a cache for fewer of them would have none."""
    keys = [pool_key(True, bucket) for bucket in range(4200)]

    def searched(instance: int, places: np.ndarray) -> np.ndarray:
        raise AssertionError("a place is looked for again")

    monkeypatch.setattr("headrace.bridge.pools.spark_hash", searched)
    assert [pool_key(True, bucket) for bucket in range(4200)] == keys
