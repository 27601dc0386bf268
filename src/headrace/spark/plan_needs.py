"""What a plan needs of the relations that stand for streams: columns, conditions to push down, session variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame

from headrace.model.program import SessionVariable
from headrace.spark.jvm_plans import seq, walk_tree

Conditions = tuple[tuple[str, ...], str]
"""Conditions in Spark SQL, and the qualifier of their columns."""


def needed_columns(plan: Any) -> tuple[int, ...]:
    """The columns of the stream that an optimized plan reads."""
    return tuple(sorted(set().union(*(_columns(parents, leaf) for parents, leaf in _streams_in(plan)))))


def pushed_conditions(plan: Any) -> Conditions:
    """The conditions that all rows of the stream must pass. There are none if the plan reads the stream twice: a row
    may matter to either place."""
    leaves = list(_streams_in(plan))
    return _directly_above(leaves[0][0]) if len(leaves) == 1 else ((), "")


def conditions_by_relation(plan: Any, frames: Mapping[str, DataFrame]) -> dict[str, Conditions]:
    """The conditions directly above each relation. There are none if the plan reads one of them twice."""
    names = {
        attribute.exprId().id(): name
        for name, frame in frames.items()
        for attribute in seq(frame._jdf.queryExecution().analyzed().output())
    }
    found: dict[str, Conditions] = {}
    leaves = list(_streams_in(plan))
    if len(leaves) != len(frames):
        return {}
    for parents, leaf in leaves:
        owners = {names.get(attribute.exprId().id()) for attribute in seq(leaf.output())}
        name = owners.pop() if len(owners) == 1 else None
        if name is not None:
            found[name] = _directly_above(parents)
    return found


def session_variables(analyzed: Any) -> tuple[SessionVariable, ...]:
    """The session variables that a query reads, also in subqueries and views, with the values that they have now."""
    found = {
        str(inner.identifier().name()): inner
        for _, node in with_parents(analyzed, subqueries=True)
        for expression in seq(node.expressions())
        for inner in walk_tree(expression)
        if inner.nodeName() == "VariableReference"
    }
    return tuple(
        SessionVariable(name, str(one.dataType().sql()), str(one.varDef().currentValue().sql()))
        for name, one in sorted(found.items())
    )


def with_parents(
    node: Any, parents: list[Any] | None = None, *, subqueries: bool = False
) -> Iterator[tuple[list[Any], Any]]:
    """The nodes of a plan with the nodes above each, the root first."""
    above = parents or []
    yield above, node
    inner = seq(node.children())
    if node.nodeName() == "UnresolvedWith":
        inner += [relation._2() for relation in seq(node.cteRelations())]
    if subqueries:
        inner += seq(node.subqueries())
    for child in inner:
        yield from with_parents(child, [*above, node], subqueries=subqueries)


def _streams_in(plan: Any) -> Iterator[tuple[list[Any], Any]]:
    """The leaves that stand for streams, with the nodes above each."""
    for parents, node in with_parents(plan):
        if node.nodeName() == "LogicalRDD" and node.isStreaming():
            yield parents, node


def _columns(parents: list[Any], leaf: Any) -> set[int]:
    """The columns of one leaf that its nearest projection, and the filters below that, read."""
    places = {attribute.exprId().id(): i for i, attribute in enumerate(seq(leaf.output()))}
    found: set[int] = set()
    for parent in reversed(parents):
        references = seq(parent.references().toSeq())
        found |= {places[a.exprId().id()] for a in references if a.exprId().id() in places}
        if parent.nodeName() in ("Project", "Aggregate"):
            return found
        if parent.nodeName() != "Filter":
            break
    return set(places.values())


def _directly_above(parents: list[Any]) -> Conditions:
    """The operands of the filter directly above a leaf, if their columns have one qualifier."""
    if not parents or parents[-1].nodeName() != "Filter":
        return (), ""
    found: dict[str, list[str]] = {}
    for part in _operands(parents[-1].condition()):
        qualifiers = {
            ".".join(map(str, seq(e.qualifier()))) for e in walk_tree(part) if e.nodeName() == "AttributeReference"
        }
        if len(qualifiers) == 1:
            found.setdefault(qualifiers.pop(), []).append(str(part.sql()))
    if not found:
        return (), ""
    qualifier, conditions = max(found.items(), key=lambda item: len(item[1]))
    return tuple(conditions), qualifier


def _operands(condition: Any) -> Iterator[Any]:
    if condition.nodeName() == "And":
        yield from _operands(condition.left())
        yield from _operands(condition.right())
    else:
        yield condition
