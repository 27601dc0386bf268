"""The expressions of a query that may fail on a row of the stream, with the user's text, for the error about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headrace.model.program import FallibleExpression
from headrace.model.schema import NESTED
from headrace.sql.functions.fallibility import throws
from headrace.sql.plan.expr import (
    NOWHERE,
    Call,
    CaseWhen,
    ColumnRef,
    Expr,
    Literal,
    columns_of,
    conjunction,
    conjuncts,
    transform,
)
from headrace.sql.plan.shape import Shape
from headrace.sql.render.duckdb import render, render_filter, ring0_column

_COPIES = 64  # there may be 4096 grouping sets, and they evaluate the same expressions


def fallible_expressions(shape: Shape, text: str) -> tuple[FallibleExpression, ...]:
    """Those of Ring 0: parts of WHERE, select items, keys and arguments of aggregates, and lists of generators. `text`
    is the script. Those above a generator read the rows that it makes, except for the branches of UNION ALL and for
    grouping sets, which copy the rows."""
    copied = _of_copies(shape, text)
    if copied is not None:
        return copied
    found: list[FallibleExpression] = []
    kept = shape.filter
    for place, made in enumerate(shape.generators):
        found += _MadeRows(shape, text, place).of(kept, (one.expr for one in made.node.lists))
        kept = made.after
    found += _MadeRows(shape, text, len(shape.generators)).of(kept, _values(shape))
    return tuple(found)


def _of_copies(shape: Shape, text: str) -> tuple[FallibleExpression, ...] | None:
    """Those of a shape that only copies the rows of the stream, which they read themselves. None for other shapes."""
    copies = _copies(shape)
    if copies is None:
        return None
    number, rows = len(shape.scan.schema), _MadeRows(shape, text, 0)
    parts = [part for part in (shape.filter, shape.generators[0].after) if part is not None]
    found: list[FallibleExpression] = []
    for copy in copies[:_COPIES]:
        kept = conjunction([_of_copy(part, number, copy) for part in parts])
        values = [_of_copy(value, number, copy) for value in _values(shape)]
        if any(number in columns_of(expr) for expr in (kept, *values) if expr is not None):
            return None  # the number is a column of the user's own
        found += rows.of(kept, values)
    return tuple(dict.fromkeys(found))


def _copies(shape: Shape) -> list[int] | None:
    """The numbers that the only generator gives to the copies of each row. None if it makes other rows."""
    if not shape.generators:
        return None
    made, *others = shape.generators[0].node.lists
    if len(shape.generators) > 1 or others or not isinstance(made.expr, Call) or made.expr.name != "array":
        return None
    numbers = [part.value for part in made.expr.args if isinstance(part, Literal) and isinstance(part.value, int)]
    return numbers if len(numbers) == len(made.expr.args) else None


def _of_copy(expr: Expr, number: int, copy: int) -> Expr:
    """`expr` on the copy of a row with this number, which is the column `number`."""

    def chosen(node: Expr) -> Expr | None:
        if not isinstance(node, CaseWhen) or node.otherwise is None:
            return None
        for condition, value in node.branches:
            if not isinstance(condition, Call) or condition.name not in ("=", "in"):
                return None
            column, *places = condition.args
            if not isinstance(column, ColumnRef) or column.index != number:
                return None
            if any(isinstance(place, Literal) and place.value == copy for place in places):
                return _of_copy(value, number, copy)
        return _of_copy(node.otherwise, number, copy)

    return transform(expr, chosen)


@dataclass(frozen=True)
class _MadeRows:
    """The rows that the first `after` generators of `shape` make: those of the stream for 0."""

    shape: Shape
    text: str
    after: int

    def of(self, filter_: Expr | None, values: Iterable[Expr]) -> Iterator[FallibleExpression]:
        """The expressions of a filter of these rows, and of values of those that it keeps."""
        parts = [] if filter_ is None else list(conjuncts(filter_))
        for i, part in enumerate(parts):
            prefix = conjunction(parts[: i + 1])
            if throws(part) and prefix is not None:  # each part after the parts before it
                yield self._fallible(part, render_filter(prefix, ring0_column))
        kept = None if filter_ is None else render_filter(filter_, ring0_column)
        for expr in values:
            if throws(expr):
                sql = render(expr, ring0_column)
                yield self._fallible(expr, sql if kept is None else f"CASE WHEN {kept} THEN {sql} END")

    def _fallible(self, expr: Expr, sql: str) -> FallibleExpression:
        written = "" if expr.at == NOWHERE else " ".join(_with_parentheses(self.text, *expr.at).split())
        columns, width = tuple(sorted(columns_of(expr))), len(self.shape.scan.schema)
        schema = self.shape.generators[self.after - 1].node.schema if self.after else self.shape.scan.schema
        made = tuple(schema[i].name for i in columns if width <= i < len(schema))
        return FallibleExpression(text=written, sql=sql, columns=columns, after=self.after, made=made)


def _values(shape: Shape) -> Iterator[Expr]:
    if shape.aggregate is None:
        yield from (output.expr for output in shape.outputs)
        return
    # The key of a window has an index after those of the stream.
    width = NESTED if shape.window is None else shape.window.width
    for expr in (*(key.expr for key in shape.aggregate.keys), *(a for c in shape.aggregate.calls for a in c.children)):
        if all(index < width or index >= NESTED for index in columns_of(expr)):
            yield expr


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
