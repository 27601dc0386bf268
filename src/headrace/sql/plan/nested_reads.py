"""Fields of STRUCT columns that a plan reads: who reads `pos.lat` does not need `pos.lon` to be parsed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from headrace.model.schema import NESTED, Schema, View, nested_fields
from headrace.sql.plan.expr import AggCall, ColumnRef, Expr, FieldOf, transform
from headrace.sql.plan.logical import Named
from headrace.sql.plan.shape import Generation, Shape


def read_fields(shape: Shape) -> Shape:
    """The shape with each field that is read of a STRUCT column as a column of its own. A STRUCT column that is also
    read as a whole stays whole. Returns `shape` itself when there are no such fields."""
    schema = shape.scan.schema
    whole = set(range(len(schema))) - set(shape.scan.stream.in_records)  # computed columns have no fields to parse
    found: set[int] = set()
    for expr in _expressions(shape):
        for part in _reads(expr, schema):
            (found if part >= NESTED else whole).add(part)
    found = {f for f in found if nested_fields(schema)[f - NESTED].column not in whole}
    if not found:
        return shape

    def column(expr: Expr) -> Expr | None:
        index = _index(expr, schema)
        if index is None or index not in found:
            return None
        return ColumnRef(expr.type, index, _text(expr), at=expr.at)

    return _with_columns(shape, column, _view(shape, found))


def with_fields(expr: Expr, schema: Schema) -> Expr:
    """An expression over the columns of the records, with each field that it reads of a STRUCT column as a column of
    its own. A STRUCT column that it also reads as a whole stays whole."""
    read = set(_reads(expr, schema))
    found = {i for i in read if i >= NESTED and nested_fields(schema)[i - NESTED].column not in read}

    def column(part: Expr) -> Expr | None:
        index = _index(part, schema)
        return ColumnRef(part.type, index, _text(part), at=part.at) if index is not None and index in found else None

    return transform(expr, column) if found else expr


def _expressions(shape: Shape) -> Iterator[Expr]:
    """The expressions over the columns of the stream."""
    if shape.filter is not None:
        yield shape.filter
    for generation in shape.generators:
        yield from generation.node.expressions
        if generation.after is not None:
            yield generation.after
    if shape.aggregate is not None:
        yield from shape.aggregate.expressions
    else:
        yield from (o.expr for o in shape.outputs)


def _reads(expr: Expr, schema: Schema) -> Iterator[int]:
    """The columns of the stream and the fields of them that an expression reads."""
    index = _index(expr, schema)
    if index is not None:
        yield index
    elif isinstance(expr, ColumnRef):
        if expr.index < len(schema):
            yield expr.index
    else:
        for child in expr.children:
            yield from _reads(child, schema)


def _index(expr: Expr, schema: Schema) -> int | None:
    """The index of the field of a STRUCT column that `expr` is, if it is one."""
    path: list[str] = []
    inner = expr
    while isinstance(inner, FieldOf):
        path.insert(0, inner.name)
        inner = inner.input
    if not path or not isinstance(inner, ColumnRef) or inner.index >= len(schema):
        return None
    for place, field in enumerate(nested_fields(schema)):
        if field.column == inner.index and field.path == tuple(path):
            return NESTED + place
    return None


def _text(expr: Expr) -> str:
    if isinstance(expr, FieldOf):
        return f"{_text(expr.input)}.{expr.name}"
    assert isinstance(expr, ColumnRef)
    return expr.name


def _view(shape: Shape, found: Iterable[int]) -> View:
    schema = shape.scan.schema
    split = {nested_fields(schema)[f - NESTED].column for f in found}
    kept = set(shape.scan.view.indexes(len(schema))) - split
    return View.some(kept | set(found))


def _with_columns(shape: Shape, column: Callable[[Expr], Expr | None], view: View) -> Shape:
    def changed(expr: Expr | None) -> Expr | None:
        return None if expr is None else transform(expr, column)

    def named(entries: Iterable[Named]) -> tuple[Named, ...]:
        return tuple(Named(n.name, transform(n.expr, column)) for n in entries)

    generators = tuple(
        Generation(replace(g.node, lists=named(g.node.lists)), changed(g.after)) for g in shape.generators
    )
    aggregate = shape.aggregate
    if aggregate is not None:
        calls = tuple(c for c in (transform(call, column) for call in aggregate.calls) if isinstance(c, AggCall))
        aggregate = replace(aggregate, keys=named(aggregate.keys), calls=calls)
    return replace(
        shape,
        scan=replace(shape.scan, view=view),
        filter=changed(shape.filter),
        generators=generators,
        aggregate=aggregate,
        outputs=shape.outputs if aggregate is not None else named(shape.outputs),
    )
