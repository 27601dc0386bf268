"""The aligner: every input waited for, forwarded once, everything wrong told by name."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.control.barrier import BarrierAligner
from headrace.control.signals import (
    EPOCH,
    FLUSH,
    GRACEFUL_END,
    PING,
    QUICK_END,
    SAVEPOINT,
    SYNC_TEST,
    Barrier,
    Channel,
    Signal,
)
from headrace.errors import (
    BarrierOverlap,
    DuplicateBarrier,
    HeadraceError,
    InternalError,
    MissingInput,
    SurplusBarrier,
    UnknownInput,
    WrongChannel,
)


def barrier(id: int, kind: Any = SYNC_TEST) -> Barrier:
    found = kind.with_id(id)
    assert isinstance(found, Barrier)
    return found


@pytest.mark.parametrize(("channel", "kind"), [(Channel.DATA, SYNC_TEST), (Channel.CONTROL, FLUSH)])
def test_each_channel_waits_for_all_inputs_and_forwards_once(channel: Channel, kind: Any) -> None:
    aligner: BarrierAligner[str] = BarrierAligner("x", ["a", "b", "c"], channel)
    assert aligner.offer("b", barrier(1, kind)) == []
    assert aligner.offer("a", "row") == ["row"]
    assert aligner.offer("a", barrier(1, kind)) == []
    assert aligner.missing == ("c",)
    assert aligner.offer("c", barrier(1, kind)) == [barrier(1, kind)]
    assert aligner.pending is None and not aligner.missing


def test_a_terminal_is_acted_on_only_when_complete_and_nothing_follows_it() -> None:
    aligner: BarrierAligner[str] = BarrierAligner("x", ["a", "b"])
    assert aligner.offer("a", barrier(1, GRACEFUL_END)) == []
    assert not aligner.ended
    assert aligner.offer("b", "row") == ["row"]
    assert aligner.offer("b", barrier(1, GRACEFUL_END)) == [barrier(1, GRACEFUL_END)]
    assert aligner.ended
    for item in ("row", barrier(2)):
        with pytest.raises(SurplusBarrier):
            aligner.offer("a", item)


def test_another_id_or_kind_while_one_is_pending_is_an_overlap_that_names_both() -> None:
    for other in (barrier(2), barrier(1, SAVEPOINT)):
        aligner: BarrierAligner[str] = BarrierAligner("x", ["a", "b", "c"])
        aligner.offer("a", barrier(1))
        with pytest.raises(BarrierOverlap) as caught:
            aligner.offer("b", other)
        assert caught.value.params["input"] == "b" and caught.value.params["missing"] == ["b", "c"]


def test_channels_are_isolated() -> None:
    data: BarrierAligner[str] = BarrierAligner("x", ["a", "b"], Channel.DATA)
    control: BarrierAligner[str] = BarrierAligner("x", ["a", "b"], Channel.CONTROL)
    assert data.offer("a", barrier(1)) == []
    assert control.offer("a", barrier(2, FLUSH)) == []  # no overlap: it is another channel
    assert control.offer("b", barrier(2, FLUSH)) == [barrier(2, FLUSH)]
    assert data.pending == barrier(1) and control.pending is None
    for aligner, signal in ((data, barrier(3, FLUSH)), (control, barrier(1)), (data, PING.with_id(4))):
        with pytest.raises(WrongChannel):
            aligner.offer("b", signal)


def test_instants_pass_at_once_also_while_a_barrier_waits_and_behind_it() -> None:
    for blocking in (False, True):
        aligner: BarrierAligner[str] = BarrierAligner("x", ["a", "b"], Channel.CONTROL, blocking=blocking)
        aligner.offer("a", barrier(1, FLUSH))
        for instant in (PING.with_id(2), QUICK_END.with_id(3)):
            assert aligner.offer("a", instant) == [instant]
            assert aligner.offer("b", instant) == [instant]


def test_duplicates_unknown_inputs_and_surplus_arrivals_are_named() -> None:
    aligner: BarrierAligner[str] = BarrierAligner("lane 7/0", ["a", "b"])
    with pytest.raises(UnknownInput) as unknown:
        aligner.offer("z", barrier(1))
    assert unknown.value.params["input"] == "z"
    aligner.offer("a", barrier(1))
    with pytest.raises(DuplicateBarrier) as duplicate:
        aligner.offer("a", barrier(1))
    assert duplicate.value.params["input"] == "a" and duplicate.value.params["where"] == "lane 7/0"
    aligner.offer("b", barrier(1))
    with pytest.raises(SurplusBarrier):
        aligner.offer("b", barrier(1))
    aligner.offer("a", barrier(4, EPOCH))  # epochs have numbers of their own
    aligner.offer("b", barrier(4, EPOCH))
    assert aligner.offer("a", barrier(2)) == []


def test_a_missing_input_is_named_after_the_time_limit_and_not_before() -> None:
    now = [0.0]
    aligner: BarrierAligner[str] = BarrierAligner("x", ["a", "b", "c"], limit=5.0, clock=lambda: now[0])
    now[0] = 100.0
    aligner.check_time()  # nothing is pending
    aligner.offer("b", barrier(1))
    now[0] = 105.0
    aligner.check_time()
    now[0] = 105.1
    with pytest.raises(MissingInput) as caught:
        aligner.check_time()
    assert caught.value.params["missing"] == ["a", "c"]


def test_an_expected_barrier_waits_from_then_on_and_nobody_need_have_brought_it() -> None:
    now = [0.0]
    aligner: BarrierAligner[str] = BarrierAligner("x", ["a", "b"], limit=5.0, clock=lambda: now[0])
    assert aligner.time_left() == math.inf  # nothing is pending
    aligner.expect(barrier(1))
    with pytest.raises(InternalError):
        aligner.expect(barrier(2))
    now[0] = 3.0
    assert aligner.time_left() == 2.0
    now[0] = 5.5
    assert aligner.time_left() == 0.0
    with pytest.raises(MissingInput) as nobody:
        aligner.check_time()
    assert nobody.value.params["missing"] == ["a", "b"]
    assert aligner.offer("a", barrier(1)) == []
    assert aligner.offer("b", barrier(1)) == [barrier(1)]
    aligner.check_time()  # it is complete


def test_a_fan_in_that_has_read_all_knows_who_never_spoke() -> None:
    aligner: BarrierAligner[str] = BarrierAligner("x", ["a", "b"])
    with pytest.raises(MissingInput) as nobody:
        aligner.require(barrier(1))
    assert nobody.value.params["missing"] == ["a", "b"]
    aligner.offer("a", barrier(1))
    with pytest.raises(MissingInput) as one:
        aligner.require(barrier(1))
    assert one.value.params["missing"] == ["b"]
    aligner.offer("b", barrier(1))
    aligner.require(barrier(1))


# --- against a brute-force oracle -------------------------------------------------------------------


def outcome(history: list[tuple[str, Barrier]], inputs: list[str], name: str, item: Barrier) -> object:
    """What must happen, worked out from everything that was accepted before, with no state: an error's class, or
    whether the barrier goes on."""
    if name not in inputs:
        return UnknownInput
    counts = Counter(b for _, b in history)
    waiting = [b for b, n in counts.items() if n < len(inputs)]
    complete = [b for b, n in counts.items() if n == len(inputs)]
    if any(b.is_terminal for b in complete):
        return SurplusBarrier
    if waiting:
        if (name, item) in history and item in waiting:
            return DuplicateBarrier
        if item not in waiting:
            return BarrierOverlap
    elif any(item.id <= b.id for b in complete):
        return SurplusBarrier
    return counts[item] + 1 == len(inputs)


@settings(max_examples=30)
@given(st.integers(1, 8), st.integers(1, 300), st.randoms(use_true_random=False))
def test_random_arrivals_end_as_the_brute_force_oracle_says(count: int, barriers: int, rng: Any) -> None:
    inputs = [f"i{k}" for k in range(count)]
    aligner: BarrierAligner[str] = BarrierAligner("x", inputs)
    history: list[tuple[str, Barrier]] = []
    current, kind = 1, SYNC_TEST
    for _ in range(min(400, barriers * count)):
        here = {n for n, b in history if b.id == current}
        fresh = [n for n in inputs if n not in here] or inputs
        wrong = rng.random() < 0.15
        name = rng.choice([*inputs, "z"]) if wrong else rng.choice(fresh)
        item = barrier(
            current + (rng.choice([-1, 0, 1]) if wrong else 0), rng.choice([kind, SAVEPOINT]) if wrong else kind
        )
        # Barriers long complete cannot come back into the answer, but for the terminal one: a short history is enough.
        wanted = outcome(history, inputs, name, item)
        if isinstance(wanted, type):
            with pytest.raises(HeadraceError) as caught:
                aligner.offer(name, item)
            assert type(caught.value) is wanted
        else:
            assert aligner.offer(name, item) == ([item] if wanted else [])
            history.append((name, item))
            if wanted:
                history = [(n, b) for n, b in history if b == item]
                current, kind = item.id + 1, rng.choice([SYNC_TEST, SAVEPOINT])
                if rng.random() < 0.002:
                    kind = GRACEFUL_END
            else:
                current, kind = item.id, {"sync_test": SYNC_TEST, "savepoint": SAVEPOINT}.get(item.kind, GRACEFUL_END)


@settings(max_examples=30)
@given(st.integers(1, 8), st.integers(1, 100), st.randoms(use_true_random=False))
def test_blocking_makes_every_cut_consistent_under_any_interleaving(count: int, barriers: int, rng: Any) -> None:
    inputs = [f"i{k}" for k in range(count)]
    queues: dict[str, list[Any]] = {}
    for name in inputs:
        queues[name] = []
        for id in range(1, barriers + 1):
            queues[name] += [(name, id, k) for k in range(rng.choice([0, 0, 1, 3]))] + [barrier(id)]
    last_arrival: dict[int, int] = {}
    left = {name: list(queue) for name, queue in queues.items()}
    aligner: BarrierAligner[Any] = BarrierAligner("x", inputs, blocking=True)
    passed: list[Any] = []
    forwarded_at: dict[int, int] = {}
    step = 0
    while any(left.values()):
        name = rng.choice([n for n in inputs if left[n]])
        for _ in range(rng.choice([1, 1, 5, 50])):
            if not left[name]:
                break
            item = left[name].pop(0)
            step += 1
            if isinstance(item, Barrier):
                last_arrival[item.id] = step
            out: list[Signal | Any] = aligner.offer(name, item)
            forwarded_at |= {b.id: step for b in out if isinstance(b, Barrier)}
            passed += out
    assert forwarded_at == last_arrival  # neither early nor late
    assert Counter(passed) == Counter(item for q in queues.values() for item in q if not isinstance(item, Barrier)) + (
        Counter({barrier(id): 1 for id in range(1, barriers + 1)})
    )
    seen = 0
    for item in passed:
        if isinstance(item, Barrier):
            assert item.id == seen + 1
            seen = item.id
        else:
            assert item[1] == seen + 1  # a row of barrier k's share: behind barrier k-1, before barrier k
    for name in inputs:
        rows = [i for i in passed if not isinstance(i, Barrier) and i[0] == name]
        assert rows == [i for i in queues[name] if not isinstance(i, Barrier)]


@given(st.integers(1, 5), st.lists(st.tuples(st.integers(0, 4), st.integers()), max_size=50), st.booleans())
def test_all_rows_pass_a_barrier_node_unchanged(count: int, rows: list[tuple[int, int]], blocking: bool) -> None:
    inputs = [f"i{k}" for k in range(count)]
    aligner: BarrierAligner[Any] = BarrierAligner("x", inputs, blocking=blocking)
    passed = [item for k, row in rows for item in aligner.offer(inputs[k % count], row)]
    assert passed == [row for _, row in rows]
