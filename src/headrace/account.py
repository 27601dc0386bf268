"""What a running stream says of itself: its status, and why somebody waited for it in vain."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

from headrace.errors import HeadraceError, StartTimeout
from headrace.history import History
from headrace.inflight import InFlight
from headrace.keeper import QueryKeeper
from headrace.program import StreamDef
from headrace.sources.badfiles import read_summary
from headrace.status import StreamState, StreamStatus, to_datetime
from headrace.streams.plans import PlanStore
from headrace.streams.progress import Applied, Progress, ProgressView, read_applied
from headrace.watch import Watch


def status_of(
    stream: StreamDef,
    directory: Path,
    view: ProgressView,
    plans: PlanStore,
    watch: Watch,
    history: History,
    keeper: QueryKeeper | None,
    flying: InFlight | None,
    epoch_ms: float | None,
    problem: str,
    dropped: int,
) -> StreamStatus:
    """What really happened, as far as it is known. `epoch_ms` is how long Spark says the last epoch took, `dropped` how
    many records the gateway says it gave up. A stream of a hub that is closed has no keeper."""
    skipped = read_summary(directory / "source")
    try:
        progress = view.read()
    except HeadraceError as damage:  # a stream that cannot run can still be looked at
        progress, problem = Progress(), problem or damage.render()
    state: StreamState = "stopped" if keeper is None else keeper.state
    retrying = None if keeper is None else keeper.retrying
    applied, running = read_applied(directory), state == "running"
    rows_per_s, mb_per_s = history.rates()
    return StreamStatus(
        name=stream.name,
        running=running,
        epoch=progress.epoch,
        projection_version=applied.version if applied else 0,
        decoding_columns=[stream.schema[i].name for i in applied.columns] if applied and running else [],
        columns_declared=len(stream.schema),
        subscribers=_subscribers(stream, plans, applied) if applied and running else {},
        rows=progress.rows,
        bytes=progress.bytes,
        bad=dict(progress.bad),
        dead_letters=progress.dead_letters,
        watermark=to_datetime(progress.watermark),
        far_future=progress.future,
        lag_bytes=watch.backlog,
        epoch_ms=epoch_ms,
        rows_per_s=rows_per_s,
        mb_per_s=mb_per_s,
        problem=problem,
        state=state,
        since=None if keeper is None else _moment(keeper.since),
        attempt=retrying.attempt if retrying is not None else 0,
        next_try=_moment(retrying.next_try) if retrying is not None else None,
        epoch_age=flying.age if flying is not None else None,
        waiting_for=flying.phase if flying is not None else "",
        rejected=progress.rejected,
        nulled=progress.nulled,
        dropped=dropped,
        skipped_files=skipped.count,
        bad_files=dict(skipped.newest),
        phases=dict(history.phases),
        barrier=history.barrier,
    )


def _moment(at: float) -> datetime | None:
    return datetime.fromtimestamp(at, UTC) if at else None


def _subscribers(stream: StreamDef, plans: PlanStore, applied: Applied) -> dict[str, list[str]]:
    """Who was in the newest planned epoch, with the columns that each needs."""
    schema = stream.schema
    plan = plans.parsed(applied.version)
    present = [p for p in plan.pipelines if p.instance not in applied.out]
    views = {p.name: p.program.view for p in present}
    return {
        name: ["*"] if view.kind == "ALL" else [schema[i].name for i in view.indexes(len(schema))]
        for name, view in views.items()
    }


def start_timeout(
    stream: StreamDef, directory: Path, plans: PlanStore, watch: Watch, version: int, timeout: float, problem: str
) -> StartTimeout:
    """Says who waited for what, and what the stream did instead."""
    schema, applied, plan = stream.schema, read_applied(directory), plans.load(version)
    decoded = applied.columns if applied else ()
    columns = [schema[i].name for i in plan.view.indexes(len(schema)) if i not in decoded]
    here = set(_subscribers(stream, plans, applied)) if applied else set()
    names = [p.name for p in plan.pipelines if p.name not in here]
    waited = f"pipeline {', '.join(names)} waited" if names else "somebody waited"
    wanted = f" that decodes {', '.join(columns)}" if columns else ""
    if watch.planned_at is None:
        instead = "its query has planned none since it was started"
    else:
        spent = time.monotonic() - watch.planned_at
        instead = f"epoch {watch.planned_epoch}, with plan version {watch.planned}, was planned {spent:.0f} s ago"
    if problem:
        instead = f"its query failed and is started again: {problem}"
    return StartTimeout(
        f"{waited} {timeout:g} s for an epoch of stream {stream.name} with plan version {version}{wanted}; {instead}",
        advice="The machine may be busy with a long epoch: try again, or make max_epoch_bytes smaller.",
        stream=stream.name,
        version=version,
        pipelines=names,
        columns=columns,
    )
