"""What the planning process of one stream has told, and waiting for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any


class Watch:
    """The newest word of the planning process. Any thread may call; those who wait hold nothing while they do.

    `planned` is the newest plan version that an epoch was planned with, `planned_epoch` that epoch, `planned_at` when,
    on the monotonic clock (None since the query was started); `idle` the last notice if it said that there is nothing
    to do; `held` whether no epoch is planned because somebody asked for that; `backlog` the bytes that wait.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.planned = 0
        self.planned_epoch = -1
        self.planned_at: float | None = None
        self.idle: dict[str, Any] | None = None
        self.held = False
        self.backlog = 0

    def begin(self) -> None:
        """A query is about to start: what the one before it did says nothing about it."""
        with self.changed:
            self.idle, self.held, self.planned_at = None, False, None

    def busy(self) -> None:
        """There is something to do again."""
        with self.changed:
            self.idle = None

    def released(self) -> None:
        """Epochs may be planned again."""
        with self.changed:
            self.held = False

    def wake(self) -> None:
        """Let everybody who waits look again."""
        with self.changed:
            self.changed.notify_all()

    def on_notice(self, notice: dict[str, Any]) -> None:
        """A word from the planning process."""
        with self.changed:
            if notice["kind"] == "planned":
                self.planned = max(self.planned, int(notice["plan"]))
                self.planned_epoch, self.planned_at = int(notice["epoch"]), time.monotonic()
                self.backlog = int(notice["backlog"])
                self.idle = None
            elif notice["kind"] == "idle":
                self.planned = max(self.planned, int(notice["plan"]))
                self.backlog = 0
                self.idle = notice
            else:
                self.held = True
            self.changed.notify_all()

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
