"""One shared stream while the hub is open: publishes plans, runs the query, reports failures and status.

The hub decides which pipelines should run, and this class makes the stream run them. Its parts own their state:
`headrace.stream.managed_query` the query, `headrace.stream.signalling` the barriers, `headrace.stream.history` the
epochs. Four kinds of threads meet here: callers of the hub, Spark's streaming thread (`epoch_committed`), the notice
thread (`on_notice`), and the thread that limits how long an epoch may take. They share the condition variable of one
`PlannerWatch`. No thread holds it while it waits for Spark.
"""

from __future__ import annotations

import contextlib
import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.base.durable import fsync, state_errors
from headrace.control.acks import Ack, Acks
from headrace.control.signals import QUICK_END, SignalKind
from headrace.errors import HeadraceError
from headrace.model.definitions import PipelineDef, StreamDef
from headrace.model.plan_version import PipelineExit
from headrace.model.status import StreamState, StreamStatus, StreamTotals
from headrace.state.notices import Notice
from headrace.state.plans import PlanStore
from headrace.state.progress import Progress, ProgressView, read_applied
from headrace.state.quarantine import change_quarantine
from headrace.stream.history import History
from headrace.stream.host import StreamHost
from headrace.stream.managed_query import ManagedQuery
from headrace.stream.publishing import PlanPublisher
from headrace.stream.retries import Retrying
from headrace.stream.signalling import Signalling
from headrace.stream.stream_status import QueryFacts, SparkEpochTime, StoredStream
from headrace.stream.supervisor import QuerySupervisor

if TYPE_CHECKING:
    from headrace.sinks import DriverSink
    from headrace.spark.committer import EpochCommitter
    from headrace.spark.summary import EpochSummary
    from headrace.stream.dedicated_status import DedicatedState

# The first epoch pays for Python workers, imports and kernels: 7 to 9 s cold on two cores, several times that on a busy
# machine.
START_LIMIT_SECONDS = 120.0


