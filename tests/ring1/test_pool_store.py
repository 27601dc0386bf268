"""A pool keeps every lane's state as if the lane had a store of its own, in fewer and larger values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import StateDamaged
from headrace.ring1 import pool_store
from headrace.ring1.lane_state import BlobKey, LaneHeader, LogEntry, Segment
from headrace.ring1.pool_store import INLINE_BLOB, PoolStore
from tests.ring1.memory_store import MemoryStore
from tests.strategies import examples

SIZES = (0, 10, 700, INLINE_BLOB, INLINE_BLOB + 1, 9000)
_KEYS = st.builds(BlobKey, st.sampled_from([0, 10]), st.just(20), st.integers(0, 5))
_ACTIONS = st.one_of(
    st.tuples(st.just("put"), _KEYS, st.sampled_from(SIZES)),
    st.tuples(st.just("get"), _KEYS, st.just(0)),
    st.tuples(st.just("remove"), _KEYS, st.just(0)),
    st.tuples(st.just("clear"), _KEYS, st.just(0)),
)
_EPOCHS = st.lists(
    st.dictionaries(st.integers(1, 3), st.tuples(st.lists(_ACTIONS, max_size=8), st.booleans())), max_size=6
)


def header_of(blobs: dict[BlobKey, bytes]) -> bytes:
    """A header that lists these blobs, as a lane of logs would."""
    logs: dict[tuple[int, int], LogEntry] = {}
    for key, data in blobs.items():
        log = logs.setdefault((key.start, key.end), LogEntry(9))
        log.segments.append(Segment(key.part, 0, 1, len(data)))
    return LaneHeader(logs=logs).encode()


@settings(max_examples=examples(60))
@given(_EPOCHS, st.sampled_from([0, 1 << 20]))
def test_lanes_of_a_pool_keep_what_lanes_with_stores_of_their_own_keep(
    epochs: list[dict[int, tuple[list[Any], bool]]], garbage: int
) -> None:
    inner, model = MemoryStore(), dict[int, dict[BlobKey, bytes]]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool_store, "GARBAGE", garbage)
        for number, epoch in enumerate(epochs):
            pool = PoolStore(inner)
            pool.load()
            for lane, (actions, fails) in epoch.items():
                store, blobs = pool.lane(lane), dict(model.get(lane, {}))
                for action, key, size in actions:
                    if action == "put":
                        assert store.get(key) == blobs.get(key)  # as lanes do: what exists is read first
                        blobs[key] = bytes([number + 1]) * size
                        store.put(key, blobs[key])
                    elif action == "get":
                        assert store.get_many([key, key]) == [blobs.get(key)] * 2
                    elif action == "remove":
                        blobs.pop(key, None)
                        store.remove(key)
                    else:
                        blobs.clear()
                        store.clear()
                if fails:
                    pool.give_up(lane)
                    continue
                store.set_header(header_of(blobs))
                model[lane] = blobs
            pool.settle()
        again = PoolStore(inner)
        again.load()
        for lane, blobs in model.items():
            store = again.lane(lane)
            assert store.header() == header_of(blobs)
            assert store.get_many(list(blobs)) == list(blobs.values())
            store.clear()
        again.settle()
    assert not inner.blobs  # nothing is left behind


def test_small_lanes_cost_two_writes_together() -> None:
    inner = MemoryStore()
    for _ in range(2):
        pool = PoolStore(inner)
        pool.load()
        for lane in range(1, 101):
            store = pool.lane(lane)
            key = BlobKey(0, 10, inner.writes)
            store.put(key, b"x" * 100)
            store.set_header(header_of({key: b"x" * 100}))
        pool.settle()
    assert inner.writes == 2  # a pack for each epoch; the directory is the header


def test_an_epoch_without_changes_writes_nothing() -> None:
    inner = MemoryStore()
    pool = PoolStore(inner)
    pool.load()
    pool.lane(1).set_header(header_of({}))
    pool.settle()
    before, inner.writes = inner.head, 0
    again = PoolStore(inner)
    again.load()
    again.lane(1).set_header(header_of({}))
    again.settle()
    assert (inner.head, inner.writes) == (before, 0)


@pytest.mark.parametrize("cut", [3, 30, 60])
def test_a_truncated_directory_is_damaged(cut: int) -> None:
    inner = MemoryStore()
    pool = PoolStore(inner)
    pool.load()
    pool.lane(1).put(BlobKey(0, 10, 0), b"x")
    pool.lane(1).set_header(header_of({BlobKey(0, 10, 0): b"x"}))
    pool.settle()
    assert inner.head is not None
    inner.head = inner.head[:cut]
    with pytest.raises(StateDamaged):
        PoolStore(inner).load()
