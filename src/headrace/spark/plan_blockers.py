"""Finds the part of an analyzed plan that keeps a query from a host: state, a sort, a random function, a join."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.spark.jvm_plans import seq, walk_tree
from headrace.sql.hosts.spark_checker import Blocker

# The range of a node in the user's text.
RangeOf = Callable[[Any], tuple[int, int] | None]

# Nodes that give the same rows however the stream is cut into epochs.
_ROW_BY_ROW = frozenset(
    ["Project", "Filter", "SubqueryAlias", "View", "LogicalRDD", "WithCTE", "CTERelationDef", "CTERelationRef", "Union",
     "Generate", "Expand", "LateralJoin", "ResolvedHint", "UnresolvedHint", "Repartition", "RepartitionByExpression",
     "RebalancePartitions", "PipeOperator"]
)  # fmt: skip
_SORTS = {"Sort": "ORDER BY", "GlobalLimit": "LIMIT", "LocalLimit": "LIMIT", "Offset": "OFFSET", "Tail": "LIMIT"}
_STATES = {
    "Aggregate": "an aggregate", "Distinct": "DISTINCT", "Deduplicate": "DISTINCT", "Window": "OVER (...)",
    "Intersect": "INTERSECT", "Except": "EXCEPT", "Pivot": "PIVOT",
}  # fmt: skip
# The joins that keep rows of one side only, by the side that may be the stream.
_LEFT = frozenset(["inner", "cross", "leftouter", "leftsemi", "leftanti", "existencejoin", "leftsingle"])
_RIGHT = frozenset(["inner", "cross", "rightouter"])
# Expressions with a plan inside, and calls of functions that users have registered.
_SUBQUERIES = frozenset(["LateralSubquery", "ScalarSubquery", "Exists", "ListQuery"])
_OF_USERS = frozenset(["PythonUDF", "PythonUDTF", "ScalaUDF"])
_REGISTERED = (
    "An epoch that is run again after a crash would give other rows. If the function always returns the same for the "
    "same arguments, register it as deterministic: a table function of Python with .asDeterministic()."
)
_SESSION = "spark.sessionWindow"  # the mark of Spark's analyzer
_GLOBAL_SESSION = "a session window without another group key"
_WITH_KEY = "Add a key, such as a column or a condition on one: GROUP BY session_window(ts, ...), device."
_NO_STREAM = Blocker("stateful", "a query that reads no stream")


def epoch_blocker(plan: Any, range_of: RangeOf) -> Blocker | None:
    """The first part of a plan that does not work row by row, so that the query cannot run epoch by epoch."""
    if not plan.isStreaming():
        return _NO_STREAM
    return _first_of(plan, range_of)


def streaming_blocker(plan: Any, range_of: RangeOf) -> Blocker | None:
    """The first part of a plan that gives other rows in a re-run, or that no stream has: a random function, a sort."""
    if not plan.isStreaming():
        return _NO_STREAM
    for node in walk_tree(plan):
        if not node.isStreaming():
            continue
        name = str(node.nodeName())
        found = _random(node, range_of)
        if found is None and name in _SORTS:
            found = Blocker("sort", _SORTS[name], _SORTS[name], range_of(node))
        if found is None and name == "Aggregate" and _only_session(node):
            found = Blocker("stateful", _GLOBAL_SESSION, "session_window", range_of(node), advice=_WITH_KEY)
        if found is None and any(inner.isStreaming() for inner in seq(node.subqueries())):
            found = Blocker("join", "a subquery over a stream", "", range_of(node))
        if found is not None:
            return found
    return None


def _only_session(node: Any) -> bool:
    """True for groups by a session window alone. Spark's streaming refuses them only when the query starts."""
    keys = seq(node.groupingExpressions())
    return len(keys) == 1 and "metadata" in dir(keys[0]) and bool(keys[0].metadata().contains(_SESSION))


def _first_of(plan: Any, range_of: RangeOf) -> Blocker | None:
    return next((found for node in walk_tree(plan) if (found := _of_node(node, range_of)) is not None), None)


def _of_node(node: Any, range_of: RangeOf) -> Blocker | None:
    name, streaming = str(node.nodeName()), bool(node.isStreaming())
    if streaming and (found := _random(node, range_of)) is not None:
        return found
    for inner in seq(node.subqueries()):
        if inner.isStreaming():
            return Blocker("join", "a subquery over the stream", "", range_of(inner))
        if (found := _first_of(inner, range_of)) is not None:
            return found
    if name == "Union" and streaming and not all(child.isStreaming() for child in seq(node.children())):
        return Blocker("join", "UNION ALL of the stream with a static table", "UNION", range_of(node))
    if not streaming or name in _ROW_BY_ROW:
        return None
    if name in _SORTS:
        return Blocker("sort", _SORTS[name], _SORTS[name], range_of(node))
    if name == "Join":
        return _of_join(node, range_of)
    return Blocker("stateful", _STATES.get(name, name), _STATES.get(name, name), range_of(node))


def _of_join(node: Any, range_of: RangeOf) -> Blocker | None:
    left, right = bool(node.left().isStreaming()), bool(node.right().isStreaming())
    kind = str(node.joinType().toString()).lower().split("(")[0].replace(" ", "").replace("_", "")
    if left and right:
        return Blocker("join", "a join of the stream with itself", "JOIN", range_of(node))
    if kind in (_LEFT if left else _RIGHT):
        return None
    side = "left" if left else "right"
    return Blocker("join", f"a {node.joinType().sql()} JOIN with the stream on the {side}", "JOIN", range_of(node))


def _random(node: Any, range_of: RangeOf) -> Blocker | None:
    for expression in seq(node.expressions()):
        if not expression.deterministic():
            guilty = _random_part(expression)
            own = str(guilty.nodeName()) in _OF_USERS
            name = guilty.name() if own else guilty.prettyName()
            return Blocker(
                "random", f"{name}()", str(guilty.sql()), range_of(guilty), advice=_REGISTERED if own else ""
            )
    return None


def _random_part(expression: Any) -> Any:
    """The innermost part of an expression that is not deterministic."""
    for child in seq(expression.children()):
        if not child.deterministic():
            return _random_part(child)
    if str(expression.nodeName()) in _SUBQUERIES:
        inner = (e for node in walk_tree(expression.plan()) for e in seq(node.expressions()))
        found = next((e for e in inner if not e.deterministic()), None)
        return expression if found is None else _random_part(found)
    return expression
