"""Finds the output columns of a Spark plan that pass on a column of the stream unchanged."""

from __future__ import annotations

from typing import Any

from headrace.spark.jvm_plans import seq, walk_tree

Passed = tuple[int, str]  # a column of the relation, and the field of it, or ""


def passed_columns(plan: Any) -> dict[int, Passed]:
    """For an optimized plan over one streaming relation: its output columns that are a column of the relation, or a
    field of one."""
    found = _Origins(plan)
    passed = {i: found.of(attribute.exprId().id()) for i, attribute in enumerate(seq(plan.output()))}
    return {i: origin for i, origin in passed.items() if origin is not None}


class _Origins:
    def __init__(self, plan: Any) -> None:
        self._leaves: dict[int, int] = {}
        self._aliases: dict[int, Any] = {}
        self._unions: dict[int, list[int]] = {}
        for node in walk_tree(plan):
            name = str(node.nodeName())
            if name == "LogicalRDD" and node.isStreaming():
                self._leaves |= {a.exprId().id(): i for i, a in enumerate(seq(node.output()))}
            elif name == "Project":
                aliases = (e for e in seq(node.projectList()) if e.nodeName() == "Alias")
                self._aliases |= {e.exprId().id(): e.child() for e in aliases}
            elif name == "Union":
                columns = zip(*(seq(child.output()) for child in seq(node.children())), strict=True)
                for own, column in zip(seq(node.output()), columns, strict=True):
                    self._unions[own.exprId().id()] = [a.exprId().id() for a in column]

    def of(self, number: int, seen: frozenset[int] = frozenset()) -> Passed | None:
        """What the attribute with this id passes on; None if it is computed."""
        if number in self._unions and number not in seen:  # the first input of a union has the ids of the union
            parts = {self.of(part, seen | {number}) for part in self._unions[number]}
            return parts.pop() if len(parts) == 1 else None
        if number in self._leaves:
            return self._leaves[number], ""
        return self._expression(self._aliases.get(number), seen)

    def _expression(self, expression: Any, seen: frozenset[int]) -> Passed | None:
        name = None if expression is None else str(expression.nodeName())
        if name == "AttributeReference":
            return self.of(expression.exprId().id(), seen)
        if name == "GetStructField":
            outer = self._expression(expression.child(), seen)
            if outer is not None and not outer[1]:
                return outer[0], str(expression.extractFieldName())
        return None
