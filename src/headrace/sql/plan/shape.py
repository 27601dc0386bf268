"""The plan shape that the shared host runs, and the error for any other shape.

    Project( Filter( Rank( Filter( Aggregate( AssignWindow( Filter( Generate( Filter( StreamScan ) ) ) ) ) ) ) ) )

Only the projection and the scan are required. There may be several generators, with filters between them. A rank needs
an aggregate with a window below it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from headrace.errors import Span, UnsupportedOnShared
from headrace.model.schema import NESTED, Schema
from headrace.sql.parse.syntax import TextRange
from headrace.sql.plan.expr import ColumnRef, Expr, FieldOf
from headrace.sql.plan.logical import (
    Aggregate,
    AssignWindow,
    Filter,
    Generate,
    Named,
    Plan,
    Project,
    Rank,
    StreamScan,
    Union,
)


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
    rank: Rank | None = None
    qualify: Expr | None = None

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
    having = aggregate = window = predicate = rank = qualify = None
    if isinstance(node, Filter) and isinstance(node.input, Rank):
        qualify, node = node.predicate, node.input
    if isinstance(node, Rank):
        rank, node = node, node.input
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
    if rank is not None:
        _check_rank(rank, aggregate, window, span)
    return Shape(
        scan=_scan(node, span),
        filter=predicate,
        window=window,
        aggregate=aggregate,
        having=having,
        outputs=plan.outputs,
        schema=plan.schema,
        generators=tuple(generators),
        rank=rank,
        qualify=qualify,
    )


def partition_keys(shape: Shape) -> tuple[int, ...]:
    """The keys of the aggregate, besides the window, that the ranks of a shape are partitioned by."""
    assert shape.rank is not None and shape.aggregate is not None and shape.window is not None
    keys = {_key_of(part) for part in shape.rank.calls[0].partition}
    return tuple(sorted(k for k in keys if not _is_window(shape.aggregate, k, shape.window)))


def _key_of(part: Expr) -> int:
    """The key that an expression of PARTITION BY is, or is the start or end of; -1 for none."""
    if isinstance(part, FieldOf):
        part = part.input
    return part.index if isinstance(part, ColumnRef) else -1


def _is_window(aggregate: Aggregate, key: int, window: AssignWindow) -> bool:
    expr = aggregate.keys[key].expr
    return isinstance(expr, ColumnRef) and window.width <= expr.index < NESTED


def _check_rank(
    rank: Rank, aggregate: Aggregate | None, window: AssignWindow | None, span: Callable[[TextRange], Span]
) -> None:
    """Raises UnsupportedOnShared for a rank that needs more than the groups of one window."""
    at = rank.calls[0].at

    def refuse(what: str, advice: str) -> NoReturn:
        raise UnsupportedOnShared(f"{what} cannot run on the shared host", advice=advice, span=span(at))

    if aggregate is None or window is None:
        refuse("a rank of rows that are not the groups of a window", "Group by a window, and rank its groups.")
    if window.window.kind == "session":
        refuse("a rank of sessions", "Use a tumbling or hopping window.")
    partitions = []
    for call in rank.calls:
        keys = {_key_of(part) for part in call.partition}
        if any(not 0 <= key < len(aggregate.keys) for key in keys) or any(
            isinstance(part, FieldOf) and not _is_window(aggregate, _key_of(part), window) for part in call.partition
        ):
            refuse("a rank that is not partitioned by group keys", "Use keys of GROUP BY.")
        named = {part.name for part in call.partition if isinstance(part, ColumnRef)}
        if window.window.kind == "cumulate" and "window_end" not in named:
            refuse("a rank over several windows", "CUMULATE has windows with one start: PARTITION BY window_end, too.")
        if not any(_is_window(aggregate, key, window) for key in keys):
            refuse("a rank over several windows", "Write PARTITION BY window, as the window closes on its own.")
        partitions.append({key for key in keys if not _is_window(aggregate, key, window)})
    if any(keys != partitions[0] for keys in partitions):
        refuse("ranks with different partitions", "Use one pipeline for each.")


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
        f"{what} cannot run on the shared host",
        advice="Let one pipeline compute the inner one INTO STREAM, and aggregate that stream in another.",
        span=span(at),
    )
