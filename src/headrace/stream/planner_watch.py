"""The latest notices from the planning process of one stream, and waiting for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from headrace.state.notices import EpochPlanned, Notice, PlanningHeld, PlanningPaused, ProbePlanned, SourceIdle
from headrace.stream.inflight import PLANNING, SILENCE_SECONDS, InFlight

# How often a waiting thread checks its condition without being woken: a notice can be lost.
POLL_SECONDS = 0.5
# Less input than this is read in milliseconds. A live source nearly always has some.
BACKLOG_BYTES = 1 << 20
QUIET_SECONDS = 2.0  # a stream that has planned no epoch for so long is paused


class PlannerWatch:
    """What the planning process of one stream reported last. Any thread may call.

    - `planned` is the newest plan version that an epoch was planned with, and `planned_epoch` is that epoch.
    - `planned_at` is when that was, on the monotonic clock; None if the current query has planned nothing yet.
    - `planning_ms` is how long planning that epoch took.
    - `idle` is the last notice, if it said that there is nothing to do.
    - `held` is true while the planner holds.
    - `paused_by` are the pipelines for whose output there is no room, while the planner waits for that.
    - `backlog` is the number of bytes that wait to be read.
    - `planner` is the process id of the planner.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.changed = threading.Condition()
        self.planned = 0
        self.planned_epoch = -1
        self.planned_at: float | None = None
        self.planning_ms = 0.0
        self.idle: SourceIdle | None = None
        self._stale = False  # the next idle notice does not count
        self.held = False
        self.paused_by: tuple[str, ...] = ()
        self.backlog = 0
        self.planner: int | None = None
        self._flying: tuple[int, float] | None = None  # the epoch in flight, and since when
        self._last_sign = clock()

    def query_starting(self) -> None:
        """Forget the reports of the previous query: a new one is about to start."""
        with self.changed:
            self.idle, self.held, self.planned_at, self.planner = None, False, None, None
            self._flying, self._last_sign, self.paused_by = None, self._clock(), ()

    def plan_published(self) -> None:
        """There is work again, so the last idle notice is out of date."""
        with self.changed:
            self.idle = None

    def look_again(self) -> None:
        """There may be new input that the last idle notice does not know. The next one does not count either: it may
        have been sent before the input came, and arrive only now."""
        with self.changed:
            self.idle, self._stale = None, True

    def hold_released(self) -> None:
        """The hub has lifted the hold."""
        with self.changed:
            self.held = False

    def epoch_committed(self) -> None:
        """The epoch in flight is committed. Call it while holding `changed`."""
        self._flying, self._last_sign = None, self._clock()
        self.changed.notify_all()

    def spent(self, epoch: int) -> tuple[float, float] | None:
        """Milliseconds that planning this epoch took, and those since then; None when its notice was lost. Under
        `changed`."""
        if self.planned_at is None or self.planned_epoch != epoch:
            return None
        return self.planning_ms, (self._clock() - self.planned_at) * 1000

    def wake(self) -> None:
        """Make all waiting threads check their condition again."""
        with self.changed:
            self.changed.notify_all()

    def on_notice(self, notice: Notice) -> None:
        """Take a notice from the planning process."""
        with self.changed:
            self._last_sign = self._clock()
            self.planner, self.paused_by = notice.pid, ()
            match notice:
                case EpochPlanned():
                    self.planned = max(self.planned, notice.plan)
                    self.planned_epoch, self.planned_at = notice.epoch, self._last_sign
                    self.planning_ms = notice.planning_ms
                    self._flying = (notice.epoch, self._last_sign)
                    self.backlog = notice.backlog
                    self.idle = None
                case ProbePlanned():  # it is not committed, so only its age matters
                    self._flying = (notice.epoch, self._last_sign)
                case SourceIdle():
                    self.planned = max(self.planned, notice.plan)
                    self.backlog = 0
                    self.idle, self._stale = None if self._stale else notice, False
                case PlanningHeld():
                    self.held = True
                case PlanningPaused():
                    self.planned = max(self.planned, notice.plan)
                    self.paused_by = tuple(notice.pipelines.split("\n"))
            self.changed.notify_all()

    def reads_backlog(self, newest: int) -> bool:
        """True if at least as many bytes wait as the newest epoch has read, so that the next one begins at once. A
        stream that is paused reads nothing."""
        now = self._clock()
        busy = self._flying is not None or now - self._last_sign < QUIET_SECONDS
        return busy and not self.held and not self.paused_by and self.backlog >= max(BACKLOG_BYTES, newest)

    def in_flight(self, doing: str, patience: float) -> InFlight | None:
        """The epoch in flight, if there is one. `doing` is what the committer is doing. A planner that stays silent for
        longer than `patience`, the time it may wait for rows, is planning."""
        now = self._clock()
        if self._flying is not None:
            epoch, since = self._flying
            return InFlight(epoch, now - since, doing or "tasks")
        silent = now - self._last_sign
        if silent <= SILENCE_SECONDS + patience:
            return None
        return InFlight(self.planned_epoch + 1, silent, PLANNING)

    def wait(self, condition: Callable[[], bool], timeout: float | None, raise_failure: Callable[[], None]) -> bool:
        """Wait for `condition`, and check it at every notice. True if it held in time. `raise_failure` is called before
        each wait, and ends it by raising."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self.changed:
            while not condition():
                raise_failure()
                left = POLL_SECONDS if deadline is None else min(POLL_SECONDS, deadline - time.monotonic())
                if left <= 0:
                    return False
                self.changed.wait(left)
            return True
