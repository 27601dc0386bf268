"""EXPLAIN as text. The text is stable: golden files hold it. An operator with several readers is printed once."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.model.definitions import MAX_GROUP_VALUES, MAX_GROUPS
from headrace.model.program import DedicatedQuery, Expression, Partial, Ring1Program, SparkQuery
from headrace.model.stream_options import stream_settings
from headrace.sinks import SINKS
from headrace.sources.read_description import describe_read
from headrace.sql.explain.in_plain_words import BRIDGE, RING0, RING1, plain_words
from headrace.sql.explain.live_stream import LiveStream, asked_by, batch_policy, computed_columns, impact_of
from headrace.sql.explain.plan_text import show_plan
from headrace.sql.explain.slow_calls import slow_calls
from headrace.sql.parse.intervals import show_interval
from headrace.sql.parse.statements import ExplainMode
from headrace.sql.plan.logical import Plan
from headrace.sql.plan.physical import Physical, show_column, show_view, show_window, topological
from headrace.sql.planner import Planned

UNCHECKED = "not checked: Spark checks it when the pipeline is created"


def explain(planned: Planned, live: LiveStream | None, mode: ExplainMode = "plain") -> str:
    """Describes how the query runs, part by part. `live` is the running stream, None without a hub. The mode `verbose`
    adds the effect of every rule, and `formatted` Spark's own plan of its part."""
    lines = [f"pipeline {planned.name}" if planned.name is not None else "query"]
    lines += plain_words(planned)
    lines.append(f"host: {planned.choice.host} ({planned.choice.reason})")
    if planned.choice.expression:
        lines.append(f"decided by: {planned.choice.expression}")
    if planned.views:
        lines.append(f"views: {', '.join(v.name for v in planned.views)}")
    lines += _block("logical plan", show_plan(planned.logical).split("\n"))
    lines += _block("physical plan", show_physical(planned.physical).split("\n"))
    lines += _block(RING0, list(_ring0(planned)))
    if planned.program.ring1 is not None:
        lines += _block(BRIDGE, list(_bridge(planned)))
        lines += _block(RING1, list(_ring1(planned, planned.program.ring1)))
    if planned.program.spark is not None:
        lines += _block("spark", list(_spark(planned, planned.program.spark, mode)))
    if planned.program.dedicated is not None:
        lines += _block("dedicated query", list(_dedicated(planned, planned.program.dedicated, mode)))
    lines += _block("watermark", list(_watermark(planned)))
    lines += _block("sinks", list(_sinks(planned)))
    if mode == "verbose":
        lines += _block("rules", list(_rules(planned)))
    lines += _block(f"stream {planned.stream.name}", list(_foot(planned, live)))
    return "\n".join(lines)


def show_physical(plan: Physical) -> str:
    """The DAG, inputs first: `r2 := PhysicalFilter(r1) where=...`."""
    names: dict[int, str] = {}
    lines: list[str] = []
    for node in topological(plan):
        name = names[id(node)] = f"r{len(names)}"
        inputs = ", ".join(names[id(child)] for child in node.inputs)
        details = "".join(f" {key}={value}" for key, value in node.details)
        lines.append(f"{name} := {type(node).__name__}({inputs}){details}")
    return "\n".join(lines)


def _block(title: str, lines: list[str]) -> list[str]:
    return ["", title, *("  " + line for line in lines)]


def _expression(expression: Expression) -> str:
    return f"{expression.name} {expression.type} = {expression.sql}"


def _some(items: tuple[Expression, ...]) -> Iterator[str]:
    for item in items[:24]:
        yield "  " + _expression(item)
    if len(items) > 24:
        yield f"  ... {len(items) - 24} more"


def _partial(partial: Partial) -> str:
    return f"  {partial.name} {partial.type} = {partial.sql}; merged by {partial.merge}"


