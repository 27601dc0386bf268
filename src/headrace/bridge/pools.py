"""The keys of pools: under which (instance, bucket) Spark groups the messages to a pool, and keeps its state.

Spark hashes the key to choose a partition. Under `POOL` the bucket is in the key as it is. With two partitions, both
buckets were in the same one, and one core did all the work of Ring 1. Under `SPREAD_POOL` a *place* stands for the
bucket: a number whose hash is the bucket, modulo `MODULUS`. So buckets are in different partitions, for as many
partitions as divide `MODULUS`. State cannot move, so instances of earlier releases stay under `POOL`.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

POOL, SPREAD_POOL = -1, -2
# It can be divided by 1 to 8, 10, 12, 14, 15 and 16.
MODULUS = 1680
_SEED = np.uint32(42)  # of Spark's HashPartitioning
MOST_BUCKETS = 1 << 16  # a place is a multiple of this, plus the bucket
_TRIED = 1 << 11  # places that are tried at once: one of 1,680 fits
PoolKey = tuple[int, int]  # the instance and the bucket that Spark sees


@lru_cache(maxsize=2 * MOST_BUCKETS)  # all: every task goes through them in order
def pool_key(spread: bool, bucket: int) -> PoolKey:
    """The key of a bucket's pool."""
    return (SPREAD_POOL, _place(bucket)) if spread else (POOL, bucket)


def bucket_of(key: PoolKey) -> int | None:
    """The bucket of a pool, None if the key is not that of a pool."""
    instance, place = key
    if instance == SPREAD_POOL:
        return place % MOST_BUCKETS
    return place if instance == POOL else None


def _place(bucket: int) -> int:
    for begin in range(bucket, 1 << 31, _TRIED * MOST_BUCKETS):
        places = np.arange(begin, min(begin + _TRIED * MOST_BUCKETS, 1 << 31), MOST_BUCKETS, dtype=np.int64)
        fitting = np.flatnonzero(spark_hash(SPREAD_POOL, places) % MODULUS == bucket % MODULUS)
        if len(fitting):
            return int(places[fitting[0]])
    return bucket


def spark_hash(instance: int, buckets: np.ndarray) -> np.ndarray:
    """Spark's hash of the keys (instance, bucket): Murmur3 with 32 bits, over a BIGINT and an INT."""
    low, high = (np.array([instance >> shift & 0xFFFFFFFF], np.uint32) for shift in (0, 32))
    with np.errstate(over="ignore"):
        seed = _finished(_mixed(_mixed(_SEED, low), high), 8)
        found = _finished(_mixed(seed, buckets.astype(np.uint32)), 4)
    return found.view(np.int32).astype(np.int64)


def _mixed(state: np.ndarray | np.uint32, word: np.ndarray) -> np.ndarray:
    word = _rotated(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return _rotated(state ^ word, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _rotated(word: np.ndarray, bits: int) -> np.ndarray:
    rotated: np.ndarray = word << np.uint32(bits) | word >> np.uint32(32 - bits)
    return rotated


def _finished(state: np.ndarray, size: int) -> np.ndarray:
    found: np.ndarray = state ^ np.uint32(size)
    found = (found ^ found >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    found = (found ^ found >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    found ^= found >> np.uint32(16)
    return found
