"""One shared stream while the hub is open: publishes plans, runs the query, knows what really happened.

The hub decides which pipelines should run; this class carries that out. Threads: the hub's callers, Spark's streaming
thread (`_epoch_done`), the notice thread (`on_notice`) and the one that limits the time of epochs meet under the
condition variable of one `Watch`; nobody holds it while waiting for Spark.
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

from headrace.account import start_timeout, status_of
from headrace.control.acks import Ack, Acks
from headrace.control.log import SignalLog
from headrace.control.sending import send_control
from headrace.control.signals import EPOCH, FLUSH, QUICK_END, SAVEPOINT, Signal, SignalKind
from headrace.durable import is_of_state, private_directory, state_error, state_errors, write_atomic
from headrace.epochlog import EpochLog
from headrace.errors import ExternalError, HeadraceError, StreamFailed
from headrace.history import History
from headrace.inflight import InFlight, epoch_limit, too_long
from headrace.ingress.service import GatewayService
from headrace.intake import Intake
from headrace.keeper import OnEnd, QueryKeeper
from headrace.owing import OwedBarriers
from headrace.program import Left, PipelineDef, StreamDef
from headrace.status import StreamState, StreamStatus, StreamTotals
from headrace.streams import stream_values
from headrace.streams.checkpoint import checkpoint_id
from headrace.streams.notices import NoticeBoard
from headrace.streams.plans import PlanStore
from headrace.streams.progress import HOLD, Progress, ProgressView, read_applied
from headrace.streams.publishing import publish
from headrace.streams.quarantine import change_quarantine
from headrace.watch import Watch
from headrace.wholeness import require_whole

if TYPE_CHECKING:
    from headrace.spark.committer import EpochCommitter
    from headrace.spark.query import StreamQuery
    from headrace.spark.session import Engine
    from headrace.spark.summary import EpochSummary

# The first epoch pays for Python workers, imports and kernels: 7 to 9 s cold on two cores, several times that when
# busy.
START_LIMIT_SECONDS = 120.0

# Somebody who waits for the first epoch of a plan is told after so many failures in a row, and not when all tries are
# used up: by then a typing error in an option has cost minutes.
PATIENT_ATTEMPTS = 3
LOOK_SECONDS = 0.5  # how often the age of an epoch is looked at when it has a limit


class StreamRuntime:
    """The running side of one stream. `failed` is called, outside the lock, with those that failed in an epoch and
    the sinks that did, by `PipelineDef.run`; `known` says which instances are still declared."""

    def __init__(
        self,
        stream: StreamDef,
        directory: Path,
        board: NoticeBoard,
        engine: Callable[[], Engine],
        failed: Callable[[str, dict[str, str], dict[str, dict[str, str]]], None],
        known: Callable[[], set[int]],
        gateway: GatewayService,
    ) -> None:
        self.stream, self.directory = stream, directory
        self._intake = Intake(gateway, stream, directory)
        self.plans = PlanStore(directory)
        self._progress = ProgressView(directory)
        self._board, self._engine, self._failed, self._known = board, engine, failed, known
        self._watch, self._history = Watch(), History(stream, self.plans)
        self._log = EpochLog(stream, directory)
        self.keeper = QueryKeeper(
            directory, self.plans, self._begin, lambda guilty: failed(stream.name, guilty, {}), self._wake
        )
        self._committer: EpochCommitter | None = None
        self._told: tuple[object, int, float] | None = None  # a query, and its newest epoch as Spark told of it
        self.trouble = ""  # what the hub could not do for the stream the last time it tried
        self.signals = SignalLog(directory)
        self.acks = Acks()
        self._owed = OwedBarriers(self.acks, lambda: self.committer.settle())

    @property
    def _values(self) -> dict[str, Any]:
        return stream_values(self.stream)  # its changeable options may be others

    # --- signals ----------------------------------------------------------------------------------

    def barrier(self, kind: SignalKind, plan: int = 0) -> Future[Ack]:
        """Send a barrier through the data channel: it ends the next epoch (the first with plan version `plan`). The
        future ends when that epoch is committed, or with StreamFailed when the query ends before."""
        ack = self.acks.expect(self.signals.emit_data(kind, plan))
        if not self.running:
            self.acks.fail(self._gone("does not run"))
        return ack

    def stand_still(self, timeout: float) -> int | None:
        """Cut the stream with a savepoint barrier, and plan no epoch behind it until `release`. The epoch that carried
        it, which is committed; None when that took too long."""

        def hold_behind(id: int) -> None:
            self._hold(str(id))

        deadline = time.monotonic() + timeout
        self._watch.released()
        ack = self.acks.expect(self.signals.emit_data(SAVEPOINT, prepare=hold_behind))
        # Spark asks for the next epoch only when it has logged this one as done.
        calm = self._await(lambda: not self.started or (ack.done() and self._watch.held), timeout)
        if not self.started:  # nobody needed it any more: it was stopped, and stands where it is
            return self.progress.epoch
        return ack.result(0).epoch if calm and time.monotonic() <= deadline else None

    def control(self, kind: SignalKind, pipelines: Sequence[PipelineDef] = ()) -> Future[Ack]:
        """Send a signal through the control channel, past the rows, to the committer. An instant is answered at once,
        a barrier when every sink has come to it."""

        def act(signal: Signal) -> None:
            if kind is FLUSH:
                self._intake.sync()
            self.committer.control(signal, pipelines)

        return send_control(self.signals, self.acks, kind, act, lambda: self.progress.epoch)

    def quick_end(self, pipelines: Sequence[PipelineDef]) -> None:
        """Let nothing more of these come to the sinks: of no epoch that is planned already, also after a crash."""
        self.leave_out(pipelines, self.plans.current(), "it was stopped at once")
        self.control(QUICK_END, pipelines)

    def run_again_without(self, pipelines: Sequence[PipelineDef], until: int) -> None:
        """Give up the epoch in flight, and run it again without these, which are in plan versions up to `until`: they
        are dropped, and it does not end."""
        self.leave_out(pipelines, until)
        self.keeper.bounce()

    def leave_out(self, pipelines: Sequence[PipelineDef], until: int, reason: str = "it was dropped") -> None:
        """Run epochs that are planned already, with plan versions up to `until`, without these."""
        change_quarantine(self.directory, lambda found: found.ending(pipelines, until, reason))

    # --- plans ------------------------------------------------------------------------------------

    def publish(
        self,
        pipelines: tuple[PipelineDef, ...],
        left: tuple[Left, ...] = (),
        ending: bool = False,
        cancelled: tuple[Left, ...] = (),
    ) -> int:
        """Put a new plan version in force from the next epoch on; returns its number. `cancelled` ends that no epoch
        has told of yet are forgotten: a script is taken back."""
        self._watch.busy()
        return publish(
            self.plans,
            self.directory,
            self.stream,
            pipelines,
            left,
            ending=ending,
            cancelled=cancelled,
            planned=lambda: self._watch.planned,
            alone=self._history.alone,
        )

    def end(self, pipelines: tuple[PipelineDef, ...]) -> int:
        """The version of a plan that closes every window in its first epoch: a new one, unless that is in force and no
        row has come since."""
        current = self.plans.current()
        plan = self.plans.load(current) if current else None
        fed = self._history.fed_since_end(current)
        if plan is not None and plan.ending and plan.pipelines == pipelines and not fed:
            return current
        return self.publish(pipelines, ending=stream_values(self.stream)["close_at_end"])

    # --- the query --------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether epochs are planned and run, or soon will be: a query that failed may just be started again."""
        return self.keeper.running

    @property
    def state(self) -> StreamState:
        """What the query does."""
        return self.keeper.state

    @property
    def started(self) -> bool:
        """Whether there is a query that was not stopped; it may have died."""
        return self.keeper.started

    @property
    def problem(self) -> str:
        """Why the query is dead, or is being started again; else what the hub could not do for the stream."""
        retrying = self.keeper.retrying
        return self.keeper.problem or (retrying.problem if retrying is not None else "") or self.trouble

    def start(self, patient: bool = False) -> None:
        """Start the query unless it runs; continues from the checkpoint if there is one. What goes wrong is raised, or,
        with `patient`, tried again like any failure of the query."""
        if self.running:
            return
        try:
            self._release_hold()
            self.keeper.start(patient)
        except HeadraceError:
            raise
        except Exception as problem:
            if is_of_state(problem):
                raise state_error(problem, self.directory) from problem
            raise self._stream_failed(f"{type(problem).__name__}: {problem}") from problem

    def revive(self) -> None:
        """Start a query that is dead; do not wait with the next try of one that is started again."""
        self.keeper.try_now()
        self.start()

    def fail(self, problem: str) -> None:
        """The stream cannot run for this reason; see `QueryKeeper.fail`."""
        self.keeper.fail(problem)

    def ingress(self) -> dict[str, Any]:
        """What the gateway says of this stream: addresses and metrics; empty when it takes no bytes."""
        return self._intake.facts()

    def _begin(self, ended: OnEnd) -> StreamQuery:
        """Start a query, for the first time or again."""
        require_whole(self.directory)
        self._watch.begin()
        self._intake.open(self.progress.end)
        return self._launch(ended)

    def _launch(self, ended: OnEnd) -> StreamQuery:
        from headrace.spark.query import StreamQuery

        engine = self._engine()
        options = {
            "directory": str(self.directory),
            "checkpoint": self.checkpoint_id(),
            "port": str(self._board.port),
            "token": self._board.token,
        }
        query = StreamQuery(
            engine,
            self.stream.name,
            self.directory,
            self.committer,
            options,
            ended,
            lambda: self._watch.planner,
            lambda: [p.name for p in self.plans.parsed(self.plans.current()).pipelines],
        )
        if epoch_limit(self._values, 0) is not None:
            threading.Thread(target=self._limit_epochs, args=(query,), name="headrace-epoch-limit", daemon=True).start()
        return query

    def _limit_epochs(self, query: object) -> None:
        """Abort the query when an epoch takes too long. Ends with the query."""
        while True:
            time.sleep(LOOK_SECONDS)
            if self.keeper.query is not query:
                return
            found = self.in_flight()
            if found is None:
                continue
            pipelines = self.plans.parsed(self.plans.current()).pipelines
            limit = epoch_limit(self._values, len(pipelines))
            if limit is not None and found.age > limit:
                self.keeper.abort(too_long(self.stream.name, found, limit).render())
                return

    def in_flight(self) -> InFlight | None:
        """The epoch that is being planned or run, if there is one."""
        if not self.keeper.up:
            return None
        doing = self._committer.doing if self._committer is not None else ""
        return self._watch.in_flight(doing, self._values["max_latency"] / 1e6)

    def _wake(self) -> None:
        problem, retrying = self.keeper.problem, self.keeper.retrying
        self._log.query(self.state, self.problem, 0 if retrying is None else retrying.attempt)
        if problem is not None:
            self.acks.fail(self._stream_failed(problem))
        self._watch.wake()

    @property
    def committer(self) -> EpochCommitter:
        if self._committer is None:
            from headrace.spark.committer import EpochCommitter

            self._committer = EpochCommitter(
                self.directory,
                self.checkpoint_id(),
                self.plans,
                self._epoch_done,
                self._known,
                self.keeper.probe_lived,
                self.keeper.run_again,
            )
        return self._committer

    def checkpoint_id(self) -> str:
        """The name of the checkpoint that the stream has; see `headrace.streams.checkpoint`."""
        return checkpoint_id(self.directory, self.stream.name)

    def hold(self, timeout: float) -> bool:
        """Let the epoch in flight finish and plan no other; whether that happened in time. The query stays up."""
        if not self.running:
            return True

        def held() -> bool:
            if not self.keeper.up:  # nothing is in flight while a query waits to be started again
                return True
            self.ask_to_hold()  # again: who had asked for it before, such as a savepoint, may have undone that
            return self._watch.held

        return self._await(held, timeout)

    def ask_to_hold(self) -> None:
        """Plan no epoch from now on; the one in flight goes on."""
        if self.running and not (self.directory / HOLD).exists():
            self._hold("")

    def _hold(self, text: str) -> None:
        with state_errors(self.directory):
            private_directory(self.directory)
            write_atomic(self.directory / HOLD, text.encode())

    def _release_hold(self) -> None:
        with state_errors(self.directory):
            (self.directory / HOLD).unlink(missing_ok=True)

    @property
    def planned(self) -> int:
        """The newest plan version that an epoch was planned with since the hub was opened; 0 before the first."""
        return self._watch.planned

    @property
    def newest_epoch(self) -> int:
        """The newest epoch that was planned; -1 before the first."""
        applied = read_applied(self.directory)
        return -1 if applied is None else applied.epoch

    def release(self) -> None:
        """Undo `hold`: somebody needs the query after all."""
        self._watch.released()
        self._release_hold()

    def stop(self) -> None:
        """End the query at once; an epoch in flight will be run again by the next start. What a pushed stream has taken
        and nobody has read waits in its journal."""
        self._intake.close()
        self.keeper.stop()
        self._wake()
        self.acks.fail(self._gone("was stopped"))
        with contextlib.suppress(ExternalError):  # the next start removes it
            self._release_hold()

    def close(self) -> None:
        """End the query and release the sinks."""
        self.stop()
        if self._committer is not None:
            self._committer.close()

    def forget(self) -> None:
        """Remove everything the stream keeps on disk. A new stream of the same name never finds any of it: it is out
        of the way at once, and what cannot be deleted now is when the state directory is opened again."""
        self.close()
        with contextlib.suppress(HeadraceError):  # damaged: then what sinks keep beside their output stays
            if self.progress.epoch >= 0:
                self.committer.forget_stream(self.stream.dead_letters)
        if self.directory.exists():
            gone = self.directory.with_name(f".gone-{uuid.uuid4().hex}")
            with state_errors(self.directory):
                self.directory.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)

    # --- waiting ----------------------------------------------------------------------------------

    def wait_planned(self, version: int, timeout: float = START_LIMIT_SECONDS) -> None:
        """Wait until an epoch with this plan version, or a later one, has really been planned, or the query is stopped
        on purpose."""

        def impatient() -> None:
            self.raise_failure()
            retrying = self.keeper.retrying
            if retrying is not None and retrying.attempt >= PATIENT_ATTEMPTS:
                raise self._gone(f"failed {retrying.attempt} times in a row: {retrying.problem}")

        if not self._watch.wait(lambda: self._watch.planned >= version or not self.started, timeout, impatient):
            raise start_timeout(self.stream, self.directory, self.plans, self._watch, version, timeout, self.problem)

    def wait_exhausted(self, timeout: float | None) -> bool:
        """Wait until the source has nothing more under the newest plan, or the query was stopped because nobody needs
        it; whether that happened in time."""

        def over() -> bool:
            idle = self._watch.idle
            if not self.started:
                return True
            return idle is not None and idle["plan"] == self.plans.current() and bool(idle["exhausted"])

        return self._await(over, timeout)

    def _await(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Wait for `condition`, woken by notices; raises StreamFailed when the query dies meanwhile."""
        return self._watch.wait(condition, timeout, self.raise_failure)

    def raise_failure(self) -> None:
        """Raise StreamFailed if the query has died."""
        problem = self.keeper.problem
        if self.started and problem is not None:
            raise self._stream_failed(problem)

    def _stream_failed(self, problem: str) -> StreamFailed:
        return self._gone(f"failed: {problem}")

    def _gone(self, how: str) -> StreamFailed:
        return StreamFailed(
            f"the query of stream {self.stream.name} {how}",
            advice="Nothing committed is lost; starting again continues from the last epoch.",
            stream=self.stream.name,
        )

    # --- what happens -----------------------------------------------------------------------------

    def on_notice(self, notice: dict[str, Any]) -> None:
        """A notice from the planning process."""
        self._watch.on_notice(notice)
        self.keeper.well()
        if self.state == "running":
            self._log.query("running", "", 0)

    def _epoch_done(self, summary: EpochSummary) -> None:
        if summary.barrier.kind != EPOCH.name:
            self.signals.carried(summary.barrier.id)
        with self._watch.changed:
            self._history.add(summary, self._watch.spent(summary.epoch))
            self._watch.done()
        self._log.add(
            summary,
            lambda: {i: p.name for i, p in self.plans.load(summary.plan).known.items()},
            self._intake.dropped,
            self._history.phases,
        )
        self._owed.seen(summary.barrier, summary.epoch, summary.progress.debts)
        verdict = self._history.judge(summary)
        failures = verdict.over | summary.failures
        # With nobody to drop, the hub only publishes the plan again: those to be measured alone have changed.
        if failures or summary.detached or verdict.alone != self._history.alone:
            self._history.alone = verdict.alone
            known = self.plans.load(summary.plan).known
            self._failed(
                self.stream.name,
                {known[i].run: reason for i, reason in failures.items()},
                {known[i].run: sinks for i, sinks in summary.detached.items()},
            )

    # --- status -----------------------------------------------------------------------------------

    @property
    def progress(self) -> Progress:
        return self._progress.read()

    @property
    def recent(self) -> list[EpochSummary]:
        """The newest epochs since the hub was opened, oldest first."""
        return self._history.recent

    @property
    def totals(self) -> StreamTotals:
        """Epochs, phases and sinks since the hub was opened."""
        return self._history.totals

    def notes(self, pipeline: PipelineDef) -> dict[str, str]:
        """What is wrong with sinks that fail no epoch, such as a console that nobody reads."""
        return self._committer.notes(pipeline) if self._committer is not None else {}

    def spent_ms(self, instance: int) -> float | None:
        """Time that an instance took in the newest epoch, over all tasks."""
        recent = self.recent
        return recent[-1].pipeline_ms.get(instance) if recent else None

    def _epoch_ms(self) -> float | None:
        """How long Spark says that its newest epoch took. Spark is asked until it has told of the newest committed one,
        and not again before the next: its answer is built in the JVM and parsed here, every time."""
        query: Any = self.keeper.query
        if query is None or self.state != "running":
            return None
        recent = self.recent
        told = self._told
        if told is None or told[0] is not query or not recent or told[1] != recent[-1].epoch:
            found = query.last_epoch()
            if found is None:
                return None
            told = self._told = (query, *found)
        return told[2]

    def status(self) -> StreamStatus:
        """What really happened, as far as it is known."""
        return status_of(
            self.stream,
            self.directory,
            self._progress,
            self.plans,
            self._watch,
            self._history,
            self.keeper,
            self.in_flight(),
            self._epoch_ms(),
            self.problem,
            self._intake.dropped(),
        )
