"""How much of the time a query on the dedicated host runs while its streams read a backlog.

Streams get free task slots first, but Spark does not interrupt a task, and a batch costs as much CPU per row as any
query of Spark. The rows of a query that spills can wait, and the pipelines of its streams need the cores now. So while
a backlog is read, the query waits after each batch, for nine times as long as the batch took, and at most half a
minute. It never stops.
"""

from __future__ import annotations

from headrace.bridge.policy import MonotonicClock

# Neighbours have to keep nine tenths of their speed.
WAIT_PER_SECOND = 9.0
LONGEST_WAIT = 30.0


class ReadShare:
    """When the next batch of one query may run. One thread at a time."""

    def __init__(self, clock: MonotonicClock) -> None:
        self._clock = clock
        self._next = clock()

    @property
    def early(self) -> bool:
        """True if the next batch has to wait while a backlog is read."""
        return self._clock() < self._next

    def ran(self, seconds: float) -> None:
        """A batch has ended just now, and took so long."""
        self._next = self._clock() + min(LONGEST_WAIT, WAIT_PER_SECOND * seconds)
