"""Which expressions may fail on some row."""

from __future__ import annotations

from headrace.sql.functions import find
from headrace.sql.functions.casts import cast_throws
from headrace.sql.plan.expr import Call, Cast, Expr, FailingConstant
from headrace.sql.plan.limits import check_time


def throws(expr: Expr) -> bool:
    """True if evaluating `expr` may fail on some row."""
    check_time()
    if isinstance(expr, Call):
        overload = find(expr.name, [a.type for a in expr.args])
        if overload is None or overload.fails(expr.args):
            return True
    if isinstance(expr, Cast) and not expr.attempt and cast_throws(expr.input.type, expr.type):
        return True
    if isinstance(expr, FailingConstant):
        return True
    return any(throws(child) for child in expr.children)
