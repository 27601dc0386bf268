"""Rule: split an aggregate into partial states in Ring 0, a bridge, and a merge in Ring 1."""

from __future__ import annotations

import re
from dataclasses import replace

from headrace.errors import BadWindow, InternalError
from headrace.model.program import MEMBER, Expression, Partial, Window
from headrace.model.schema import BIGINT, NESTED, TIMESTAMP, Field, Struct
from headrace.sql.functions.aggregate_functions import find_aggregate
from headrace.sql.functions.aggregate_states import PartialState, SplitAggregate
from headrace.sql.plan.context import PlanContext
from headrace.sql.plan.expr import AggCall, ColumnRef, Expr, FieldOf, transform
from headrace.sql.plan.physical import (
    Physical,
    PhysicalAggregate,
    PhysicalBridge,
    PhysicalMergeAggregate,
    PhysicalPartialAggregate,
)
from headrace.sql.plan.shape import partition_keys
from headrace.sql.render.duckdb import render, ring0_column
from headrace.sql.render.sizes import growth_of
from headrace.sql.rules.rule_types import rewrite_physical

# The number of rows in a group. It is always the first partial: Ring 1 and families rely on that.
PRESENCE = Partial(
    name="p0", type=BIGINT, sql="count(*)", merge="sum(p0)", filtered=f"count(CASE WHEN {MEMBER} THEN 1 END)"
)
# Each open window has its own hash table, so short windows would mean many small tables.
SHORTEST_MEMORY = 10_000_000  # microseconds


def split_aggregates(plan: Physical, ctx: PlanContext) -> Physical:
    """Replaces each aggregate by its two halves. Equal partial states are computed once. Returns `plan` itself when
    there is no aggregate."""

    def split(node: Physical) -> Physical:
        return _AggregateSplitter(node, ctx).split() if isinstance(node, PhysicalAggregate) else node

    return rewrite_physical(plan, split)


