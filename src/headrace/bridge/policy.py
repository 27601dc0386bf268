"""The batch policy: when waiting rows become an epoch.

An epoch has a fixed cost, so it can be better to wait for more rows. The first of three triggers starts an epoch:
enough rows wait (`max_rows`), the oldest row has waited long enough (`max_latency`), or the previous epoch closed
windows (`flush_on_watermark`). A new plan, a barrier or the end of a finite source starts one at once, with or without
rows. Without rows and such a reason there is no epoch.

docs/design/2026-11-16-batch-policy.md explains the defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Trigger = Literal["urgent", "watermark", "rows", "latency"]
MonotonicClock = Callable[[], float]  # seconds of a monotonic clock


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """The policy of one stream. `max_latency` is in microseconds, from a row's arrival to the planning of its epoch."""

    max_rows: int
    max_latency: int
    flush_on_watermark: bool

    def __post_init__(self) -> None:
        if self.max_rows < 1 or self.max_latency < 0:
            raise ValueError("max_rows must be at least 1, and max_latency at least 0")


class Batcher:
    """Applies the policy to one stream. Call `cut` at every poll, from one thread."""

    def __init__(self, policy: BatchPolicy, clock: MonotonicClock) -> None:
        self.policy = policy
        self._clock = clock
        self._since: float | None = None  # when waiting rows were first seen

    def cut(self, waiting: int | None, *, closed: bool = False, urgent: bool = False) -> Trigger | None:
        """The reason to start an epoch now, or None. `waiting` is the number of rows, None if there are some but their
        number is unknown. `closed` says that the previous epoch closed windows, `urgent` that there is another reason
        that cannot wait."""
        trigger = self._trigger(waiting, closed, urgent)
        if trigger is not None:
            self._since = None
        return trigger

    def _trigger(self, waiting: int | None, closed: bool, urgent: bool) -> Trigger | None:
        policy = self.policy
        if urgent:
            return "urgent"
        if waiting == 0:
            self._since = None
            return None
        if closed and policy.flush_on_watermark:
            return "watermark"
        if waiting is not None and waiting >= policy.max_rows:
            return "rows"
        now = self._clock()
        if self._since is None:
            self._since = now
        return "latency" if (now - self._since) * 1e6 >= policy.max_latency else None


class IdleAdvance:
    """Lets the windows of an idle stream close. After `timeout` microseconds without a row, the watermark advances with
    the clock, by one timeout at a time. None for `timeout` turns that off. Rows that arrive after an idle time may be
    late."""

    def __init__(self, timeout: int | None, clock: MonotonicClock) -> None:
        self._timeout, self._clock = timeout, clock
        self._since = clock()
        self._base: int | None = None

    def rows_came(self) -> None:
        """Rows have arrived: the stream is not idle any more."""
        self._since, self._base = self._clock(), None

    def watermark(self, reached: int | None) -> int | None:
        """The watermark now, when the rows have reached `reached`. It never goes back."""
        if self._timeout is None or reached is None:
            return reached
        if self._base is None:
            self._base = reached
        silent = int((self._clock() - self._since) * 1e6)
        return max(reached, self._base + silent // self._timeout * self._timeout)
