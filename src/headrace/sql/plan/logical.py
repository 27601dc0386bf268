"""Logical plans: frozen nodes that compute their schema and reject invalid arguments. `bind` creates them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from headrace.model.definitions import StreamDef
from headrace.model.program import Window
from headrace.model.schema import BOOLEAN, NESTED, Array, DataType, Field, Schema, Struct, View
from headrace.sql.parse.syntax import TextRange
from headrace.sql.plan.expr import AggCall, ColumnRef, Expr, RankCall, columns_of, walk


@dataclass(frozen=True)
class Plan:
    """A relation. `inputs` are the relations it reads. Expressions refer to their columns by index."""

    @property
    def inputs(self) -> tuple[Plan, ...]:
        return ()

    def with_inputs(self, inputs: tuple[Plan, ...]) -> Plan:
        """The same node over other inputs of the same schema."""
        assert not inputs
        return self

    @property
    def schema(self) -> Schema:
        raise NotImplementedError

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """The expressions of this node alone."""
        return ()


@dataclass(frozen=True)
class Named:
    """An expression and the name of its output column."""

    name: str
    expr: Expr


@dataclass(frozen=True)
class StreamScan(Plan):
    """Reads the shared stream. Its schema is always the declared one. `view` has the columns that this plan needs."""

    stream: StreamDef
    view: View = field(default_factory=View.all)

    @property
    def schema(self) -> Schema:
        return self.stream.schema


@dataclass(frozen=True)
class Filter(Plan):
    """Keeps the rows for which `predicate` is true."""

    input: Plan
    predicate: Expr

    def __post_init__(self) -> None:
        if self.predicate.type != BOOLEAN:
            raise TypeError("a filter's predicate is boolean")
        require_bound(self.predicate, self.input.schema)

    @property
    def inputs(self) -> tuple[Plan, ...]:
        return (self.input,)

    def with_inputs(self, inputs: tuple[Plan, ...]) -> Plan:
        return replace(self, input=inputs[0])

    @property
    def schema(self) -> Schema:
        return self.input.schema

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (self.predicate,)


@dataclass(frozen=True)
class Project(Plan):
    """One column per output."""

    input: Plan
    outputs: tuple[Named, ...]

    def __post_init__(self) -> None:
        schema = self.input.schema
        for output in self.outputs:
            require_bound(output.expr, schema)

    @property
    def inputs(self) -> tuple[Plan, ...]:
        return (self.input,)

    def with_inputs(self, inputs: tuple[Plan, ...]) -> Plan:
        return replace(self, input=inputs[0])

    @cached_property
    def schema(self) -> Schema:
        return Schema(tuple(Field(o.name, o.expr.type) for o in self.outputs))

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return tuple(o.expr for o in self.outputs)


@dataclass(frozen=True)
class Generate(Plan):
    """Makes rows: one per element of `lists`, arrays of the same length in every row. Adds one column per list to the
    columns of the input. With `outer`, a row without elements makes one row of NULLs."""

    input: Plan
    lists: tuple[Named, ...]
    outer: bool
    at: TextRange = field(default=(0, 0), compare=False)

    def __post_init__(self) -> None:
        for one in self.lists:
            if not isinstance(one.expr.type, Array):
                raise TypeError("a generator reads arrays")
            require_bound(one.expr, self.input.schema)

    @property
    def inputs(self) -> tuple[Plan, ...]:
        return (self.input,)

    def with_inputs(self, inputs: tuple[Plan, ...]) -> Plan:
        return replace(self, input=inputs[0])

    @cached_property
    def schema(self) -> Schema:
        added = [Field(n.name, n.expr.type.element) for n in self.lists if isinstance(n.expr.type, Array)]
        return Schema((*self.input.schema.fields, *added))

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return tuple(n.expr for n in self.lists)

    @property
    def width(self) -> int:
        """The number of input columns. The made columns come after them."""
        return len(self.input.schema)


@dataclass(frozen=True)
class AssignWindow(Plan):
    """Puts each row into its event-time windows. Adds the column `window` (a struct of start and end), or, when
    `flat`, the columns `window_start` and `window_end`. `time` is the index of the event-time column of the input."""

    input: Plan
    window: Window
    time: int
    name: str
    flat: bool
    at: TextRange = field(default=(0, 0), compare=False)

    @property
    def inputs(self) -> tuple[Plan, ...]:
        return (self.input,)

    def with_inputs(self, inputs: tuple[Plan, ...]) -> Plan:
        return replace(self, input=inputs[0])

    @cached_property
    def schema(self) -> Schema:
        kind = self.input.schema[self.time].type
        if self.flat:
            added: tuple[Field, ...] = (Field("window_start", kind), Field("window_end", kind))
        else:
            added = (Field(self.name, Struct((Field("start", kind), Field("end", kind)))),)
        return Schema((*self.input.schema.fields, *added))

    @property
    def time_type(self) -> DataType:
        """The type of the event time, and of the window's start and end."""
        return self.input.schema[self.time].type

    @property
    def width(self) -> int:
        """The number of input columns. The window columns come after them."""
        return len(self.input.schema)


