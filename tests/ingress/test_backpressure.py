"""The byte counts of a bounded buffer against a model that holds real batches, under random schedules."""

from __future__ import annotations

import timeit
from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.ingress.backpressure import RESUME_AT, Admission, Backpressure, Limits

EVERY = [
    Limits("pause", 100),
    Limits("drop", 100),
    Limits("spill", 100, 150),
    Limits("spill", 100),
    Limits("pause", 1),
    Limits("drop", 1),
    Limits("spill", 1, 1),
]


@dataclass
class Owner:
    """A buffer and a spill with real batches: each is (first row, rows, bytes)."""

    pressure: Backpressure
    buffer: deque[tuple[int, int, int]] = field(default_factory=deque)
    spill: deque[tuple[int, int, int]] = field(default_factory=deque)
    waiting: deque[tuple[int, int, int]] = field(default_factory=deque)
    arrived: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    controls: set[int] = field(default_factory=set)
    made: int = 0

    def produce(self, rows: int, size: int) -> None:
        """The source makes a batch; it is offered after those that were refused before."""
        self.waiting.append((self.made, rows, size))
        self.made += rows
        self.push()

    def push(self) -> None:
        while self.waiting:
            batch = self.waiting[0]
            admission = self.pressure.offer(batch[2])
            if admission is Admission.PAUSE:
                assert not self.pressure.open
                return
            self.waiting.popleft()
            self.put(admission, batch)

    def control(self, size: int) -> None:
        """A control message cannot wait: it goes where the rows before it went, and is one row here."""
        batch = (self.made, 1, size)
        self.controls.add(self.made)
        self.made += 1
        admission = self.pressure.offer(size, control=True)
        assert admission in (Admission.TAKE, Admission.SPILL)
        self.put(admission, batch)

    def put(self, admission: Admission, batch: tuple[int, int, int]) -> None:
        if admission is Admission.DROP:
            self.dropped += range(batch[0], batch[0] + batch[1])
        else:
            (self.buffer if admission is Admission.TAKE else self.spill).append(batch)

    def read(self) -> None:
        """The reader takes the oldest batch: from the buffer, else from the spill."""
        held = self.buffer or self.spill
        if held:
            first, rows, size = held.popleft()
            self.arrived += range(first, first + rows)
            self.pressure.release(size)
        self.push()

    def check(self) -> None:
        limits = self.pressure.limits
        assert self.pressure.held == sum(b[2] for b in (*self.buffer, *self.spill))
        assert self.pressure.spilled == sum(b[2] for b in self.spill)
        assert (self.pressure.state == "paused") == (not self.pressure.open)
        buffered = [b[2] for b in self.buffer if b[0] not in self.controls and b[2]]
        assert sum(buffered) <= limits.max_bytes or len(buffered) == 1
        assert sum(b[2] for b in self.spill if b[0] not in self.controls) <= limits.max_spill_bytes


STEPS = st.one_of(
    st.tuples(st.just("produce"), st.integers(1, 5), st.integers(0, 60)),
    st.tuples(st.just("produce"), st.integers(1, 3), st.integers(90, 300)),
    st.tuples(st.just("control"), st.just(1), st.integers(1, 300)),
    st.tuples(st.just("read"), st.integers(1, 6), st.just(0)),
)


OVERTAKEN = [("control", 1, 101), ("produce", 1, 0), ("produce", 1, 151), ("read", 1, 0), ("produce", 1, 20)]


@pytest.mark.parametrize("limits", EVERY, ids=lambda v: f"{v.strategy}-{v.max_bytes}-{v.max_spill_bytes}")
@example(steps=OVERTAKEN)
@given(steps=st.lists(STEPS, max_size=60))
def test_only_dropped_batches_are_lost_and_none_is_reordered(limits: Limits, steps: list[tuple[str, int, int]]) -> None:
    owner = Owner(Backpressure(limits))
    for kind, a, b in steps:
        if kind == "produce":
            owner.produce(a, b)
        elif kind == "control":
            owner.control(b)
        else:
            for _ in range(a):
                owner.read()
        owner.check()
    for _ in range(owner.made + 1):  # the overload is over
        owner.read()
    owner.check()
    assert not owner.buffer and not owner.spill and not owner.waiting
    assert owner.pressure.state == "open" or (owner.pressure.state == "dropping" and not owner.pressure.held)
    assert sorted([*owner.arrived, *owner.dropped]) == list(range(owner.made))
    rows = [r for r in owner.arrived if r not in owner.controls]
    assert rows == sorted(rows)
    if limits.strategy == "pause":
        assert not owner.dropped
    assert not owner.controls & set(owner.dropped)


