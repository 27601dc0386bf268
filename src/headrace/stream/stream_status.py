"""The status of a stream, from its files and, while the hub is open, from its query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from headrace.errors import HeadraceError, StartTimeout
from headrace.model.definitions import StreamDef
from headrace.model.schema import field_at
from headrace.model.status import StreamState, StreamStatus, to_datetime
from headrace.sinks.feed_sink import FeedWatch
from headrace.sources.badfiles import read_summary
from headrace.state.plans import PlanStore
from headrace.state.progress import Applied, Progress, ProgressView, read_applied
from headrace.stream.host import Query
from headrace.stream.inflight import InFlight
from headrace.stream.retries import Retrying


@dataclass(frozen=True, slots=True)
class QueryFacts:
    """What only the process that runs a stream's query knows. The defaults describe a stream that does not run.

    `since` is when the query entered its state, in seconds since 1970. `epoch_ms` is how long Spark's newest epoch
    took. `dropped` counts the records that the gateway gave up. `phases` are the milliseconds of the newest epoch, and
    `barrier` is the newest barrier that a caller sent.
    """

    state: StreamState = "stopped"
    since: float = 0.0
    retrying: Retrying | None = None
    in_flight: InFlight | None = None
    epoch_ms: float | None = None
    backlog: int = 0
    rows_per_s: float = 0.0
    mb_per_s: float = 0.0
    problem: str = ""
    dropped: int = 0
    phases: Mapping[str, float] = field(default_factory=dict)
    barrier: str = ""


class SparkEpochTime:
    """How long Spark's newest epoch took. Asks Spark once per committed epoch: the JVM builds the answer and this
    process parses it, every time."""

    def __init__(self) -> None:
        self._newest: tuple[Query, int, float] | None = None  # a query, its newest epoch and the milliseconds it took

    def read(self, query: Query, committed: int | None) -> float | None:
        """The milliseconds; None before the first epoch. `committed` is the newest committed epoch."""
        newest = self._newest
        if newest is None or newest[0] is not query or newest[1] != committed:
            found = query.last_epoch()
            if found is None:
                return None
            newest = self._newest = (query, *found)
        return newest[2]


@dataclass(frozen=True, slots=True)
class StoredStream:
    """A declared stream and its directory. Reads files only, so it also works while no process runs the stream."""

    stream: StreamDef
    directory: Path
    plans: PlanStore
    progress: ProgressView

    def status(self, query: QueryFacts) -> StreamStatus:
        """The stream's status. A stream with a damaged file has one too, and its `problem` names the file."""
        progress, damage = self._readable()
        schema, running = self.stream.schema, query.state == "running"
        applied = read_applied(self.directory)
        skipped = read_summary(self.directory / "source")
        retrying, in_flight = query.retrying, query.in_flight
        return StreamStatus(
            name=self.stream.name,
            running=running,
            epoch=progress.epoch,
            projection_version=applied.version if applied else 0,
            decoding_columns=[field_at(schema, i).name for i in applied.columns] if applied and running else [],
            columns_declared=len(schema),
            subscribers=self._subscribers(applied) if applied and running else {},
            rows=progress.rows,
            bytes=progress.bytes,
            bad=dict(progress.bad),
            dead_letters=progress.dead_letters,
            dead_letter_sink="" if self.stream.dead_letters is None else self.stream.dead_letters.name,
            watermark=to_datetime(progress.watermark),
            far_future=progress.future,
            lag_bytes=query.backlog,
            epoch_ms=query.epoch_ms,
            rows_per_s=query.rows_per_s,
            mb_per_s=query.mb_per_s,
            problem=query.problem or damage,
            state=query.state,
            since=_moment(query.since),
            attempt=retrying.attempt if retrying is not None else 0,
            next_try=_moment(retrying.next_try) if retrying is not None else None,
            epoch_age=in_flight.age if in_flight is not None else None,
            waiting_for=in_flight.phase if in_flight is not None else "",
            rejected=progress.rejected,
            nulled=progress.nulled,
            dropped=query.dropped,
            skipped_files=skipped.count,
            bad_files=dict(skipped.newest),
            phases=dict(query.phases),
            barrier=query.barrier,
            paused_by=self._paused_by(applied) if applied and running else [],
        )

    def _paused_by(self, applied: Applied) -> list[str]:
        """The pipelines that make the stream pause, because they read too slowly."""
        try:
            return FeedWatch(self.directory).full(self.plans.load(applied.version).pipelines)
        except HeadraceError:  # a damaged feed fails its pipeline, which says so
            return []

    def _readable(self) -> tuple[Progress, str]:
        """The progress; or an empty one, and what is damaged."""
        try:
            return self.progress.read(), ""
        except HeadraceError as damage:
            return Progress(), damage.render()

    def _subscribers(self, applied: Applied) -> dict[str, list[str]]:
        """The pipelines in the newest planned epoch, with the columns that each needs."""
        schema = self.stream.schema
        plan = self.plans.load(applied.version)
        views = {p.name: p.program.view for p in plan.pipelines if p.instance not in applied.out}
        return {
            name: ["*"] if view.kind == "ALL" else [field_at(schema, i).name for i in view.indexes(len(schema))]
            for name, view in views.items()
        }

    def start_timeout(self, version: int, timeout: float, planned: int | None, instead: str) -> StartTimeout:
        """The error for a plan version that no epoch was planned with in time. `instead` is what the query did,
        and `planned` is the epoch that it planned last, if any."""
        schema, applied, plan = self.stream.schema, read_applied(self.directory), self.plans.load(version)
        decoded = applied.columns if applied else ()
        columns = [field_at(schema, i).name for i in plan.view.indexes(len(schema)) if i not in decoded]
        present = set(self._subscribers(applied)) if applied else set()
        names = [p.name for p in plan.pipelines if p.name not in present]
        waited = f"pipeline {', '.join(names)} waited" if names else "the statement waited"
        wanted = f" that decodes {', '.join(columns)}" if columns else ""
        return StartTimeout(
            f"{waited} {timeout:g} s for an epoch of stream {self.stream.name} with plan version {version}{wanted}; "
            f"{instead}",
            advice="The machine may be busy with a long epoch: try again, or make max_epoch_bytes smaller. If a "
            "pipeline keeps the epoch from ending, a script with nothing but DROP PIPELINE gets through.",
            stream=self.stream.name,
            version=version,
            pipelines=names,
            columns=columns,
            planned_epoch=planned,
        )


def _moment(at: float) -> datetime | None:
    return datetime.fromtimestamp(at, UTC) if at else None
