"""Budgets without Spark: who is stopped, who is not, and who is measured alone first."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from headrace.stream.budget import EPOCHS, Accounts, Budget, BudgetVerdict

SLOW, FAST, LIMIT = 100.0, 1.0, 10.0


def test_without_a_budget_no_pipeline_is_stopped() -> None:
    accounts = Accounts(Budget())
    for _ in range(50):
        assert accounts.charge({1: 1e9}, {1: 1 << 60}, []) == BudgetVerdict({}, frozenset())


def test_one_that_is_a_little_too_slow_is_stopped_after_some_epochs_and_one_far_too_slow_sooner() -> None:
    accounts = Accounts(Budget(time_ms=LIMIT))
    verdicts = [accounts.charge({1: LIMIT * 1.01, 2: LIMIT * 0.99}, {}, []) for _ in range(EPOCHS)]
    assert [list(v.over) for v in verdicts] == [[]] * (EPOCHS - 1) + [[1]]
    assert "[OVER_BUDGET]" in verdicts[-1].over[1]
    assert list(accounts.charge({3: LIMIT * EPOCHS * 1.1}, {}, []).over) == [3]


def test_one_long_epoch_is_forgiven() -> None:
    accounts = Accounts(Budget(time_ms=LIMIT))
    for epoch in range(40):
        assert not accounts.charge({1: LIMIT * 4 if epoch % EPOCHS == 0 else FAST}, {}, []).over


def test_too_much_state_is_stopped_at_once() -> None:
    accounts = Accounts(Budget(state_bytes=1000))
    assert accounts.charge({}, {1: 1000, 2: 10}, []).over == {}
    assert list(accounts.charge({}, {1: 1001, 2: 10}, []).over) == [1]


def test_one_that_is_started_again_has_a_fresh_account() -> None:
    accounts = Accounts(Budget(time_ms=LIMIT))
    assert accounts.charge({1: LIMIT * 7}, {}, []).over == {}
    accounts.charge({2: FAST}, {}, [])  # an epoch without it
    assert accounts.charge({1: LIMIT * 7}, {}, []).over == {}


@given(st.integers(2, 12), st.integers(0, 2), st.integers(0, 1000))
def test_a_family_is_measured_apart_and_only_the_slow_ones_are_stopped(size: int, guilty: int, seed: int) -> None:
    chance = random.Random(seed)
    slow = set(chance.sample(range(size), min(guilty, size)))
    cost = {i: SLOW if i in slow else FAST for i in range(size)}
    accounts, alone, stopped = Accounts(Budget(time_ms=LIMIT)), frozenset[int](), set[int]()
    for _ in range(20 * EPOCHS):
        running = [i for i in range(size) if i not in stopped]
        family = [i for i in running if i not in alone]
        if len(family) < 2:
            family = []
        share = sum(cost[i] for i in family) / max(1, len(family))
        verdict = accounts.charge({i: share if i in family else cost[i] for i in running}, {}, [family])
        stopped |= set(verdict.over)
        alone = verdict.alone
        assert stopped <= slow
    assert stopped == slow
    assert not alone, "those who are cheap share a pass again"


def test_one_that_joins_a_dear_family_is_measured_and_the_others_are_not_again() -> None:
    accounts, cost = Accounts(Budget(time_ms=LIMIT)), dict.fromkeys(range(4), 4.0)
    family, alone = [0, 1, 2, 3], frozenset[int]()
    for _ in range(3 * EPOCHS):
        together = [i for i in family if i not in alone]
        alone = accounts.charge(cost, {}, [together] if len(together) > 1 else []).alone
    assert not alone
    cost[4], seen = 5.0, set[int]()
    family.append(4)
    for _ in range(3 * EPOCHS):
        alone = accounts.charge(cost, {}, [[i for i in family if i not in alone]]).alone
        seen |= alone
    assert seen == {4}
    assert not alone
