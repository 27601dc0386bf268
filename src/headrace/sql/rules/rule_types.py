"""The types of rules, and the traversal of physical plans that rules share."""

from __future__ import annotations

from collections.abc import Callable

from headrace.sql.plan.context import PlanContext
from headrace.sql.plan.logical import Plan
from headrace.sql.plan.physical import Physical

LogicalRule = Callable[[Plan, PlanContext], Plan]
PhysicalRule = Callable[[Physical, PlanContext], Physical]


def rewrite_physical(root: Physical, change: Callable[[Physical], Physical]) -> Physical:
    """Applies `change` to every operator once, from the bottom up. Shared operators stay shared.

    Returns the same object when nothing changes.
    """
    done: dict[int, Physical] = {}

    def visit(node: Physical) -> Physical:
        found = done.get(id(node))
        if found is None:
            inputs = tuple(visit(child) for child in node.inputs)
            same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
            found = done[id(node)] = change(node if same else node.with_inputs(inputs))
        return found

    return visit(root)