def _ring0(planned: Planned) -> Iterator[str]:
    ring0 = planned.program.ring0
    yield f"filter: {ring0.filter or 'none'}"
    for generator in ring0.generators:
        if generator.filter is not None:
            yield f"filter: {generator.filter}"
        yield "rows made of the elements of" + (" (a row of NULLs for none):" if generator.outer else ":")
        yield from (f"  {c.name} {c.type} = {c.sql}" for c in generator.columns)
    if ring0.made_filter is not None:
        yield f"filter of the made rows: {ring0.made_filter}"
    if ring0.window is not None:
        yield f"window: {show_window(ring0.window)}"
    if ring0.outputs:
        yield "outputs:"
        yield from _some(ring0.outputs)
    if ring0.keys:
        yield "keys:"
        yield from _some(ring0.keys)
    if ring0.partials:
        yield "partials:"
        yield from map(_partial, ring0.partials)
    slow = slow_calls(planned.logical)
    if slow:
        yield "slow (Python code for every row):"
        yield from ("  " + call for call in slow)


def _bridge(planned: Planned) -> Iterator[str]:
    ring0 = planned.program.ring0
    hashed = [k.name for i, k in enumerate(ring0.keys) if ring0.bucket_keys is None or i in ring0.bucket_keys]
    if hashed:
        yield f"lanes by hash of {', '.join(hashed)}; partial states"
    else:
        yield "one lane; partial states"
    yield "order within an epoch: events, watermark, barrier, end"
    yield "barriers: each lane waits for all tasks of the epoch"


def _ring1(planned: Planned, ring1: Ring1Program) -> Iterator[str]:
    if ring1.emit == "close":
        yield "emit: when the watermark closes a window"
    elif ring1.emit == "first":
        yield "emit: a row at its first occurrence"
        kept = "the watermark passes its window" if ring1.window is not None else "the pipeline ends"
        yield f"kept: until {kept}"
    elif planned.emit is None:
        yield "emit: on change (implied: without a window a group never closes)"
    else:
        yield "emit: on change"
    if planned.options.max_groups != MAX_GROUPS:
        yield f"limit: {planned.options.max_groups} groups"
    if planned.options.max_group_values != MAX_GROUP_VALUES:
        yield f"limit: {planned.options.max_group_values} values in a list of a group"
    yield f"having: {ring1.having or 'none'}"
    if ring1.ranks:
        yield "ranks:"
        yield from _some(ring1.ranks)
        yield f"keeps: {ring1.qualify or 'all'}"
    yield "outputs:"
    yield from _some(ring1.outputs)


def _spark(planned: Planned, query: SparkQuery, mode: ExplainMode) -> Iterator[str]:
    yield "in the commit of every epoch, over the rows that the rings staged:"
    yield from ("  " + line for line in query.sql.split("\n"))
    yield f"reads {query.relation} ({', '.join(query.staged.names)})"
    if query.clocks:
        yield "clock: the epoch's own"
    if query.tables:
        kept = "in every epoch" if query.refresh_us is None else f"every {show_interval(query.refresh_us)}"
        yield f"static tables, read {kept}: {', '.join(dict.fromkeys(name for _, _, name, _ in query.tables))}"
    if planned.spark is None:
        yield UNCHECKED
        return
    yield "outputs:"
    yield from (f"  {f.name} {f.type}" for f in planned.program.output.fields[:24])
    if mode in ("formatted", "verbose"):
        yield "Spark's plan:"
        yield from ("  " + line for line in planned.spark.plan.split("\n"))


def _dedicated(planned: Planned, query: DedicatedQuery, mode: ExplainMode) -> Iterator[str]:
    yield "a Spark streaming query of its own, over the rows that the streams hand to it:"
    yield from ("  " + line for line in query.sql.split("\n"))
    for given in query.inputs:
        yield f"reads {given.relation} ({', '.join(given.staged.names)}) where {given.ring0.filter or 'true'}"
    if query.distinct:
        yield "emit: a row at its first occurrence"
    else:
        yield "emit: " + ("on change" if query.mode == "update" else "when a row is final")
    yield f"when it is too slow: {query.strategy}" + (f" beyond {query.limit}" if query.limit else "")
    if planned.spark is None:
        yield UNCHECKED
        return
    yield "outputs:"
    yield from (f"  {f.name} {f.type}" for f in planned.program.output.fields[:24])
    if mode in ("formatted", "verbose"):
        yield "Spark's plan:"
        yield from ("  " + line for line in planned.spark.plan.split("\n"))


