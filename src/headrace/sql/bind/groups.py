"""Expressions above GROUP BY: they read groups instead of rows. HAVING may use aliases of the select list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headrace.errors import NotGrouped, Span
from headrace.sql.functions.aggregate_functions import AGGREGATE_ALIASES, AGGREGATE_NAMES
from headrace.sql.parse.syntax import Apply, CastTo, IntervalCast, Name, Node, TextRange
from headrace.sql.plan.expr import AggCall, ColumnRef, Expr, transform
from headrace.sql.plan.logical import Aggregate


class AboveAggregate:
    """Rewrites expressions over an aggregate's input to expressions over its output."""

    def __init__(self, aggregate: Aggregate, span: Callable[[TextRange], Span]) -> None:
        self.aggregate, self.span = aggregate, span
        self.keys: dict[Expr, int] = {key.expr: i for i, key in reversed(list(enumerate(aggregate.keys)))}
        self.calls = {call: i for i, call in enumerate(aggregate.calls)}

    def rewrite(self, expr: Expr) -> Expr:
        """`expr` over the keys and the aggregates. Raises NotGrouped at a column that is neither."""
        return transform(expr, self._replace)

    def _replace(self, expr: Expr) -> Expr | None:
        position = self.keys.get(expr)
        if position is not None:
            key = self.aggregate.keys[position]
            return ColumnRef(expr.type, position, key.name, at=expr.at)
        if isinstance(expr, AggCall):
            position = len(self.aggregate.keys) + self.calls[expr]
            return ColumnRef(expr.type, position, f"agg{self.calls[expr]}", at=expr.at)
        if isinstance(expr, ColumnRef):
            raise NotGrouped(
                f"'{expr.name}' is neither in GROUP BY nor inside an aggregate",
                advice=f"Add it to GROUP BY, or use first({expr.name}), min({expr.name}), ...",
                span=self.span(expr.at),
                name=expr.name,
            )
        return None


def replace_aliases(node: Node, aliases: dict[str, Node]) -> Node:
    """Replaces aliases of the select list in HAVING by their expressions."""
    if isinstance(node, Name) and len(node.parts) == 1:
        return aliases.get(node.parts[0].lower(), node)
    if isinstance(node, Apply) and AGGREGATE_ALIASES.get(node.name, node.name) not in AGGREGATE_NAMES:
        return replace(node, args=tuple(replace_aliases(a, aliases) for a in node.args))
    if isinstance(node, CastTo | IntervalCast):
        return replace(node, input=replace_aliases(node.input, aliases))
    return node
