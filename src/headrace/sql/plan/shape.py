"""The plan shape that the shared host runs, and the error for any other shape.

    Project( Filter( Aggregate( AssignWindow( Filter( Generate( Filter( StreamScan ) ) ) ) ) ) )

Only the projection and the scan are required. There may be several generators, with filters between them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.errors import Span, UnsupportedOnShared
from headrace.model.schema import Schema
from headrace.sql.parse.syntax import TextRange
from headrace.sql.plan.expr import Expr
from headrace.sql.plan.logical import Aggregate, AssignWindow, Filter, Generate, Named, Plan, Project, StreamScan, Union


@dataclass(frozen=True)
class Generation:
    """A generator, and the filter of the rows that it makes."""

    node: Generate
    after: Expr | None


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
    generators: tuple[Generation, ...] = ()

    @property
    def filter_of_made(self) -> Expr | None:
        """The filter that reads the rows of the stream, or those that the generators make."""
        return self.generators[-1].after if self.generators else self.filter

    @property
    def width(self) -> int:
        """The number of columns of the stream and the generators."""
        return len(self.generators[-1].node.schema) if self.generators else len(self.scan.schema)


def shared_shape(plan: Plan, span: Callable[[TextRange], Span]) -> Shape:
    """The parts of `plan`. Raises UnsupportedOnShared at the part that does not fit."""
    if isinstance(plan, Union):
        raise UnsupportedOnShared(
            "UNION ALL of these parts cannot run on the shared host",
            advice="Parts that filter and project one stream can. Create one pipeline per part, into the same sink.",
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
    generators: list[Generation] = []
    while isinstance(node, Generate):
        generators.insert(0, Generation(node, predicate))
        predicate, node = None, node.input
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
        generators=tuple(generators),
    )


def _scan(node: Plan, span: Callable[[TextRange], Span]) -> StreamScan:
    """The scan below the other parts. Any other node there is an error."""
    if isinstance(node, StreamScan):
        return node
    if isinstance(node, Union):
        raise UnsupportedOnShared(
            "an aggregate over a UNION ALL of these parts cannot run on the shared host",
            advice="Its parts must filter and project one stream, without aggregates and generators.",
            span=span(node.at),
        )
    elif isinstance(node, AssignWindow):
        raise UnsupportedOnShared(
            "a generator over a windowed stream cannot run on the shared host",
            advice="Make the rows first, and then GROUP BY window(...).",
            span=span(node.at),
        )
    else:
        inner = next((e for e in node.expressions), None)
        what, at = "an aggregate of an aggregate", (0, 0) if inner is None else inner.at
    raise UnsupportedOnShared(
        f"{what} cannot run on the shared host", advice="Create one pipeline per step.", span=span(at)
    )
