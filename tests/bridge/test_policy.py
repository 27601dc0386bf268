"""When waiting rows become an epoch, with a clock that only the test moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.bridge.policy import Batcher, BatchPolicy, IdleAdvance

SECOND = 1_000_000


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def batcher(rows: int = 1000, latency: int = 2 * SECOND, flush: bool = True) -> tuple[Batcher, Hand]:
    clock = Hand()
    return Batcher(BatchPolicy(rows, latency, flush), clock), clock


def test_enough_rows_cut_at_once_and_one_less_waits() -> None:
    made, _ = batcher()
    assert made.cut(999) is None
    assert made.cut(1000) == "rows"
    assert made.cut(10**9) == "rows"


def test_a_single_row_waits_for_max_latency_and_no_longer() -> None:
    made, clock = batcher()
    assert made.cut(1) is None
    clock.now += 1.999
    assert made.cut(2) is None  # counted from the first that waits, not from the newest
    clock.now += 0.001
    assert made.cut(3) == "latency"
    assert made.cut(1) is None  # the next epoch's rows have just come


def test_an_unknown_number_of_rows_waits_for_max_latency() -> None:
    made, clock = batcher()
    assert made.cut(None) is None
    clock.now += 2
    assert made.cut(None) == "latency"


def test_after_an_epoch_that_closed_windows_nothing_waits() -> None:
    made, _ = batcher()
    assert made.cut(1, closed=True) == "watermark"
    patient, _ = batcher(flush=False)
    assert patient.cut(1, closed=True) is None


def test_an_urgent_reason_starts_an_epoch_also_without_rows() -> None:
    made, _ = batcher()
    assert made.cut(0, urgent=True) == "urgent"
    assert made.cut(5, urgent=True, closed=True) == "urgent"


def test_there_is_no_epoch_without_rows() -> None:
    made, clock = batcher(rows=1, latency=0)
    for _ in range(10):
        assert made.cut(0) is None
        assert made.cut(0, closed=True) is None
        clock.now += 100


def test_rows_that_are_gone_do_not_make_later_ones_older() -> None:
    made, clock = batcher()
    made.cut(1)
    clock.now += 1.5
    assert made.cut(0) is None
    assert made.cut(1) is None
    clock.now += 1.5
    assert made.cut(1) is None


def test_without_latency_everything_is_cut_at_once() -> None:
    made, _ = batcher(latency=0, flush=False)
    assert made.cut(1) == "latency"
    assert made.cut(None) == "latency"


@given(
    st.integers(1, 50),
    st.integers(0, 20),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 60), st.booleans(), st.booleans(), st.integers(0, 5)), max_size=40),
)
def test_all_triggers_together(
    max_rows: int, latency: int, flush: bool, polls: list[tuple[int, bool, bool, int]]
) -> None:
    """Compares with the three rules, written down plainly: an epoch starts exactly when one of them applies."""
    clock = Hand()
    made = Batcher(BatchPolicy(max_rows, latency * SECOND, flush), clock)
    since: float | None = None
    for waiting, closed, urgent, pause in polls:
        if waiting and since is None:
            since = clock.now
        if not waiting:
            since = None
        old = since is not None and clock.now - since >= latency
        wanted = urgent or (waiting > 0 and (waiting >= max_rows or (closed and flush) or old))
        assert (made.cut(waiting, closed=closed, urgent=urgent) is not None) == wanted
        if wanted:
            since = None
        clock.now += pause


def test_an_invalid_policy_is_refused() -> None:
    with pytest.raises(ValueError):
        BatchPolicy(0, 0, True)
    with pytest.raises(ValueError):
        BatchPolicy(1, -1, True)


def test_idle_advance_is_off_by_default() -> None:
    clock = Hand()
    idle = IdleAdvance(None, clock)
    clock.now += 1e9
    assert idle.watermark(7) == 7
    assert idle.watermark(None) is None


def test_the_watermark_of_an_idle_stream_follows_the_clock_one_timeout_at_a_time() -> None:
    clock = Hand()
    idle = IdleAdvance(5 * SECOND, clock)
    assert idle.watermark(None) is None  # nothing was ever seen
    clock.now += 4.9
    assert idle.watermark(40 * SECOND) == 40 * SECOND
    clock.now += 0.1
    assert idle.watermark(40 * SECOND) == 45 * SECOND
    assert idle.watermark(45 * SECOND) == 45 * SECOND  # ... which has been reached now
    clock.now += 12
    assert idle.watermark(45 * SECOND) == 55 * SECOND


def test_rows_end_the_idle_time() -> None:
    clock = Hand()
    idle = IdleAdvance(5 * SECOND, clock)
    clock.now += 100
    idle.rows_came()
    assert idle.watermark(40 * SECOND) == 40 * SECOND
    clock.now += 6
    assert idle.watermark(42 * SECOND) == 42 * SECOND + 3 * SECOND  # the silence counts from what was reached first


def test_an_idle_watermark_never_goes_back() -> None:
    clock = Hand()
    idle = IdleAdvance(SECOND, clock)
    seen = idle.watermark(10 * SECOND)
    assert seen is not None
    for step in (3.0, -50.0, 2.0, 60.0):
        clock.now += step
        now = idle.watermark(seen)
        assert now is not None and now >= seen
        seen = now
