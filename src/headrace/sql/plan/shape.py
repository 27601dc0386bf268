"""The plan shape that the shared host runs, and the error for any other shape.

    Project( Filter( Aggregate( AssignWindow( Filter( StreamScan ) ) ) ) )

Only the projection and the scan are required.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.errors import Span, UnsupportedOnShared
from headrace.model.schema import Schema
from headrace.sql.parse.syntax import TextRange
from headrace.sql.plan.expr import Expr
from headrace.sql.plan.logical import Aggregate, AssignWindow, Filter, Named, Plan, Project, StreamScan, Union


@dataclass(frozen=True)
class Shape:
    """The parts of a plan in the shared host's shape."""

    scan: StreamScan
    filter: Expr | None
    window: AssignWindow | None
    aggregate: Aggregate | None
    having: Expr | None
    outputs: tuple[Named, ...]
    schema: Schema


def shared_shape(plan: Plan, span: Callable[[TextRange], Span]) -> Shape:
    """The parts of `plan`. Raises UnsupportedOnShared at the part that does not fit."""
    if isinstance(plan, Union):
        raise UnsupportedOnShared(
            "UNION ALL cannot run on the shared host",
            advice="Create one pipeline per part, each with its own sink.",
            span=span(plan.at),
        )
    assert isinstance(plan, Project), "binding ends every query with a projection"
    node = plan.input
    having = aggregate = window = predicate = None
    if isinstance(node, Filter) and isinstance(node.input, Aggregate):
        having, node = node.predicate, node.input
    if isinstance(node, Aggregate):
        aggregate, node = node, node.input
    if isinstance(node, Filter) and isinstance(node.input, AssignWindow):
        raise UnsupportedOnShared(
            "a filter that mixes the window with other columns cannot run on the shared host",
            advice="Filter on the window in HAVING, and on other columns in WHERE.",
            span=span(node.predicate.at),
        )
    if isinstance(node, AssignWindow):
        window, node = node, node.input
        if aggregate is None:
            raise UnsupportedOnShared(
                "a window without an aggregate cannot run on the shared host",
                advice="Add GROUP BY window_start, window_end.",
                span=span(window.at),
            )
    if isinstance(node, Filter):
        predicate, node = node.predicate, node.input
    return Shape(
        scan=_scan(node, span),
        filter=predicate,
        window=window,
        aggregate=aggregate,
        having=having,
        outputs=plan.outputs,
        schema=plan.schema,
    )


def _scan(node: Plan, span: Callable[[TextRange], Span]) -> StreamScan:
    """The scan below the other parts. Any other node there is an error."""
    if isinstance(node, StreamScan):
        return node
    if isinstance(node, Union):
        what, at = "UNION ALL below an aggregate", node.at
    else:
        inner = next((e for e in node.expressions), None)
        what, at = "an aggregate of an aggregate", (0, 0) if inner is None else inner.at
    raise UnsupportedOnShared(
        f"{what} cannot run on the shared host", advice="Create one pipeline per step.", span=span(at)
    )
