"""The effect of a script on the catalog, computed before anything happens.

A draft starts from a catalog and applies statements to a copy. It reads no disk, except where sources and sinks check
their options, and it starts nothing. It ends in a catalog that can be saved whole, or raises an error with a code.
`hub.check` stops here; `hub.sql` passes the effects to the reconciler.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import singledispatchmethod
from typing import Literal

from headrace.errors import (
    AlreadyExists,
    ExternalError,
    HeadraceError,
    InternalError,
    InUse,
    MissingFile,
    NoSink,
    Span,
    SqlError,
    StoreDenied,
    UnknownBucket,
    UnknownTopic,
    UnreadableDirectory,
    UnsupportedStateful,
    UnwritablePath,
)
from headrace.hub.chains import (
    derived_stream,
    feed_of,
    outlet_stream,
    refuse_cycle,
    refuse_last_outlet,
    refuse_other_stream,
    refuse_read_output,
    unchecked_input,
    unchecked_stream,
    without_feed,
)
from headrace.hub.effects import ScriptEffects, StreamChange, only_leaves
from headrace.hub.lookup import (
    at,
    is_declared,
    refuse_sink_in_use,
    refuse_stream_in_use,
    refuse_view_in_use,
    require,
    require_pipeline,
    require_sink,
)
from headrace.hub.observed import ObservedStreams, query_trouble
from headrace.hub.questions import QUESTIONS, Questions
from headrace.hub.redeclaring import (
    as_declared,
    changed_options,
    exists,
    kept,
    lost_with,
    replaced,
    replaced_pipeline,
    replaced_view,
    same_pipeline,
    stream_exists,
)
from headrace.hub.results import Result
from headrace.model.program import DEAD_LETTER, Meaning, PipelineDef, SinkDef, StreamDef, ViewDef
from headrace.sinks import SINKS, settle_sink
from headrace.sources import SOURCES, keeps_progress
from headrace.sql import (
    AlterPipeline,
    CreateDerivedStream,
    CreatePipeline,
    CreateSink,
    CreateStream,
    CreateView,
    Drop,
    Planned,
    Select,
    StartPipeline,
    Statement,
    StopPipeline,
    TakeSavepoint,
    altered,
    define_sink,
    define_stream,
    define_view,
    parse_script,
    plan_pipeline,
)
from headrace.sql.hosts.spark_checker import SparkChecker
from headrace.sql.parse.statements import DropKind
from headrace.state.catalog import Catalog, PipelineRecord
from headrace.state.sealing import seal_sink, seal_stream, supply, supply_sink
from headrace.state.secrets import Vault
from headrace.state.state_dir import require_savepoint_name
from headrace.stores.store_options import absolute

# What a script cannot show on a machine on which it will not run.
_ELSEWHERE = (MissingFile, StoreDenied, UnknownBucket, UnreadableDirectory, UnwritablePath)

NOWHERE = Span("", 0, 0)


@dataclass(slots=True)
class Draft:
    """A catalog and the statements applied to it so far. Not thread-safe.

    `buckets` is how many buckets a new stateful pipeline gets. `streams` are the running streams, for questions and to
    see which queries are dead; None when there is only a catalog. Secrets in statements go to `vault`. `spark` checks
    queries that only Spark understands; without it they are planned unchecked. With `elsewhere` the script will run on
    another machine: paths that are missing here are noted in `absent`, and are no errors. `selects` collects the
    SELECTs of the script, to be run after it; they are errors if it is None.
    """

    catalog: Catalog
    meaning: Meaning
    buckets: int
    streams: ObservedStreams | None = None
    vault: Vault = field(default_factory=Vault)
    spark: SparkChecker | None = None
    elsewhere: bool = False
    absent: list[HeadraceError] = field(default_factory=list)
    selects: list[Select] | None = None
    _before: Catalog = field(init=False)
    _changes: dict[str, StreamChange] = field(default_factory=dict)
    _dropped: list[str] = field(default_factory=list)
    _savepoints: list[tuple[str, str | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._before = self.catalog

    def apply(self, statement: Statement) -> Result:
        """Apply one statement, and return the answer for the user."""
        if isinstance(statement, QUESTIONS):
            return Questions(self.catalog, self.meaning, self.streams, self.spark).answer(statement)
        return self._apply(statement)

    def effects(self) -> ScriptEffects:
        """What the statements applied so far change."""
        changes = (
            replace(change, only_leaves=not change.revive and only_leaves(self._before, self.catalog, change.stream))
            for change in self._changes.values()
        )
        dropped = frozenset(name.lower() for name in self._dropped)
        return ScriptEffects(self.catalog, tuple(changes), dropped, tuple(self._savepoints))

    @singledispatchmethod
    def _apply(self, statement: Statement) -> Result:
        raise InternalError(f"no way to run {type(statement).__name__}", span=statement.span)

    @contextmanager
    def _paths(self) -> Iterator[None]:
        """Notes paths and services that cannot be used from here, if the script will run elsewhere."""
        try:
            yield
        except (*_ELSEWHERE, ExternalError) as problem:
            if not self.elsewhere:
                raise
            self.absent.append(problem)

    # --- CREATE -----------------------------------------------------------------------------------

    @_apply.register
    def _(self, statement: CreateStream) -> Result:
        self._refuse_taken("view", statement.name, statement.span)
        new = self._with_dead_letters(_with_absolute_path(define_stream(statement, self.meaning)), statement)
        with self._paths(), at(statement.spans.get("path", statement.span)):
            self._check_source(new)
        new = seal_stream(new, self.vault)
        old = self.catalog.stream(new.name)
        if old is None:
            self.catalog = self.catalog.with_stream(new)
            return Result(f"created stream {new.name}")
        new = supply(old, new, self.vault)
        same = replace(old, sql="") == replace(new, sql="")
        if statement.if_not_exists or same:
            return kept("stream", old.name, same)
        continues = keeps_progress(old, new)
        if not statement.or_replace:
            raise stream_exists(old, continues, statement.span)
        return self._change_options(old, new) if continues else self._replace_stream(old, new, statement)

    def _check_source(self, stream: StreamDef) -> None:
        """Raise what CREATE STREAM should reject. A broker that cannot be reached now is no reason to reject a stream
        that is declared already: its query tries again by itself."""
        try:
            SOURCES[stream.source].check(stream)
        except (ExternalError, UnknownTopic) as problem:  # a deleted topic is up to `on_data_loss`
            known = self.catalog.stream(stream.name) is not None
            if not known or not problem.retry_helps:
                raise

    def _with_dead_letters(self, stream: StreamDef, statement: CreateStream) -> StreamDef:
        name = stream.options.get("dead_letter_sink")
        if name is None:
            return stream
        span = statement.spans.get("dead_letter_sink", statement.span)
        sink = require_sink(self.catalog, name, span)
        with at(span):
            SINKS[sink.kind].require_output(sink, DEAD_LETTER)
        return replace(stream, dead_letters=sink)

    def _change_options(self, old: StreamDef, new: StreamDef) -> Result:
        """Replace a stream that keeps its progress."""
        self.catalog = self.catalog.with_stream(new)
        if self.catalog.running(new.name):
            # A query that is dead or retrying may have needed this very change.
            self._touch(new.name, wait=True, revive=bool(query_trouble(self.streams, new.name)))
        return changed_options(old, new)

    def _replace_stream(self, old: StreamDef, new: StreamDef, statement: CreateStream) -> Result:
        """Replace a stream by one that starts from the beginning."""
        refuse_stream_in_use(self.catalog, old.name, statement.span)
        self._dropped.append(old.name)
        self.catalog = self.catalog.without("stream", old.name).with_stream(new)
        return replaced(old)

    @_apply.register
    def _(self, statement: CreateSink) -> Result:
        new = define_sink(statement)
        with self._paths(), at(statement.spans.get("path", statement.span)):
            new = settle_sink(new, known=self.catalog.sink(new.name) is not None)
        new = seal_sink(new, self.vault)
        old = self.catalog.sink(new.name)
        if old is not None:
            new = supply_sink(old, new, self.vault)
            same = replace(old, sql="") == replace(new, sql="")
            if statement.if_not_exists or same:
                return kept("sink", old.name, same)
            if not statement.or_replace:
                raise exists("sink", old.name, statement.span)
            refuse_sink_in_use(self.catalog, old.name, statement.span)
        self.catalog = self.catalog.with_sink(new)
        return Result(f"created sink {new.name}")

    @_apply.register
    def _(self, statement: CreatePipeline) -> Result:
        old = self.catalog.pipeline(statement.name)
        answer = Result(f"created pipeline {statement.name}")
        if old is not None and statement.if_not_exists:
            return kept("pipeline", old.definition.name, self._declares(statement, old.definition))
        if self.spark is None and unchecked_input(statement, self.catalog) is not None:
            for outlet in statement.streams:
                self.catalog = self.catalog.with_stream(unchecked_stream(outlet.name, statement.name))
            return answer
        planned = self._plan(statement)
        streams = self._outlet_streams(statement, planned)
        new = self._definition(statement, planned, streams)
        if old is not None:
            if same_pipeline(new, old.definition):
                return self._resume(old)
            if not statement.or_replace:
                raise exists("pipeline", statement.name, statement.span)
            if old.desired == "running" and new.inherits(old.definition):
                before = old.definition
                new = replace(new, heir_of=before.lane, buckets=before.buckets, pooled=before.pooled)
                answer = replaced_pipeline(new, kept_state=True)
            else:
                self._leave(old)
                answer = replaced_pipeline(new, kept_state=False)
        for made in streams:
            self.catalog = self.catalog.with_stream(made)
        self.catalog = self.catalog.with_pipeline(PipelineRecord(new).to("starting", "CREATE PIPELINE"))
        for stream in new.streams:
            self._touch(stream, wait=True)
        return answer

    @_apply.register
    def _(self, statement: AlterPipeline) -> Result:
        record = require_pipeline(self.catalog, statement.name, statement.span)
        return self.apply(altered(record.definition.sql, statement))

    # --- views ------------------------------------------------------------------------------------

    @_apply.register
    def _(self, statement: CreateView) -> Result:
        self._refuse_taken("stream", statement.name, statement.span)
        old = self.catalog.view(statement.name)
        if old is not None and statement.if_not_exists:
            return kept("view", old.name, (old.query, old.columns) == (statement.query_sql, statement.columns))
        new = self._planned_view(statement, self.catalog)
        if old is None:
            self.catalog = self.catalog.with_view(new)
            return Result(f"created view {new.name}")
        if replace(old, sql="", name=new.name) == replace(new, sql=""):
            return as_declared("view", old.name)
        if not statement.or_replace:
            raise exists("view", old.name, statement.span)
        self.catalog = self._with_replaced(new, self.catalog, statement)
        users = [p.definition for p in self.catalog.pipelines.values() if p.desired == "running"]
        return replaced_view(new.name, [p.name for p in users if old.name in [v.name for v in p.views]])

    def _planned_view(self, statement: CreateView, catalog: Catalog) -> ViewDef:
        if self.spark is None and unchecked_input(statement.body, catalog) is not None:
            return define_view(statement, catalog, lambda _: None)[0]
        view, planned = define_view(
            statement, catalog, lambda query: plan_pipeline(query, catalog, self.meaning, self.spark)
        )
        return replace(view, output=planned.program.output)

    def _with_replaced(self, view: ViewDef, catalog: Catalog, statement: CreateView) -> Catalog:
        """The catalog with a replaced view. The views that read it are planned again. Raises InUse if one cannot be."""
        catalog = catalog.with_view(view)
        for name in catalog.views_over(view.name):
            over = catalog.views[name.lower()]
            (parsed,) = parse_script(over.sql)
            assert isinstance(parsed, CreateView)
            try:
                again = self._planned_view(parsed, catalog)
            except SqlError as problem:
                raise InUse(
                    f"view {name} reads {view.name} and cannot be planned with its new definition: {problem.message}",
                    advice=f"Drop or replace view {name} first.",
                    span=statement.span,
                    name=view.name,
                    users=[name],
                ) from problem
            catalog = self._with_replaced(again, catalog, statement)
        return catalog

    def _refuse_taken(self, kind: Literal["stream", "view"], name: str, span: Span) -> None:
        """Raise AlreadyExists if the name is taken: streams and views share their names."""
        if is_declared(self.catalog, kind, name):
            raise AlreadyExists(
                f"{name} is a {kind}",
                advice=f"Use another name, or DROP {kind.upper()} {name} first.",
                span=span,
                name=name,
            )

    # --- pipelines --------------------------------------------------------------------------------

    def _declares(self, statement: CreatePipeline, declared: PipelineDef) -> bool:
        """True if a statement declares this pipeline. A statement that cannot be planned does not."""
        try:
            return same_pipeline(self._planned(statement), declared)
        except SqlError:
            return False

    def _planned(self, statement: CreatePipeline) -> PipelineDef:
        """The pipeline that a statement declares, as a new instance."""
        planned = self._plan(statement)
        return self._definition(statement, planned, self._outlet_streams(statement, planned))

    def _plan(self, statement: CreatePipeline) -> Planned:
        return plan_pipeline(statement, self.catalog, self.meaning, self.spark)

    def _definition(self, statement: CreatePipeline, planned: Planned, streams: Sequence[StreamDef]) -> PipelineDef:
        """The pipeline that a statement declares, as a new instance that feeds `streams`."""
        program, options = planned.program, planned.options
        named = zip(statement.sinks, statement.sink_spans, strict=True)
        stateful = program.ring1 is not None and bool(program.ring1.keys)
        feeds = tuple(feed_of(stream, planned, statement.span) for stream in streams)
        made = PipelineDef(
            name=statement.name,
            instance=self.catalog.next_instance,
            sinks=(*(require_sink(self.catalog, name, span) for name, span in named), *feeds),
            program=program,
            buckets=self.buckets if stateful else 1,
            pooled=True,
            sql=statement.sql,
            max_groups=options.max_groups,
            max_group_values=options.max_group_values,
            late=options.late,
            views=planned.views,
        )
        with at(statement.span):
            for sink, output in made.outlets:
                SINKS[sink.kind].require_output(sink, output)
        return made

    # --- chains -----------------------------------------------------------------------------------

    def _outlet_streams(self, statement: CreatePipeline, planned: Planned) -> list[StreamDef]:
        """The streams that a pipeline feeds: those that its statement names, and those that are declared already."""
        found = {stream.name.lower(): stream for stream in self.catalog.fed_by(statement.name)}
        if found or statement.streams:
            _refuse_dedicated_outlet(planned, statement.span)
        for outlet in statement.streams:
            self._refuse_taken("view", outlet.name, outlet.span)
            refuse_other_stream(self.catalog, outlet.name, statement.name, outlet.span)
            old, new = found.get(outlet.name.lower()), outlet_stream(outlet, statement, planned)
            if old is not None and outlet.watermark is not None and not _same_time(old, new):
                raise exists("stream", old.name, outlet.span)
            found[outlet.name.lower()] = old or new
        for stream in found.values():
            refuse_cycle(self.catalog, stream, planned.program.streams, statement.span)
        return list(found.values())

    @_apply.register
    def _(self, statement: CreateDerivedStream) -> Result:
        self._refuse_taken("view", statement.name, statement.span)
        record = require_pipeline(self.catalog, statement.pipeline, statement.pipeline_span)
        old = self.catalog.stream(statement.name)
        planned = self._planned_again(record)
        new = derived_stream(statement, planned)
        if old is not None:
            same = replace(old, sql="") == replace(new, sql="")
            if statement.if_not_exists or same:
                return kept("stream", old.name, same)
            continues = old.fed_by is not None and keeps_progress(old, new)
            if not (statement.or_replace and continues):
                raise stream_exists(old, continues, statement.span)
        _refuse_dedicated_outlet(planned, statement.span)
        refuse_cycle(self.catalog, new, record.definition.streams, statement.span)
        feed = feed_of(new, planned, statement.span)
        definition = without_feed(record.definition, new)
        self._redefine(record, replace(definition, sinks=(*definition.sinks, feed)))
        if old is not None:
            return self._change_options(old, new)
        self.catalog = self.catalog.with_stream(new)
        return Result(f"created stream {new.name}, the output of pipeline {record.definition.name}")

    def _planned_again(self, record: PipelineRecord) -> Planned:
        """The plan of a declared pipeline, with the views as they were."""
        (statement,) = parse_script(record.definition.sql)
        assert isinstance(statement, CreatePipeline)
        catalog = self.catalog.with_views(record.definition.views)
        planned = plan_pipeline(statement, catalog, self.meaning, self.spark)
        return replace(planned, program=record.definition.program)

    def _redefine(self, record: PipelineRecord, definition: PipelineDef) -> None:
        """Change the outlets of a pipeline. It keeps its instance and its state."""
        self.catalog = self.catalog.with_pipeline(replace(record, definition=definition))
        if record.desired == "running":
            for stream in definition.streams:
                self._touch(stream, wait=True)

    def _resume(self, record: PipelineRecord) -> Result:
        """CREATE of a pipeline as it is declared: one that failed is started again, without state."""
        if record.desired == "failed":
            self._start(record)
            return Result(f"restarted pipeline {record.definition.name}")
        return as_declared("pipeline", record.definition.name)

    # --- DROP, START, STOP ------------------------------------------------------------------------

    @_apply.register
    def _(self, statement: Drop) -> Result:
        kind, name, span = statement.kind, statement.name, statement.span
        if not is_declared(self.catalog, kind, name):
            if statement.if_exists:
                return Result(f"there is no {kind} {name}")
            require(self.catalog, kind, name, span)
        also = self._drop_readers(kind, name) if statement.cascade else []
        warnings = self._drop(kind, name, span)
        return Result(f"dropped {kind} {name}" + (f" and {', '.join(also)}" if also else ""), warnings=warnings)

    def _drop(self, kind: DropKind, name: str, span: Span) -> tuple[str, ...]:
        """Remove one declaration. Returns the warnings."""
        warnings: tuple[str, ...] = ()
        if kind == "pipeline":
            refuse_read_output(self.catalog, name, span)
            for stream in self.catalog.fed_by(name):
                warnings += self._drop_stream(stream)
            self._leave(require_pipeline(self.catalog, name, span))
        elif kind == "stream":
            refuse_stream_in_use(self.catalog, name, span)
            stream = self.catalog.streams[name.lower()]
            producer = None if stream.fed_by is None else self.catalog.pipeline(stream.fed_by)
            if producer is not None:
                refuse_last_outlet(producer.definition, stream, span)
                self._redefine(producer, without_feed(producer.definition, stream))
            return self._drop_stream(stream)
        elif kind == "view":
            refuse_view_in_use(self.catalog, name, span)
        else:
            refuse_sink_in_use(self.catalog, name, span)
        self.catalog = self.catalog.without(kind, name)
        return warnings

    def _drop_stream(self, stream: StreamDef) -> tuple[str, ...]:
        self._dropped.append(stream.name)
        self.catalog = self.catalog.without("stream", stream.name)
        return (lost_with(stream),)

    def _drop_readers(self, kind: DropKind, name: str) -> list[str]:
        """Remove everything that reads a stream, a view, or the output of a pipeline, the last in a chain first.
        Returns what was removed, in words."""
        dropped: list[str] = []
        readers: list[tuple[DropKind, str]] = []
        if kind == "pipeline":
            for stream in self.catalog.fed_by(name):
                dropped += self._drop_readers("stream", stream.name)
        if kind in ("stream", "view"):
            readers += [("view", view) for view in self.catalog.views_over(name)]
        if kind == "stream":
            readers += [("pipeline", record.definition.name) for record in self.catalog.of_stream(name)]
        if kind == "view":
            records = self.catalog.pipelines.values()
            using = [r.definition for r in records if name.lower() in (v.name.lower() for v in r.definition.views)]
            readers += [("pipeline", definition.name) for definition in using]
        for reader, found in readers:
            if is_declared(self.catalog, reader, found):  # it may have gone with another one
                dropped += self._drop_readers(reader, found)
                self._drop(reader, found, NOWHERE)
                dropped.append(f"{reader} {found}")
        return dropped

    @_apply.register
    def _(self, statement: StartPipeline) -> Result:
        record = require_pipeline(self.catalog, statement.name, statement.span)
        name = record.definition.name
        found = {stream: query_trouble(self.streams, stream) for stream in record.definition.streams}
        trouble = {stream: state for stream, state in found.items() if state}
        note = "".join(f"; stream {s} was {state}, its query is started again" for s, state in trouble.items())
        running = record.desired == "running" and not record.detached
        if running and not trouble:
            return Result(f"pipeline {name} is running")
        for stream, state in found.items():
            self._touch(stream, wait=True, revive=bool(state))
        if running:
            return Result(f"pipeline {name} goes on{note}")
        self._start(record)
        return Result(f"started pipeline {name}{note}")

    @_apply.register
    def _(self, statement: StopPipeline) -> Result:
        record = require_pipeline(self.catalog, statement.name, statement.span)
        if record.desired != "running":
            return Result(f"pipeline {record.definition.name} is not running")
        now, running = statement.mode == "now", record.attached
        stopping = record.to("stopping", f"STOP PIPELINE {statement.mode.upper()}")
        if now:  # its state is dropped
            stopping = replace(stopping, definition=_without_state(stopping.definition))
        self.catalog = self.catalog.with_pipeline(stopping)
        self.catalog = self.catalog.with_end(running, flush=statement.close_windows, drop=now)
        for stream in running.streams:
            change = self._touch(stream, wait=not now)
            part = running.on_stream(stream)
            if now:
                self._set(replace(change, quick=(*change.quick, part)))
            else:
                self._set(replace(change, graceful=(*change.graceful, part)))
        return Result(f"stopped pipeline {record.definition.name}")

    @_apply.register
    def _(self, statement: TakeSavepoint) -> Result:
        with at(statement.span):
            require_savepoint_name(statement.name)
        if statement.stream is not None:
            require(self.catalog, "stream", statement.stream, statement.span)
        self._savepoints.append((statement.name, statement.stream))
        return Result(f"took savepoint {statement.name}")

    @_apply.register
    def _(self, statement: Select) -> Result:
        if self.selects is None:
            raise NoSink(
                "a bare SELECT has nowhere to put its rows",
                advice="Use CREATE PIPELINE name INTO sink AS SELECT ..., or EXPLAIN SELECT ... to see its plan. On a "
                "running hub, headrace sql and hub.sql show the rows of a SELECT.",
                span=statement.span,
            )
        self.selects.append(statement)
        return Result("selected")

    def planned_select(self, statement: Select, name: str, sink: SinkDef) -> PipelineDef:
        """A query as a pipeline into one sink, which is not declared yet."""
        created = CreatePipeline(
            sql=statement.sql,
            span=statement.span,
            name=name,
            sinks=(sink.name,),
            query=statement.query,
            query_sql=statement.query_sql,
            emit=statement.emit,
            sink_spans=(statement.span,),
            emit_span=statement.emit_span,
            query_start=statement.query_start,
        )
        return replace(self, catalog=self.catalog.with_sink(sink))._planned(created)

    def effects_on(self, stream: str) -> ScriptEffects:
        """What the catalog as it is now changes on one stream."""
        self._touch(stream, wait=True)
        return self.effects()

    # --- changes ----------------------------------------------------------------------------------

    def _start(self, record: PipelineRecord) -> None:
        if record.desired == "failed":  # its state may be that of half an epoch, so its exit removes all of it
            self._leave(record)
        definition = record.definition if record.desired != "failed" else _without_state(record.definition)
        self.catalog = self.catalog.without_stop(definition.instance)
        for stream in definition.streams:
            change = self._touch(stream, wait=True)
            self._set(replace(change, graceful=tuple(p for p in change.graceful if p.instance != definition.instance)))
        again = replace(record, definition=replace(definition, generation=definition.generation + 1), detached={})
        self.catalog = self.catalog.with_pipeline(again.to("starting", "START PIPELINE"))

    def _leave(self, record: PipelineRecord) -> None:
        """End an instance. Its state is dropped, and open windows emit nothing."""
        self.catalog = self.catalog.with_end(record.definition, flush=False)
        for stream in record.definition.streams:
            self._touch(stream, wait=True)

    def _touch(self, stream: str, *, wait: bool, revive: bool = False) -> StreamChange:
        """Give a stream a new plan."""
        old = self._changes.get(stream.lower(), StreamChange(stream.lower()))
        change = replace(old, wait=old.wait or wait, revive=old.revive or revive)
        self._set(change)
        return change

    def _set(self, change: StreamChange) -> None:
        self._changes[change.stream] = change


def _same_time(old: StreamDef, new: StreamDef) -> bool:
    """True if two streams have the same event time and watermark."""
    return (old.event_time, old.delay_us) == (new.event_time, new.delay_us)


def _refuse_dedicated_outlet(planned: Planned, span: Span) -> None:
    """Raise UnsupportedStateful if a stream is to be made of the output of a query on the dedicated host."""
    if planned.program.dedicated is not None:
        raise UnsupportedStateful(
            "no stream can be made of the output of a pipeline on the dedicated host",
            advice="Write the output to files or a topic, and create a stream over them.",
            span=span,
        )


def _without_state(pipeline: PipelineDef) -> PipelineDef:
    """`pipeline`, whose next generation begins without state if its query runs on the dedicated host."""
    if pipeline.program.dedicated is None:
        return pipeline
    return replace(pipeline, fresh=pipeline.generation + 1)


def _with_absolute_path(stream: StreamDef) -> StreamDef:
    """`stream` with absolute paths: the planning process and later runs may have another working directory."""
    settled = {k: absolute(v) if k.lower() == "path" else v for k, v in stream.options.items()}
    return replace(stream, options=settled)
