"""One shared stream while the hub is open: publishes plans, runs the query, reports failures and status.

The hub decides which pipelines should run, and this class makes the stream run them. Four kinds of threads meet here:
callers of the hub, Spark's streaming thread (`epoch_committed`), the notice thread (`on_notice`), and the thread that
limits how long an epoch may take. They share the condition variable of one `PlannerWatch`. No thread holds it while it
waits for Spark.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.base.durable import is_of_state, state_error, state_errors
from headrace.control.acks import Ack, Acks
from headrace.control.log import SignalLog
from headrace.control.sending import send_control
from headrace.control.signals import EPOCH, FLUSH, QUICK_END, SAVEPOINT, Signal, SignalKind
from headrace.errors import ExternalError, HeadraceError, StreamFailed
from headrace.model.program import PipelineDef, PipelineExit, StreamDef
from headrace.model.status import StreamState, StreamStatus, StreamTotals
from headrace.model.stream_options import StreamSettings, stream_settings
from headrace.state.checkpoint import checkpoint_id
from headrace.state.notices import Notice
from headrace.state.plans import PlanStore
from headrace.state.progress import Debt, Progress, ProgressView, read_applied
from headrace.state.quarantine import change_quarantine
from headrace.state.wholeness import require_whole
from headrace.stream.epoch_log import EpochLog
from headrace.stream.history import History
from headrace.stream.hold import Hold
from headrace.stream.host import OnEnd, Query, QueryRequest, StreamFailures, StreamHost
from headrace.stream.inflight import InFlight, epoch_limit, too_long
from headrace.stream.intake import Intake
from headrace.stream.owed_acks import OwedBarriers
from headrace.stream.planner_watch import PlannerWatch
from headrace.stream.publishing import PlanPublisher
from headrace.stream.retries import Retrying
from headrace.stream.stream_status import QueryFacts, StoredStream
from headrace.stream.supervisor import QuerySupervisor

if TYPE_CHECKING:
    from headrace.spark.committer import EpochCommitter
    from headrace.spark.summary import EpochSummary

# The first epoch pays for Python workers, imports and kernels: 7 to 9 s cold on two cores, several times that on a busy
# machine.
START_LIMIT_SECONDS = 120.0

# A statement that waits for the first epoch of a plan fails after this many failures in a row. It does not wait for all
# retries: a typing error in an option would take minutes to show.
PATIENT_ATTEMPTS = 3
LOOK_SECONDS = 0.5  # how often the age of an epoch with a time limit is checked


class StreamRuntime:
    """The running side of one stream. See the module for the threads that call it.

    The supervisor calls `launch_query`, `blame` and `query_changed`; the committer calls `epoch_committed`.
    """

    owned = True  # by the hub of this process

    def __init__(self, stream: StreamDef, directory: Path, host: StreamHost) -> None:
        self.stream, self.directory, self._host = stream, directory, host
        self.plans = PlanStore(directory)
        self.signals, self.acks = SignalLog(directory), Acks()
        self._intake = Intake(host.gateway, stream, directory)
        self._progress = ProgressView(directory)
        self._watch, self._history = PlannerWatch(), History(stream, self.plans)
        self._publisher = PlanPublisher(directory, self.plans, self._watch, self._history)
        self._hold, self._log = Hold(directory), EpochLog(stream, directory)
        self._committer: EpochCommitter | None = None
        self._newest: tuple[object, int, float] | None = None  # a query, its newest epoch and the milliseconds it took
        self._trouble = ""
        self.forgotten = False  # true after `forget`
        self.supervisor = QuerySupervisor(directory, self.plans, self)
        self._owed = OwedBarriers(self.acks, self._settle_debts)

    def redeclare(self, stream: StreamDef) -> None:
        """Take the declaration as it is now. Only its changeable options can differ."""
        self.stream = stream

    @property
    def _settings(self) -> StreamSettings:
        return stream_settings(self.stream)

    # --- signals ----------------------------------------------------------------------------------

    def barrier(self, kind: SignalKind, plan: int = 0) -> Future[Ack]:
        """Send a barrier through the data channel. It ends the next epoch, or the first one with plan version `plan`.
        The future completes when that epoch is committed. It fails with StreamFailed if the query ends first."""
        ack = self.acks.expect(self.signals.emit_data(kind, plan))
        if not self.running:
            self.acks.fail(self._query_error("does not run"))
        return ack

    def stand_still(self, timeout: float) -> int | None:
        """Cut the stream with a savepoint barrier, and plan no epoch after it until `release`. Returns the committed
        epoch that carried the barrier, or None if that took too long."""
        deadline = time.monotonic() + timeout
        self._watch.hold_released()
        ack = self.acks.expect(self.signals.emit_data(SAVEPOINT, prepare=self._hold.request))
        # Spark asks for the next epoch only after it has logged this one as done.
        paused = self._await(lambda: not self.started or (ack.done() and self._watch.held), timeout)
        if not self.started:  # the stream was stopped meanwhile, so it stands where it is
            return self.progress.epoch
        return ack.result(0).epoch if paused and time.monotonic() <= deadline else None

    def control(self, kind: SignalKind, pipelines: Sequence[PipelineDef] = ()) -> Future[Ack]:
        """Send a signal through the control channel, past the rows, to the committer. An instant is acknowledged at
        once, a barrier when every sink has reached it."""

        def act(signal: Signal) -> None:
            if kind is FLUSH:
                self._intake.sync()
            self.committer.control(signal, pipelines)

        return send_control(self.signals, self.acks, kind, act=act, epoch=self._committed_epoch)

    def _committed_epoch(self) -> int:
        return self.progress.epoch

    def quick_end(self, pipelines: Sequence[PipelineDef]) -> None:
        """Commit nothing more of these pipelines, not even from epochs that are already planned or run again after a
        crash."""
        self.leave_out(pipelines, self.plans.current(), "it was stopped at once")
        self.control(QUICK_END, pipelines)

    def run_again_without(self, pipelines: Sequence[PipelineDef], until: int) -> None:
        """Give up the epoch in flight and run it again without these dropped pipelines, which are in plan versions up
        to `until`. For an epoch that does not end."""
        self.leave_out(pipelines, until)
        self.supervisor.bounce()

    def leave_out(self, pipelines: Sequence[PipelineDef], until: int, reason: str = "it was dropped") -> None:
        """Run epochs that are already planned, with plan versions up to `until`, without these pipelines."""
        change_quarantine(self.directory, lambda found: found.ending(pipelines, until, reason))

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
        self._watch.plan_published()
        return self._publisher.publish(self.stream, pipelines, exits, ending=ending, cancelled=cancelled)

    def end(self, pipelines: tuple[PipelineDef, ...]) -> int:
        """The version of a plan that closes every window in its first epoch. Publishes one, unless the current plan is
        such a plan and no row came since."""
        current = self.plans.current()
        plan = self.plans.load(current) if current else None
        fed = self._history.fed_since_end(current)
        if plan is not None and plan.ending and plan.pipelines == pipelines and not fed:
            return current
        return self.publish(pipelines, ending=self._settings.close_at_end)

    # --- the query --------------------------------------------------------------------------------

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
        """Why the query is dead or retrying; otherwise what the hub last failed to do for the stream."""
        retrying = self.retrying
        return self.supervisor.problem or (retrying.problem if retrying is not None else "") or self._trouble

    def note_trouble(self, problem: str) -> None:
        """Show in the status what the hub failed to do for this stream; empty when all is well."""
        self._trouble = problem

    def start(self, patient: bool = False) -> None:
        """Start the query unless it runs. It continues from its checkpoint. A failure to start is raised, or, with
        `patient`, retried like any failure of the query."""
        if self.running:
            return
        try:
            self._hold.lift()
            self.supervisor.start(patient)
        except HeadraceError:
            raise
        except Exception as problem:
            if is_of_state(problem):
                raise state_error(problem, self.directory) from problem
            raise self._query_error(f"failed: {type(problem).__name__}: {problem}") from problem

    def revive(self) -> None:
        """Start a dead query. Retry a failed one now instead of after its wait."""
        self.supervisor.try_now()
        self.start()

    def fail(self, problem: str) -> None:
        """Mark the stream as dead for this reason; see `QuerySupervisor.fail`."""
        self.supervisor.fail(problem)

    def ingress(self) -> dict[str, Any]:
        """The gateway's addresses and metrics for this stream; empty when it takes no bytes."""
        return self._intake.facts()

    def launch_query(self, on_end: OnEnd) -> Query:
        """Start a query, for the first time or again. Called by the supervisor."""
        require_whole(self.directory)
        self._watch.query_starting()
        self._intake.open(self.progress.end)
        options = {
            "directory": str(self.directory),
            "checkpoint": self.checkpoint_id(),
            "port": str(self._host.board.port),
            "token": self._host.board.token,
        }
        query = self._host.launch(
            QueryRequest(
                stream=self.stream.name,
                directory=self.directory,
                committer=self.committer,
                options=options,
                on_end=on_end,
                planner_pid=self._planner_pid,
                pipelines=self._planned_names,
            )
        )
        if epoch_limit(self._settings, 0) is not None:
            threading.Thread(target=self._limit_epochs, args=(query,), name="headrace-epoch-limit", daemon=True).start()
        return query

    def _planner_pid(self) -> int | None:
        return self._watch.planner

    def _planned_names(self) -> list[str]:
        return [p.name for p in self.plans.parsed(self.plans.current()).pipelines]

    def _limit_epochs(self, query: Query) -> None:
        """Abort the query when an epoch takes too long. Ends with the query."""
        while True:
            time.sleep(LOOK_SECONDS)
            if self.supervisor.query is not query:
                return
            found = self.in_flight()
            if found is None:
                continue
            pipelines = self.plans.parsed(self.plans.current()).pipelines
            limit = epoch_limit(self._settings, len(pipelines))
            if limit is not None and found.age > limit:
                self.supervisor.abort(too_long(self.stream.name, found, limit).render())
                return

    def in_flight(self) -> InFlight | None:
        """The epoch that is being planned or run, if there is one."""
        if not self.supervisor.up:
            return None
        doing = self._committer.doing if self._committer is not None else ""
        return self._watch.in_flight(doing, self._settings.max_latency / 1e6)

    def query_changed(self) -> None:
        """The query changed its state. Called by the supervisor."""
        problem, retrying = self.supervisor.problem, self.retrying
        self._log.query(self.state, self.problem, 0 if retrying is None else retrying.attempt)
        if problem is not None:
            self.acks.fail(self._query_error(f"failed: {problem}"))
        self._watch.wake()

    def blame(self, guilty: dict[str, str]) -> None:
        """These pipelines killed workers; by `PipelineDef.run`. Called by the supervisor."""
        self._host.report(StreamFailures(self.stream.name, guilty, {}))

    @property
    def committer(self) -> EpochCommitter:
        """Commits the stream's epochs. One object for as long as the hub is open."""
        if self._committer is None:
            from headrace.spark.committer import EpochCommitter

            self._committer = EpochCommitter(
                self.directory,
                self.checkpoint_id(),
                self.plans,
                done=self.epoch_committed,
                known=self._host.declared_instances,
                probe_lived=self.supervisor.probe_lived,
                run_again=self.supervisor.run_again,
            )
        return self._committer

    def _settle_debts(self) -> Sequence[Debt]:
        return self.committer.settle()

    def checkpoint_id(self) -> str:
        """The id of the stream's checkpoint; see `headrace.state.checkpoint`."""
        return checkpoint_id(self.directory, self.stream.name)

    # --- holding and stopping ---------------------------------------------------------------------

    def hold(self, timeout: float) -> bool:
        """Finish the epoch in flight and plan no other. True if that happened in time. The query stays up."""
        if not self.running:
            return True

        def held() -> bool:
            if not self.supervisor.up:  # a query that waits for its next start has no epoch in flight
                return True
            self.ask_to_hold()  # again: a savepoint that ends meanwhile lifts the hold
            return self._watch.held

        return self._await(held, timeout)

    def ask_to_hold(self) -> None:
        """Plan no epoch from now on. The epoch in flight goes on."""
        if self.running and not self._hold.requested:
            self._hold.request()

    def release(self) -> None:
        """Undo `hold`: plan epochs again."""
        self._watch.hold_released()
        self._hold.lift()

    def stop(self) -> None:
        """End the query at once. The next start runs an epoch in flight again. Bytes that a pushed stream has taken and
        not read wait in its journal."""
        self._intake.close()
        self.supervisor.stop()
        self.query_changed()
        self.acks.fail(self._query_error("was stopped"))
        with contextlib.suppress(ExternalError):  # the next start lifts the hold
            self._hold.lift()

    def close(self) -> None:
        """End the query and release the sinks."""
        self.stop()
        if self._committer is not None:
            self._committer.close()

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
            shutil.rmtree(gone, ignore_errors=True)

    # --- waiting ----------------------------------------------------------------------------------

    def wait_planned(self, version: int, timeout: float = START_LIMIT_SECONDS) -> None:
        """Wait until an epoch was planned with this plan version or a later one, or the query was stopped. Raises
        StartTimeout, or StreamFailed when the query dies or fails PATIENT_ATTEMPTS times in a row."""

        def check() -> None:
            self.raise_failure()
            retrying = self.retrying
            if retrying is not None and retrying.attempt >= PATIENT_ATTEMPTS:
                raise self._query_error(f"failed {retrying.attempt} times in a row: {retrying.problem}")

        if not self._watch.wait(lambda: self.planned >= version or not self.started, timeout, check):
            planned = None if self._watch.planned_at is None else self._watch.planned_epoch
            raise self._stored().start_timeout(version, timeout, planned, self._last_planned())

    def _last_planned(self) -> str:
        """What the query did instead of planning an epoch that a caller waits for."""
        if self.problem:
            return f"its query failed and is started again: {self.problem}"
        if self._watch.planned_at is None:
            return "its query has planned none since it was started"
        spent = time.monotonic() - self._watch.planned_at
        return f"epoch {self._watch.planned_epoch}, with plan version {self.planned}, was planned {spent:.0f} s ago"

    def wait_exhausted(self, timeout: float | None) -> bool:
        """Wait until the source has nothing more to read under the newest plan, or the query was stopped. True if that
        happened in time."""

        def over() -> bool:
            idle = self._watch.idle
            if not self.started:
                return True
            return idle is not None and idle.plan == self.plans.current() and idle.exhausted

        return self._await(over, timeout)

    def _await(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Wait for `condition`, which is checked at every notice. Raises StreamFailed when the query dies."""
        return self._watch.wait(condition, timeout, self.raise_failure)

    def raise_failure(self) -> None:
        """Raise StreamFailed if the query has died."""
        problem = self.supervisor.problem
        if self.started and problem is not None:
            raise self._query_error(f"failed: {problem}")

    def _query_error(self, how: str) -> StreamFailed:
        return StreamFailed(
            f"the query of stream {self.stream.name} {how}",
            advice="Nothing committed is lost; starting again continues from the last epoch.",
            stream=self.stream.name,
        )

    # --- events -----------------------------------------------------------------------------------

    def on_notice(self, notice: Notice) -> None:
        """Take a notice from the planning process."""
        self._watch.on_notice(notice)
        self.supervisor.well()
        if self.state == "running":
            self._log.query("running", "", 0)

    def epoch_committed(self, summary: EpochSummary) -> None:
        """Take the summary of a committed epoch. Called by the committer, in Spark's streaming thread."""
        if summary.barrier.kind != EPOCH.name:
            self.signals.carried(summary.barrier.id)
        with self._watch.changed:
            self._history.add(summary, self._watch.spent(summary.epoch))
            self._watch.epoch_committed()
        self._log.add(
            summary,
            lambda: {i: p.name for i, p in self.plans.load(summary.plan).known.items()},
            self._intake.dropped,
            self._history.phases,
        )
        self._owed.seen(summary.barrier, summary.epoch, summary.progress.debts)
        verdict = self._history.judge(summary)
        failures = verdict.over | summary.failures
        if failures or summary.detached or verdict.alone != self._history.alone:
            self._history.measure_alone(verdict.alone)
            known = self.plans.load(summary.plan).known
            self._host.report(
                StreamFailures(
                    self.stream.name,
                    {known[i].run: reason for i, reason in failures.items()},
                    {known[i].run: sinks for i, sinks in summary.detached.items()},
                )
            )

    # --- status -----------------------------------------------------------------------------------

    @property
    def progress(self) -> Progress:
        """The stream after its newest committed epoch."""
        return self._progress.read()

    @property
    def planned(self) -> int:
        """The newest plan version that an epoch was planned with since the hub was opened; 0 before the first."""
        return self._watch.planned

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

    def notes(self, pipeline: PipelineDef) -> dict[str, str]:
        """Problems of sinks that fail no epoch, such as a console that nobody reads."""
        return self._committer.notes(pipeline) if self._committer is not None else {}

    def spent_ms(self, instance: int) -> float | None:
        """How long an instance took in the newest epoch, over all tasks."""
        recent = self.recent
        return recent[-1].pipeline_ms.get(instance) if recent else None

    def _epoch_ms(self) -> float | None:
        """How long Spark's newest epoch took. Asks Spark once per committed epoch: the JVM builds the answer and this
        process parses it, every time."""
        query = self.supervisor.query
        if query is None or self.state != "running":
            return None
        recent = self.recent
        newest = self._newest
        if newest is None or newest[0] is not query or not recent or newest[1] != recent[-1].epoch:
            found = query.last_epoch()
            if found is None:
                return None
            newest = self._newest = (query, *found)
        return newest[2]

    def status(self) -> StreamStatus:
        """The stream's status, from its files and its query."""
        state = self.state
        rows_per_s, mb_per_s = self._history.rates()
        return self._stored().status(
            QueryFacts(
                state=state,
                since=self.supervisor.since,
                retrying=self.retrying,
                in_flight=self.in_flight(),
                epoch_ms=self._epoch_ms(),
                backlog=self._watch.backlog,
                rows_per_s=rows_per_s,
                mb_per_s=mb_per_s,
                problem=self.problem,
                dropped=self._intake.dropped(),
                phases=self._history.phases,
                barrier=self._history.barrier,
            )
        )

    def _stored(self) -> StoredStream:
        return StoredStream(self.stream, self.directory, self.plans, self._progress)