def _watermark(planned: Planned) -> Iterator[str]:
    stream, query = planned.stream, planned.program.dedicated
    if query is not None and len(query.inputs) > 1:
        yield "the smallest of those of its streams:"
        for given in query.inputs:
            time = "none" if given.event_time is None else f"{given.event_time} - {show_interval(given.delay_us)}"
            yield f"  {given.stream}: {time}"
        return
    if stream.event_time is None:
        yield "none: the stream declares no event time"
        return
    column, settings = stream.schema[stream.event_time].name, stream_settings(stream)
    if stream.fed_by is not None and stream.options["event_time"] == "inherited":
        come = f"{column} as far as pipeline {stream.fed_by} has come, with rows or without"
        yield f"{come} - {show_interval(stream.delay_us)}"
    else:
        yield f"highest {column} of the whole stream - {show_interval(stream.delay_us)}"
    if "max_future" in stream.options:
        yield f"rows more than {show_interval(settings.max_future)} ahead of the clock do not move it"
    if settings.idle_advance is not None:
        yield f"advances with the clock after {show_interval(settings.idle_advance)} without rows"


def _sinks(planned: Planned) -> Iterator[str]:
    for sink in planned.sinks:
        yield f"{sink.name}: {sink.kind}, {SINKS[sink.kind].guarantee_of(sink)}"
    if not planned.sinks:
        yield "none"
    if (late := planned.options.late) is not None:
        columns = ", ".join(o.name for o in late.outputs)
        yield f"{late.sink.name}: {late.sink.kind}, gets late rows ({columns})"
    if planned.sinks:
        if planned.program.dedicated is not None:
            yield "commit: when a batch of the dedicated query is done"
            return
        waits = "all tasks" if planned.program.ring1 is None else "all tasks and lanes"
        then = "" if planned.program.spark is None else ", and the Spark query has run"
        yield f"commit: when {waits} of the epoch have delivered its barrier{then}"


def _rules(planned: Planned) -> Iterator[str]:
    for name, after in planned.trace:
        if after is None:
            yield f"{name}: no change"
            continue
        yield f"{name}:"
        text = show_plan(after) if isinstance(after, Plan) else show_physical(after)
        yield from ("  " + line for line in text.split("\n"))


def _foot(planned: Planned, live: LiveStream | None) -> Iterator[str]:
    schema = planned.stream.schema
    access = describe_read(planned.stream)
    yield f"read: source {access.source}, format {access.format}; {access.sharing}"
    if access.guarantee:
        yield f"delivery: {access.guarantee}"
    yield f"indexer: {access.indexer}; {access.fields}"
    letters = planned.stream.dead_letters
    if letters is not None:
        yield f"dead letters: {letters.name}, {letters.kind}, {SINKS[letters.kind].guarantee_of(letters)}"
    yield from batch_policy(planned.stream, live)
    yield f"declared: {len(schema)} columns"
    yield f"view (positions are those of the full schema): {show_view(planned.program.view, schema)}"
    for name, text in computed_columns(planned.stream, planned.program.view).items():
        yield f"computed: {name} = {text}"
    if live is None:
        return
    yield f"applied: version {live.version}, {show_view(live.applied, schema)}"
    for index, names in asked_by(live, planned.stream).items():
        who = ", ".join(names) or ("event time" if index == planned.stream.event_time else "no pipeline")
        yield f"  {show_column(index, schema)}: {who}"
    yield "subscribers:" if live.pipelines else "subscribers: none"
    for name, program in sorted(live.pipelines.items()):
        yield f"  {name}: {show_view(program.view, schema)}"
    yield from (f"{fact}: {_shown(value)}" for fact, value in live.facts.items())
    change = impact_of(planned, live)
    if planned.name in live.pipelines:
        yield f"this pipeline runs: {'; '.join(change.shared) or 'shares the decoding only'}"
    else:
        yield f"adding this pipeline: {change.text}"


def _shown(fact: object) -> object:
    if isinstance(fact, dict):
        return ", ".join(f"{reason} {count}" for reason, count in fact.items()) or "none"
    return "none" if fact is None else fact