@dataclass(frozen=True)
class Aggregate(Plan):
    """One row per group: the keys, then the aggregates. Without keys all rows are one group. `distinct` marks SELECT
    DISTINCT: the groups are the rows themselves, and each is emitted at its first occurrence."""

    input: Plan
    keys: tuple[Named, ...]
    calls: tuple[AggCall, ...]
    distinct: bool = False

    def __post_init__(self) -> None:
        for expr in self.expressions:
            require_bound(expr, self.input.schema)
        if any(isinstance(e, AggCall) for key in self.keys for e in walk(key.expr)):
            raise TypeError("a group key cannot contain an aggregate")

    @property
    def inputs(self) -> tuple[Plan, ...]:
        return (self.input,)

    def with_inputs(self, inputs: tuple[Plan, ...]) -> Plan:
        return replace(self, input=inputs[0])

    @cached_property
    def schema(self) -> Schema:
        keys = [Field(k.name, k.expr.type) for k in self.keys]
        return Schema((*keys, *(Field(f"agg{i}", c.type) for i, c in enumerate(self.calls))))

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return (*(k.expr for k in self.keys), *self.calls)


@dataclass(frozen=True)
class Rank(Plan):
    """Adds a column with the rank of each row for every call."""

    input: Plan
    calls: tuple[RankCall, ...]

    def __post_init__(self) -> None:
        for call in self.calls:
            require_bound(call, self.input.schema)

    @property
    def inputs(self) -> tuple[Plan, ...]:
        return (self.input,)

    def with_inputs(self, inputs: tuple[Plan, ...]) -> Plan:
        return replace(self, input=inputs[0])

    @cached_property
    def schema(self) -> Schema:
        added = [Field(f"rank{i}", c.type) for i, c in enumerate(self.calls)]
        return Schema((*self.input.schema.fields, *added))

    @property
    def expressions(self) -> tuple[Expr, ...]:
        return self.calls

    @property
    def width(self) -> int:
        """The number of input columns. The ranks come after them."""
        return len(self.input.schema)


@dataclass(frozen=True)
class Union(Plan):
    """The rows of all inputs, which have the same types."""

    parts: tuple[Plan, ...]
    at: TextRange = field(default=(0, 0), compare=False)

    def __post_init__(self) -> None:
        first = [f.type for f in self.parts[0].schema]
        if any([f.type for f in part.schema] != first for part in self.parts):
            raise TypeError("the inputs of a union have the same types")

    @property
    def inputs(self) -> tuple[Plan, ...]:
        return self.parts

    def with_inputs(self, inputs: tuple[Plan, ...]) -> Plan:
        return replace(self, parts=inputs)

    @property
    def schema(self) -> Schema:
        return self.parts[0].schema


def require_bound(expr: Expr, schema: Schema) -> None:
    """Raises TypeError if `expr` reads a column that the schema lacks, or has with another type. Fields of STRUCT
    columns of the stream are not in the schema."""
    if isinstance(expr, ColumnRef):  # the common case, without a traversal
        if expr.index >= NESTED:
            return
        if not 0 <= expr.index < len(schema) or schema.fields[expr.index].type != expr.type:
            raise TypeError(f"{expr.name} (column {expr.index}) is not in the input")
        return
    for node in walk(expr):
        if (
            isinstance(node, ColumnRef)
            and node.index < NESTED
            and (not 0 <= node.index < len(schema) or schema.fields[node.index].type != node.type)
        ):
            raise TypeError(f"{node.name} (column {node.index}) is not in the input")


def walk_plan(plan: Plan) -> Iterator[Plan]:
    """Yields `plan` and all nodes below it, parents first."""
    yield plan
    for child in plan.inputs:
        yield from walk_plan(child)


def rewrite(plan: Plan, change: Callable[[Plan], Plan]) -> Plan:
    """Applies `change` to every node, from the bottom up. Returns the same object when nothing changes."""
    inputs = plan.inputs
    new = tuple(rewrite(child, change) for child in inputs)
    if any(a is not b for a, b in zip(new, inputs, strict=True)):
        plan = plan.with_inputs(new)
    return change(plan)


def origin(plan: Plan, index: int) -> tuple[StreamScan, int] | None:
    """The stream column that column `index` of `plan` passes through unchanged; None if it is computed."""
    if isinstance(plan, StreamScan):
        return plan, index
    if isinstance(plan, Filter):
        return origin(plan.input, index)
    if isinstance(plan, AssignWindow | Generate | Rank):
        return origin(plan.input, index) if index < plan.width else None
    if isinstance(plan, Project):
        expr = plan.outputs[index].expr
        return origin(plan.input, expr.index) if isinstance(expr, ColumnRef) else None
    if isinstance(plan, Union):
        found = [origin(part, index) for part in plan.parts]
        return found[0] if all(f is not None and f == found[0] for f in found) else None
    return None


def used_columns(plan: Plan) -> set[int]:
    """The input columns that the expressions of this node read."""
    return {i for expr in plan.expressions for i in columns_of(expr)}
