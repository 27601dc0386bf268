"""Budgets of pipelines: time per epoch and size of state, as set by the stream's options.

Pure: the caller passes what each epoch cost, and gets the pipelines that are over budget. Pipelines of a family share
one pass, whose time is split evenly, so the slow one is not known. Each of them is measured alone first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.errors import OverBudget

# A pipeline is over budget when it uses more than this many times its budget within this many epochs. One long epoch is
# no reason to stop it, but a pipeline that is far too slow is stopped at once.
EPOCHS = 8


@dataclass(frozen=True, slots=True)
class Budget:
    """What each pipeline of a stream may use. None means no limit."""

    time_ms: float | None = None
    state_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class BudgetVerdict:
    """`over` are the instances to stop, with the reason. `alone` are the instances to run apart from their families."""

    over: dict[int, str]
    alone: frozenset[int]


@dataclass(slots=True)
class Accounts:
    """The costs of the newest epochs, by instance. Not thread-safe."""

    budget: Budget
    _spent: dict[int, deque[float]] = field(default_factory=dict)
    _shared: frozenset[int] = frozenset()
    _alone: set[int] = field(default_factory=set)
    _cleared: set[int] = field(default_factory=set)

    def charge(
        self, time_ms: Mapping[int, float], state: Mapping[int, int], families: Sequence[Collection[int]]
    ) -> BudgetVerdict:
        """Add an epoch with rows: what each instance used, and which instances shared a pass."""
        over: dict[int, str] = {}
        for instance, size in state.items():
            if self.budget.state_bytes is not None and size > self.budget.state_bytes:
                over[instance] = _state_reason(size, self.budget.state_bytes)
        if self.budget.time_ms is not None:
            over |= self._time(self.budget.time_ms, time_ms, families)
        for instance in over:
            self._forget(instance)
        return BudgetVerdict(over, frozenset(self._alone))

    def _time(self, limit: float, spent: Mapping[int, float], families: Sequence[Collection[int]]) -> dict[int, str]:
        shared = frozenset(i for members in families for i in members)
        for instance in set(self._spent) - set(spent):
            self._forget(instance)
        for instance in shared ^ self._shared:  # the share of a pass and a measured time cannot be added
            self._spent.pop(instance, None)
        self._shared = shared
        over: dict[int, str] = {}
        for instance, ms in spent.items():
            times = self._spent.setdefault(instance, deque(maxlen=EPOCHS))
            times.append(ms)
            if sum(times) > EPOCHS * limit and instance not in shared:
                over[instance] = _time_reason(sum(times) / len(times), len(times), limit)
            elif len(times) == EPOCHS and instance in self._alone:  # it is within its budget
                self._alone.discard(instance)
                self._cleared.add(instance)
        for members in families:
            total = sum(sum(self._spent.get(i, ())) for i in members)
            if total > EPOCHS * limit * len(members):  # measure all again, including those that were cheap before
                self._cleared.difference_update(members)
            if total > EPOCHS * limit:  # one of them may be over budget, although its even share is small
                self._alone.update(i for i in members if i not in self._cleared)
        return over

    def _forget(self, instance: int) -> None:
        self._spent.pop(instance, None)
        self._alone.discard(instance)
        self._cleared.discard(instance)


def _time_reason(mean: float, epochs: int, limit: float) -> str:
    return OverBudget(
        f"the pipeline took {mean:.0f} ms per epoch over {epochs} epochs; pipeline_time_budget is {limit:g} ms",
        advice="Make it cheaper with CREATE OR REPLACE PIPELINE. The budget belongs to its stream.",
        ms=mean,
        limit=limit,
    ).render()


def _state_reason(size: int, limit: int) -> str:
    return OverBudget(
        f"the pipeline keeps {size} bytes of state; pipeline_state_budget is {limit}",
        advice="CREATE OR REPLACE PIPELINE with fewer groups or shorter windows. The budget belongs to its stream.",
        bytes=size,
        limit=limit,
    ).render()
