"""Finds the calls of a plan that run Python code for every row."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.sql.explain.plan_text import show_expr
from headrace.sql.functions import find, names_slow_kernel
from headrace.sql.functions.casts import render_cast
from headrace.sql.plan.expr import Call, Cast, Expr, Literal, walk
from headrace.sql.plan.logical import Plan
from headrace.sql.render.duckdb import render_literal

_VALUE = "x"  # stands for an argument that is not a literal


def slow_calls(plan: Plan) -> list[str]:
    """The slow calls of `plan`, each once, as text."""
    return list(dict.fromkeys(show_expr(e) for e in _expressions(plan) if _is_slow(e)))


def _expressions(plan: Plan) -> Iterator[Expr]:
    for expr in plan.expressions:
        yield from walk(expr)
    for child in plan.inputs:
        yield from _expressions(child)


def _is_slow(expr: Expr) -> bool:
    if isinstance(expr, Cast):
        return names_slow_kernel(render_cast(_VALUE, expr.input.type, expr.type, expr.attempt) or "")
    if not isinstance(expr, Call) or expr.name in ("and", "or"):
        return False
    kinds = [a.type for a in expr.args]
    overload = find(expr.name, kinds)
    args = [render_literal(a) if isinstance(a, Literal) else _VALUE for a in expr.args]
    return overload is not None and names_slow_kernel(overload.render(args, kinds, expr.type))
