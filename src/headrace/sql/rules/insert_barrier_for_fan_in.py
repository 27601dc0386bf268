"""Rule, always the last: every operator with more than one input gets a `PhysicalBarrier` in front of it."""

from __future__ import annotations

from headrace.sql.plan.physical import Physical, PhysicalBarrier
from headrace.sql.rules.context import PlanContext, rewrite_physical


def insert_barrier_for_fan_in(plan: Physical, ctx: PlanContext) -> Physical:
    """Rewrite P(C1, ..., Cn) to P(Barrier(C1, ..., Cn)) for n > 1. Returns `plan` itself when nothing fans in."""

    def insert(node: Physical) -> Physical:
        if len(node.inputs) < 2 or isinstance(node, PhysicalBarrier):
            return node
        return node.with_inputs((PhysicalBarrier(node.inputs),))

    return rewrite_physical(plan, insert)
