"""What planning may cost: time, and the size of one expression.

A script is small and comes from a user who waits, but subqueries that use a column twice double the expression at every
step: what cannot be planned quickly is refused instead of holding up the hub.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from headrace.errors import PlanningTimeout, Span

# A query with a hundred columns takes milliseconds, a list of 100,000 values in IN five seconds.
PLANNING_SECONDS = 30.0
# Every part takes at least two characters of the rendered text, which is limited too.
MAX_PARTS = 100_000

_deadline: ContextVar[float] = ContextVar("_deadline", default=math.inf)


class ExpressionTooLarge(Exception):
    """An expression is larger than can be run; `at` is its place in the script."""

    def __init__(self, what: str, at: tuple[int, int]) -> None:
        super().__init__(what)
        self.at = at


class TooSlow(Exception):
    """The time for planning is over."""


@contextmanager
def planning_time(span: Span, seconds: float | None = None) -> Iterator[None]:
    """Limit what is planned in here to `seconds` (default PLANNING_SECONDS); raises PlanningTimeout at `span`."""
    limit = PLANNING_SECONDS if seconds is None else seconds
    token = _deadline.set(time.monotonic() + limit)
    try:
        yield
    except TooSlow:
        raise PlanningTimeout(
            f"planning this statement took more than {limit:g} s",
            advice="Split the query, and compute an expression that is used many times in a pipeline of its own.",
            span=span,
            seconds=limit,
        ) from None
    finally:
        _deadline.reset(token)


def check_time() -> None:
    """Called for every part of an expression that is looked at."""
    if time.monotonic() > _deadline.get():
        raise TooSlow
