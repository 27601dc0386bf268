"""The expressions of a query that may fail on a row of the stream, with the user's text, for the error about them."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.model.program import FallibleExpression
from headrace.model.schema import NESTED
from headrace.sql.functions.fallibility import throws
from headrace.sql.plan.expr import NOWHERE, Expr, columns_of, conjunction, conjuncts
from headrace.sql.plan.shape import Shape
from headrace.sql.render.duckdb import render, render_filter, ring0_column


def fallible_expressions(shape: Shape, text: str) -> tuple[FallibleExpression, ...]:
    """Those of Ring 0: parts of WHERE, select items, keys and arguments of aggregates. `text` is the script. None for
    a query with generators, whose expressions read other rows than those of the stream."""
    if shape.generators:
        return ()
    kept = None if shape.filter is None else render_filter(shape.filter, ring0_column)
    found = list(_conditions(shape, text))
    for expr in _values(shape):
        if throws(expr):
            sql = render(expr, ring0_column)
            found.append(_fallible(expr, sql if kept is None else f"CASE WHEN {kept} THEN {sql} END", text))
    return tuple(found)


def _conditions(shape: Shape, text: str) -> Iterator[FallibleExpression]:
    """Each part of WHERE that may fail, after the parts before it."""
    parts = [] if shape.filter is None else list(conjuncts(shape.filter))
    for i, part in enumerate(parts):
        prefix = conjunction(parts[: i + 1])
        if throws(part) and prefix is not None:
            yield _fallible(part, render_filter(prefix, ring0_column), text)


def _values(shape: Shape) -> Iterator[Expr]:
    if shape.aggregate is None:
        yield from (output.expr for output in shape.outputs)
        return
    # The key of a window has an index after those of the stream.
    width = NESTED if shape.window is None else shape.window.width
    for expr in (*(key.expr for key in shape.aggregate.keys), *(a for c in shape.aggregate.calls for a in c.children)):
        if all(index < width or index >= NESTED for index in columns_of(expr)):
            yield expr


def _fallible(expr: Expr, sql: str, text: str) -> FallibleExpression:
    written = "" if expr.at == NOWHERE else " ".join(_with_parentheses(text, *expr.at).split())
    return FallibleExpression(written, sql, tuple(sorted(columns_of(expr))))


def _with_parentheses(text: str, start: int, end: int) -> str:
    """The text of an expression. Its position may lack the parentheses around its first or last operand.

    >>> _with_parentheses("SELECT 1 / (a - b) AS x", 7, 17), _with_parentheses("SELECT ( a - b) / 2", 9, 19)
    ('1 / (a - b)', '( a - b) / 2')
    """
    while text.count("(", start, end) > text.count(")", start, end) and (close := text.find(")", end)) >= 0:
        end = close + 1
    while text.count(")", start, end) > text.count("(", start, end) and (begin := text.rfind("(", 0, start)) >= 0:
        start = begin
    return text[start:end]
