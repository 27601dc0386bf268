"""Rule: push filters down towards the stream, so that Ring 0 drops rows before it computes anything else."""

from __future__ import annotations

import dataclasses

from headrace.sql.functions.fallibility import throws
from headrace.sql.plan.context import PlanContext
from headrace.sql.plan.expr import ColumnRef, Expr, columns_of, conjunction, conjuncts, substitute, transform
from headrace.sql.plan.logical import Aggregate, AssignWindow, Filter, Generate, Plan, Union, rewrite
from headrace.sql.render.sizes import grows


def push_down_filter(plan: Plan, ctx: PlanContext) -> Plan:
    """Moves each part of a filter below the nodes that it does not depend on, and merges adjacent filters. A part that
    reads an aggregate stays above it. A part that reads the window moves above the aggregate. Returns `plan` itself
    when nothing moves."""
    return rewrite(plan, _push)


def _push(node: Plan) -> Plan:
    if isinstance(node, Aggregate):
        return _lift_window_filter(node)
    if not isinstance(node, Filter):
        return node
    below = node.input
    if isinstance(below, Filter):
        merged = conjunction([*conjuncts(below.predicate), *conjuncts(node.predicate)])
        assert merged is not None
        return _push(Filter(below.input, merged))
    if isinstance(below, AssignWindow | Generate):
        return _split(node, below, set(range(below.width)))
    if isinstance(below, Aggregate):
        return _below_aggregate(node, below)
    if isinstance(below, Union):
        return dataclasses.replace(below, parts=tuple(_push(Filter(p, node.predicate)) for p in below.parts))
    return node


def _split(node: Filter, below: AssignWindow | Generate, free: set[int]) -> Plan:
    parts = list(conjuncts(node.predicate))
    down = [columns_of(part) <= free for part in parts]
    if isinstance(below, Generate):  # a part that may fail stays after the parts before it, and after the generator
        down = [ok and not grows(part) and not throws(part) for part, ok in zip(parts, down, strict=True)]
    moving = [part for part, ok in zip(parts, down, strict=True) if ok]
    staying = [part for part, ok in zip(parts, down, strict=True) if not ok]
    if not moving:
        return node
    moved = dataclasses.replace(below, input=_push(Filter(below.input, _joined(moving))))
    return Filter(moved, _joined(staying)) if staying else moved


def _below_aggregate(node: Filter, below: Aggregate) -> Plan:
    """Moves the parts that read only keys. They give the same answer for every row of a group."""
    keys = set(range(len(below.keys)))
    window = _window_columns(below.input)
    movable = [
        columns_of(part) <= keys
        and columns_of(part)
        and not any(columns_of(below.keys[i].expr) & window for i in columns_of(part))
        for part in conjuncts(node.predicate)
    ]
    parts = list(conjuncts(node.predicate))
    moving = [part for part, ok in zip(parts, movable, strict=True) if ok]
    if not moving:
        return node
    staying = [part for part, ok in zip(parts, movable, strict=True) if not ok]
    values = tuple(k.expr for k in below.keys)
    pushed = _push(Filter(below.input, _joined([substitute(part, values) for part in moving])))
    aggregate = dataclasses.replace(below, input=pushed)
    return Filter(aggregate, _joined(staying)) if staying else aggregate


def _lift_window_filter(node: Aggregate) -> Plan:
    """Moves a filter on the window columns above the aggregate: Ring 0 filters rows before it assigns windows."""
    below = node.input
    if not (isinstance(below, Filter) and isinstance(below.input, AssignWindow)):
        return node
    positions = {key.expr: i for i, key in enumerate(node.keys)}

    def above(expr: Expr) -> Expr | None:
        if expr in positions:
            return ColumnRef(expr.type, positions[expr], node.keys[positions[expr]].name, at=expr.at)
        return None

    lifted = transform(below.predicate, above)
    window = _window_columns(below.input)
    keyed = {c for k in node.keys for c in columns_of(k.expr)} & window
    if not columns_of(below.predicate) <= keyed:
        return node
    return Filter(dataclasses.replace(node, input=below.input), lifted)


def _window_columns(plan: Plan) -> set[int]:
    while isinstance(plan, Filter):
        plan = plan.input
    return set(range(plan.width, len(plan.schema))) if isinstance(plan, AssignWindow) else set()


def _joined(parts: list[Expr]) -> Expr:
    joined = conjunction(parts)
    assert joined is not None
    return joined
