"""From a statement to a program: bind, optimize, compile. No I/O, no JVM; the same input gives the same program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.errors import UnknownSink
from headrace.options import closest
from headrace.program import Meaning, PipelineProgram, SinkDef, StreamDef
from headrace.sql.bind import bind_query
from headrace.sql.compile import compile_program
from headrace.sql.names import Names
from headrace.sql.plan import Plan
from headrace.sql.rules import PlanContext, optimize
from headrace.sql.shape import shared_shape
from headrace.sql.statements import CreatePipeline, Select


@dataclass(frozen=True)
class Planned:
    """A planned query: its program, and every step on the way for EXPLAIN."""

    name: str | None
    program: PipelineProgram
    stream: StreamDef
    sinks: tuple[SinkDef, ...]
    bound: Plan
    logical: Plan
    trace: tuple[tuple[str, Plan | None], ...]


def plan_pipeline(
    statement: CreatePipeline | Select,
    names: Names,
    meaning: Meaning,
    neighbours: Mapping[str, PipelineProgram] | None = None,
) -> Planned:
    """Plans a pipeline or a bare query. Raises SqlError. `neighbours` are the pipelines that already run on the
    stream, by name: they only matter for EXPLAIN's "shares windowing with"."""
    span = statement.span
    ctx = PlanContext(meaning, span.text, span.statement, neighbours or {})
    sinks = _sinks(statement, names) if isinstance(statement, CreatePipeline) else ()
    bound = bind_query(statement.query, names, meaning, span.text, span.statement)
    logical, trace = optimize(bound, ctx)
    shape = shared_shape(logical, ctx)
    emit_at = (statement.emit_span.start, statement.emit_span.end) if statement.emit_span is not None else (0, 0)
    program = compile_program(shape, statement.emit, ctx, emit_at)
    name = statement.name if isinstance(statement, CreatePipeline) else None
    return Planned(name, program, shape.scan.stream, sinks, bound, logical, trace)


def _sinks(statement: CreatePipeline, names: Names) -> tuple[SinkDef, ...]:
    found: list[SinkDef] = []
    for name, span in zip(statement.sinks, statement.sink_spans, strict=True):
        sink = names.sink(name)
        if sink is None:
            hint = closest(name, names.sink_names())
            known = ", ".join(names.sink_names()) or "none"
            raise UnknownSink(
                f"there is no sink '{name}'",
                advice=f"Did you mean '{hint}'?" if hint else f"Sinks: {known}.",
                span=span,
                name=name,
                did_you_mean=hint,
            )
        found.append(sink)
    return tuple(found)
