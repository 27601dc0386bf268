"""Which expressions may fail on some row."""

from __future__ import annotations

from headrace.model.schema import BINARY, STRING
from headrace.sql.functions import find
from headrace.sql.functions.casts import cast_throws
from headrace.sql.plan.expr import Call, Cast, Expr, FailingConstant
from headrace.sql.plan.limits import check_time


def throws(expr: Expr) -> bool:
    """True if evaluating `expr` may fail on some row."""
    return _throws(expr, here=True)


def fails_in_spark(expr: Expr) -> bool:
    """True if evaluating `expr` may fail on some row in Spark. There, bytes that are no UTF-8 become a string."""
    return _throws(expr, here=False)


def _throws(expr: Expr, here: bool) -> bool:
    check_time()
    if isinstance(expr, Call):
        overload = find(expr.name, [a.type for a in expr.args])
        if overload is None or overload.fails(expr.args):
            return True
    if isinstance(expr, Cast) and not expr.attempt and cast_throws(expr.input.type, expr.type):
        return here or (expr.input.type, expr.type) != (BINARY, STRING) or _throws(expr.input, here)
    if isinstance(expr, FailingConstant):
        return True
    return any(_throws(child, here) for child in expr.children)
