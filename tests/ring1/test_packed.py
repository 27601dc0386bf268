"""Packed blobs: the same state as without packing, in fewer calls to the inner store."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.exec.aggregates import schema_of
from headrace.model.program import Window
from headrace.ring1.lane import advance
from headrace.ring1.lane_state import BlobKey, LaneStep
from headrace.ring1.packed import INLINE_BLOB, INLINE_TOTAL, PackedStore
from tests.ring1.memory_store import MemoryStore
from tests.ring1.pipelines import make_pipeline

_keys = st.builds(BlobKey, st.integers(-2, 2), st.just(2**62), st.integers(0, 2))
_sizes = st.sampled_from([0, 1, 700, INLINE_BLOB, INLINE_BLOB + 1, INLINE_TOTAL])
_actions = st.one_of(
    st.tuples(st.just("put"), _keys, _sizes),
    st.tuples(st.just("remove"), _keys, st.just(0)),
)


@settings(max_examples=60)
@given(epochs=st.lists(st.lists(_actions, max_size=12), max_size=6))
def test_a_packed_store_returns_the_blobs_that_were_put(epochs: list[list[tuple[str, BlobKey, int]]]) -> None:
    inner, expected = MemoryStore(), dict[BlobKey, bytes]()
    for number, actions in enumerate(epochs):
        store = PackedStore(inner)
        assert store.header() == (None if number == 0 else b"h%d" % (number - 1))
        for i, (action, key, size) in enumerate(actions):
            assert store.get(key) == expected.get(key)
            if action == "put":
                expected[key] = bytes([i]) * size
                store.put(key, expected[key])
            else:
                expected.pop(key, None)
                store.remove(key)
            assert store.get(key) == expected.get(key)
        store.set_header(b"h%d" % number)
    again = PackedStore(inner)
    again.header()
    assert {key: again.get(key) for key in expected} == expected
    assert set(inner.blobs) <= set(expected)
    assert len(inner.head or b"") <= INLINE_TOTAL + 40 * (len(expected) + 1)


def test_small_blobs_need_no_call_and_large_ones_stay_outside() -> None:
    inner = MemoryStore()
    store = PackedStore(inner)
    store.header()
    small, large = BlobKey(0, 1, 0), BlobKey(0, 1, 1)
    store.put(small, b"s" * INLINE_BLOB)
    store.put(large, b"l" * (INLINE_BLOB + 1))
    store.set_header(b"")
    assert set(inner.blobs) == {large}
    assert inner.writes == 1


def test_a_cleared_store_is_empty_for_the_next_epoch() -> None:
    inner = MemoryStore()
    store = PackedStore(inner)
    store.header()
    store.put(BlobKey(0, 1, 0), b"s")
    store.set_header(b"h")
    store.header()
    store.clear()
    assert store.header() is None
    assert store.get(BlobKey(0, 1, 0)) is None
    assert (inner.head, inner.blobs) == (None, {})


def test_one_store_object_serves_many_lanes() -> None:
    """Spark passes the same store object to every lane. The blobs of one lane must not appear in the next."""
    lanes = [MemoryStore(), MemoryStore()]
    inner = MemoryStore()
    store = PackedStore(inner)
    for number in (0, 1):
        inner.head, inner.blobs = lanes[number].head, lanes[number].blobs
        assert store.header() is None
        assert store.get(BlobKey(0, 1, 0)) is None
        store.put(BlobKey(0, 1, 0), b"lane %d" % number)
        store.set_header(b"h")
        lanes[number].head = inner.head
    for number in (0, 1):
        inner.head, inner.blobs = lanes[number].head, lanes[number].blobs
        store.header()
        assert store.get(BlobKey(0, 1, 0)) == b"lane %d" % number


def test_an_epoch_without_changes_writes_nothing() -> None:
    made = make_pipeline(Window("tumble", 100, 100), "close", keys=(0,), aggregates=(), buckets=1)
    ring1 = made.program.ring1
    assert ring1 is not None
    inner, nothing = MemoryStore(), schema_of(ring1).empty_table()
    advance(ring1, made.program.meaning, PackedStore(inner), LaneStep(nothing, 50))
    head = inner.head
    advance(ring1, made.program.meaning, PackedStore(inner), LaneStep(nothing, 50))
    assert inner.head is head
    assert inner.writes == 0
