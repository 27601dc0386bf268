"""Decides when to restart a failed query: after a wait that doubles, and a limited number of times without progress.

Pure: the caller passes the times.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import (
    BrokerUnreachable,
    DiskFull,
    JournalUnwritable,
    OutOfMemory,
    SinkUnavailable,
    StateUnavailable,
    StoreUnreachable,
    WorkerDied,
    kind_of,
    may_pass,
)

# Something else may have killed the worker, or used up the memory.
_DEATHS = (OutOfMemory, WorkerDied)
# A disk may stay full for a day, and then have room again.
_ENDLESS = (BrokerUnreachable, DiskFull, JournalUnwritable, SinkUnavailable, StateUnavailable, StoreUnreachable)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Waits in seconds: `first`, doubled up to `longest`. After `limit` failures in a row without progress, the query
    stays dead, and after `deaths` of a worker or lacks of memory among them: something else may have caused them, but
    more often it is the query itself. Failures that are retried without limit do not count. A query that was up for
    `calm` seconds has made progress, even without an epoch."""

    first: float = 0.5
    longest: float = 30.0
    limit: int = 10
    deaths: int = 3
    calm: float = 300.0

    def wait(self, attempt: int) -> float:
        """How long to wait before this attempt. Attempts count from 1."""
        return min(self.longest, self.first * 2.0 ** min(attempt - 1, 32))


@dataclass(frozen=True, slots=True)
class Retrying:
    """A query that is being restarted. `attempt` counts the failures in a row, `since` is when the first of them was,
    and `next_try` is when the next attempt is due (seconds since 1970). `problem` is the newest failure."""

    attempt: int
    since: float
    next_try: float
    problem: str


class Retries:
    """The failures in a row of one query. One caller at a time."""

    def __init__(self, policy: RetryPolicy) -> None:
        self.policy = policy
        self._attempt, self._since, self._epoch = 0, 0.0, -1
        self._counted, self._deaths = 0, 0

    def reset(self) -> None:
        """Start counting from zero."""
        self._attempt = self._counted = self._deaths = 0

    def failed(self, problem: str, epoch: int, up: float, now: float, at_once: bool = False) -> Retrying | None:
        """Count a failure at `now`. `epoch` is the newest committed one, and the query was up for `up` seconds. Returns
        the next attempt, or None to give up. With `at_once` the next attempt does not wait."""
        if self._attempt and (epoch > self._epoch or up >= self.policy.calm):
            self.reset()
        if not (may_pass(problem) or kind_of(problem) in _DEATHS) or self._given_up(problem):
            return None
        if not self._attempt:
            self._since = now
        self._attempt, self._epoch = self._attempt + 1, epoch
        wait = 0.0 if at_once else self.policy.wait(self._attempt)
        return Retrying(self._attempt, self._since, now + wait, problem)

    def _given_up(self, problem: str) -> bool:
        """Count a failure. True if it is one too many."""
        kind = kind_of(problem)
        if kind in _ENDLESS:
            return False
        self._counted += 1
        self._deaths += kind in _DEATHS
        return self._counted > self.policy.limit or self._deaths > self.policy.deaths
