"""A script's effect on the catalog, worked out before anything happens: `--check` stops here, `hub.sql` goes on.

A draft starts from a catalog and applies statements to a copy. It reads no disk but what sources and sinks check,
starts nothing, and either ends in a catalog that can be saved whole or raises a coded error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import singledispatchmethod

from headrace.base.options import closest
from headrace.errors import (
    HeadraceError,
    InternalError,
    InUse,
    NoSink,
    Span,
    SqlError,
    UnknownPipeline,
    UnknownSink,
    UnknownStream,
)
from headrace.hub.redeclaring import (
    as_declared,
    changed_options,
    exists,
    kept,
    lost_with,
    replaced,
    same_pipeline,
    stream_exists,
    stream_in_use,
)
from headrace.hub.results import Result, table_result
from headrace.model.program import Meaning, PipelineDef, SinkDef, StreamDef
from headrace.sinks import settle_sink
from headrace.sources import SOURCES, keeps_progress
from headrace.sql import (
    CreatePipeline,
    CreateSink,
    CreateStream,
    Describe,
    Drop,
    Explain,
    LiveStream,
    Select,
    Show,
    ShowCreate,
    StartPipeline,
    Statement,
    StopPipeline,
    TakeSavepoint,
    define_sink,
    define_stream,
    explain,
    explain_json,
    parse_script,
    plan_pipeline,
)
from headrace.state.catalog import Catalog, PipelineRecord
from headrace.state.sealing import seal_stream, supply
from headrace.state.secrets import Vault
from headrace.state.state_dir import require_savepoint_name


@dataclass(slots=True)
class Draft:
    """Statements applied so far. `touched` streams need a new plan, and the caller waits for it on those in `waits`;
    `dropped` are streams that are gone; `graceful` and `quick` are pipelines to be stopped, by stream;
    `savepoints` (name, stream or all) are taken when everything else is done. `ill` says what is wrong with the query
    of a stream (retrying, dead or nothing), and those `revived` are started again. `vault` gets the secrets."""

    catalog: Catalog
    meaning: Meaning
    buckets: int
    live: Callable[[str], LiveStream | None] = lambda name: None
    ill: Callable[[str], str] = lambda name: ""
    describe: Callable[[Catalog, str, str], Result] | None = None
    show: Callable[[Catalog, str], Result] | None = None
    touched: set[str] = field(default_factory=set)
    dropped: list[str] = field(default_factory=list)
    waits: set[str] = field(default_factory=set)
    graceful: dict[str, list[PipelineDef]] = field(default_factory=dict)
    quick: dict[str, list[PipelineDef]] = field(default_factory=dict)
    savepoints: list[tuple[str, str | None]] = field(default_factory=list)
    revived: set[str] = field(default_factory=set)
    vault: Vault = field(default_factory=Vault)

    def apply(self, statement: Statement) -> Result:
        """Apply one statement; what to tell the user."""
        return self._apply(statement)

    @singledispatchmethod
    def _apply(self, statement: Statement) -> Result:
        raise InternalError(f"no way to run {type(statement).__name__}", span=statement.span)

    # --- CREATE -----------------------------------------------------------------------------------

    @_apply.register
    def _(self, statement: CreateStream) -> Result:
        new = self._with_dead_letters(_with_absolute_path(define_stream(statement)), statement)
        with at(statement.span):
            SOURCES[new.source].check(new)
        new = seal_stream(new, self.vault)
        old = self.catalog.stream(new.name)
        if old is None:
            self.catalog = self.catalog.with_stream(new)
            return Result(f"created stream {new.name}")
        new = supply(old, new, self.vault)
        same, goes_on = replace(old, sql="") == replace(new, sql=""), keeps_progress(old, new)
        if statement.if_not_exists or same:
            return kept("stream", old.name, same)
        if not statement.or_replace:
            raise stream_exists(old, goes_on, statement.span)
        if goes_on:
            self.catalog = self.catalog.with_stream(new)
            if self.catalog.running(new.name):
                self.touched.add(new.name.lower())
                self.waits.add(new.name.lower())
                if self.ill(new.name):  # the change may be what it needs
                    self.revived.add(new.name.lower())
            return changed_options(old, new)
        self._refuse_stream_in_use(old.name, statement.span)
        self.dropped.append(old.name)
        self.catalog = self.catalog.without("stream", old.name).with_stream(new)
        return replaced(old)

    def _with_dead_letters(self, stream: StreamDef, statement: CreateStream) -> StreamDef:
        name = stream.options.get("dead_letter_sink")
        if name is None:
            return stream
        return replace(stream, dead_letters=self._sink(name, statement.spans.get("dead_letter_sink", statement.span)))

    @_apply.register
    def _(self, statement: CreateSink) -> Result:
        with at(statement.span):
            new = settle_sink(define_sink(statement))
        old = self.catalog.sink(new.name)
        if old is not None:
            same = replace(old, sql="") == replace(new, sql="")
            if statement.if_not_exists or same:
                return kept("sink", old.name, same)
            if not statement.or_replace:
                raise exists("sink", old.name, statement.span)
            self._refuse_sink_in_use(old.name, statement.span)
        self.catalog = self.catalog.with_sink(new)
        return Result(f"created sink {new.name}")

    @_apply.register
    def _(self, statement: CreatePipeline) -> Result:
        old = self.catalog.pipeline(statement.name)
        if old is not None and statement.if_not_exists:
            return kept("pipeline", old.definition.name, self._declares(statement, old.definition))
        new = self._planned(statement)
        if old is not None:
            if same_pipeline(new, old.definition):
                return self._resume(old)
            if not statement.or_replace:
                raise exists("pipeline", statement.name, statement.span)
            if old.desired == "running" and new.inherits(old.definition):
                new = replace(new, heir_of=old.definition.lane, buckets=old.definition.buckets)
            else:
                self._leave(old, flush=False)
        self.catalog = self.catalog.with_pipeline(PipelineRecord(new).to("starting", "CREATE PIPELINE"))
        self._touch(new)
        return Result(f"created pipeline {new.name}")

    def _declares(self, statement: CreatePipeline, declared: PipelineDef) -> bool:
        """Whether a statement says what is declared; one that cannot be planned does not."""
        try:
            return same_pipeline(self._planned(statement), declared)
        except SqlError:
            return False

    def _planned(self, statement: CreatePipeline) -> PipelineDef:
        """The pipeline that the statement declares, as a new instance."""
        planned = plan_pipeline(statement, self.catalog, self.meaning)
        program, settings = planned.program, planned.settings
        sinks = tuple(self._sink(name, span) for name, span in zip(statement.sinks, statement.sink_spans, strict=True))
        stateful = program.ring1 is not None and bool(program.ring1.keys)
        return PipelineDef(
            statement.name,
            self.catalog.next_instance,
            sinks,
            program,
            self.buckets if stateful else 1,
            statement.sql,
            max_groups=settings.max_groups,
            late=settings.late,
        )

    def _resume(self, record: PipelineRecord) -> Result:
        """The same pipeline again: it goes on where it stopped; one that failed begins anew."""
        if record.desired == "failed":
            self._start(record)
            return Result(f"restarted pipeline {record.definition.name}")
        return as_declared("pipeline", record.definition.name)

    def _sink(self, name: str, span: Span) -> SinkDef:
        sink = self.catalog.sink(name)
        if sink is None:
            raise _unknown(UnknownSink, "sink", name, self.catalog.sink_names(), span)
        return sink

    # --- DROP, START, STOP ------------------------------------------------------------------------

    @_apply.register
    def _(self, statement: Drop) -> Result:
        name, span = statement.name, statement.span
        if statement.kind == "pipeline":
            record = self.catalog.pipeline(name)
            if record is not None:
                self._leave(record, flush=False)
        elif statement.kind == "stream":
            stream = self.catalog.stream(name)
            if stream is not None:
                self._refuse_stream_in_use(name, span)
                self.dropped.append(name)
                self.catalog = self.catalog.without("stream", name)
                return Result(f"dropped stream {name}", warnings=(lost_with(stream),))
        elif self.catalog.sink(name) is not None:
            self._refuse_sink_in_use(name, span)
        if not self._exists(statement.kind, name):
            if statement.if_exists:
                return Result(f"there is no {statement.kind} {name}")
            self._require(statement.kind, name, span)
        self.catalog = self.catalog.without(statement.kind, name)
        return Result(f"dropped {statement.kind} {name}")

    @_apply.register
    def _(self, statement: StartPipeline) -> Result:
        record = self._pipeline(statement.name, statement.span)
        name, stream = record.definition.name, record.definition.program.stream
        ill = self.ill(stream)
        told = f"; stream {stream} was {ill}, its query is started again" if ill else ""
        if ill:
            self.revived.add(stream.lower())
        if record.desired == "running" and not record.detached:
            if ill:
                self._touch(record.definition)
                return Result(f"pipeline {name} goes on{told}")
            return Result(f"pipeline {name} is running")
        self._start(record)
        return Result(f"started pipeline {name}{told}")

    @_apply.register
    def _(self, statement: StopPipeline) -> Result:
        record = self._pipeline(statement.name, statement.span)
        if record.desired != "running":
            return Result(f"pipeline {record.definition.name} is not running")
        now = statement.mode == "now"
        stopping = record.to("stopping", f"STOP PIPELINE {statement.mode.upper()}")
        self.catalog = self.catalog.with_pipeline(stopping)
        self.catalog = self.catalog.with_end(record.attached, flush=statement.close_windows, drop=now)
        ends = self.quick if now else self.graceful
        ends.setdefault(record.definition.program.stream.lower(), []).append(record.attached)
        self._touch(record.definition, wait=not now)
        return Result(f"stopped pipeline {record.definition.name}")

    @_apply.register
    def _(self, statement: TakeSavepoint) -> Result:
        with at(statement.span):
            require_savepoint_name(statement.name)
        if statement.stream is not None:
            self._require("stream", statement.stream, statement.span)
        self.savepoints.append((statement.name, statement.stream))
        return Result(f"took savepoint {statement.name}")

    # --- questions --------------------------------------------------------------------------------

    @_apply.register
    def _(self, statement: Show) -> Result:
        if self.show is not None:
            return self.show(self.catalog, statement.kind)
        rows: list[list[object]] = [[name] for name in getattr(self.catalog, f"{statement.kind[:-1]}_names")()]
        return table_result(["name"], rows)

    @_apply.register
    def _(self, statement: ShowCreate) -> Result:
        self._require(statement.kind, statement.name, statement.span)
        return Result(f"{self._text(statement.kind, statement.name)};")

    @_apply.register
    def _(self, statement: Describe) -> Result:
        kinds = [statement.kind] if statement.kind else ["stream", "sink", "pipeline"]
        kind = next((k for k in kinds if self._exists(k, statement.name)), None)
        if kind is None:
            self._require(statement.kind or "stream", statement.name, statement.span)
        if self.describe is None:
            return Result(f"{self._text(str(kind), statement.name)};")
        return self.describe(self.catalog, str(kind), statement.name)

    @_apply.register
    def _(self, statement: Explain) -> Result:
        target = statement.target
        if target is None:
            record = self._pipeline(statement.pipeline or "", statement.span)
            parsed = parse_script(record.definition.sql)[0]
            if not isinstance(parsed, CreatePipeline):
                raise InternalError(f"the text of pipeline {record.definition.name} is no CREATE PIPELINE")
            target = parsed
        planned = plan_pipeline(target, self.catalog, self.meaning)
        live = self.live(planned.program.stream)
        if live is not None:
            planned = plan_pipeline(target, self.catalog, self.meaning, live.pipelines)
        if statement.mode == "json":
            return Result(explain_json(planned, live))
        return Result(explain(planned, live, verbose=statement.mode == "verbose"))

    @_apply.register
    def _(self, statement: Select) -> Result:
        raise NoSink(
            "a bare SELECT has nowhere to put its rows",
            advice="Use CREATE PIPELINE name INTO sink AS SELECT ..., or EXPLAIN SELECT ... to see its plan.",
            span=statement.span,
        )

    # --- helpers ----------------------------------------------------------------------------------

    def _start(self, record: PipelineRecord) -> None:
        if record.desired == "failed":  # its state may be half of an epoch: an eof makes sure that none of it is left
            self._leave(record, flush=False)
        stream, instance = record.definition.program.stream.lower(), record.definition.instance
        self.catalog = self.catalog.without_stop(instance)
        self.graceful[stream] = [p for p in self.graceful.get(stream, []) if p.instance != instance]
        definition = replace(record.definition, generation=record.definition.generation + 1)
        again = replace(record, definition=definition, detached={})
        self.catalog = self.catalog.with_pipeline(again.to("starting", "START PIPELINE"))
        self._touch(record.definition)

    def _touch(self, definition: PipelineDef, wait: bool = True) -> None:
        stream = definition.program.stream.lower()
        self.touched.add(stream)
        if wait:
            self.waits.add(stream)

    def _leave(self, record: PipelineRecord, flush: bool) -> None:
        self.catalog = self.catalog.with_end(record.definition, flush)
        self._touch(record.definition)

    def _exists(self, kind: str, name: str) -> bool:
        found = {"stream": self.catalog.stream, "sink": self.catalog.sink, "pipeline": self.catalog.pipeline}[kind](
            name
        )
        return found is not None

    def _require(self, kind: str, name: str, span: Span) -> None:
        if kind == "stream" and self.catalog.stream(name) is None:
            raise _unknown(UnknownStream, kind, name, self.catalog.stream_names(), span)
        if kind == "sink" and self.catalog.sink(name) is None:
            raise _unknown(UnknownSink, kind, name, self.catalog.sink_names(), span)
        if kind == "pipeline":
            self._pipeline(name, span)

    def _pipeline(self, name: str, span: Span) -> PipelineRecord:
        record = self.catalog.pipeline(name)
        if record is None:
            raise _unknown(UnknownPipeline, "pipeline", name, self.catalog.pipeline_names(), span)
        return record

    def _text(self, kind: str, name: str) -> str:
        if kind == "pipeline":
            record = self.catalog.pipeline(name)
            return record.definition.sql if record else ""
        found = self.catalog.stream(name) if kind == "stream" else self.catalog.sink(name)
        return found.sql if found else ""

    def _refuse_stream_in_use(self, name: str, span: Span) -> None:
        users, stream = [p.definition.name for p in self.catalog.of_stream(name)], self.catalog.stream(name)
        if users and stream is not None:
            raise stream_in_use(stream, users, span)

    def _refuse_sink_in_use(self, name: str, span: Span) -> None:
        users = self.catalog.users_of_sink(name)
        if users:
            raise InUse(
                f"sink {name} is written by {', '.join(users)}",
                advice="Drop those pipelines and streams first.",
                span=span,
                name=name,
                users=users,
            )


@contextmanager
def at(span: Span) -> Iterator[None]:
    """Give an error that knows no place the statement's."""
    try:
        yield
    except HeadraceError as problem:
        if problem.span is None:
            problem.span = span
        raise


def _with_absolute_path(stream: StreamDef) -> StreamDef:
    """`stream` as it can be stored: the planning process and later runs may have another working directory."""
    settled = {k: os.path.abspath(v) if k.lower() == "path" else v for k, v in stream.options.items()}
    return replace(stream, options=settled)


def _unknown(
    error: type[UnknownStream | UnknownSink | UnknownPipeline], kind: str, name: str, known: tuple[str, ...], span: Span
) -> Exception:
    hint = closest(name, known)
    listed = ", ".join(known) or "none"
    return error(
        f"there is no {kind} {name}",
        advice=(f"Did you mean {hint}? " if hint else "") + f"Known: {listed}.",
        span=span,
        name=name,
        did_you_mean=hint,
    )
