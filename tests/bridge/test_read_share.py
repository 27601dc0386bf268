"""How much of the time a query runs while its streams read a backlog."""

from __future__ import annotations

import pytest

from headrace.bridge.read_share import LONGEST_WAIT, ReadShare


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_first_batch_does_not_wait(clock: Clock) -> None:
    assert not ReadShare(clock).early


def test_a_query_runs_a_tenth_of_the_time(clock: Clock) -> None:
    share = ReadShare(clock)
    began, ran = clock.now, 0.0
    while clock.now < began + 1000:
        if not share.early:
            clock.now += 2.0
            ran += 2.0
            share.ran(2.0)
        clock.now += 0.01
    assert ran / (clock.now - began) == pytest.approx(0.1, abs=0.005)


def test_after_a_long_batch_it_waits_half_a_minute_and_no_longer(clock: Clock) -> None:
    share = ReadShare(clock)
    share.ran(600.0)
    clock.now += LONGEST_WAIT - 0.1
    assert share.early
    clock.now += 0.1
    assert not share.early
