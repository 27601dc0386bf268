"""Differences of times, which are intervals, and comparisons of intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.schema import BIGINT, DATE, TIMESTAMP, TIMESTAMP_NTZ
from headrace.sql.bind.interval_calls import as_interval, number_of
from headrace.sql.parse.syntax import TextRange
from headrace.sql.plan.expr import Expr, Literal
from headrace.sql.plan.types import VOID

if TYPE_CHECKING:
    from headrace.sql.bind.expression_binder import ExprBinder

TIMES = (DATE, TIMESTAMP, TIMESTAMP_NTZ)
_DAY = 86_400_000_000


def bind_difference(binder: ExprBinder, left: Expr, right: Expr, at: TextRange) -> Expr:
    """left - right. As in Spark, the difference of two timestamps is that of their wall-clock readings."""
    if left.type == right.type == DATE:
        days = binder.cast(binder.call("datediff", (left, right), at), BIGINT, at, False)
        micros = binder.call("*", (days, Literal(BIGINT, _DAY, at=at)), at)
    elif left.type == right.type == TIMESTAMP_NTZ:
        micros = binder.call("-", tuple(binder.call("unix_micros", (e,), at) for e in (left, right)), at)
    else:
        both = tuple(binder.coerce(side, TIMESTAMP) for side in (left, right))
        micros = binder.call("time minus time", both, at)
    return as_interval(micros, "DAY" if left.type == right.type == DATE else "DAY TO SECOND")


def bind_difference_of_text(binder: ExprBinder, left: Expr, right: Expr, at: TextRange) -> Expr:
    """A time minus a text, or the other way round: Spark reads the text as a time of the same type."""
    kind = left.type if left.type in TIMES else right.type
    if VOID in (left.type, right.type):
        binder.unsupported(f"{left.type} - {right.type}", f"Cast NULL to {kind}.", at)
    return bind_difference(binder, binder.coerce(left, kind), binder.coerce(right, kind), at)


def bind_comparison(binder: ExprBinder, name: str, left: Expr, right: Expr, at: TextRange) -> Expr:
    """Compares two intervals of the same kind, as numbers."""
    if left.type != right.type:
        binder.mismatch(f"'{name}' does not take an interval here", "Write time1 - time2 > INTERVAL ...", at)
    return binder.call(name, tuple(number_of(binder, side) for side in (left, right)), at)
