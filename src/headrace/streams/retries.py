"""When a query that failed is started again: after a wait that doubles, and only so often without progress.

Pure: the times come from the caller.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import DiskFull, JournalUnwritable, SinkUnavailable, StateUnavailable, kind_of, may_pass


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Waits in seconds: `first`, doubled up to `longest`. After `limit` failures in a row without progress the query
    stays dead. A query that was up for `calm` seconds has made progress, whether or not it had an epoch."""

    first: float = 0.5
    longest: float = 30.0
    limit: int = 10
    calm: float = 300.0

    def wait(self, attempt: int) -> float:
        """How long to wait before this attempt, counted from 1."""
        return min(self.longest, self.first * 2.0 ** min(attempt - 1, 32))


@dataclass(frozen=True, slots=True)
class Retrying:
    """A query that is being started again: the how many-th time in a row, when (seconds since 1970) the first failure
    of the row was and the next try is, and the newest failure."""

    attempt: int
    since: float
    next_try: float
    problem: str


class Retries:
    """The failures in a row of one query. One caller at a time."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._attempt, self._since, self._epoch = 0, 0.0, -1

    def reset(self) -> None:
        """Nothing has failed."""
        self._attempt = 0

    def failed(self, problem: str, epoch: int, up: float, now: float, at_once: bool = False) -> Retrying | None:
        """The query failed at `now`, `epoch` being the newest committed one, after it was up for `up` seconds. What
        to do about it: None is to give up. With `at_once` the next try does not wait."""
        if self._attempt and (epoch > self._epoch or up >= self._policy.calm):
            self._attempt = 0
        if not may_pass(problem):
            return None
        if self._attempt >= self._policy.limit and not _endless(problem):
            return None
        if not self._attempt:
            self._since = now
        self._attempt, self._epoch = self._attempt + 1, epoch
        wait = 0.0 if at_once else self._policy.wait(self._attempt)
        return Retrying(self._attempt, self._since, now + wait, problem)


def _endless(problem: str) -> bool:
    """A disk may stay full for a day; when there is room again, somebody expects the stream to go on."""
    return kind_of(problem) in (DiskFull, JournalUnwritable, SinkUnavailable, StateUnavailable)