class _AggregateSplitter:
    """Splits one aggregate. `texts` has the Ring 1 expression of each column of the logical aggregate."""

    def __init__(self, node: PhysicalAggregate, ctx: PlanContext) -> None:
        shape = node.shape
        assert shape.aggregate is not None
        self.node, self.shape, self.aggregate, self.ctx = node, shape, shape.aggregate, ctx
        self.partials: list[Partial] = [PRESENCE]
        self.keys: list[Expression] = []
        self.texts: list[str] = []
        self.windows: set[int] = set()  # the columns that hold the window as a struct
        self.growth = 1.0  # how much larger than its states a result may be

    def split(self) -> Physical:
        shape = self.shape
        window = self._forgetting() if shape.window is None else shape.window.window
        for key in self.aggregate.keys:
            self.texts.append(self._key(key.expr))
        for call in self.aggregate.calls:
            self.texts.append(self._call(call))
        having = None if shape.having is None else self._render(shape.having)
        hashed, ranks = self._ranks()
        qualify = None if shape.qualify is None else self._render(shape.qualify)
        outputs = tuple(Expression(o.name, o.expr.type, self._render(o.expr)) for o in shape.outputs)
        partials, keys = tuple(self.partials), tuple(self.keys)
        partial = PhysicalPartialAggregate(
            input=self.node.input, keys=keys, window=window, partials=partials, bucket_keys=hashed
        )
        bridge = PhysicalBridge(partial, tuple(k.name for i, k in enumerate(keys) if hashed is None or i in hashed))
        fields = tuple(Field(k.name, k.type) for k in keys)
        growth = growth_of(
            outputs=[o.expr for o in shape.outputs],
            others=(),
            where=shape.having,
            column=self._column,
            names=self._columns_read,
            span=self.ctx.span,
        )
        if growth.columns is not None and self.growth > 1:
            growth = replace(growth, columns={name: n * self.growth for name, n in growth.columns.items()})
        return PhysicalMergeAggregate(
            input=bridge,
            keys=fields,
            window=window,
            partials=partials,
            emit=self.node.emit,
            having=having,
            outputs=outputs,
            growth=growth,
            ranks=ranks,
            qualify=qualify,
        )

    def _ranks(self) -> tuple[tuple[int, ...] | None, tuple[Expression, ...]]:
        """The keys that choose the lane, and the ranks. Equal rows of `row_number` are ordered by all group keys, so
        that the result is always the same."""
        rank = self.shape.rank
        if rank is None:
            return None, ()
        partition = [self.texts[key] for key in partition_keys(self.shape)]
        found: list[Expression] = []
        for number, call in enumerate(rank.calls):
            order = [
                f"{self._render(key)} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"
                for key, (descending, first) in zip(call.order, call.directions, strict=True)
            ]
            if call.name == "row_number":
                order += [f"{key.name} ASC NULLS FIRST" for key in self.keys]
            by = ", ".join(["window_start", "window_end", *partition])
            sql = f"{call.name}() OVER (PARTITION BY {by} ORDER BY {', '.join(order)})"
            found.append(Expression(f"r{number}", call.type, sql))
            self.texts.append(f"r{number}")
        names = [key.name for key in self.keys]
        return tuple(names.index(key) for key in partition), tuple(found)

    def _columns_read(self, column: ColumnRef) -> list[str]:
        """The columns of the relation `groups` that a column's Ring 1 expression reads."""
        return list(dict.fromkeys(re.findall(r"\b(?:[kp]\d+|window_start|window_end)\b", self._column(column))))

    def _forgetting(self) -> Window | None:
        """A window that limits how long distinct rows are kept, if the event time is one of their columns.

        Equal rows then have equal event times, so they fall into the same window. After it closes, a further equal row
        is late and dropped anyway.
        """
        stream = self.shape.scan.stream
        if not self.aggregate.distinct or stream.event_time is None:
            return None
        if not any(isinstance(k.expr, ColumnRef) and k.expr.index == stream.event_time for k in self.aggregate.keys):
            return None
        size = max(stream.delay_us, SHORTEST_MEMORY)
        return Window("tumble", size, size)

    def _key(self, expr: Expr) -> str:
        window = self.shape.window
        if window is not None and isinstance(expr, ColumnRef) and window.width <= expr.index < NESTED:
            if isinstance(expr.type, Struct):
                self.windows.add(len(self.texts))
            return self._window_text(expr)
        name = f"k{len(self.keys)}"
        self.keys.append(Expression(name, expr.type, render(expr, ring0_column)))
        return name

    def _window_text(self, expr: ColumnRef) -> str:
        assert self.shape.window is not None
        make = "make_timestamptz" if self.shape.window.time_type == TIMESTAMP else "make_timestamp"
        if isinstance(expr.type, Struct):
            return f'struct_pack("start" := {make}(window_start), "end" := {make}(window_end))'
        return f"{make}({expr.name})"

    def _render(self, expr: Expr) -> str:
        """The Ring 1 expression. `window.start` reads `window_start` directly instead of a field of the struct."""

        def end_of(node: Expr) -> Expr | None:
            if isinstance(node, FieldOf) and isinstance(node.input, ColumnRef) and node.input.index in self.windows:
                return ColumnRef(node.type, -1, f"window_{node.name}")
            return None

        return render(transform(expr, end_of) if self.windows else expr, self._column)

    def _column(self, column: ColumnRef) -> str:
        return self._window_text(column) if column.index < 0 else self.texts[column.index]

    def _call(self, call: AggCall) -> str:
        """The Ring 1 expression of an aggregate's result. Adds the aggregate's states to the partials."""
        if call.name == "count" and not call.args:
            if call.where is None:
                return PRESENCE.name
            where = render(call.where, ring0_column)
            split = SplitAggregate((PartialState(BIGINT, f"count(CASE WHEN {where} THEN 1 END)", "sum({p})"),), "{0}")
            filtered = [f"count(CASE WHEN {MEMBER} THEN CASE WHEN {where} THEN 1 END END)"]
        else:
            kinds = [a.type for a in call.args]
            function = find_aggregate(call.name, kinds)
            if function is None:
                raise InternalError(f"{call.name} was bound without a definition")
            if function.time == "needed":
                self._require_event_time(call)
            args = [render(a, ring0_column) for a in call.args] + ([] if function.time == "unused" else ["_t"])
            guarded = _guarded(args, call)
            of_members = [f"CASE WHEN {MEMBER} THEN {arg} END" for arg in guarded]
            split = function.states(guarded, kinds, call.type, call.constants)
            of_member = function.states(of_members, kinds, call.type, call.constants)
            filtered = [state.sql for state in of_member.states]
        self.growth = max(self.growth, split.growth)
        names = [self._partial(state, text) for state, text in zip(split.states, filtered, strict=True)]
        return "(" + split.result.format(*names) + ")"

    def _require_event_time(self, call: AggCall) -> None:
        stream = self.shape.scan.stream
        if stream.event_time is None:
            raise BadWindow(
                f"{call.name} needs an event time, and stream '{stream.name}' has none",
                advice="Declare WATERMARK FOR in CREATE STREAM, or use min, max, min_by or max_by.",
                span=self.ctx.span(call.at),
            )

    def _partial(self, state: PartialState, filtered: str) -> str:
        for partial in self.partials:
            if partial.sql == state.sql and partial.type == state.type:
                return partial.name
        name = f"p{len(self.partials)}"
        self.partials.append(
            Partial(
                name=name, type=state.type, sql=state.sql, merge=state.merge.replace("{p}", name), filtered=filtered
            )
        )
        return name


def _guarded(args: list[str], call: AggCall) -> list[str]:
    """The arguments with FILTER written as CASE. DuckDB evaluates arguments even on rows that FILTER excludes."""
    if call.where is None:
        return args
    where = render(call.where, ring0_column)
    return [f"CASE WHEN {where} THEN {arg} END" for arg in args]
