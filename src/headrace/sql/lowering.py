"""Turns a logical plan into a physical plan, and that into the `PipelineProgram` that the runtime executes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headrace.errors import BadEmit, InternalError, Span
from headrace.model.definitions import SinkDef
from headrace.model.program import (
    Condition,
    Emit,
    Expression,
    Meaning,
    PipelineProgram,
    Ring0Program,
    Ring1Program,
    RowGenerator,
)
from headrace.model.schema import Field, Schema, View
from headrace.sinks import SINKS
from headrace.sql.parse.statements import CreatePipeline, Select
from headrace.sql.parse.syntax import TextRange
from headrace.sql.plan.expr import columns_of, conjuncts
from headrace.sql.plan.physical import (
    Physical,
    PhysicalAggregate,
    PhysicalCommit,
    PhysicalDedicatedQuery,
    PhysicalFeed,
    PhysicalFilter,
    PhysicalGenerate,
    PhysicalMergeAggregate,
    PhysicalPartialAggregate,
    PhysicalProject,
    PhysicalSharedStream,
    PhysicalSink,
    PhysicalSparkQuery,
    topological,
)
from headrace.sql.plan.shape import Generation, Shape
from headrace.sql.render.duckdb import render, render_filter, ring0_column
from headrace.sql.render.generators import generators_of
from headrace.sql.render.sizes import grows


def lower(
    shape: Shape, sinks: tuple[SinkDef, ...], statement: CreatePipeline | Select, span: Callable[[TextRange], Span]
) -> Physical:
    """The physical plan of a shape, before physical rules. The plan of a bare query has no sinks and no commit."""
    node: Physical = PhysicalSharedStream(shape.scan.stream, shape.scan.view)
    in_generator = bool(shape.generators) and shape.filter is not None and grows(shape.filter)
    if shape.filter is not None and not in_generator:
        parts = tuple(
            Condition(render(part, ring0_column), tuple(sorted(columns_of(part)))) for part in conjuncts(shape.filter)
        )
        columns = tuple(sorted(columns_of(shape.filter)))
        node = PhysicalFilter(node, render_filter(shape.filter, ring0_column), columns, parts)
    for generation, generator in zip(shape.generators, generators_of(shape, span), strict=True):
        node = PhysicalGenerate(node, generator)
        if generation.after is not None and not _runs_in_next(shape, generation):
            node = PhysicalFilter(node, render_filter(generation.after, ring0_column), (), ())
    if shape.aggregate is None:
        if statement.emit is not None:
            raise BadEmit(
                "EMIT needs an aggregate: this query emits each row as it arrives",
                advice="Remove EMIT.",
                span=statement.emit_span,
            )
        outputs = tuple(Expression(o.name, o.expr.type, render(o.expr, ring0_column)) for o in shape.outputs)
        node = PhysicalProject(node, outputs)
    else:
        node = PhysicalAggregate(node, shape, _emit(shape, statement))
    if not sinks:
        return node
    in_lanes = shape.aggregate is not None
    writers = tuple(PhysicalSink(node, sink, SINKS[sink.kind].guarantee_of(sink), in_lanes) for sink in sinks)
    return PhysicalCommit(writers, in_lanes)


def lower_epoch_query(rings: Physical, program: PipelineProgram, sinks: tuple[SinkDef, ...]) -> Physical:
    """The physical plan of a pipeline on the epoch host. `rings` is the plan that stages its rows."""
    if program.spark is None:
        raise InternalError("a pipeline on the epoch host has a Spark query")
    node = PhysicalSparkQuery(rings, program.spark.sql, program.spark.staged)
    in_lanes = program.ring1 is not None
    writers = tuple(
        PhysicalSink(node, sink, SINKS[sink.kind].guarantee_of(sink), in_lanes, in_query=True) for sink in sinks
    )
    return PhysicalCommit(writers, in_lanes) if sinks else node


def lower_dedicated(rings: tuple[Physical, ...], program: PipelineProgram, sinks: tuple[SinkDef, ...]) -> Physical:
    """The physical plan of a pipeline on the dedicated host. `rings` are the plans that feed it, one per stream."""
    query = program.dedicated
    if query is None:
        raise InternalError("a pipeline on the dedicated host has a query of its own")
    feeds = tuple(PhysicalFeed(plan, given.relation) for plan, given in zip(rings, query.inputs, strict=True))
    node = PhysicalDedicatedQuery(feeds, query.sql, query.mode)
    writers = tuple(
        PhysicalSink(node, sink, SINKS[sink.kind].guarantee_of(sink), in_lanes=False, in_query=True) for sink in sinks
    )
    return PhysicalCommit(writers, in_lanes=False, of_batch=True) if sinks else node


def _runs_in_next(shape: Shape, generation: Generation) -> bool:
    """True if the next generator evaluates the filter of these rows itself, because it may make large values."""
    last = generation is shape.generators[-1]
    return not last and generation.after is not None and grows(generation.after)


def _emit(shape: Shape, statement: CreatePipeline | Select) -> Emit:
    """When the query emits. Windows emit on close by default. Without a window a group never closes, so it emits
    changes. Distinct rows are emitted at their first occurrence. Distinct rows of sessions wait for the close: only
    then are the bounds of a session known."""
    if shape.rank is not None and statement.emit == "changes":
        raise BadEmit("ranks are known when a window closes", advice="Remove EMIT CHANGES.", span=statement.emit_span)
    emit, distinct = statement.emit, shape.aggregate is not None and shape.aggregate.distinct
    if shape.window is not None:
        if distinct and emit != "close" and shape.window.window.kind != "session":
            return "first"
        return emit or "close"
    if emit == "close":
        raise BadEmit(
            "without a window a group never closes",
            advice="Use EMIT CHANGES, or group by a window.",
            span=statement.emit_span,
        )
    return "first" if distinct else "changes"


def program_of(plan: Physical, meaning: Meaning) -> PipelineProgram:
    """The program of a finished physical plan. Each operator sets its part of Ring 0 or Ring 1."""
    stream, view = "", View.none()
    where: str | None = None
    made_where: str | None = None
    generators: tuple[RowGenerator, ...] = ()
    read: tuple[int, ...] = ()
    parts: tuple[Condition, ...] = ()
    ring0: Ring0Program | None = None
    ring1: Ring1Program | None = None
    outputs: tuple[Expression, ...] = ()
    for node in topological(plan):
        if isinstance(node, PhysicalSharedStream):
            stream, view = node.stream.name, node.view
        elif isinstance(node, PhysicalFilter):
            if generators:
                made_where = node.sql
            else:
                where, read, parts = node.sql, node.columns, node.conditions
        elif isinstance(node, PhysicalGenerate):
            generators += (node.generator if made_where is None else replace(node.generator, filter=made_where),)
            made_where = None
        elif isinstance(node, PhysicalProject):
            outputs = node.outputs
            ring0 = Ring0Program(
                where,
                outputs=outputs,
                filter_columns=read,
                conditions=parts,
                generators=generators,
                made_filter=made_where,
            )
        elif isinstance(node, PhysicalPartialAggregate):
            ring0 = Ring0Program(
                filter=where,
                outputs=(),
                keys=node.keys,
                window=node.window,
                partials=node.partials,
                filter_columns=read,
                conditions=parts,
                generators=generators,
                made_filter=made_where,
                bucket_keys=node.bucket_keys,
            )
        elif isinstance(node, PhysicalMergeAggregate):
            outputs = node.outputs
            ring1 = Ring1Program(
                keys=node.keys,
                window=node.window,
                partials=node.partials,
                emit=node.emit,
                having=node.having,
                outputs=outputs,
                growth=node.growth,
                ranks=node.ranks,
                qualify=node.qualify,
            )
        elif isinstance(node, PhysicalAggregate):
            raise InternalError("an aggregate was not split")
    if ring0 is None:
        raise InternalError("the plan has no Ring 0 part")
    schema = Schema(tuple(Field(o.name, o.type) for o in outputs))
    return PipelineProgram(stream=stream, view=view, ring0=ring0, ring1=ring1, output=schema, meaning=meaning)
