"""The optimizer: two ordered tuples of rules. Each rule has a file here and a fixture file in `tests/sql/rules/`.

The order matters. Constants are folded first: a filter that is always true disappears and no longer blocks other
rules. Projections are inlined before filters move, so a filter meets only filters, windows and aggregates on its way
down. Unions are merged before that, too: they become generators. Columns are pruned last, when every expression is
where it will run. Physical rules run on the lowered plan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from headrace.errors import HeadraceError, RuleBrokePlan
from headrace.sql.plan.context import PlanContext
from headrace.sql.plan.limits import ExpressionTooLarge, TooSlow
from headrace.sql.plan.logical import Plan
from headrace.sql.plan.physical import Physical, PhysicalAggregate, PhysicalMergeAggregate, PhysicalProject, topological
from headrace.sql.rules.fold_constants import fold_constants
from headrace.sql.rules.inline_projections import inline_projections
from headrace.sql.rules.insert_barrier_for_fan_in import insert_barrier_for_fan_in
from headrace.sql.rules.merge_unions import merge_unions
from headrace.sql.rules.prune_columns import prune_columns
from headrace.sql.rules.push_down_filter import push_down_filter
from headrace.sql.rules.rule_types import LogicalRule, PhysicalRule
from headrace.sql.rules.split_aggregates import split_aggregates

LOGICAL_RULES: tuple[LogicalRule, ...] = (
    fold_constants,
    inline_projections,
    merge_unions,
    push_down_filter,
    prune_columns,
)
PHYSICAL_RULES: tuple[PhysicalRule, ...] = (split_aggregates,)
# The parts of a query on the dedicated host are planned with the rules above, one stream at a time. This one sees all.
FAN_IN_RULES: tuple[PhysicalRule, ...] = (insert_barrier_for_fan_in,)

P = TypeVar("P", Plan, Physical)
Trace = tuple[tuple[str, Plan | Physical | None], ...]
"""Each rule's name and the plan after it; None when the rule changed nothing."""


def optimize(plan: Plan, ctx: PlanContext, rules: tuple[LogicalRule, ...] = LOGICAL_RULES) -> tuple[Plan, Trace]:
    """Applies the logical rules in order."""
    return _run(plan, ctx, rules, lambda p: p.schema)


def optimize_physical(
    plan: Physical, ctx: PlanContext, rules: tuple[PhysicalRule, ...] = PHYSICAL_RULES
) -> tuple[Physical, Trace]:
    """Applies the physical rules in order."""
    return _run(plan, ctx, rules, _physical_outputs)


def _run(
    plan: P, ctx: PlanContext, rules: tuple[Callable[[P, PlanContext], P], ...], outputs: Callable[[P], object]
) -> tuple[P, Trace]:
    """Applies `rules` in order. After each rule the plan must still have the same outputs. RULE_BROKE_PLAN names a rule
    that changes them, or that builds a node whose constructor rejects its arguments."""
    trace: list[tuple[str, Plan | Physical | None]] = []
    before = outputs(plan)
    for rule in rules:
        name = getattr(rule, "__name__", str(rule))
        try:
            after = rule(plan, ctx)
            broken = after is not plan and outputs(after) != before
        except (HeadraceError, RecursionError, ExpressionTooLarge, TooSlow):
            raise
        except Exception as problem:
            raise RuleBrokePlan(f"rule {name} made an invalid plan: {problem}", rule=name) from problem
        if broken:
            raise RuleBrokePlan(f"rule {name} changed the outputs of the plan", rule=name)
        trace.append((name, None if after is plan else after))
        plan = after
    return plan, tuple(trace)


def _physical_outputs(plan: Physical) -> object:
    """Names and types of the columns that reach the sinks."""
    for node in topological(plan):
        if isinstance(node, PhysicalAggregate):
            return [(o.name, o.expr.type) for o in node.shape.outputs]
        if isinstance(node, PhysicalProject | PhysicalMergeAggregate):
            return [(o.name, o.type) for o in node.outputs]
    raise TypeError("the plan has no outputs")


__all__ = [
    "FAN_IN_RULES",
    "LOGICAL_RULES",
    "PHYSICAL_RULES",
    "LogicalRule",
    "PhysicalRule",
    "optimize",
    "optimize_physical",
]
