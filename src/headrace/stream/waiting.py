"""Waits for what the planning process of one stream reports. Every wait ends when the query dies."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future

from headrace.control.acks import Ack
from headrace.state.plans import PlanStore
from headrace.stream.managed_query import ManagedQuery
from headrace.stream.stream_status import StoredStream

# A statement that waits for the first epoch of a plan fails after this many failures in a row. It does not wait for all
# retries: a typing error in an option would take minutes to show.
PATIENT_ATTEMPTS = 3


class QueryWaits:
    """Waits for one query. Any thread may call. All methods raise StreamFailed when the query dies."""

    def __init__(self, query: ManagedQuery, plans: PlanStore) -> None:
        self._query, self._plans = query, plans

    def until_planned(self, version: int, timeout: float, stored: StoredStream) -> None:
        """Wait until an epoch was planned with this plan version or a later one, or the query was stopped. Raises
        StartTimeout, or StreamFailed when the query fails PATIENT_ATTEMPTS times in a row."""
        watch = self._query.watch
        if not watch.wait(lambda: watch.planned >= version or not self._started, timeout, self._raise_soon):
            planned = None if watch.planned_at is None else watch.planned_epoch
            raise stored.start_timeout(version, timeout, planned, self._last_planned())

    def until_exhausted(self, timeout: float | None) -> bool:
        """Wait until the source has nothing more to read under the newest plan, or the query was stopped. True if that
        happened in time."""

        def over() -> bool:
            idle = self._query.watch.idle
            if not self._started:
                return True
            return idle is not None and idle.plan == self._plans.current() and idle.exhausted

        return self._await(over, timeout)

    def until_held(self, timeout: float) -> bool:
        """Ask the planner to hold, and wait until it does. True if that happened in time."""
        if not self._query.supervisor.running:
            return True

        def held() -> bool:
            if not self._query.supervisor.up:  # a query that waits for its next start has no epoch in flight
                return True
            self._query.ask_to_hold()  # again: a savepoint that ends meanwhile lifts the hold
            return self._query.watch.held

        return self._await(held, timeout)

    def until_paused(self, ack: Future[Ack], timeout: float) -> bool:
        """Wait until a savepoint barrier is acknowledged and the planner holds, or the query was stopped. True if that
        happened in time."""
        # Spark asks for the next epoch only after it has logged this one as done.
        return self._await(lambda: not self._started or (ack.done() and self._query.watch.held), timeout)

    @property
    def _started(self) -> bool:
        return self._query.supervisor.started

    def _await(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        return self._query.watch.wait(condition, timeout, self._query.raise_failure)

    def _raise_soon(self) -> None:
        """Raise StreamFailed if the query has died, or has failed too often for a statement to wait on."""
        self._query.raise_failure()
        retrying = self._query.supervisor.retrying
        if retrying is not None and retrying.attempt >= PATIENT_ATTEMPTS:
            raise self._query.error(f"failed {retrying.attempt} times in a row: {retrying.problem}")

    def _last_planned(self) -> str:
        """What the query did instead of planning an epoch that a caller waits for."""
        watch, problem = self._query.watch, self._query.problem
        if problem:
            return f"its query failed and is started again: {problem}"
        if watch.planned_at is None:
            return "its query has planned none since it was started"
        spent = time.monotonic() - watch.planned_at
        return f"epoch {watch.planned_epoch}, with plan version {watch.planned}, was planned {spent:.0f} s ago"
