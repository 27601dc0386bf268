"""The newest notices from the planning process of one stream, and waiting for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from headrace.inflight import SILENCE_SECONDS, InFlight


class Watch:
    """What the planning process said last. Any thread may call; those who wait hold nothing while they do.

    `planned` is the newest plan version that an epoch was planned with, `planned_epoch` that epoch, `planned_at` when,
    on the monotonic clock (None since the query was started), and `planning_ms` how long that took;
    `idle` the last notice if it said that there is nothing to do; `held` whether no epoch is planned because somebody
    asked for that; `backlog` the bytes that wait; `planner` the id of the planning process.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.changed = threading.Condition()
        self.planned = 0
        self.planned_epoch = -1
        self.planned_at: float | None = None
        self.planning_ms = 0.0
        self.idle: dict[str, Any] | None = None
        self.held = False
        self.backlog = 0
        self.planner: int | None = None
        self._flying: tuple[int, float] | None = None  # the epoch in flight, and since when
        self._heard_at = clock()

    def begin(self) -> None:
        """A query is about to start: what the one before it did says nothing about it."""
        with self.changed:
            self.idle, self.held, self.planned_at, self.planner = None, False, None, None
            self._flying, self._heard_at = None, self._clock()

    def busy(self) -> None:
        """There is something to do again."""
        with self.changed:
            self.idle = None

    def released(self) -> None:
        """Epochs may be planned again."""
        with self.changed:
            self.held = False

    def done(self) -> None:
        """The epoch in flight is committed. Under `changed`."""
        self._flying, self._heard_at = None, self._clock()
        self.changed.notify_all()

    def spent(self, epoch: int) -> tuple[float, float] | None:
        """Milliseconds that planning this epoch took, and those since then; None when its notice was lost. Under
        `changed`."""
        if self.planned_at is None or self.planned_epoch != epoch:
            return None
        return self.planning_ms, (self._clock() - self.planned_at) * 1000

    def wake(self) -> None:
        """Let everybody who waits look again."""
        with self.changed:
            self.changed.notify_all()

    def on_notice(self, notice: dict[str, Any]) -> None:
        """A notice from the planning process."""
        with self.changed:
            self._heard_at = self._clock()
            self.planner = notice.get("pid", self.planner)
            if notice["kind"] == "planned":
                self.planned = max(self.planned, int(notice["plan"]))
                self.planned_epoch, self.planned_at = int(notice["epoch"]), self._heard_at
                self.planning_ms = float(notice.get("ms", 0.0))
                self._flying = (self.planned_epoch, self._heard_at)
                self.backlog = int(notice["backlog"])
                self.idle = None
            elif notice["kind"] == "probing":  # nothing of it is committed: only its age is of interest
                self._flying = (int(notice["epoch"]), self._heard_at)
            elif notice["kind"] == "idle":
                self.planned = max(self.planned, int(notice["plan"]))
                self.backlog = 0
                self.idle = notice
            elif notice["kind"] == "held":
                self.held = True
            self.changed.notify_all()

    def in_flight(self, doing: str, patience: float) -> InFlight | None:
        """The epoch in flight, if there is one; `doing` is what the committer does. A planning process that has said
        nothing for longer than its `patience` for rows explains is planning."""
        now = self._clock()
        if self._flying is not None:
            epoch, since = self._flying
            return InFlight(epoch, now - since, doing or "tasks")
        silent = now - self._heard_at
        if silent <= SILENCE_SECONDS + patience:
            return None
        return InFlight(self.planned_epoch + 1, silent, "planning")

    def wait(self, condition: Callable[[], bool], timeout: float | None, raise_failure: Callable[[], None]) -> bool:
        """Wait for `condition`, woken by notices; whether it came to hold in time. Raises what `raise_failure` raises
        meanwhile."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self.changed:
            while not condition():
                raise_failure()
                left = 0.5 if deadline is None else min(0.5, deadline - time.monotonic())
                if left <= 0:
                    return False
                self.changed.wait(left)
            return True
