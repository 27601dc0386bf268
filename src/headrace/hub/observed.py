"""Streams and pipelines as SHOW, DESCRIBE and EXPLAIN see them: with a hub that runs, or from a state directory
alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from headrace.errors import HeadraceError
from headrace.model.definitions import PipelineDef, StreamDef
from headrace.model.schema import View
from headrace.model.status import PipelineStatus, ShownState, StreamState, StreamStatus
from headrace.ring0.validity import policy_of
from headrace.sql import LiveStream
from headrace.state.catalog import Catalog, PipelineRecord
from headrace.state.plans import PlanStore
from headrace.state.progress import PipelineProgress, Progress, read_applied
from headrace.stream.dedicated_status import DedicatedState, dedicated_counts, unread_rows

_SHOULD_RUN = ("created", "starting", "running")


class ObservedStream(Protocol):
    """A stream that can be described. It need not run."""

    @property
    def owned(self) -> bool:
        """True if a hub is open on the state directory."""
        ...

    @property
    def stream(self) -> StreamDef: ...

    @property
    def directory(self) -> Path: ...

    @property
    def plans(self) -> PlanStore: ...

    @property
    def state(self) -> StreamState: ...

    @property
    def problem(self) -> str: ...

    @property
    def progress(self) -> Progress: ...

    def status(self) -> StreamStatus: ...

    def ingress(self) -> dict[str, Any]: ...

    def spent_ms(self, instance: int) -> float | None: ...

    def notes(self, pipeline: PipelineDef) -> dict[str, str]: ...

    def dedicated_state(self, instance: int) -> DedicatedState: ...


class ObservedStreams(Protocol):
    """The current catalog, and the streams in it."""

    @property
    def catalog(self) -> Catalog: ...

    def runtime(self, name: str) -> ObservedStream:
        """A declared stream. Raises UnknownStream."""
        ...


def query_trouble(streams: ObservedStreams | None, stream: str) -> str:
    """`retrying` or `dead` if the query of a stream is; otherwise empty."""
    if streams is None or streams.catalog.stream(stream) is None:
        return ""
    state = streams.runtime(stream).state
    return state if state in ("retrying", "dead") else ""


def live_stream(streams: ObservedStreams | None, stream: str) -> LiveStream | None:
    """What EXPLAIN shows of a stream that runs: only what an epoch has applied."""
    if streams is None or streams.catalog.stream(stream) is None:
        return None
    runtime = streams.runtime(stream)
    applied = read_applied(runtime.directory)
    if applied is None or runtime.state != "running":
        return None
    running = {p.instance for p in streams.catalog.running(stream)}
    plan = runtime.plans.load(applied.version)
    present = [p for p in plan.pipelines if p.instance in running and p.instance not in applied.out]
    return LiveStream(
        version=applied.version,
        applied=View.some(applied.columns),
        pipelines={p.name: p.program for p in present},
        status=runtime.status(),
        alone=frozenset(p.name for p in present if p.instance in plan.alone),
    )


def pipeline_status(record: PipelineRecord, runtime: ObservedStream) -> PipelineStatus:
    """The state and counters of a pipeline."""
    definition = record.definition
    try:
        progress = runtime.progress
    except HeadraceError:  # the status of the stream shows the problem
        progress = Progress()
    ill = runtime.state in ("retrying", "dead") and record.state in _SHOULD_RUN
    counted = progress.pipelines.get(str(definition.instance), PipelineProgress())
    away = counted.epoch is not None and record.desired != "running"
    if definition.program.dedicated is not None:
        return _dedicated_status(record, runtime, counted, missed=progress.rows - counted.seen_rows if away else 0)
    unread = unread_rows(definition, runtime.directory)
    return PipelineStatus(
        name=definition.name,
        stream=runtime.stream.name,
        state=_shown_state(record, runtime),
        instance=definition.instance,
        rows_out=counted.rows_out,
        late=counted.late,
        bad=counted.bad,
        groups=counted.groups,
        state_bytes=counted.bytes,
        sent=counted.sent,
        received=counted.received,
        epoch_ms=runtime.spent_ms(definition.instance),
        missed_rows=counted.missed_rows + (progress.rows - counted.seen_rows if away else 0),
        gaps=list(counted.gaps),
        error=record.error or (runtime.problem if ill else ""),
        detached=dict(record.detached) | runtime.notes(definition),
        changes=[change for change in record.history if change.at],  # a record begins with a state without a time
        rows_in=counted.rows_in,
        rejected=counted.bad if policy_of(runtime.stream) in ("skip", "dead_letter") else 0,
        host=definition.program.host,
        waiting_rows=unread.rows,
        dropped_rows=unread.dropped,
    )


def _dedicated_status(
    record: PipelineRecord, runtime: ObservedStream, counted: PipelineProgress, missed: int
) -> PipelineStatus:
    """The status of a pipeline on the dedicated host. Counters of its input are those of its first stream."""
    definition, query = record.definition, runtime.dedicated_state(record.definition.instance)
    counts = dedicated_counts(definition, runtime.directory.parent.parent)
    state, ill = _shown_state(record, runtime), record.state in _SHOULD_RUN
    if query.problem and state in _SHOULD_RUN:
        state = "retrying"
    return PipelineStatus(
        name=definition.name,
        stream=runtime.stream.name,
        state=state,
        instance=definition.instance,
        rows_out=counts.rows_out,
        late=counts.late,
        bad=counted.bad,
        groups=0,
        epoch_ms=query.batch_ms,
        missed_rows=counted.missed_rows + missed + counts.skipped,
        gaps=list(counted.gaps),
        error=record.error or (query.problem or runtime.problem if ill else ""),
        detached=dict(record.detached),
        changes=[change for change in record.history if change.at],
        rows_in=counted.rows_in,
        rejected=counted.bad if policy_of(runtime.stream) in ("skip", "dead_letter") else 0,
        host="dedicated",
        waiting_rows=counts.waiting,
        dropped_rows=counts.dropped,
        other_streams=list(definition.streams[1:]),
    )


def _shown_state(record: PipelineRecord, runtime: ObservedStream) -> ShownState:
    """The catalog has the state that the pipeline should be in. If the query does not run, the pipeline does not."""
    if not runtime.owned and record.state == "stopping":  # its epoch was in flight when the hub ended
        return "stopped"
    if record.state not in _SHOULD_RUN:
        return record.state
    if not runtime.owned:
        return "stopped, runs again with the next hub"
    return runtime.state if runtime.state in ("retrying", "dead") else record.state
