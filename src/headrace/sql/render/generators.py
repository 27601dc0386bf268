"""Renders generators: the lists that become rows, and a bound of the bytes that the made rows take."""

from __future__ import annotations

from collections.abc import Callable

from headrace.errors import Span
from headrace.model.definitions import StreamDef
from headrace.model.program import Expression, Growth, RowGenerator, SizedValue
from headrace.model.schema import NESTED, Array, field_at
from headrace.sql.parse.syntax import TextRange
from headrace.sql.plan.expr import Call, ColumnRef, Expr, columns_of
from headrace.sql.plan.logical import Generate
from headrace.sql.plan.shape import Shape
from headrace.sql.render.byte_bounds import Bytes, added, constant, is_variable
from headrace.sql.render.duckdb import render, ring0_column
from headrace.sql.render.sizes import FIXED, Sizes, grows


def generators_of(shape: Shape, span: Callable[[TextRange], Span]) -> tuple[RowGenerator, ...]:
    """The generators of a shape, in order. Each keeps the columns that something after it reads."""
    found: list[RowGenerator] = []
    needed = _read_at_the_end(shape)
    filters = [shape.filter, *(g.after for g in shape.generators)]
    for generation, before in reversed(list(zip(shape.generators, filters, strict=False))):
        node = generation.node
        after = set() if generation.after is None else columns_of(generation.after)
        kept = sorted(i for i in needed | after if i < node.width or i >= NESTED)
        found.insert(0, _generator(stream=shape.scan.stream, node=node, kept=kept, where=before, span=span))
        needed = {*kept, *(c for expr in node.expressions for c in columns_of(expr))}
    return tuple(found)


def _read_at_the_end(shape: Shape) -> set[int]:
    if shape.aggregate is None:
        return {c for o in shape.outputs for c in columns_of(o.expr)}
    return {c for expr in shape.aggregate.expressions for c in columns_of(expr)}


def _generator(
    stream: StreamDef, node: Generate, kept: list[int], where: Expr | None, span: Callable[[TextRange], Span]
) -> RowGenerator:
    columns: list[Expression] = []
    for place, one in enumerate(node.lists):
        assert isinstance(one.expr.type, Array)
        sql = render(one.expr, ring0_column)
        columns.append(Expression(f"c{node.width + place}", one.expr.type.element, sql))
    return RowGenerator(
        columns=tuple(columns),
        kept=(*(f"c{i}" for i in kept), "_t"),
        outer=node.outer,
        filter=None if where is None or not grows(where) else render(where, ring0_column),
        growth=_growth(stream=stream, node=node, kept=kept, where=where, span=span),
    )


def _growth(
    stream: StreamDef, node: Generate, kept: list[int], where: Expr | None, span: Callable[[TextRange], Span]
) -> Growth:
    """The number of elements times the bytes of the columns that each made row repeats, and the lists."""
    sizes = Sizes(ring0_column, lambda column: (ring0_column(column),), span)
    guard = ""
    if where is not None:
        sizes.collect(where, "")
        guard = "" if grows(where) else f"({render(where, ring0_column)})"
    for one in node.lists:
        sizes.collect(one.expr, guard)
    inputs = node.input.schema
    fields = [inputs[i] if i < NESTED else field_at(stream.schema, i) for i in kept]
    repeated = [ColumnRef(field.type, i, field.name) for i, field in zip(kept, fields, strict=True)]
    row = added([constant(FIXED), *(sizes.size(c) if is_variable(c.type) else constant(FIXED) for c in repeated)])
    lists = added([sizes.size(one.expr) for one in node.lists])
    count = _count(node.lists[0].expr, sizes)
    plain = f"(greatest({count}, 1) * {row.sql} + {lists.sql})"
    if guard:
        plain = f"CASE WHEN {guard} THEN {plain} ELSE 0 END"
    return Growth(values=tuple(SizedValue(t, b.sql) for t, b in sizes.values), plain=plain, columns=None)


def _count(array: Expr, sizes: Sizes) -> str:
    """The number of elements, or more: a list that may be large is not computed for that."""
    if isinstance(array, Call) and array.name == "array":
        return f"{len(array.args)}::DOUBLE"
    if isinstance(array, Call) and array.name == "transform":
        return _count(array.args[0], sizes)
    if grows(array):
        bound: Bytes = sizes.size(array)
        return f"({bound.sql} + 1)"
    return f"coalesce(len({render(array, ring0_column)}), 0)::DOUBLE"
