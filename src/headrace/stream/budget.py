"""What a pipeline may cost its neighbours: time per epoch and size of state, as the stream's options say.

Pure: it is told what each epoch cost, and says who is over budget. Pipelines of a family are folded in one pass whose
time is split evenly, so nobody in it can be blamed: they are measured alone first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.errors import OverBudget

# One long epoch is no reason to stop a pipeline, and nor are ten short ones; more than this many times the budget
# within this many epochs is.
EPOCHS = 8


@dataclass(frozen=True, slots=True)
class Budget:
    """What each pipeline of a stream may use; None is no limit."""

    time_ms: float | None = None
    state_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class BudgetVerdict:
    """`over` are to be stopped, with the reason; `alone` are to be folded apart from their families."""

    over: dict[int, str]
    alone: frozenset[int]


@dataclass(slots=True)
class Accounts:
    """The costs of the newest epochs, by instance. One caller at a time."""

    budget: Budget
    _spent: dict[int, deque[float]] = field(default_factory=dict)
    _shared: frozenset[int] = frozenset()
    _alone: set[int] = field(default_factory=set)
    _cleared: set[int] = field(default_factory=set)

    def charge(
        self, time_ms: Mapping[int, float], state: Mapping[int, int], families: Sequence[Collection[int]]
    ) -> BudgetVerdict:
        """An epoch with rows: what each instance used, and which shared a pass."""
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
        for instance in shared ^ self._shared:  # an even share and a time of one's own do not add up
            self._spent.pop(instance, None)
        self._shared = shared
        over: dict[int, str] = {}
        for instance, ms in spent.items():
            times = self._spent.setdefault(instance, deque(maxlen=EPOCHS))
            times.append(ms)
            if sum(times) > EPOCHS * limit and instance not in shared:
                over[instance] = _time_reason(sum(times) / len(times), len(times), limit)
            elif len(times) == EPOCHS and instance in self._alone:  # innocent
                self._alone.discard(instance)
                self._cleared.add(instance)
        for members in families:
            total = sum(sum(self._spent.get(i, ())) for i in members)
            if total > EPOCHS * limit * len(members):  # also those who were cheap once
                self._cleared.difference_update(members)
            if total > EPOCHS * limit:  # one of them may take more than it may, however small its share looks
                self._alone.update(i for i in members if i not in self._cleared)
        return over

    def _forget(self, instance: int) -> None:
        self._spent.pop(instance, None)
        self._alone.discard(instance)
        self._cleared.discard(instance)


def _time_reason(mean: float, epochs: int, limit: float) -> str:
    return OverBudget(
        f"the pipeline took {mean:.0f} ms per epoch over {epochs} epochs; pipeline_time_budget is {limit:g} ms",
        advice="Make it cheaper with CREATE OR REPLACE PIPELINE. The budget is its stream's.",
        ms=mean,
        limit=limit,
    ).render()


def _state_reason(size: int, limit: int) -> str:
    return OverBudget(
        f"the pipeline keeps {size} bytes of state; pipeline_state_budget is {limit}",
        advice="CREATE OR REPLACE PIPELINE with fewer groups or shorter windows. The budget is its stream's.",
        bytes=size,
        limit=limit,
    ).render()
