"""Rule: where the pipeline runs. The shared host runs one shape; anything else is refused, never silently moved."""

from __future__ import annotations

from headrace.sql.plan.logical import Plan
from headrace.sql.plan.shape import shared_shape
from headrace.sql.rules.context import PlanContext


def choose_host(plan: Plan, ctx: PlanContext) -> Plan:
    """Returns `plan` itself when the shared host can run it; raises UnsupportedOnShared at the guilty place."""
    shared_shape(plan, ctx.span)
    return plan
