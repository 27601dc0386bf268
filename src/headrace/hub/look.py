"""SELECT on a hub: a bounded look at the rows of a stream.

    SELECT device, temp FROM sensors WHERE temp > 30 LIMIT 5 WITH (timeout = '30s')

The query runs as a temporary pipeline into a memory sink. It joins the stream if that runs, and gets rows from then on,
as any new pipeline does. A stream that no pipeline reads does not run, and a look must not use up its input: then a
temporary copy of the stream reads the source from its beginning. All of it is removed when the look ends, and none of
it is ever stored in the catalog (`Catalog.lasting`), so a crash leaves nothing either.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from headrace.base.durable import private_directory, write_atomic
from headrace.base.options import Option, duration
from headrace.errors import HeadraceError, PipelineFailed, Span, StreamIdle, UnboundedSort, UnsupportedStateful
from headrace.hub.draft import Draft
from headrace.hub.drafts import Drafts
from headrace.hub.effects import DeclaredScript, ScriptEffects
from headrace.hub.reconciler import Reconciler
from headrace.hub.results import Result
from headrace.model.definitions import PipelineDef, SinkDef, StreamDef
from headrace.sources import SOURCES
from headrace.sql import Select, cut_limit
from headrace.sql.define import checked_options
from headrace.sql.parse.intervals import show_interval
from headrace.state.catalog import PipelineRecord
from headrace.state.state_dir import DROPPED
from headrace.stream.runtime import START_LIMIT_SECONDS

ROWS = 20
MAX_ROWS = 1_000_000
OPTIONS = (Option("timeout", duration, default=10_000_000, help="how long a SELECT waits for rows"),)
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class LookPlan:
    """A planned look: its query, the pipeline that runs it, how many rows it wants, and for how long it waits. `copied`
    if it reads a copy of the stream."""

    pipeline: PipelineDef
    limit: int
    seconds: float
    copied: bool

    @property
    def name(self) -> str:
        return self.pipeline.name


def plan_look(draft: Draft, statement: Select) -> LookPlan:
    """Plan a look, and add it to the catalog of the draft. Raises what CREATE PIPELINE would raise, StreamIdle,
    and UnsupportedStateful for a query that only the dedicated host can run."""
    query, limit = cut_limit(statement)
    if limit is not None and not 0 <= limit <= MAX_ROWS:
        raise UnboundedSort(
            f"LIMIT {limit} is too large for a SELECT",
            advice=f"A SELECT keeps its rows in memory, so take at most {MAX_ROWS}, or create a pipeline.",
            span=statement.span,
        )
    settings = checked_options("SELECT", OPTIONS, statement, statement.options)
    limit = ROWS if limit is None else limit
    name = f"select-{uuid.uuid4().hex[:12]}"
    sink = SinkDef(name, "memory", {"max_rows": str(max(1, limit))})
    pipeline = draft.planned_select(query, name, sink)
    if pipeline.program.dedicated is not None:
        raise UnsupportedStateful(
            "this SELECT needs a streaming query of its own, which only a pipeline can have",
            advice="Create a pipeline with this query and a sink of type memory, and read its results. Or SELECT from "
            "one of its streams.",
            span=statement.span,
        )
    stream = draft.catalog.streams[pipeline.program.stream.lower()]
    copied = not draft.catalog.running(stream.name)
    if copied:
        _require_copyable(stream, statement.span)
    catalog = draft.catalog.with_sink(sink)
    if copied:
        pipeline = replace(pipeline, program=replace(pipeline.program, stream=name))
        catalog = catalog.with_stream(replace(stream, name=name, dead_letters=None))
    catalog = catalog.with_pipeline(PipelineRecord(pipeline).to("starting", "SELECT"))
    draft.catalog = replace(catalog, looks=(*catalog.looks, name))
    return LookPlan(pipeline, limit, settings["timeout"] / 1e6, copied)


def _require_copyable(stream: StreamDef, span: Span) -> None:
    """Raise StreamIdle if a copy of a stream that does not run cannot read its rows."""
    if stream.fed_by is not None:
        raise StreamIdle(
            f"no pipeline reads stream {stream.name}",
            advice=f"Its rows wait for the first pipeline, and a SELECT would have to read them a second time. SELECT "
            f"from what pipeline {stream.fed_by} reads, or create a pipeline that reads {stream.name}.",
            span=span,
            name=stream.name,
        )
    if SOURCES[stream.source].pushed:
        raise StreamIdle(
            f"no pipeline reads stream {stream.name}, so it receives nothing",
            advice="A SELECT would take records from senders and lose them. Create a pipeline first; then SELECT shows "
            "the rows that arrive.",
            span=span,
            name=stream.name,
        )


class Looks:
    """Runs looks on the streams of a hub. Any thread may call."""

    def __init__(self, reconciler: Reconciler, drafts: Drafts) -> None:
        self._reconciler, self._drafts = reconciler, drafts

    def run(self, statement: Select) -> Result:
        """The rows of a query, as many as its LIMIT or as come in time."""
        look, script = self._declare(statement)
        try:
            self._reconciler.carry_out(script)
            table = self._rows(look)
        finally:
            self._remove(look)
        return Result(table=table.slice(0, look.limit), warnings=self._covered(look, table.num_rows))

    def _covered(self, look: LookPlan, rows: int) -> tuple[str, ...]:
        """What to know about the rows of a look at a stream that runs: they are not all rows of the stream. Nothing if
        LIMIT rows of it came as they are."""
        stream = self._reconciler.catalog.stream(look.pipeline.program.stream)
        if look.copied or stream is None or (rows >= look.limit and look.pipeline.program.ring1 is None):
            return ()
        few = ""
        if rows < look.limit:
            waited = show_interval(round(look.seconds * 1e6))
            few = f"; {rows} rows of the result came in {waited}, and WITH (timeout = '60s') waits longer"
        if stream.fed_by is not None or SOURCES[stream.source].pushed:
            earlier = "Earlier ones are only where its pipelines wrote them."
        else:
            earlier = (
                "For earlier ones, declare the source as another stream: a SELECT on a stream that no pipeline reads "
                "begins where its source begins."
            )
        return (f"stream {stream.name} runs, so a SELECT covers the rows that arrive from now on{few}. {earlier}",)

    def _declare(self, statement: Select) -> tuple[LookPlan, DeclaredScript]:
        reconciler = self._reconciler
        with reconciler.lock:
            while True:
                reconciler.declarations.require_open()
                draft = self._drafts.to_run()
                look = plan_look(draft, statement)
                effects = draft.effects_on(look.pipeline.program.stream)
                if not reconciler.reservations.is_free(effects.streams):
                    reconciler.reservations.wait(effects.streams)
                    continue
                if look.copied:
                    self._mark(look)
                return look, reconciler.declare(effects)

    def _mark(self, look: LookPlan) -> None:
        """Mark the directory of a copy as dropped, so that the next opening of the hub deletes what a crash leaves."""
        directory = self._reconciler.stream_directory(look.name)
        private_directory(directory)
        write_atomic(directory / DROPPED, b"")

    def _rows(self, look: LookPlan) -> pa.Table:
        """Wait for rows. The end of a copy's input closes its windows. The time begins with the first epoch of a copy,
        because a query takes a while to start."""
        reconciler, now = self._reconciler, time.monotonic()
        runtime = reconciler.runtime(look.pipeline.program.stream)
        deadline, latest = now + look.seconds, now + look.seconds + START_LIMIT_SECONDS
        ended, began = False, not look.copied
        while True:
            held: Any = runtime.committer.sink(look.pipeline, look.name)
            table: pa.Table = held.read()
            record = reconciler.catalog.pipeline(look.name)
            if record is not None and record.state == "failed":
                raise PipelineFailed(f"the query failed: {record.error}", name=look.name)
            now = time.monotonic()
            if not began:
                began = runtime.progress.epoch >= 0
                deadline = min(now + look.seconds, latest)
            left = deadline - now
            if table.num_rows >= look.limit or left <= 0 or record is None:
                return table
            runtime.raise_failure()
            if not look.copied:
                time.sleep(min(_POLL_SECONDS, left))
            elif runtime.wait_exhausted(min(_POLL_SECONDS, left)):
                if ended:
                    rows: pa.Table = held.read()
                    return rows
                runtime.end((look.pipeline,))
                ended = True

    def _remove(self, look: LookPlan) -> None:
        """Remove everything of a look. An error here must not hide its rows or its own error: what is left goes when
        the hub is opened again."""
        reconciler = self._reconciler
        with contextlib.suppress(HeadraceError):
            with reconciler.lock:
                if reconciler.closed:
                    return
                before = reconciler.catalog
                record = before.pipeline(look.name)
                catalog = before.without("pipeline", look.name).without("sink", look.name)
                if record is not None and not look.copied and record.desired == "running":
                    catalog = catalog.with_end(record.definition, flush=False)
                catalog = catalog.without("stream", look.name)
                catalog = replace(catalog, looks=tuple(n for n in catalog.looks if n != look.name))
                draft = self._drafts.to_run()
                draft.catalog = catalog
                stream = look.pipeline.program.stream
                effects = ScriptEffects(catalog, dropped=frozenset({look.name}))
                if not look.copied and record is not None:
                    effects = draft.effects_on(stream)
                script = reconciler.declare(effects)
            reconciler.carry_out(script)
