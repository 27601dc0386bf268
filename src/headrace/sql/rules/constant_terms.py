"""Sums and products of whole numbers with constants, in the order in which Spark computes them.

Spark's optimizer flattens `1 + i + 2` to `i + 3`, even through try_add: the outermost operator decides whether an
overflow is an error. So `i + -1 + 1` never overflows, and `try_add(i + j, 1)` is NULL where `i + j` overflows.
"""

from __future__ import annotations

from functools import reduce

from headrace.sql.plan.expr import Call, Expr, Literal
from headrace.sql.plan.types import INTEGRAL

_SUMS = ("+", "try_add")
_PRODUCTS = ("*", "try_multiply")


def constant_last(expr: Call) -> tuple[Expr, Expr] | None:
    """The other operands of a sum or product and its constant ones, each as one expression. None if it
    has not both."""
    same = next((names for names in (_SUMS, _PRODUCTS) if expr.name in names), None)
    if same is None or expr.type not in INTEGRAL:
        return None
    terms = _terms(expr, same)
    constants = [term for term in terms if _is_constant(term)]
    others = [term for term in terms if not _is_constant(term)]
    if not constants or not others:
        return None

    def joined(left: Expr, right: Expr) -> Expr:
        return Call(expr.type, expr.name, (left, right), at=expr.at)

    return reduce(joined, others), reduce(joined, constants)


def _terms(expr: Expr, names: tuple[str, ...]) -> list[Expr]:
    if isinstance(expr, Call) and expr.name in names and expr.type in INTEGRAL:
        return [term for arg in expr.args for term in _terms(arg, names)]
    return [expr]


def _is_constant(expr: Expr) -> bool:
    """True for a literal. Spark moves no other constant before it has evaluated it."""
    return isinstance(expr, Literal) and expr.value is not None
