"""Plans a statement: bind, optimize, lower. No I/O and no JVM. The same input always gives the same program."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from headrace.base.unknown import unknown
from headrace.errors import (
    BadWindow,
    InternalError,
    Span,
    SparkRefused,
    SqlError,
    UnknownSink,
    UnknownStream,
    UnsupportedOnShared,
    UnsupportedStateful,
)
from headrace.model.definitions import SPARK_READER, SinkDef, StreamDef, ViewDef
from headrace.model.program import Emit, Meaning, PipelineProgram
from headrace.sinks.feed_sink import FEED
from headrace.sql.bind.binder import bind_query
from headrace.sql.functions.evaluate import knows_time_zone
from headrace.sql.functions.time_functions import CLOCKS
from headrace.sql.hosts.dedicated_planner import DedicatedPlanner, streams_read
from headrace.sql.hosts.epoch_planner import EpochHostPlan, EpochHostPlanner
from headrace.sql.hosts.host_choice import SHARED, HostChoice, dedicated_because, forced, is_resolvable, moved
from headrace.sql.hosts.spark_checker import SparkChecker, SparkFindings, StreamingFindings
from headrace.sql.lowering import lower, lower_dedicated, lower_epoch_query, program_of
from headrace.sql.names import Names
from headrace.sql.parse.script import too_deep
from headrace.sql.parse.statements import CreatePipeline, Select
from headrace.sql.parse.syntax import ForeignQuery
from headrace.sql.pipeline_options import PipelineOptions, chosen_host, read_pipeline_options
from headrace.sql.plan.context import PlanContext
from headrace.sql.plan.event_times import EventTime, TimePath, event_times, passed_times, stream_times, streaming_times
from headrace.sql.plan.expr import Call, walk
from headrace.sql.plan.limits import ExpressionTooLarge, planning_time
from headrace.sql.plan.logical import Plan
from headrace.sql.plan.nested_reads import read_fields
from headrace.sql.plan.physical import Physical
from headrace.sql.plan.shape import Shape, shared_shape
from headrace.sql.render.fallible import fallible_expressions
from headrace.sql.render.sizes import ring0_growth
from headrace.sql.rules import FAN_IN_RULES, Trace, optimize, optimize_physical
from headrace.sql.views import expand


@dataclass(frozen=True)
class Planned:
    """A planned query: its program, and for EXPLAIN the plan after every step.

    `choice` is its host. On the other hosts the plans are those of the rings (of the first stream on the dedicated
    host), and `spark` is what Spark says about its part, None if Spark has not checked it. `emit` is the EMIT clause of
    the statement, None without one. `trace` has each rule's name and the plan after it, None when the rule changed
    nothing. `views` are those that the query reads. `times` are the output columns that are an event time;
    none while Spark has not checked its part.
    """

    name: str | None
    program: PipelineProgram
    stream: StreamDef
    sinks: tuple[SinkDef, ...]
    emit: Emit | None
    bound: Plan
    logical: Plan
    physical: Physical
    trace: Trace
    options: PipelineOptions
    choice: HostChoice = SHARED
    spark: SparkFindings | StreamingFindings | None = None
    views: tuple[ViewDef, ...] = ()
    times: dict[TimePath, EventTime] = field(default_factory=dict)


def plan_pipeline(
    statement: CreatePipeline | Select, names: Names, meaning: Meaning, spark: SparkChecker | None = None
) -> Planned:
    """Plans a pipeline or a bare query, on the first host that can run it, or on the one that the statement names.
    Raises SqlError, or ValueTooLarge for a constant. `spark` checks the part of a query that only Spark understands;
    without it that part is not checked."""
    expansion = expand(statement, names)
    planned = expansion.run(lambda query: _plan_without_views(query, names, meaning, spark))
    return replace(planned, views=expansion.views)


def _plan_without_views(
    statement: CreatePipeline | Select, names: Names, meaning: Meaning, spark: SparkChecker | None
) -> Planned:
    """Plans a query without views."""
    host = chosen_host(statement)
    if host == "dedicated":
        return _plan_on_dedicated_host(statement, names, meaning=meaning, spark=spark, because=None)
    if host == "epoch":
        return _plan_on_epoch_host(statement, names, meaning=meaning, spark=spark, because=None)
    try:
        return plan_on_shared_host(statement, names, meaning)
    except SqlError as problem:
        resolvable = is_resolvable(problem) and spark is not None and spark.at_hand
        if host == "shared" or not (resolvable or _needs_spark(problem, statement, names)):
            raise
        try:
            return _plan_on_spark(statement, names, meaning=meaning, spark=spark, because=problem)
        except SqlError as second:
            unresolved = isinstance(problem, UnknownStream) and not second.params.get("resolved")
            if resolvable and (isinstance(second, SparkRefused) or unresolved):
                raise problem from None  # it points at the mistake in our own words
            raise


def _needs_spark(problem: SqlError, statement: CreatePipeline | Select, names: Names) -> bool:
    """True if `problem` says nothing against the query but that the shared host cannot run it. With several streams a
    window may be over an event time of any of them."""
    if isinstance(problem, BadWindow):
        return len(streams_read(statement, names)) > 1
    return isinstance(problem, UnsupportedOnShared)


def _plan_on_spark(
    statement: CreatePipeline | Select, names: Names, meaning: Meaning, spark: SparkChecker | None, because: SqlError
) -> Planned:
    """Plans a query that the shared host refused: on the epoch host, and if it needs state on the dedicated host."""
    try:
        return _plan_on_epoch_host(statement, names, meaning=meaning, spark=spark, because=because)
    except UnsupportedStateful as problem:
        return _plan_on_dedicated_host(statement, names, meaning=meaning, spark=spark, because=problem)


def _plan_on_dedicated_host(
    statement: CreatePipeline | Select,
    names: Names,
    meaning: Meaning,
    spark: SparkChecker | None,
    because: SqlError | None,
) -> Planned:
    sinks = _sinks(statement, names) if isinstance(statement, CreatePipeline) else ()
    plan = DedicatedPlanner(statement, names, spark, lambda query: plan_on_shared_host(query, names, meaning)).plan()
    program, rings, options = plan.program, plan.rings[0], PipelineOptions()
    assert program.dedicated is not None
    if isinstance(statement, CreatePipeline):
        options = read_pipeline_options(statement, program, rings.stream, names, checked=plan.findings is not None)
        query = replace(program.dedicated, strategy=options.backpressure, limit=options.feed_limit)
        program = replace(program, dedicated=query)
    physical = lower_dedicated(tuple(p.physical for p in plan.rings), program, sinks)
    span = statement.span
    physical, trace = optimize_physical(physical, PlanContext(meaning, span.text, span.statement), FAN_IN_RULES)
    return replace(
        rings,
        name=statement.name if isinstance(statement, CreatePipeline) else None,
        program=program,
        sinks=sinks,
        emit=statement.emit,
        physical=physical,
        trace=(*rings.trace, *trace),
        options=options,
        choice=forced("dedicated") if because is None else dedicated_because(because),
        spark=plan.findings,
        times={} if plan.findings is None else streaming_times(plan.findings.times),
    )


def _plan_on_epoch_host(
    statement: CreatePipeline | Select,
    names: Names,
    meaning: Meaning,
    spark: SparkChecker | None,
    because: SqlError | None,
) -> Planned:
    sinks = _sinks(statement, names) if isinstance(statement, CreatePipeline) else ()
    plan = EpochHostPlanner(
        statement,
        names,
        spark=spark,
        plan_rings=lambda query: plan_on_shared_host(query, names, meaning),
        because=because,
        meaning=meaning,
    ).plan()
    program, rings, options = plan.program, plan.rings, PipelineOptions()
    if isinstance(statement, CreatePipeline):
        options = read_pipeline_options(statement, program, rings.stream, names, checked=plan.findings is not None)
        if options.static_refresh is not None and program.spark is not None:
            program = replace(program, spark=replace(program.spark, refresh_us=options.static_refresh))
    return replace(
        rings,
        name=statement.name if isinstance(statement, CreatePipeline) else None,
        program=program,
        sinks=sinks,
        emit=statement.emit,
        physical=lower_epoch_query(rings.physical, program, sinks),
        options=options,
        choice=forced("epoch") if because is None else moved(because),
        spark=plan.findings,
        times=_times_of_spark(plan),
    )


def _times_of_spark(plan: EpochHostPlan) -> dict[TimePath, EventTime]:
    """The event times in the output of Spark's part of a query."""
    if plan.findings is None:
        return {}
    below = stream_times(plan.rings.stream) if plan.program.ring1 is None else plan.rings.times
    return passed_times(below, dict(plan.findings.passed))


