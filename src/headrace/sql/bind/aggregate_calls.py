"""Binds aggregate calls. Checks where they stand and which of them run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import MisplacedAggregate, WrongArguments
from headrace.model.schema import BIGINT, DOUBLE, STRING
from headrace.sql.functions.aggregate_functions import find_aggregate
from headrace.sql.parse.syntax import Apply
from headrace.sql.plan.expr import AggCall, Expr, Literal
from headrace.sql.plan.types import is_numeric

if TYPE_CHECKING:
    from headrace.sql.bind.expression_binder import ExprBinder


def bind_aggregate(binder: ExprBinder, node: Apply, name: str) -> Expr:
    """The call of the aggregate `name`. Its arguments cannot contain aggregates."""
    at = node.at
    if not binder.aggregates:
        raise MisplacedAggregate(
            f"the aggregate {node.name} is not allowed {binder.place}",
            advice="Use aggregates in the select list and in HAVING.",
            span=binder.span(at),
        )
    binder.aggregates = False
    place, binder.place = binder.place, "inside another aggregate"
    args = [binder.bind(a) for a in node.args]
    where = binder.predicate(node.where, "FILTER") if node.where is not None else None
    binder.aggregates, binder.place = True, place
    if name == "count_if" and len(args) == 1 and not node.distinct:
        condition = binder.boolean(args[0], "count_if")
        if where is not None:
            condition = binder.call("and", (where, condition), at)
        return AggCall(BIGINT, "count", (), condition, at=at)
    if name == "count" and (node.star or (len(args) == 1 and isinstance(args[0], Literal) and not node.distinct)):
        if args and isinstance(args[0], Literal) and args[0].value is None:
            binder.unsupported("count(NULL)", "It is always 0.", at)
        return AggCall(BIGINT, "count", (), where, at=at)
    if node.star:
        raise WrongArguments(
            f"{node.name} does not take *", advice="Only count takes *. Name a column.", span=binder.span(at)
        )
    return _aggregate_call(binder=binder, node=node, name=name, args=args, where=where)


def _aggregate_call(binder: ExprBinder, node: Apply, name: str, args: list[Expr], where: Expr | None) -> Expr:
    at = node.at
    looked_up = name
    if node.distinct and name == "count":
        looked_up = "count distinct"
    elif node.distinct and name not in ("min", "max", "bool_and", "bool_or"):
        binder.unsupported(f"{name}(DISTINCT ...)", "Only count, min and max take DISTINCT.", at)
    if name in ("var_pop", "var_samp", "stddev_pop", "stddev_samp") and len(args) == 1 and is_numeric(args[0].type):
        args = [binder.coerce(args[0], DOUBLE)]
    wanted = 2 if name in ("min_by", "max_by") else 1
    if name == "count" and len(args) > 1:
        binder.unsupported("count of several columns", "Count one column, or concat_ws of all.", at)
    if len(args) != wanted:
        raise WrongArguments(
            f"{node.name} takes {wanted} argument(s)", advice=f"{len(args)} given.", span=binder.span(at)
        )
    kinds = [a.type for a in args]
    function = find_aggregate(looked_up, kinds)
    if function is None:
        shown = f"{node.name}({', '.join(k.ddl for k in kinds)})"
        if name in ("sum", "avg", "bool_and", "bool_or") and kinds[0] not in (STRING,):
            binder.mismatch(
                f"{node.name} does not take {kinds[0]}",
                "Cast the argument to a type that it takes; see docs/functions.md.",
                at,
            )
        binder.unsupported(shown, "See docs/functions.md for the list of functions.", at)
    binder.require(function.key, at)
    result = function.result_type(kinds)
    if result is None:
        binder.unsupported(f"{node.name} of {kinds[0]}", "Cast to a smaller DECIMAL.", at)
    return AggCall(result, looked_up, tuple(args), where, at=at)
