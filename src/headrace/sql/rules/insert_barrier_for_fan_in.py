"""Rule: where the feeds of several streams meet, say so with a barrier."""

from __future__ import annotations

from dataclasses import replace

from headrace.sql.plan.context import PlanContext
from headrace.sql.plan.physical import Physical, PhysicalBarrier, PhysicalDedicatedQuery
from headrace.sql.rules.rule_types import rewrite_physical


def insert_barrier_for_fan_in(plan: Physical, ctx: PlanContext) -> Physical:
    """Puts a barrier between the feeds of several streams and the query that reads them. Returns `plan` itself when
    every query reads one stream."""

    def insert(node: Physical) -> Physical:
        if isinstance(node, PhysicalDedicatedQuery) and len(node.feeds) > 1:
            return replace(node, feeds=(PhysicalBarrier(node.feeds),))
        return node

    return rewrite_physical(plan, insert)