def plan_on_shared_host(statement: CreatePipeline | Select, names: Names, meaning: Meaning) -> Planned:
    """Plans a statement for the shared host. Raises UnsupportedOnShared at the part that cannot run there."""
    if isinstance(statement.query, ForeignQuery):
        raise statement.query.refused
    try:
        with planning_time(statement.span):
            return _plan(statement, names, meaning)
    except RecursionError:
        raise too_deep(statement.span) from None
    except ExpressionTooLarge as problem:
        raise UnsupportedOnShared(
            f"{problem} cannot run on the shared host",
            advice="Split the query: compute a part of it in a separate pipeline.",
            span=Span(statement.span.text, *problem.at, statement.span.statement),
        ) from None


def _plan(statement: CreatePipeline | Select, names: Names, meaning: Meaning) -> Planned:
    span = statement.span
    if not knows_time_zone(meaning.time_zone):
        raise UnsupportedOnShared(
            f"DuckDB does not know the session time zone {meaning.time_zone!r}",
            advice="Use the name of a region, such as Europe/Berlin, or UTC.",
            span=span,
        )
    ctx = PlanContext(meaning, span.text, span.statement)
    sinks = _sinks(statement, names) if isinstance(statement, CreatePipeline) else ()
    if isinstance(statement.query, ForeignQuery):
        raise InternalError("the shared host cannot bind a query that is not parsed")
    bound = bind_query(statement.query, names, ctx)
    logical, logical_trace = optimize(bound, ctx)
    shape = read_fields(shared_shape(logical, ctx.span))
    _check_clocks(shape, ctx)
    physical, physical_trace = optimize_physical(lower(shape, sinks, statement, ctx.span), ctx)
    program, name, options = program_of(physical, meaning), None, PipelineOptions()
    ring0 = replace(program.ring0, growth=ring0_growth(shape, ctx.span), fallible=fallible_expressions(shape, ctx.text))
    program = replace(program, ring0=ring0)
    if isinstance(statement, CreatePipeline):
        name, options = statement.name, read_pipeline_options(statement, program, shape.scan.stream, names)
    return Planned(
        name=name,
        program=program,
        stream=shape.scan.stream,
        sinks=sinks,
        emit=statement.emit,
        bound=bound,
        logical=logical,
        physical=physical,
        trace=(*logical_trace, *physical_trace),
        options=options,
        choice=forced("shared") if chosen_host(statement) == "shared" else SHARED,
        times=event_times(shape),
    )


