"""Differences of times. They have an interval type, and can only be compared with intervals."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.model.schema import BIGINT, DATE, STRING, TIMESTAMP, TIMESTAMP_NTZ
from headrace.sql.parse.syntax import TextRange
from headrace.sql.plan.expr import Call, Expr, Literal
from headrace.sql.plan.types import INTERVAL_MICROS

if TYPE_CHECKING:
    from headrace.sql.bind.expression_binder import ExprBinder

TIMES = (DATE, TIMESTAMP, TIMESTAMP_NTZ)
_DAY = 86_400_000_000
# The calls that `bind_difference` makes. They compute microseconds.
_MADE = ("timestampdiff", "-", "*")


def bind_difference(binder: ExprBinder, left: Expr, right: Expr, at: TextRange) -> Expr:
    """left - right. As in Spark, the difference of two timestamps is that of their wall-clock readings."""
    if left.type == right.type == DATE:
        days = binder.cast(binder.call("datediff", (left, right), at), BIGINT, at, False)
        micros = binder.call("*", (days, Literal(BIGINT, _DAY, at=at)), at)
    elif left.type == right.type == TIMESTAMP_NTZ:
        micros = binder.call("-", tuple(binder.call("unix_micros", (e,), at) for e in (left, right)), at)
    else:
        unit = Literal(STRING, "microsecond", at=at)
        start, end = binder.coerce(right, TIMESTAMP), binder.coerce(left, TIMESTAMP)
        micros = binder.call("timestampdiff", (unit, start, end), at)
    return replace(micros, type=INTERVAL_MICROS)


def bind_comparison(binder: ExprBinder, name: str, left: Expr, right: Expr, at: TextRange) -> Expr:
    """Compares intervals of days and shorter units, as microseconds."""
    sides: list[Expr] = []
    for side in (left, right):
        if side.type != INTERVAL_MICROS or not (isinstance(side, Literal) or _made(side)):
            binder.mismatch(f"'{name}' does not take an interval here", "Write time1 - time2 > INTERVAL ...", at)
        sides.append(replace(side, type=BIGINT))
    return binder.call(name, tuple(sides), at)


def _made(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.name in _MADE
