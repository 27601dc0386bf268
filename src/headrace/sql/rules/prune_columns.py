"""Rule: record the columns that this pipeline needs in the view of its scan. The schema does not change."""

from __future__ import annotations

import dataclasses

from headrace.model.schema import View
from headrace.sql.plan.context import PlanContext
from headrace.sql.plan.expr import columns_of
from headrace.sql.plan.logical import (
    Aggregate,
    AssignWindow,
    Filter,
    Generate,
    Plan,
    Project,
    Rank,
    StreamScan,
    Union,
    used_columns,
)


def prune_columns(plan: Plan, ctx: PlanContext) -> Plan:
    """Sets the view of each scan to the top-level columns that the nodes above read: ALL, SOME or NONE. A window reads
    the event time. Returns `plan` itself when the view is already set."""
    return _prune(plan, set(range(len(plan.schema))))


def _prune(plan: Plan, needed: set[int]) -> Plan:
    """`needed` are the columns of `plan` that its parent reads."""
    if isinstance(plan, StreamScan):
        view = View.all() if len(needed) == len(plan.schema) else View.some(needed)
        return plan if plan.view == view else dataclasses.replace(plan, view=view)
    below: list[set[int]]
    if isinstance(plan, Project):
        below = [{c for i in needed for c in columns_of(plan.outputs[i].expr)}]
    elif isinstance(plan, Filter):
        below = [needed | used_columns(plan)]
    elif isinstance(plan, Generate | Rank):
        below = [{i for i in needed if i < plan.width} | used_columns(plan)]
    elif isinstance(plan, AssignWindow):
        below = [{i for i in needed if i < plan.width} | {plan.time}]
    elif isinstance(plan, Aggregate):
        below = [used_columns(plan) | _ordering(plan)]
    else:
        assert isinstance(plan, Union)
        below = [needed for _ in plan.parts]
    inputs = tuple(_prune(child, wanted) for child, wanted in zip(plan.inputs, below, strict=True))
    same = all(a is b for a, b in zip(inputs, plan.inputs, strict=True))
    return plan if same else plan.with_inputs(inputs)


def _ordering(plan: Aggregate) -> set[int]:
    """The event time, if `first` or `last` needs it. They read it implicitly."""
    if not any(call.name in ("first", "last") for call in plan.calls):
        return set()
    below = plan.input
    while not isinstance(below, StreamScan):
        if len(below.inputs) != 1 or isinstance(below, Project | Aggregate):
            return set()
        below = below.inputs[0]
    return set() if below.stream.event_time is None else {below.stream.event_time}
