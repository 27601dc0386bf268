"""Rule: leave one projection, at the top. The expressions of subqueries and CTEs move to where they are used. Only
filters and at most one aggregate remain over the stream."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

from headrace.sql.plan.context import PlanContext
from headrace.sql.plan.expr import AggCall, ColumnRef, RankCall, substitute
from headrace.sql.plan.logical import Aggregate, AssignWindow, Filter, Generate, Named, Plan, Project, Rank, rewrite


def inline_projections(plan: Plan, ctx: PlanContext) -> Plan:
    """Moves projections up, into the nodes that read them. Returns `plan` itself when there is nothing to move."""
    return rewrite(plan, _inline)


def _inline(node: Plan) -> Plan:
    if not node.inputs or not isinstance(node.inputs[0], Project):
        return node
    below = node.inputs[0]
    values = tuple(o.expr for o in below.outputs)
    if isinstance(node, Project):
        outputs = tuple(Named(o.name, substitute(o.expr, values)) for o in node.outputs)
        return Project(below.input, outputs)
    if isinstance(node, Filter):
        return Project(Filter(below.input, substitute(node.predicate, values)), below.outputs)
    if isinstance(node, AssignWindow):
        return _below_window(node, below)
    if isinstance(node, Generate):
        return _below_generator(node, below)
    if isinstance(node, Rank):
        return _below_rank(node, below)
    if isinstance(node, Aggregate):
        keys = tuple(Named(k.name, substitute(k.expr, values)) for k in node.keys)
        calls: list[AggCall] = []
        for call in node.calls:
            inlined = substitute(call, values)
            assert isinstance(inlined, AggCall)
            calls.append(inlined)
        return replace(node, input=below.input, keys=keys, calls=tuple(calls))
    return node


def _below_generator(node: Generate, below: Project) -> Plan:
    """Makes the rows below the projection, which passes the new columns through."""
    values = tuple(o.expr for o in below.outputs)
    lists = tuple(Named(n.name, substitute(n.expr, values)) for n in node.lists)
    made = dataclasses.replace(node, input=below.input, lists=lists)
    added = tuple(
        Named(f.name, ColumnRef(f.type, made.width + i, f.name)) for i, f in enumerate(made.schema.fields[made.width :])
    )
    return Project(made, (*below.outputs, *added))


def _below_rank(node: Rank, below: Project) -> Plan:
    """Ranks below the projection, which passes the ranks through."""
    values = tuple(o.expr for o in below.outputs)
    calls: list[RankCall] = []
    for call in node.calls:
        inlined = substitute(call, values)
        assert isinstance(inlined, RankCall)
        calls.append(inlined)
    ranked = Rank(below.input, tuple(calls))
    added = tuple(
        Named(f.name, ColumnRef(f.type, ranked.width + i, f.name))
        for i, f in enumerate(ranked.schema.fields[ranked.width :])
    )
    return Project(ranked, (*below.outputs, *added))


def _below_window(node: AssignWindow, below: Project) -> Plan:
    """Assigns the window below the projection, which passes the window columns through."""
    time = below.outputs[node.time].expr
    assert isinstance(time, ColumnRef)  # binding allows nothing else
    window = dataclasses.replace(node, input=below.input, time=time.index)
    width = window.width
    added = tuple(
        Named(f.name, ColumnRef(f.type, width + i, f.name)) for i, f in enumerate(window.schema.fields[width:])
    )
    return Project(window, (*below.outputs, *added))
