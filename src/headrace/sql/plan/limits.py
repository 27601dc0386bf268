"""Limits of planning: time, and the size of one expression.

Subqueries that use a column twice double the expression at every level, so a short script can take very long to plan.
The hub plans under a lock, so such a statement is refused.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from headrace.errors import ConstantNotEvaluated, PlanningTimeout, Span

# A query with a hundred columns takes milliseconds, a list of 100,000 values in IN five seconds.
PLANNING_SECONDS = 30.0
# Every part takes at least two characters of the rendered text, which is limited too.
MAX_PARTS = 100_000

_deadline: ContextVar[float] = ContextVar("_deadline", default=math.inf)


class ExpressionTooLarge(Exception):
    """An expression is too large to run. `at` is its position in the script."""

    def __init__(self, what: str, at: tuple[int, int]) -> None:
        super().__init__(what)
        self.at = at


class TooSlow(Exception):
    """Planning exceeded its time limit."""


@contextmanager
def planning_time(span: Span, seconds: float | None = None) -> Iterator[None]:
    """Limits the body to `seconds` (default PLANNING_SECONDS). Raises PlanningTimeout at `span`. The error of
    a constant that could not be evaluated gets `span`, too."""
    limit = PLANNING_SECONDS if seconds is None else seconds
    token = _deadline.set(time.monotonic() + limit)
    try:
        yield
    except TooSlow:
        raise PlanningTimeout(
            f"planning this statement took more than {limit:g} s",
            advice="Split the query: compute an expression that is used many times in a separate pipeline.",
            span=span,
            seconds=limit,
        ) from None
    except ConstantNotEvaluated as problem:
        problem.span = span
        raise
    finally:
        _deadline.reset(token)


def time_left() -> float:
    """Seconds until the time limit; infinite without one."""
    return _deadline.get() - time.monotonic()


def check_time() -> None:
    """Raises TooSlow after the time limit. Traversals call it for every part of an expression."""
    if time.monotonic() > _deadline.get():
        raise TooSlow
