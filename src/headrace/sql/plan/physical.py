"""Physical plans: the operators that really run, as a DAG. A node that two others read is one object, printed once.

PhysicalSharedStream -> PhysicalFilter -> PhysicalPartialAggregate   Ring 0, in the Spark tasks
-> PhysicalBridge                                                    one row per (pipeline, bucket, task)
-> PhysicalMergeAggregate                                            Ring 1, in Spark's stateful operator
-> PhysicalSink ... -> PhysicalResultCollect                         written by tasks, committed once per epoch
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from headrace.model.program import Condition, Emit, Expression, Growth, Partial, SinkDef, StreamDef, Window
from headrace.model.schema import Field, Schema, View
from headrace.sql.parse.intervals import show_interval
from headrace.sql.plan.shape import Shape


@dataclass(frozen=True)
class Physical:
    """An operator. `inputs` are the operators it reads."""

    @property
    def inputs(self) -> tuple[Physical, ...]:
        return ()

    def with_inputs(self, inputs: tuple[Physical, ...]) -> Physical:
        """The same operator over other inputs."""
        assert not inputs
        return self

    @property
    def details(self) -> tuple[tuple[str, str], ...]:
        """What EXPLAIN prints beside the name."""
        return ()


@dataclass(frozen=True)
class _Unary(Physical):
    input: Physical

    @property
    def inputs(self) -> tuple[Physical, ...]:
        return (self.input,)

    def with_inputs(self, inputs: tuple[Physical, ...]) -> Physical:
        return replace(self, input=inputs[0])


@dataclass(frozen=True)
class PhysicalSharedStream(Physical):
    """The shared stream, decoded once for all. `view` (the seed's shared_required_schema) is what this pipeline reads;
    positions stay those of the full schema."""

    stream: StreamDef
    view: View

    @property
    def details(self) -> tuple[tuple[str, str], ...]:
        return (("stream", self.stream.name), ("shared_required_schema", show_view(self.view, self.stream.schema)))


@dataclass(frozen=True)
class PhysicalFilter(_Unary):
    """Ring 0: keeps the rows for which the DuckDB expression is true. `columns` are those that it reads, `conditions`
    the parts that it joins by AND."""

    sql: str
    columns: tuple[int, ...]
    conditions: tuple[Condition, ...]

    @property
    def details(self) -> tuple[tuple[str, str], ...]:
        return (("ring", "0"), ("where", self.sql))


@dataclass(frozen=True)
class PhysicalProject(_Unary):
    """Ring 0: the output columns of a query without an aggregate."""

    outputs: tuple[Expression, ...]

    @property
    def details(self) -> tuple[tuple[str, str], ...]:
        return (("ring", "0"), ("columns", str(len(self.outputs))))


@dataclass(frozen=True)
class PhysicalAggregate(_Unary):
    """An aggregate before `split_aggregates`; nothing can run it."""

    shape: Shape
    emit: Emit


@dataclass(frozen=True)
class Family:
    """The pipelines of a stream that share one aggregation pass: same window, same keys. `members` are the others."""

    key: str
    members: tuple[str, ...]


@dataclass(frozen=True)
class PhysicalPartialAggregate(_Unary):
    """Ring 0: partial states per (window, keys) of one task's rows."""

    keys: tuple[Expression, ...]
    window: Window | None
    partials: tuple[Partial, ...]
    family: Family | None = None

    @property
    def details(self) -> tuple[tuple[str, str], ...]:
        shown = [("ring", "0"), ("keys", ", ".join(k.name for k in self.keys) or "none")]
        if self.window is not None:
            shown.append(("window", show_window(self.window)))
        shown.append(("partials", str(len(self.partials))))
        if self.family is not None and self.family.members:
            shown.append(("shares_pass_with", ", ".join(self.family.members)))
        return tuple(shown)


@dataclass(frozen=True)
class PhysicalBridge(_Unary):
    """The hand-off from tasks to lanes: events, then watermark, then barrier, then end."""

    keys: tuple[str, ...]
    stateful: bool

    @property
    def details(self) -> tuple[tuple[str, str], ...]:
        lane = f"(pipeline, hash({', '.join(self.keys)}))" if self.keys else "pipeline"
        return (("lane", lane), ("payload", "partial states" if self.stateful else "rows"))


@dataclass(frozen=True)
class PhysicalMergeAggregate(_Unary):
    """Ring 1: merges partial states, keeps them in Spark's state store, and emits results."""

    keys: tuple[Field, ...]
    window: Window | None
    partials: tuple[Partial, ...]
    emit: Emit
    having: str | None
    outputs: tuple[Expression, ...]
    growth: Growth = field(default_factory=Growth, compare=False)

    @property
    def details(self) -> tuple[tuple[str, str], ...]:
        emit = {"close": "on window close", "changes": "on change", "first": "on first sight"}[self.emit]
        shown = [("ring", "1"), ("emit", emit)]
        if self.having is not None:
            shown.append(("having", self.having))
        shown.append(("columns", str(len(self.outputs))))
        return tuple(shown)


@dataclass(frozen=True)
class PhysicalSink(_Unary):
    """Writes the rows: staged by tasks, committed per epoch."""

    sink: SinkDef
    guarantee: str

    @property
    def details(self) -> tuple[tuple[str, str], ...]:
        return (("sink", self.sink.name), ("type", self.sink.kind), ("guarantee", self.guarantee))


@dataclass(frozen=True)
class PhysicalResultCollect(Physical):
    """Where an epoch ends: all sinks of the pipeline are committed."""

    sources: tuple[Physical, ...]

    @property
    def inputs(self) -> tuple[Physical, ...]:
        return self.sources

    def with_inputs(self, inputs: tuple[Physical, ...]) -> Physical:
        return replace(self, sources=inputs)


@dataclass(frozen=True)
class PhysicalBarrier(Physical):
    """Aligns barrier signals of all its inputs; data passes unchanged."""

    sources: tuple[Physical, ...]

    def __post_init__(self) -> None:
        if len(self.sources) < 2:
            raise ValueError("a barrier aligns at least two inputs")

    @property
    def inputs(self) -> tuple[Physical, ...]:
        return self.sources

    def with_inputs(self, inputs: tuple[Physical, ...]) -> Physical:
        return replace(self, sources=inputs)

    @property
    def upstream_count(self) -> int:
        """How many inputs must deliver a barrier before it goes on."""
        return len(self.sources)

    @property
    def details(self) -> tuple[tuple[str, str], ...]:
        return (("upstream_count", str(self.upstream_count)),)


def topological(root: Physical) -> list[Physical]:
    """Every operator once, inputs first: the order in which EXPLAIN names them r0, r1, ..."""
    order: list[Physical] = []
    seen: set[int] = set()

    def visit(node: Physical) -> None:
        if id(node) in seen:
            return
        seen.add(id(node))
        for child in node.inputs:
            visit(child)
        order.append(node)

    visit(root)
    return order


def show_view(view: View, schema: Schema) -> str:
    """A view with the names behind its positions, at most twelve of them."""
    if view.columns is None:
        return f"ALL ({len(schema)} columns)"
    if not view.columns:
        return "NONE"
    shown = [f"{i} {schema[i].name}" for i in sorted(view.columns)]
    rest = f", ... {len(shown) - 12} more" if len(shown) > 12 else ""
    return f"SOME [{', '.join(shown[:12])}{rest}]"


def show_window(window: Window) -> str:
    """A window in words."""
    size, slide = show_interval(window.size), show_interval(window.slide)
    text = {
        "tumble": f"tumble {size}",
        "hop": f"hop {size} every {slide}",
        "cumulate": f"cumulate {slide} up to {size}",
        "session": f"session, gap {size}",
    }[window.kind]
    return text + (f", offset {show_interval(window.offset)}" if window.offset else "")
