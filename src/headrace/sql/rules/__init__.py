"""The optimizer: one ordered tuple of rules. Each has its own file and its own fixture file in `tests/sql/rules/`.

Why this order: constants are folded first, because a filter that is always true vanishes and blocks nothing;
projections are inlined before filters move, so that a filter meets only filters, windows and aggregates on its way
down; columns are pruned last, when every expression stands where it will run.
"""

from __future__ import annotations

from headrace.errors import HeadraceError, RuleBrokePlan
from headrace.sql.plan import Plan
from headrace.sql.rules.base import Effect, LogicalRule, PlanContext
from headrace.sql.rules.fold_constants import fold_constants
from headrace.sql.rules.inline_projections import inline_projections
from headrace.sql.rules.prune_columns import prune_columns
from headrace.sql.rules.push_down_filter import push_down_filter

LOGICAL_RULES: tuple[LogicalRule, ...] = (fold_constants, inline_projections, push_down_filter, prune_columns)


def optimize(
    plan: Plan, ctx: PlanContext, rules: tuple[LogicalRule, ...] = LOGICAL_RULES
) -> tuple[Plan, tuple[tuple[str, Plan | None], ...]]:
    """Applies the rules in order. After each, the output schema must be what it was; a rule that breaks it, or builds a
    node that refuses itself, is named in RULE_BROKE_PLAN. Also returns each rule's result, None for "no change"."""
    trace: list[tuple[str, Plan | None]] = []
    schema = plan.schema
    for rule in rules:
        name = getattr(rule, "__name__", str(rule))
        try:
            after = rule(plan, ctx)
            broken = after.schema != schema if after is not plan else False
        except HeadraceError:
            raise
        except Exception as problem:
            raise RuleBrokePlan(f"rule {name} made an invalid plan: {problem}", rule=name) from problem
        if broken:
            raise RuleBrokePlan(f"rule {name} changed the output schema", rule=name)
        trace.append((name, None if after is plan else after))
        plan = after
    return plan, tuple(trace)


__all__ = ["LOGICAL_RULES", "Effect", "LogicalRule", "PlanContext", "optimize"]
