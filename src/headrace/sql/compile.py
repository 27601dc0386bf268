"""An optimized logical plan to a `PipelineProgram`: the DuckDB texts that Ring 0 and Ring 1 run.

The plan must have the shared host's shape (`shape.shared_shape` makes sure): a projection over an optional HAVING over
an optional aggregate over an optional window over an optional filter over one stream.
"""

from __future__ import annotations

from headrace.errors import BadEmit, BadWindow, InternalError
from headrace.program import (
    Emit,
    Expression,
    Meaning,
    Partial,
    PipelineProgram,
    Ring0Program,
    Ring1Program,
)
from headrace.schema import BIGINT, TIMESTAMP, DataType, Field, Struct
from headrace.sql.expr import AggCall, Column, Expr, FieldOf, transform
from headrace.sql.functions.aggregates import Split, State, find_aggregate
from headrace.sql.render import render, ring0_column
from headrace.sql.rules.base import PlanContext
from headrace.sql.shape import Shape

PRESENCE = Partial("p0", BIGINT, "count(*)", "sum(p0)")


def compile_program(shape: Shape, emit: Emit | None, ctx: PlanContext, emit_at: tuple[int, int]) -> PipelineProgram:
    """The program of a plan that has the shared host's shape. `emit` is what the statement says, None for nothing."""
    meaning = ctx.meaning
    if shape.aggregate is None:
        if emit is not None:
            raise BadEmit(
                "EMIT belongs to aggregates: rows of this query leave as they come",
                advice="Remove EMIT.",
                span=ctx.span(emit_at),
            )
        return _stateless(shape, meaning)
    if emit == "close" and shape.window is None:
        raise BadEmit(
            "without a window a group never closes",
            advice="Use EMIT CHANGES, or group by a window.",
            span=ctx.span(emit_at),
        )
    return _Stateful(shape, ctx).program(emit or ("close" if shape.window is not None else "changes"))


def _filter(shape: Shape) -> str | None:
    return None if shape.filter is None else render(shape.filter, ring0_column)


def _stateless(shape: Shape, meaning: Meaning) -> PipelineProgram:
    outputs = tuple(Expression(o.name, o.expr.type, render(o.expr, ring0_column)) for o in shape.outputs)
    ring0 = Ring0Program(_filter(shape), outputs=outputs)
    return PipelineProgram(shape.scan.stream.name, shape.scan.view, ring0, None, shape.schema, meaning)


class _Stateful:
    """Splits an aggregate: keys and partial states in Ring 0, merged states and results in Ring 1."""

    def __init__(self, shape: Shape, ctx: PlanContext) -> None:
        assert shape.aggregate is not None
        self.shape, self.aggregate, self.ctx = shape, shape.aggregate, ctx
        self.partials: list[Partial] = [PRESENCE]
        self.keys: list[Expression] = []
        self.texts: list[str] = []  # Ring 1's text of each column of the aggregate

    def program(self, emit: Emit) -> PipelineProgram:
        shape = self.shape
        window = None if shape.window is None else shape.window.window
        for key in self.aggregate.keys:
            self.texts.append(self._key(key.expr))
        for call in self.aggregate.calls:
            self.texts.append(self._call(call))
        having = None if shape.having is None else self._render(shape.having)
        outputs = tuple(Expression(o.name, o.expr.type, self._render(o.expr)) for o in shape.outputs)
        partials = tuple(self.partials)
        ring0 = Ring0Program(_filter(shape), keys=tuple(self.keys), window=window, partials=partials)
        fields = tuple(Field(k.name, k.type) for k in self.keys)
        ring1 = Ring1Program(fields, window, partials, emit, having, outputs)
        stream = shape.scan.stream.name
        return PipelineProgram(stream, shape.scan.view, ring0, ring1, shape.schema, self.ctx.meaning)

    def _key(self, expr: Expr) -> str:
        window = self.shape.window
        if window is not None and isinstance(expr, Column) and expr.index >= window.width:
            return self._window_text(expr)
        name = f"k{len(self.keys)}"
        self.keys.append(Expression(name, expr.type, render(expr, ring0_column)))
        return name

    def _window_text(self, expr: Column) -> str:
        assert self.shape.window is not None
        make = "make_timestamptz" if self.shape.window.time_type == TIMESTAMP else "make_timestamp"
        if isinstance(expr.type, Struct):
            return f'struct_pack("start" := {make}(window_start), "end" := {make}(window_end))'
        return f"{make}({expr.name})"

    def _render(self, expr: Expr) -> str:
        """Ring 1's text; `window.start` reads the start itself instead of taking a struct apart."""
        windows = {i for i, text in enumerate(self.texts) if text.startswith("struct_pack")}

        def end_of(node: Expr) -> Expr | None:
            if isinstance(node, FieldOf) and isinstance(node.input, Column) and node.input.index in windows:
                return Column(node.type, -1 if node.name == "start" else -2, f"window_{node.name}")
            return None

        return render(transform(expr, end_of) if windows else expr, self._column)

    def _column(self, column: Column) -> str:
        return self._window_text(column) if column.index < 0 else self.texts[column.index]

    def _call(self, call: AggCall) -> str:
        if call.name == "count" and not call.args:
            if call.where is None:
                return "p0"
            where = render(call.where, ring0_column)
            split = Split((_counted(where),), "{0}")
        else:
            kinds = [a.type for a in call.args]
            function = find_aggregate(call.name, kinds)
            if function is None:
                raise InternalError(f"{call.name} was bound without a definition")
            if function.ordered and self.shape.scan.stream.event_time is None:
                raise BadWindow(
                    f"{call.name} goes by event time, and stream '{self.shape.scan.stream.name}' has none",
                    advice="Declare WATERMARK FOR in CREATE STREAM, or use min, max, min_by or max_by.",
                    span=self.ctx.span(call.at),
                )
            args = [render(a, ring0_column) for a in call.args]
            split = function.split(_guarded(args, call), kinds, call.type)
        names = [self._partial(state.type, state.sql, state.merge) for state in split.states]
        return "(" + split.result.format(*names) + ")"

    def _partial(self, kind: DataType, sql: str, merge: str) -> str:
        for partial in self.partials:
            if partial.sql == sql and partial.type == kind:
                return partial.name
        name = f"p{len(self.partials)}"
        self.partials.append(Partial(name, kind, sql, merge.replace("{p}", name)))
        return name


def _guarded(args: list[str], call: AggCall) -> list[str]:
    """FILTER as CASE: DuckDB would evaluate the argument on the rows that FILTER leaves out, too."""
    if call.where is None:
        return args
    where = render(call.where, ring0_column)
    return [f"CASE WHEN {where} THEN {arg} END" for arg in args]


def _counted(where: str) -> State:
    return State(BIGINT, f"count(CASE WHEN {where} THEN 1 END)", "sum({p})")