@given(steps=st.lists(st.integers(1, 40), max_size=30))
def test_without_a_limit_in_sight_nothing_is_spilled_or_dropped(steps: list[int]) -> None:
    for strategy in ("pause", "drop", "spill"):
        pressure = Backpressure(Limits(strategy, 40 * 30))
        assert all(pressure.offer(size) is Admission.TAKE for size in steps)
        assert pressure.state == "open"


def test_at_the_limit_to_the_byte() -> None:
    pressure = Backpressure(Limits("drop", 100))
    assert pressure.offer(60) is Admission.TAKE
    assert pressure.offer(41) is Admission.DROP
    assert pressure.state == "dropping"
    assert pressure.offer(40) is Admission.TAKE
    assert pressure.offer(1) is Admission.DROP
    assert pressure.held == 100


def test_a_full_spill_drops_and_an_empty_one_lets_the_buffer_be_used_again() -> None:
    pressure = Backpressure(Limits("spill", 100, 50))
    assert [pressure.offer(50) for _ in range(4)] == [
        Admission.TAKE,
        Admission.TAKE,
        Admission.SPILL,
        Admission.DROP,
    ]
    pressure.release(50)
    assert pressure.offer(1) is Admission.DROP  # there is room, but it would overtake what is spilled
    pressure.release(100)
    assert pressure.offer(50) is Admission.TAKE
    assert pressure.state == "open"


def test_a_paused_source_resumes_when_a_quarter_is_free() -> None:
    pressure = Backpressure(Limits("pause", 100))
    for _ in range(10):
        pressure.offer(10)
    assert pressure.open
    assert pressure.offer(10) is Admission.PAUSE
    assert pressure.offer(0) is Admission.PAUSE  # nothing overtakes what was refused
    assert pressure.offer(10, control=True) is Admission.TAKE
    pressure.release(10)
    pressure.release(10)
    assert not pressure.open and pressure.held == 90
    pressure.release(20)
    assert pressure.open and pressure.held <= 100 * RESUME_AT
    assert pressure.pauses == 1


def test_a_batch_larger_than_the_buffer_travels_alone() -> None:
    for limits in (Limits("pause", 10), Limits("drop", 10), Limits("spill", 10, 5)):
        pressure = Backpressure(limits)
        assert pressure.offer(1000) is Admission.TAKE
        assert pressure.offer(1, control=True) in (Admission.TAKE, Admission.SPILL)


def test_a_buffer_that_is_opened_again_knows_what_it_holds() -> None:
    spilled = Backpressure(Limits("spill", 100, 100), size=150)
    assert (spilled.held, spilled.spilled) == (150, 50)
    over = Backpressure(Limits("pause", 100), size=150)
    assert over.offer(1) is Admission.PAUSE
    over.release(150)
    assert over.offer(1) is Admission.TAKE


def test_impossible_limits_and_releases_are_refused() -> None:
    with pytest.raises(ValueError):
        Limits("pause", 0)
    with pytest.raises(ValueError):
        Limits("drop", 1, max_spill_bytes=1)
    pressure = Backpressure(Limits("spill", 10, 10))
    pressure.offer(10)
    pressure.offer(10)
    with pytest.raises(ValueError):
        pressure.release(21)


def test_the_check_is_a_cheap_read() -> None:
    pressure = Backpressure(Limits("pause", 100))
    best = min(timeit.repeat(lambda: pressure.open, number=10_000, repeat=5)) / 10_000
    assert best < 1e-6  # `make bench-bridge` has the real bound; this one only notices a scan
