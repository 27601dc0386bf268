"""Rule: pipelines of a stream with the same window and keys share one aggregation pass in Ring 0.

A family is a fact about a plan version: lanes and state stay per pipeline. Here the pass of the plan at hand is marked
with its family, so that EXPLAIN can say who shares it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from headrace.model.program import Expression, PipelineProgram, Window
from headrace.sql.plan.physical import Family, Physical, PhysicalPartialAggregate, show_window
from headrace.sql.rules.context import PlanContext, rewrite_physical


def find_families(plan: Physical, ctx: PlanContext) -> Physical:
    """Mark each partial aggregate with the neighbours that have the same window and keys. Returns `plan` itself when
    there are none."""

    def mark(node: Physical) -> Physical:
        if not isinstance(node, PhysicalPartialAggregate) or (node.window and node.window.kind == "session"):
            return node
        key = family_key(node.window, node.keys)
        members = tuple(sorted(name for name, other in ctx.neighbours.items() if program_family(other) == key))
        family = Family(key, members) if members else None
        return node if node.family == family else dataclasses.replace(node, family=family)

    return rewrite_physical(plan, mark)


def family_key(window: Window | None, keys: Iterable[Expression]) -> str:
    """What two pipelines of one stream have in common when they can share a pass."""
    return f"{'no window' if window is None else show_window(window)} by [{', '.join(k.sql for k in keys)}]"


def program_family(program: PipelineProgram) -> str | None:
    """The family of a compiled pipeline; None when it runs alone."""
    if program.family is None:
        return None
    return family_key(program.ring0.window, program.ring0.keys)
