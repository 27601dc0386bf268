"""Rule: turn a UNION ALL of branches over one stream into one pass over it.

A generator makes a row of each row for every branch, with the number of the branch. Filter and select list choose by
that number. So every branch reads the same decoded rows, and an aggregate may stand above.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model.schema import BOOLEAN, INT, Array
from headrace.sql.functions.fallibility import throws
from headrace.sql.plan.context import PlanContext
from headrace.sql.plan.expr import Call, CaseWhen, ColumnRef, Expr, Literal, conjunction, substitute
from headrace.sql.plan.logical import Filter, Generate, Named, Plan, Project, StreamScan, Union, walk_plan
from headrace.sql.render.sizes import grows
from headrace.sql.rules.inline_projections import inline_projections

BRANCH = "branch"


@dataclass(frozen=True)
class _Branch:
    """A part of the union over the rows of its stream."""

    scan: StreamScan
    filters: tuple[Expr, ...]
    outputs: tuple[Expr, ...]


def merge_unions(plan: Plan, ctx: PlanContext) -> Plan:
    """Merges each UNION ALL whose branches only filter and project one stream. Returns `plan` itself when there is
    none."""
    merged = _merge(plan)
    return plan if merged is plan else inline_projections(merged, ctx)


def _merge(plan: Plan) -> Plan:
    if any(isinstance(node, Union) for node in walk_plan(plan)):
        branches = _branches(plan)
        if branches is not None and len({b.scan.stream.name.lower() for b in branches}) == 1:
            return _one_pass(plan, branches)
    inputs = plan.inputs
    new = tuple(_merge(child) for child in inputs)
    return plan if all(a is b for a, b in zip(new, inputs, strict=True)) else plan.with_inputs(new)


def _branches(plan: Plan) -> list[_Branch] | None:
    """The branches of a plan of unions, filters and projections. None if it has other nodes."""
    if isinstance(plan, StreamScan):
        return [_Branch(plan, (), tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(plan.schema)))]
    if not isinstance(plan, Union | Filter | Project):
        return None
    found: list[_Branch] = []
    for child in plan.inputs:
        below = _branches(child)
        if below is None:
            return None
        found += below
    if isinstance(plan, Filter):
        return [_Branch(b.scan, (*b.filters, substitute(plan.predicate, b.outputs)), b.outputs) for b in found]
    if isinstance(plan, Project):
        return [_Branch(b.scan, b.filters, tuple(substitute(o.expr, b.outputs) for o in plan.outputs)) for b in found]
    return found


def _one_pass(plan: Plan, branches: list[_Branch]) -> Plan:
    numbers = Call(Array(INT), "array", tuple(Literal(INT, i) for i in range(len(branches))))
    filters = [conjunction(list(b.filters)) for b in branches]
    source: Plan = branches[0].scan
    early = _of_any(filters)
    if early is not None:
        source = Filter(source, early)
    made: Plan = Generate(source, (Named(BRANCH, numbers),), False)
    number = ColumnRef(INT, len(source.schema), BRANCH)
    true = Literal(BOOLEAN, True)
    if any(f is not None for f in filters):
        made = Filter(made, _chosen(number, [true if f is None else f for f in filters]))
    outputs = [
        Named(field.name, _chosen(number, [b.outputs[i] for b in branches])) for i, field in enumerate(plan.schema)
    ]
    return Project(made, tuple(outputs))


def _of_any(filters: list[Expr | None]) -> Expr | None:
    """A filter of the rows that some branch keeps, if it cannot fail: rows that none keeps need not be made."""
    found: Expr | None = None
    for one in filters:
        if one is None or throws(one) or grows(one):
            return None
        if one != found:
            found = one if found is None else Call(BOOLEAN, "or", (found, one), at=one.at)
    return found


def _chosen(number: Expr, values: list[Expr]) -> Expr:
    """The value of the branch with this number."""
    if all(value == values[0] for value in values):
        return values[0]
    *first, last = values
    branches = tuple((Call(BOOLEAN, "=", (number, Literal(INT, i))), v) for i, v in enumerate(first))
    return CaseWhen(last.type, branches, last, at=last.at)
