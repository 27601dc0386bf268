"""Physical plans: the operators that run, as a DAG. An operator with two readers is one object, printed once.

With an aggregate:

    PhysicalSharedStream -> PhysicalFilter -> PhysicalPartialAggregate   Ring 0, in Spark tasks
    -> PhysicalBridge                                                    messages from tasks to lanes
    -> PhysicalMergeAggregate -> PhysicalSink                            Ring 1, in Spark's stateful operator
    -> PhysicalCommit                                                    on the driver, once per epoch

Without one, nothing crosses the bridge and Ring 1 has no part:

    PhysicalSharedStream -> PhysicalFilter -> PhysicalProject -> PhysicalSink -> PhysicalCommit

On the epoch host a `PhysicalSparkQuery` stands before the sinks, after the last operator of the rings. On the
dedicated host a `PhysicalFeed` for each stream and a `PhysicalDedicatedQuery` do, and a `PhysicalBarrier` between them
if there are several streams.

Every operator has a part at run time that executes it: tests/sql/test_explain_truth.py runs plans and compares.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from headrace.model.definitions import SinkDef, StreamDef
from headrace.model.program import Condition, Emit, Expression, Growth, Partial, RowGenerator, Window
from headrace.model.schema import NESTED, Field, Schema, View, field_at, nested_fields
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
        """The properties that EXPLAIN prints after the name."""
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
    """The stream, decoded once for all its pipelines. `view` has the columns that this pipeline reads, by index in the
    full schema."""

    stream: StreamDef
    view: View

    @property
    def details(self) -> tuple[tuple[str, str], ...]:
        return (("stream", self.stream.name), ("shared_required_schema", show_view(self.view, self.stream.schema)))


@dataclass(frozen=True)
class PhysicalFilter(_Unary):
    """Ring 0: keeps the rows for which the DuckDB expression `sql` is true. `columns` are the columns that it reads.
    `conditions` are the parts that it joins by AND."""

    sql: str
    columns: tuple[int, ...]
    conditions: tuple[Condition, ...]

    @property
    def details(self) -> tuple[tuple[str, str], ...]:
        return (("ring", "0"), ("where", self.sql))


@dataclass(frozen=True)
class PhysicalGenerate(_Unary):
    """Ring 0: makes rows of arrays and maps. The operators after it read the made rows."""

    generator: RowGenerator

    @property
    def details(self) -> tuple[tuple[str, str], ...]:
        made = ", ".join(f"{c.name} {c.type}" for c in self.generator.columns)
        where = () if self.generator.filter is None else (("where", self.generator.filter),)
        return (("ring", "0"), *where, ("makes", made), ("outer", "yes" if self.generator.outer else "no"))


@dataclass(frozen=True)
class PhysicalProject(_Unary):
    """Ring 0: the output columns of a query without an aggregate."""

    outputs: tuple[Expression, ...]

    @property
    def details(self) -> tuple[tuple[str, str], ...]:
        return (("ring", "0"), ("columns", str(len(self.outputs))))


@dataclass(frozen=True)
class PhysicalAggregate(_Unary):
    """An aggregate before `split_aggregates`. A finished plan has none."""

    shape: Shape
    emit: Emit


@dataclass(frozen=True)
class PhysicalPartialAggregate(_Unary):
    """Ring 0: partial states per (window, keys) of one task's rows."""

    keys: tuple[Expression, ...]
    window: Window | None
    partials: tuple[Partial, ...]
    bucket_keys: tuple[int, ...] | None = None

    @property
    def details(self) -> tuple[tuple[str, str], ...]:
        shown = [("ring", "0"), ("keys", ", ".join(k.name for k in self.keys) or "none")]
        if self.window is not None:
            shown.append(("window", show_window(self.window)))
        shown.append(("partials", str(len(self.partials))))
        return tuple(shown)


@dataclass(frozen=True)
class PhysicalBridge(_Unary):
    """Carries partial states from tasks to lanes. Per epoch each task sends events, watermark, barrier, end."""

    keys: tuple[str, ...]

    @property
    def details(self) -> tuple[tuple[str, str], ...]:
        return (("lane", f"(pipeline, hash({', '.join(self.keys)}))" if self.keys else "pipeline"),)


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
    ranks: tuple[Expression, ...] = ()
    qualify: str | None = None

    @property
    def details(self) -> tuple[tuple[str, str], ...]:
        emit = {"close": "on window close", "changes": "on change", "first": "on first occurrence"}[self.emit]
        shown = [("ring", "1"), ("emit", emit)]
        if self.having is not None:
            shown.append(("having", self.having))
        if self.ranks:
            shown.append(("ranks", str(len(self.ranks))))
        if self.qualify is not None:
            shown.append(("keeps", self.qualify))
        shown.append(("columns", str(len(self.outputs))))
        return tuple(shown)