def _check_clocks(shape: Shape, ctx: PlanContext) -> None:
    """Only Ring 0 knows the clock of the epoch. Raises UnsupportedOnShared for a clock after an aggregate."""
    if shape.aggregate is None:
        return
    after = [*(o.expr for o in shape.outputs), *(() if shape.having is None else (shape.having,))]
    for expr in (e for root in after for e in walk(root)):
        if isinstance(expr, Call) and expr.name in CLOCKS:
            raise UnsupportedOnShared(
                f"{expr.name}() after an aggregate cannot run on the shared host",
                advice=f"Write it inside an aggregate: max({expr.name}()).",
                span=ctx.span(expr.at),
            )


def _sinks(statement: CreatePipeline, names: Names) -> tuple[SinkDef, ...]:
    found: list[SinkDef] = []
    for name, span in zip(statement.sinks, statement.sink_spans, strict=True):
        sink = names.sink(name)
        if sink is None:
            raise unknown(UnknownSink, "sink", name, names.sink_names(), span=span)
        found.append(sink)
    # The hub makes the feeds themselves; a plan only says where the rows go.
    fed = [f"stream {outlet.name}" for outlet in statement.streams] + ([SPARK_READER] if statement.reader else [])
    return (*found, *(SinkDef(name, FEED.name, {}) for name in fed))
