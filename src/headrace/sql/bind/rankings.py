"""Binds row_number(), rank() and dense_rank() OVER (...): the top rows of each window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import MisplacedAggregate, WrongArguments
from headrace.model.schema import INT, Map
from headrace.sql.parse.syntax import Ranking
from headrace.sql.plan.expr import ColumnRef, Expr, RankCall, transform, walk
from headrace.sql.plan.logical import Named, Plan, Project, Rank

if TYPE_CHECKING:
    from headrace.sql.bind.expression_binder import ExprBinder


def bind_ranking(binder: ExprBinder, node: Ranking) -> Expr:
    """The call of a ranking function. It may stand only in a select list."""
    if binder.place != "here":
        raise MisplacedAggregate(
            f"{node.name}() OVER is not allowed {binder.place}",
            advice="Use it in the select list of a subquery, and filter around it.",
            span=binder.span(node.at),
        )
    if not node.order:
        raise WrongArguments(
            f"{node.name}() needs ORDER BY",
            advice="Write OVER (PARTITION BY ... ORDER BY ...).",
            span=binder.span(node.at),
        )
    partition = tuple(binder.bind(part) for part in node.partition)
    order = tuple(binder.bind(key.value) for key in node.order)
    for part in (*partition, *order):
        if isinstance(part.type, Map):
            binder.mismatch("a map has no order", "Order by something else.", part.at)
        if any(isinstance(e, RankCall) for e in walk(part)):
            binder.unsupported("a rank inside OVER", "Rank in a subquery.", part.at)
    directions = tuple((key.descending, key.nulls_first) for key in node.order)
    return RankCall(type=INT, name=node.name, partition=partition, order=order, directions=directions, at=node.at)


def with_ranks(plan: Plan, outputs: tuple[Named, ...]) -> Plan:
    """A projection whose ranks are computed below it."""
    calls = tuple(dict.fromkeys(e for o in outputs for e in walk(o.expr) if isinstance(e, RankCall)))
    if not calls:
        return Project(plan, outputs)
    ranked = Rank(plan, calls)

    def column(expr: Expr) -> Expr | None:
        if not isinstance(expr, RankCall):
            return None
        place = calls.index(expr)
        return ColumnRef(INT, ranked.width + place, f"rank{place}", at=expr.at)

    return Project(ranked, tuple(Named(o.name, transform(o.expr, column)) for o in outputs))