@dataclass(frozen=True)
class PhysicalSparkQuery(_Unary):
    """The epoch host: Spark runs `sql` in the commit of the epoch, over the rows that the rings staged."""

    sql: str
    staged: Schema

    @property
    def details(self) -> tuple[tuple[str, str], ...]:
        return (("in", "commit"), ("staged", f"[{', '.join(self.staged.names)}]"), ("sql", " ".join(self.sql.split())))


@dataclass(frozen=True)
class PhysicalFeed(_Unary):
    """Hands the rows of one stream, and its watermark, to the query of a pipeline on the dedicated host."""

    relation: str

    @property
    def details(self) -> tuple[tuple[str, str], ...]:
        return (("relation", self.relation),)


@dataclass(frozen=True)
class PhysicalBarrier(Physical):
    """Where the feeds of several streams meet. A savepoint sends a barrier through every stream, and nothing is copied
    before all of them have delivered it (`headrace.state.savepoints`); the query does not run meanwhile. Its batches
    read each feed up to a position of its own, so rows need not wait for a barrier."""

    feeds: tuple[Physical, ...]

    @property
    def inputs(self) -> tuple[Physical, ...]:
        return self.feeds

    def with_inputs(self, inputs: tuple[Physical, ...]) -> Physical:
        return replace(self, feeds=inputs)

    @property
    def details(self) -> tuple[tuple[str, str], ...]:
        names = [feed.relation for feed in self.feeds if isinstance(feed, PhysicalFeed)]
        return (("aligns", ", ".join(names)), ("for", "savepoints"))


@dataclass(frozen=True)
class PhysicalDedicatedQuery(Physical):
    """The dedicated host: a Spark streaming query of its own runs `sql` over the feeds of all its streams. Its batches
    read each feed up to a position of its own, and Spark takes the smallest watermark of all."""

    feeds: tuple[Physical, ...]
    sql: str
    mode: str

    @property
    def inputs(self) -> tuple[Physical, ...]:
        return self.feeds

    def with_inputs(self, inputs: tuple[Physical, ...]) -> Physical:
        return replace(self, feeds=inputs)

    @property
    def details(self) -> tuple[tuple[str, str], ...]:
        return (("in", "streaming query"), ("mode", self.mode), ("sql", " ".join(self.sql.split())))


@dataclass(frozen=True)
class PhysicalSink(_Unary):
    """Stages the rows of one sink: in the tasks, in the lanes when the pipeline has state, or in its Spark query."""

    sink: SinkDef
    guarantee: str
    in_lanes: bool
    in_query: bool = False

    @property
    def details(self) -> tuple[tuple[str, str], ...]:
        return (
            ("sink", self.sink.name),
            ("type", self.sink.kind),
            ("staged_by", "query" if self.in_query else "lanes" if self.in_lanes else "tasks"),
            ("guarantee", self.guarantee),
        )


@dataclass(frozen=True)
class PhysicalCommit(Physical):
    """Commits an epoch to all sinks of the pipeline, on the driver. It first waits for the epoch's barrier from every
    task, and from every lane when the pipeline has state. With `of_batch` it commits a batch of the dedicated query
    instead, and waits only for that."""

    sources: tuple[Physical, ...]
    in_lanes: bool
    of_batch: bool = False

    @property
    def inputs(self) -> tuple[Physical, ...]:
        return self.sources

    def with_inputs(self, inputs: tuple[Physical, ...]) -> Physical:
        return replace(self, sources=inputs)

    @property
    def details(self) -> tuple[tuple[str, str], ...]:
        if self.of_batch:
            return (("waits_for", "a batch of the query"),)
        return (("waits_for", "all tasks and lanes" if self.in_lanes else "all tasks"),)


def topological(root: Physical) -> list[Physical]:
    """Every operator once, inputs first. EXPLAIN names them r0, r1, ... in this order."""
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
    """A view as text: positions with their column names, at most twelve."""
    if view.columns is None:
        return f"ALL ({len(schema)} columns)"
    if not view.columns:
        return "NONE"
    shown = [show_column(i, schema) for i in sorted(view.columns, key=lambda i: (column_of(i, schema), i))]
    rest = f", ... {len(shown) - 12} more" if len(shown) > 12 else ""
    return f"SOME [{', '.join(shown[:12])}{rest}]"


def column_of(index: int, schema: Schema) -> int:
    """The declared column that an index is, or is a field of."""
    return index if index < NESTED else nested_fields(schema)[index - NESTED].column


def show_column(index: int, schema: Schema) -> str:
    """A column or a field of one as text: the position of the declared column, and the name."""
    return f"{column_of(index, schema)} {field_at(schema, index).name}"


def show_window(window: Window) -> str:
    """A window as text."""
    size, slide = show_interval(window.size), show_interval(window.slide)
    text = {
        "tumble": f"tumble {size}",
        "hop": f"hop {size} every {slide}",
        "cumulate": f"cumulate {slide} up to {size}",
        "session": f"session, gap {size}",
    }[window.kind]
    return text + (f", offset {show_interval(window.offset)}" if window.offset else "")
