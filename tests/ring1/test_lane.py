"""One lane over epochs: the state it keeps, when windows close, and what an epoch reads and writes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.bridge.buckets import buckets
from headrace.bridge.rows import encode_rows
from headrace.errors import StateDamaged, TooManyGroups
from headrace.exec.aggregates import aggregate_nothing, schema_of
from headrace.model.definitions import PipelineDef
from headrace.model.program import Emit, Window
from headrace.ring1 import chunks, log_lane
from headrace.ring1.lane import advance
from headrace.ring1.lane_state import (
    NO_END,
    STATE_VERSION,
    LaneHeader,
    LaneStep,
    LogEntry,
    Outcome,
    Segment,
    TableEntry,
)
from headrace.ring1.packed import PackedStore
from tests.ring1.memory_store import MemoryStore
from tests.ring1.pipelines import Event, Run, make_pipeline, to_table, windows
from tests.strategies import examples

TUMBLE, HOP, SESSION = Window("tumble", 100, 100), Window("hop", 200, 100), Window("session", 100, 100)


def pipeline(window: Window | None, emit: Emit, having: str | None = None) -> PipelineDef:
    return make_pipeline(window, emit, keys=(0,), aggregates=(), buckets=1, having=having)


def partials(made: PipelineDef, rows: Sequence[tuple[int, str | None, int]]) -> pa.Table:
    """Partials of one task: (window start, key, rows). Without a window the start is ignored."""
    ring1 = made.program.ring1
    assert ring1 is not None
    starts = [start for start, _, _ in rows]
    columns: dict[str, list[object]] = {
        "window_start": list(starts),
        "window_end": [s + (ring1.window.size if ring1.window else 0) for s in starts],
        "k0": [key for _, key, _ in rows],
        "p0": [count for _, _, count in rows],
        "_newest": [count for _, _, count in rows],
    }
    schema = schema_of(ring1)
    return pa.table({name: pa.array(columns[name], schema.field(name).type) for name in schema.names})


def go(
    made: PipelineDef,
    store: MemoryStore,
    rows: Sequence[tuple[int, str | None, int]],
    watermark: int | None = None,
    *,
    flush: bool = False,
    drop: bool = False,
    reset: bool = False,
    max_groups: int | None = None,
) -> Outcome:
    ring1 = made.program.ring1
    assert ring1 is not None
    events = partials(made, rows)
    return advance(
        ring1, made.program.meaning, store, LaneStep(events, watermark, flush, drop, reset, max_groups, max_groups)
    )


def counts(outcome: Outcome) -> dict[str | None, int]:
    rows = [] if outcome.output is None else outcome.output.to_pylist()
    found = {r["word"]: r["rows"] for r in rows}
    assert len(found) == len(rows), "a group came out twice"
    return found


MODES: list[tuple[Window | None, Emit]] = [
    (TUMBLE, "close"), (HOP, "close"), (SESSION, "close"), (TUMBLE, "changes"), (None, "changes"), (None, "first"),
]  # fmt: skip
IDS = ["tumble", "hop", "session", "tumble, changes", "all time", "distinct"]


_steps = st.lists(
    st.tuples(
        st.lists(
            st.tuples(st.integers(0, 9).map(lambda i: i * 100), st.sampled_from("abcdefgh"), st.just(1)), max_size=9
        ),
        st.integers(0, 12).map(lambda i: i * 100),
    ),
    max_size=12,
)


@pytest.mark.parametrize(("window", "emit"), MODES, ids=IDS)
@settings(max_examples=examples(8))
@given(steps=_steps)
def test_the_size_of_the_state_is_known_to_the_byte(
    window: Window | None, emit: Emit, steps: list[tuple[list[tuple[int, str, int]], int]]
) -> None:
    made, store = pipeline(window, emit), MemoryStore()
    for rows, watermark in [*steps, ([(0, f"k{i}", 1) for i in range(200)], 0)]:
        found = go(made, store, rows, watermark)
        assert found.bytes == sum(map(len, store.blobs.values()))
        assert found.rows >= len(store.blobs)


@pytest.mark.parametrize(("window", "emit"), MODES, ids=IDS)
def test_more_groups_than_allowed_are_an_error(window: Window | None, emit: Emit) -> None:
    made, store = pipeline(window, emit), MemoryStore()
    for _ in range(20):  # the same groups again are not more groups, however the layout keeps them
        assert go(made, store, [(0, f"k{i}", 1) for i in range(10)], max_groups=10).rows <= 10
    with pytest.raises(TooManyGroups):
        go(made, store, [(0, "one more", 1)], max_groups=10)


def test_groups_of_closed_windows_do_not_count() -> None:
    made, store = pipeline(TUMBLE, "close"), MemoryStore()
    for i in range(20):
        found = go(made, store, [(i * 100, f"{i}-{j}", 1) for j in range(10)], i * 100, max_groups=10)
        assert found.closed == (i > 0)


def test_a_distinct_row_is_emitted_once() -> None:
    made, store = pipeline(None, "first"), MemoryStore()
    assert counts(go(made, store, [(0, "a", 2), (0, None, 1)])) == {"a": 2, None: 1}
    assert counts(go(made, store, [(0, "a", 1), (0, "b", 1), (0, None, 5)])) == {"b": 1}
    assert go(made, store, [(0, "b", 1)]).output is None
    assert go(made, store, [], flush=True).output is None


def test_distinct_rows_in_windows_are_deleted_with_the_window() -> None:
    made, store = pipeline(TUMBLE, "first"), MemoryStore()
    assert counts(go(made, store, [(0, "a", 1)], 0)) == {"a": 1}
    assert counts(go(made, store, [(0, "a", 1), (100, "b", 1)], 100)) == {"b": 1}
    assert LaneHeader.decode(store.head).size.rows == 1


def test_the_end_of_input_adds_nothing_to_an_aggregate_that_has_rows() -> None:
    made = make_pipeline(None, "changes", keys=(), buckets=1)
    nothing = aggregate_nothing(made.program.ring0, made.program.meaning, to_table([]))
    ring1 = made.program.ring1
    assert ring1 is not None
    empty = advance(ring1, made.program.meaning, MemoryStore(), LaneStep(nothing, None, flush=True))
    assert empty.output is not None
    assert empty.output.to_pylist() == [{"rows": 0, "total": None, "most": None, "paid": None}]
    found = Run(made, 0)
    assert [r["rows"] for r in found.epoch([[[Event("a", None, None, 1.0, None, 1)]]])] == [1]
    step = LaneStep(nothing, None, flush=True)
    assert advance(ring1, made.program.meaning, PackedStore(found.stores[0]), step).output is None


def test_a_window_closes_when_the_watermark_reaches_its_end_and_emits_once() -> None:
    made, store = pipeline(TUMBLE, "close"), MemoryStore()
    assert go(made, store, [(0, "a", 2), (100, "a", 1)], 99).output is None
    assert counts(go(made, store, [(0, "a", 1), (0, None, 4)], 100)) == {"a": 3, None: 4}
    assert go(made, store, [], 150).output is None
    assert counts(go(made, store, [], 200)) == {"a": 1}
    assert not store.blobs


def test_a_watermark_never_goes_back() -> None:
    made, store = pipeline(TUMBLE, "close"), MemoryStore()
    go(made, store, [], 500)
    go(made, store, [(450, "a", 1)], 10)
    assert LaneHeader.decode(store.head).watermark == 500
    go(made, store, [], None)
    assert LaneHeader.decode(store.head).watermark == 500


@pytest.mark.parametrize(("window", "emit"), MODES, ids=IDS)
def test_a_flush_closes_every_window_and_leaves_nothing_open(window: Window | None, emit: Emit) -> None:
    made, store = pipeline(window, emit), MemoryStore()
    before = go(made, store, [(0, "a", 2), (1_000, "b", 1)], -500)
    after = go(made, store, [(300, "c", 1)], None, flush=True)
    if emit == "close":
        assert before.output is None
        assert counts(after) == {"a": 2, "b": 1, "c": 1}
    else:
        assert (counts(before), counts(after)) == ({"a": 2, "b": 1}, {"c": 1})
    if window is not None:
        assert (windows(store), after.rows, store.blobs) == (0, 0, {})
        assert LaneHeader.decode(store.head).floor == 1_000 + window.size


@pytest.mark.parametrize(("window", "emit"), [m for m in MODES if m[0] is not None], ids=IDS[:4])
def test_the_floor_of_a_flush_never_goes_back(window: Window, emit: Emit) -> None:
    made, store = pipeline(window, emit), MemoryStore()
    go(made, store, [(-window.size * 9, "a", 1)], -(10**6))
    go(made, store, [(-window.size, "a", 1)], None, flush=True)  # the floor is now zero
    assert LaneHeader.decode(store.head).floor == 0
    assert go(made, store, [(-window.size * 2, "a", 3)], None, flush=True).late == 3
    assert LaneHeader.decode(store.head).floor == 0
    go(made, store, [(0, "a", 1)], None, flush=True)
    assert LaneHeader.decode(store.head).floor == window.size


@pytest.mark.parametrize("flush", [True, False])
@pytest.mark.parametrize(("window", "emit"), MODES, ids=IDS)
def test_a_drop_deletes_the_state_and_only_a_flush_emits_before_it(
    window: Window | None, emit: Emit, flush: bool
) -> None:
    made, store = pipeline(window, emit), MemoryStore()
    go(made, store, [(0, "a", 1)], -500)
    last = go(made, store, [], None, flush=flush, drop=True)
    assert counts(last) == ({"a": 1} if flush and emit == "close" else {})
    assert (store.head, store.blobs, last.rows) == (None, {}, 0)


def test_having_decides_on_the_whole_group() -> None:
    made, store = pipeline(TUMBLE, "close", having="p0 >= 2"), MemoryStore()
    go(made, store, [(0, "a", 1), (0, "b", 1)], 0)
    assert counts(go(made, store, [(0, "a", 1)], 100)) == {"a": 2}
    assert go(made, store, [(100, "c", 1)], 200).output is None


def test_changes_are_only_those_of_this_epoch() -> None:
    made, store = pipeline(None, "changes"), MemoryStore()
    assert counts(go(made, store, [(0, "a", 1), (0, None, 1), (0, "b", 1)])) == {"a": 1, None: 1, "b": 1}
    assert counts(go(made, store, [(0, None, 2), (0, "c", 1)])) == {None: 3, "c": 1}
    assert go(made, store, []).output is None


def test_a_log_of_many_epochs_stays_short_and_loses_nothing() -> None:
    made, store = pipeline(TUMBLE, "close"), MemoryStore()
    epochs = log_lane.FAN_IN**3 + 5
    for epoch in range(epochs):
        outcome = go(made, store, [(0, f"k{epoch % 10}", 1), (0, "all", 1)], 0)
        assert len(store.blobs) <= (log_lane.FAN_IN - 1) * 4
    assert (windows(store), outcome.rows) == (1, LaneHeader.decode(store.head).size.rows)
    assert store.writes == epochs  # each epoch writes one segment, merged or not
    closed = counts(go(made, store, [], 100))
    assert closed.pop("all") == epochs
    assert sum(closed.values()) == epochs
    assert len(closed) == 10
    assert not store.blobs


@pytest.mark.parametrize(("window", "emit"), MODES, ids=IDS)
def test_an_epoch_writes_only_what_it_touches_however_many_groups_are_open(window: Window | None, emit: Emit) -> None:
    """Of 100,000 open groups, an epoch that touches 5 writes at most 5 blobs, as with 1,000 open groups."""
    made = pipeline(window, emit)
    for opened in (1_000, 100_000):
        store = MemoryStore()
        go(made, store, [(0, f"k{i}", 1) for i in range(opened)], -500)
        before = dict(store.blobs)
        store.writes = 0
        outcome = go(made, store, [(0, f"k{i * 7}", 1) for i in range(5)], -400)
        assert outcome.rows >= opened
        assert 1 <= store.writes <= 5
        untouched = sum(store.blobs.get(key) is data for key, data in before.items())
        assert untouched >= len(before) - 5
        rewritten = sum(len(data) for key, data in store.blobs.items() if before.get(key) is not data)
        assert rewritten < 5 * 64 * 200  # bytes: five chunks of about 64 small groups


def test_closing_sessions_reads_only_the_chunks_that_hold_one() -> None:
    made, store = pipeline(SESSION, "close"), MemoryStore()
    go(made, store, [(1_000_000, f"k{i}", 1) for i in range(20_000)] + [(0, "old", 1)], -500)
    store.writes = 0
    outcome = go(made, store, [], 101)
    assert counts(outcome) == {"old": 1}
    assert store.writes == 1
    assert outcome.rows == 20_000


@pytest.mark.parametrize(("window", "emit"), MODES[2:], ids=IDS[2:])
def test_the_size_of_chunks_follows_their_use_and_no_group_is_lost(window: Window | None, emit: Emit) -> None:
    """Small chunks while an epoch touches few of many groups, large ones while it touches most of them."""
    made, store = pipeline(window, emit), MemoryStore()
    names: list[str | None] = [None, *(f"k{i}" for i in range(5_000))]

    def chunks_after(epochs: Sequence[Sequence[str | None]]) -> int:
        for touched in epochs:
            outcome = go(made, store, [(0, name, 1) for name in touched], -500)
        assert outcome.rows == len(names)
        (entry,) = LaneHeader.decode(store.head).tables.values()
        assert entry.groups == len(names)
        assert entry.bytes == sum(map(len, store.blobs.values()))
        assert len(store.blobs) == np.count_nonzero(entry.rows)
        return len(entry.rows)

    assert chunks_after([names]) == 1
    assert chunks_after([["k1"]] * 3) >= len(names) / (2 * chunks.SMALL_CHUNK)
    assert chunks_after([names] * 2) == 1
    again = go(made, store, [(0, name, 1) for name in names], -500, flush=emit == "close")
    assert counts(again) == ({} if emit == "first" else dict.fromkeys(names, 4) | {"k1": 7})
    assert emit == "close" or again.rows == len(names)


def test_chunks_fill_evenly_although_a_lane_has_only_the_keys_of_its_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "LARGE_CHUNK", chunks.SMALL_CHUNK)
    made, store = pipeline(None, "changes"), MemoryStore()
    names = [f"k{i}" for i in range(16_000)]
    numbers = buckets([pa.chunked_array([names])], len(names), 8)
    mine = [name for name, number in zip(names, numbers, strict=True) if number == 3]
    go(made, store, [(0, name, 1) for name in mine])
    (entry,) = LaneHeader.decode(store.head).tables.values()
    mean = len(mine) / len(entry.rows)
    assert len(entry.rows) >= 32
    assert 0 < min(entry.rows) <= max(entry.rows) < 2 * mean


def test_a_header_is_decoded_as_it_was_encoded() -> None:
    table = TableEntry(np.array([2, 0], np.int32), np.array([5, NO_END]), 70, 3.5)
    logs = {(-10, 0): LogEntry(9, [Segment(3, 1, 8, 90), Segment(8, 0, 2, 40)])}
    header = LaneHeader(-5, 7, logs, {(0, 0): table, (1, 2): TableEntry.empty(session=False)})
    again = LaneHeader.decode(header.encode())
    assert again.encode() == header.encode()
    assert (again.watermark, again.floor, again.logs) == (-5, 7, logs)
    found = again.tables[0, 0]
    assert (found.rows.tolist(), found.ends.tolist(), found.bytes, found.touched) == ([2, 0], [5, NO_END], 70, 3.5)
    assert header.size.rows == 12
    assert header.size.bytes == 200
    assert LaneHeader.decode(None) == LaneHeader()


def test_state_of_another_version_is_refused() -> None:
    store = MemoryStore()
    for head in (
        f"[{STATE_VERSION + 1},null,null,[],[]]".encode() + b"\0",
        LaneHeader().encode().replace(b"1", b"2", 1),
    ):
        store.head = head
        with pytest.raises(StateDamaged):
            go(pipeline(TUMBLE, "close"), store, [], 0)


def test_a_header_of_an_earlier_release_is_read() -> None:
    log = LogEntry(3, [Segment(0, 1, 40, 900), Segment(2, 0, 7, 130)])
    old = f"[{STATE_VERSION},25,null,[[10,20,3,[[0,1,40,900],[2,0,7,130]]]],[]]".encode() + b"\0"
    header = LaneHeader(25, None, {(10, 20): log})
    assert LaneHeader.decode(old) == header == LaneHeader.decode(header.encode())


def test_a_truncated_header_is_damaged() -> None:
    whole = LaneHeader(25, 7, {(10, 20): LogEntry(3, [Segment(0, 1, 40, 900)])}).encode()
    for size in range(4, len(whole)):
        with pytest.raises(StateDamaged):
            LaneHeader.decode(whole[:size])


def test_a_missing_segment_is_an_error_and_not_a_smaller_result() -> None:
    made, store = pipeline(TUMBLE, "close"), MemoryStore()
    go(made, store, [(0, "a", 1)], 0)
    store.blobs.clear()
    with pytest.raises(StateDamaged):
        go(made, store, [], 100)


@pytest.mark.parametrize("window", [SESSION, None], ids=["session", "all time"])
def test_a_missing_chunk_is_an_error_and_not_a_smaller_result(window: Window | None) -> None:
    made, store = pipeline(window, "close" if window else "changes"), MemoryStore()
    go(made, store, [(0, "a", 1)], 0)
    store.blobs.clear()
    with pytest.raises(StateDamaged):
        go(made, store, [(0, "a", 1)], 0)


@pytest.mark.parametrize(("window", "emit"), [(TUMBLE, "close"), (SESSION, "close"), (None, "changes")])
def test_state_that_does_not_match_its_header_is_an_error(window: Window | None, emit: Emit) -> None:
    made, store = pipeline(window, emit), MemoryStore()
    go(made, store, [(0, "a", 1)], 0)
    ((key, blob),) = store.blobs.items()
    two = encode_rows(partials(made, [(0, "a", 1), (0, "b", 1)]))
    for damaged in (blob[:-1], b"\0" + blob[1:], two):
        store.blobs[key] = damaged
        with pytest.raises(StateDamaged):
            go(made, store, [(0, "a", 1)], 0, flush=True)


@pytest.mark.parametrize(("window", "emit"), [(TUMBLE, "close"), (SESSION, "close"), (None, "changes")])
def test_a_reset_deletes_older_state_and_keeps_the_events_of_this_epoch(window: Window | None, emit: Emit) -> None:
    made, store = pipeline(window, emit), MemoryStore()
    go(made, store, [(0, "old", 5), (0, "both", 5)])
    first = go(made, store, [(0, "both", 2), (0, "new", 3)], reset=True)
    last = go(made, store, [], flush=True)
    assert counts(first if window is None else last) == {"both": 2, "new": 3}