class StreamRuntime:
    """The running side of one stream. See the module for the threads that call it."""

    owned = True  # by the hub of this process

    def __init__(self, stream: StreamDef, directory: Path, host: StreamHost) -> None:
        self.directory, self._host = directory, host
        self.plans, self.acks, self._progress = PlanStore(directory), Acks(), ProgressView(directory)
        self._history = History(stream, self.plans)
        self._query = ManagedQuery(
            stream,
            directory,
            host,
            plans=self.plans,
            progress=self._progress,
            acks=self.acks,
            on_commit=self.epoch_committed,
        )
        self._signalling = Signalling(directory, self.acks, self._query, self._progress)
        self._waits = host.waits(self._query, self.plans)
        self._publisher = PlanPublisher(directory, self.plans, self._query.watch, self._history)
        self._epoch_time = SparkEpochTime()
        self.forgotten = False  # true after `forget`

    @property
    def stream(self) -> StreamDef:
        """The stream as it is declared now."""
        return self._query.stream

    def redeclare(self, stream: StreamDef) -> None:
        """Take the declaration as it is now. Only its changeable options can differ."""
        self._query.redeclare(stream)

    # --- signals ----------------------------------------------------------------------------------

    def barrier(self, kind: SignalKind, plan: int = 0) -> Future[Ack]:
        """Send a barrier through the data channel. It ends the next epoch, or the first one with plan version `plan`.
        The future completes when that epoch is committed. It fails with StreamFailed if the query ends first."""
        return self._signalling.barrier(kind, plan)

    def pause_at_barrier(self, timeout: float) -> int | None:
        """Send a savepoint barrier, and plan no epoch after it until `release`. Returns the committed
        epoch that carried the barrier, or None if that took too long."""
        deadline = time.monotonic() + timeout
        self._query.watch.hold_released()
        ack = self._signalling.cut()
        paused = self._waits.until_paused(ack, timeout)
        if not self.started:  # the stream was stopped meanwhile, so it is paused already
            return self.progress.epoch
        return ack.result(0).epoch if paused and time.monotonic() <= deadline else None

    def control(self, kind: SignalKind, pipelines: Sequence[PipelineDef] = ()) -> Future[Ack]:
        """Send a signal through the control channel, past the rows, to the committer. An instant is acknowledged at
        once, a barrier when every sink has reached it."""
        return self._signalling.control(kind, pipelines)

    def quick_end(self, pipelines: Sequence[PipelineDef]) -> None:
        """Commit nothing more of these pipelines, not even from epochs that are already planned or run again after a
        crash."""
        self.leave_out(pipelines, self.plans.current(), "it was stopped at once")
        self.control(QUICK_END, pipelines)

    def run_again(self) -> None:
        """Give up the epoch in flight and run it again without the pipelines to leave out. For an epoch that does not
        end."""
        self.supervisor.bounce()

    def leave_out(self, pipelines: Sequence[PipelineDef], until: int, reason: str = "it was dropped") -> None:
        """Run epochs that are already planned, with plan versions up to `until`, without these pipelines."""
        change_quarantine(self.directory, lambda found: found.ending(pipelines, until, reason))

    def readmit(self, pipelines: Sequence[PipelineDef]) -> None:
        """Undo `quick_end` and `leave_out` for these pipelines: the script that ended them is rolled back."""
        change_quarantine(self.directory, lambda found: found.returning(pipelines))
        self._query.readmit(pipelines)

    # --- plans ------------------------------------------------------------------------------------

    def publish(
        self,
        pipelines: tuple[PipelineDef, ...],
        exits: tuple[PipelineExit, ...] = (),
        *,
        ending: bool = False,
        cancelled: tuple[PipelineExit, ...] = (),
    ) -> int:
        """Publish a new plan version, which is in force from the next epoch on, and return its number. A script that is
        rolled back withdraws its exits with `cancelled`."""
        self._query.watch.plan_published()
        return self._publisher.publish(self.stream, pipelines, exits, ending=ending, cancelled=cancelled)

    def end(self, pipelines: tuple[PipelineDef, ...], again: bool = False) -> int:
        """The version of a plan that closes every window in its first epoch. Publishes one, unless the current plan is
        such a plan and no row came since; with `again` always."""
        current = self.plans.current()
        plan = self.plans.load(current) if current else None
        fed = self._history.fed_since_end(current)
        if not again and plan is not None and plan.ending and plan.pipelines == pipelines and not fed:
            return current
        return self.publish(pipelines, ending=self._query.settings.close_at_end)

    # --- the query --------------------------------------------------------------------------------

    @property
    def supervisor(self) -> QuerySupervisor:
        """Keeps the query up."""
        return self._query.supervisor

    @property
    def committer(self) -> EpochCommitter:
        """Commits the stream's epochs. One object for as long as the hub is open."""
        return self._query.committer

    @property
    def running(self) -> bool:
        """True if there is a query, or a failed one that will be started again."""
        return self.supervisor.running

    @property
    def state(self) -> StreamState:
        """The state of the query."""
        return self.supervisor.state

    @property
    def started(self) -> bool:
        """True if the query was started and not stopped. It may be dead."""
        return self.supervisor.started

    @property
    def retrying(self) -> Retrying | None:
        """The retry that is under way, if there is one."""
        return self.supervisor.retrying

    @property
    def problem(self) -> str:
        """Why the query is dead or retrying; otherwise why the gateway takes no bytes, or what the hub last failed to
        do for the stream."""
        return self._query.problem

    def note_trouble(self, problem: str) -> None:
        """Show in the status what the hub failed to do for this stream; empty when all is well."""
        self._query.note_trouble(problem)

    def raise_failure(self) -> None:
        """Raise StreamFailed if the query has died."""
        self._query.raise_failure()

    def start(self, patient: bool = False) -> None:
        """Start the query unless it runs. It continues from its checkpoint. A failure to start is raised, or, with
        `patient`, retried like any failure of the query."""
        self._query.start(patient)

    def revive(self) -> None:
        """Start a dead query. Retry a failed one now instead of after its wait."""
        self.supervisor.try_now()
        self.start()

    def fail(self, problem: str) -> None:
        """Mark the stream as dead for this reason; see `QuerySupervisor.fail`."""
        self.supervisor.fail(problem)

    def checkpoint_id(self) -> str:
        """The id of the stream's checkpoint; see `headrace.state.checkpoint`."""
        return self._query.checkpoint_id()

    # --- holding and stopping ---------------------------------------------------------------------

    def hold(self, timeout: float) -> bool:
        """Finish the epoch in flight and plan no other. True if that happened in time. The query stays up."""
        return self._waits.until_held(timeout)

    def ask_to_hold(self) -> None:
        """Plan no epoch from now on. The epoch in flight goes on."""
        self._query.ask_to_hold()

    def release(self) -> None:
        """Undo `hold`: plan epochs again."""
        self._query.release()

    def stop(self) -> None:
        """End the query at once. The next start runs an epoch in flight again."""
        self._query.stop()

    def close(self) -> None:
        """End the query and release the sinks."""
        self._query.close()

    def forget(self) -> None:
        """Delete everything that the stream keeps on disk. The directory is renamed first, so a new stream of the same
        name never finds any of it. What cannot be deleted now is deleted when the state directory is next opened."""
        self.close()
        self.forgotten = True
        with contextlib.suppress(HeadraceError):  # damaged: then the notes that sinks keep beside their output stay
            if self.progress.epoch >= 0:
                self.committer.forget_stream(self.stream.dead_letters)
        if self.directory.exists():
            gone = self.directory.with_name(f".gone-{uuid.uuid4().hex}")
            with state_errors(self.directory):
                self.directory.rename(gone)
                fsync(gone.parent)  # after a power loss, too, a new stream of the same name finds nothing
            shutil.rmtree(gone, ignore_errors=True)

    # --- waiting ----------------------------------------------------------------------------------

    def wait_planned(self, version: int, timeout: float = START_LIMIT_SECONDS) -> None:
        """Wait until an epoch was planned with this plan version or a later one, or the query was stopped. Raises
        StartTimeout, or StreamFailed when the query dies or keeps failing."""
        self._waits.until_planned(version, timeout, self._stored())

    def look_again(self) -> None:
        """Another stream may have written input of this one: what the planner has said about its end is out of
        date."""
        self._query.watch.look_again()

    @property
    def paused_by(self) -> tuple[str, ...]:
        """The pipelines for whose output there is no room, while the stream waits for that."""
        return self._query.watch.paused_by

    def wait_exhausted(self, timeout: float | None) -> bool:
        """Wait until the source has nothing more to read under the newest plan, or the query was stopped. True if that
        happened in time."""
        return self._waits.until_exhausted(timeout)

    # --- events -----------------------------------------------------------------------------------

    def on_notice(self, notice: Notice) -> None:
        """Take a notice from the planning process."""
        self._query.on_notice(notice)

    def epoch_committed(self, summary: EpochSummary) -> None:
        """Take the summary of a committed epoch. Called by the committer, in Spark's streaming thread."""
        watch = self._query.watch
        self._signalling.carried(summary)
        with watch.changed:
            self._history.add(summary, watch.spent(summary.epoch))
            watch.epoch_committed()
        names = partial(self._names, summary.plan)
        self._query.log.add(summary, names, self._query.intake.dropped, self._history.phases)
        self._signalling.committed(summary)
        verdict = self._history.judge(summary)
        failures = verdict.over | summary.failures
        if failures or summary.detached or verdict.alone != self._history.alone:
            self._history.measure_alone(verdict.alone)
            known = self.plans.load(summary.plan).known
            self.blame(
                {known[i].run: reason for i, reason in failures.items()},
                {known[i].run: sinks for i, sinks in summary.detached.items()},
            )

    def blame(self, failed: Mapping[str, str], detached: Mapping[str, dict[str, str]] | None = None) -> None:
        """Report failed pipelines and lost sinks to the hub; see `StreamFailures`."""
        self._query.blame(failed, detached)

    def _names(self, version: int) -> Mapping[int, str]:
        return {instance: p.name for instance, p in self.plans.load(version).known.items()}

    # --- status -----------------------------------------------------------------------------------

    @property
    def progress(self) -> Progress:
        """The stream after its newest committed epoch."""
        return self._progress.read()

    @property
    def planned(self) -> int:
        """The newest plan version that an epoch was planned with since the hub was opened; 0 before the first."""
        return self._query.watch.planned

    @property
    def reads_backlog(self) -> bool:
        """True while the query reads input that was there before it could."""
        recent = self.recent
        return self._query.supervisor.up and bool(recent) and self._query.watch.reads_backlog(recent[-1].bytes)

    @property
    def planner_pid(self) -> int | None:
        """The planning process; None until it has sent a notice."""
        return self._query.watch.planner

    @property
    def newest_epoch(self) -> int:
        """The newest planned epoch; -1 before the first."""
        applied = read_applied(self.directory)
        return -1 if applied is None else applied.epoch

    @property
    def recent(self) -> list[EpochSummary]:
        """The newest epochs since the hub was opened, oldest first."""
        return self._history.recent

    @property
    def totals(self) -> StreamTotals:
        """Epochs, phases and sinks since the hub was opened."""
        return self._history.totals

    def last_status(self) -> StreamStatus:
        """The status, for the end of a run: if the stream has stopped, with the rates and columns of all that it read
        since the hub was opened."""
        return self._history.at_end(self.status())

    def ingress(self) -> dict[str, Any]:
        """The gateway's addresses and metrics for this stream; empty when it takes no bytes."""
        return self._query.intake.facts()

    def notes(self, pipeline: PipelineDef) -> dict[str, str]:
        """Problems of sinks that fail no epoch, such as a console that nobody reads."""
        return self._query.notes(pipeline)

    def sink(self, pipeline: PipelineDef, name: str) -> DriverSink:
        """The driver side of one of a pipeline's sinks."""
        return self._host.dedicated_sink(pipeline, name) or self.committer.sink(pipeline, name)

    def drain_dedicated(self, timeout: float) -> bool:
        """Wait until pipelines on the dedicated host have read the rows that this stream has handed to them. True if
        that happened in time."""
        return self._host.drain_dedicated(self.stream.name, timeout)

    def dedicated_state(self, instance: int) -> DedicatedState:
        """The query of a pipeline on the dedicated host."""
        return self._host.dedicated_state(instance)

    def spent_ms(self, instance: int) -> float | None:
        """How long an instance took in the newest epoch, over all tasks."""
        recent = self.recent
        return recent[-1].pipeline_ms.get(instance) if recent else None

    def _epoch_ms(self) -> float | None:
        query, recent = self.supervisor.query, self.recent
        if query is None or self.state != "running":
            return None
        return self._epoch_time.read(query, recent[-1].epoch if recent else None)

    def status(self) -> StreamStatus:
        """The stream's status, from its files and its query."""
        state = self.state
        rows_per_s, mb_per_s = self._history.rates()
        return self._stored().status(
            QueryFacts(
                state=state,
                since=self.supervisor.since,
                retrying=self.retrying,
                in_flight=self._query.in_flight(),
                epoch_ms=self._epoch_ms(),
                backlog=self._query.watch.backlog,
                rows_per_s=rows_per_s,
                mb_per_s=mb_per_s,
                problem=self.problem,
                dropped=self._query.intake.dropped(),
                phases=self._history.phases,
                barrier=self._history.barrier,
            )
        )

    def _stored(self) -> StoredStream:
        return StoredStream(self.stream, self.directory, self.plans, self._progress)
