"""The batch policy: when the rows that wait become an epoch (docs/design/2026-11-16-batch-policy.md).

An epoch costs a fixed amount, so rows that come in drops may be worth waiting for. Three triggers, whichever is first:
enough rows wait (`max_rows`), the oldest has waited long enough (`max_latency`), or the epoch before closed windows and
the stream is to be brought up to date at once (`flush_on_watermark`). What cannot wait (a new plan, a barrier, the end
of a finite source) cuts whatever is there. Nothing to read never makes an epoch by itself.

Why the defaults are what they are: docs/design/2026-11-16-batch-policy.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Trigger = Literal["urgent", "watermark", "rows", "latency"]
Clock = Callable[[], float]  # seconds, never going back


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """What a stream declares. `max_latency` is in microseconds, from a row's arrival to the planning of its epoch."""

    max_rows: int
    max_latency: int
    flush_on_watermark: bool

    def __post_init__(self) -> None:
        if self.max_rows < 1 or self.max_latency < 0:
            raise ValueError("a batch has at least one row, and waits no time or some")


class Batcher:
    """Decides for one stream. Ask at every poll; one caller, one thread."""

    def __init__(self, policy: BatchPolicy, clock: Clock) -> None:
        self.policy = policy
        self._clock = clock
        self._since: float | None = None  # when waiting rows were first seen

    def cut(self, waiting: int | None, *, closed: bool = False, urgent: bool = False) -> Trigger | None:
        """Whether to cut an epoch now, and why. `waiting` rows are there (0: nothing, None: some, nobody knows how
        many); `closed`: the epoch before closed windows; `urgent`: something else cannot wait."""
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
    """Lets a silent stream's windows close: when no row has come for `timeout` microseconds, the watermark goes on with
    the clock, one timeout at a time. None for `timeout` is off. Rows that come after such a silence may be late."""

    def __init__(self, timeout: int | None, clock: Clock) -> None:
        self._timeout, self._clock = timeout, clock
        self._since = clock()
        self._base: int | None = None

    def rows_came(self) -> None:
        """There is something to read: the silence is over."""
        self._since, self._base = self._clock(), None

    def watermark(self, reached: int | None) -> int | None:
        """The watermark now, `reached` being the stream's. It never goes back."""
        if self._timeout is None or reached is None:
            return reached
        if self._base is None:
            self._base = reached
        silent = int((self._clock() - self._since) * 1e6)
        return max(reached, self._base + silent // self._timeout * self._timeout)
