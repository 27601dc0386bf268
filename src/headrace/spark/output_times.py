"""Finds the output columns of a streaming query of Spark that are an event time: a stream of its rows may inherit them.

Spark marks the columns of `withWatermark`, and windows over them, in their metadata. The watermark that Spark computes
for its output (`headrace.spark.jvm_plans.output_watermark`) holds for these columns. Two cases are left out. The side
of an outer join that may be missing has NULLs. A join that keeps rows without end may emit an old row at any time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from headrace.spark.jvm_plans import module, seq, walk_tree
from headrace.sql.plan.event_times import TimeOrigin

_MARK = "spark.watermarkDelayMs"
_ANY_TIME = 1 << 40  # py4j passes a smaller number as an Integer, and Spark wants a Long
_STATES = frozenset(["Aggregate", "Distinct", "Deduplicate", "DeduplicateWithinWatermark"])
_MISSING = {"LeftOuter": ("right",), "RightOuter": ("left",), "FullOuter": ("left", "right")}


def output_times(spark: SparkSession, analyzed: Any, optimized: Any) -> dict[int, TimeOrigin]:
    """The output columns of a query that are an event time. Both plans are of the query over relations with
    watermarks."""
    if not all(_forgets(spark, join) for join in _last_joins(optimized)):
        return {}
    columns = _TimeColumns(analyzed)
    found = ((i, columns.of(attribute)) for i, attribute in enumerate(seq(analyzed.output())))
    return {i: origin for i, origin in found if origin is not None}


def keeps_state(optimized: Any) -> bool:
    """True if a streaming query remembers rows of earlier batches."""
    nodes = [node for node in walk_tree(optimized) if node.isStreaming()]
    return any(str(node.nodeName()) in _STATES or _joins_streams(node) for node in nodes)


def _joins_streams(node: Any) -> bool:
    return str(node.nodeName()) == "Join" and bool(node.left().isStreaming()) and bool(node.right().isStreaming())


def _last_joins(node: Any) -> Iterator[Any]:
    """The joins of streams whose rows reach the output as they are. An aggregate over a join drops rows that are too
    old."""
    if _joins_streams(node):
        yield node
    if str(node.nodeName()) != "Aggregate":
        for child in seq(node.children()):
            yield from _last_joins(child)


def _forgets(spark: SparkSession, join: Any) -> bool:
    """True if a join drops the rows of both sides when they are too old to match."""
    jvm: Any = spark._jvm
    helper = module(jvm, "org.apache.spark.sql.catalyst.analysis.StreamingJoinHelper")
    if helper.isWatermarkInJoinKeys(join):
        return True
    left, right, any_time = join.left().outputSet(), join.right().outputSet(), jvm.scala.Some(_ANY_TIME)
    found = (
        helper.getStateValueWatermark(one, other, join.condition(), any_time)
        for one, other in ((left, right), (right, left))
    )
    return all(bool(watermark.isDefined()) for watermark in found)


class _TimeColumns:
    """Follows columns of an analyzed plan down through aliases, common table expressions and unions."""

    def __init__(self, plan: Any) -> None:
        self._aliases: dict[int, Any] = {}
        self._same: dict[int, Any] = {}
        self._unions: dict[int, list[Any]] = {}
        self._missing: set[int] = set()
        nodes = list(walk_tree(plan))
        declared = {n.id(): n for n in nodes if str(n.nodeName()) == "CTERelationDef"}
        for node in nodes:
            name = str(node.nodeName())
            if name in ("Project", "Aggregate"):
                given = node.projectList() if name == "Project" else node.aggregateExpressions()
                aliases = (e for e in seq(given) if str(e.nodeName()) == "Alias")
                self._aliases |= {_id(e): e.child() for e in aliases}
            elif name == "Union":
                columns = zip(*(seq(child.output()) for child in seq(node.children())), strict=True)
                self._unions |= {
                    _id(own): list(column) for own, column in zip(seq(node.output()), columns, strict=True)
                }
            elif name == "CTERelationRef" and node.cteId() in declared:
                below = seq(declared[node.cteId()].output())
                named = zip(seq(node.output()), below, strict=True)
                self._same |= {_id(own): origin for own, origin in named if _id(own) != _id(origin)}
            elif name == "Join":
                sides = _MISSING.get(str(node.joinType().toString()), ())
                for side in sides:
                    self._missing |= {_id(a) for a in seq(getattr(node, side)().output())}

    def of(self, attribute: Any, seen: frozenset[int] = frozenset()) -> TimeOrigin | None:
        """What an attribute is; None if it is no event time, or may be NULL where there is a row."""
        number = _id(attribute)
        if number in self._missing:
            return None
        if number in self._unions and number not in seen:  # the first input of a union has the ids of the union
            parts = {self.of(part, seen | {number}) for part in self._unions[number]}
            return parts.pop() if len(parts) == 1 else None
        if number in self._same:
            return self.of(self._same[number], seen)
        computed = self._aliases.get(number)
        kind = None if computed is None else str(computed.nodeName())
        if computed is not None and kind == "AttributeReference":
            return self.of(computed, seen)
        if computed is not None and kind == "GetStructField":
            whole = computed.child()
            is_end = str(computed.extractFieldName()).lower() == "end" and _is_marked(whole)
            return "end of the window" if is_end and not self._is_missing(whole) else None
        is_time = str(attribute.dataType().typeName()) in ("timestamp", "timestamp_ntz")
        return "event time" if is_time and _is_marked(attribute) else None

    def _is_missing(self, attribute: Any) -> bool:
        """True if an attribute, or what it stands for, is of a side of a join that may be missing."""
        while attribute is not None:
            if _id(attribute) in self._missing:
                return True
            computed = self._aliases.get(_id(attribute))
            if computed is None or str(computed.nodeName()) != "AttributeReference":
                computed = self._same.get(_id(attribute))
            attribute = computed
        return False


def _id(named: Any) -> int:
    return int(named.exprId().id())


def _is_marked(expression: Any) -> bool:
    return str(expression.nodeName()) == "AttributeReference" and bool(expression.metadata().contains(_MARK))
