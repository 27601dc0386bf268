"""The query of one stream, and what lives as long as it: supervisor, planner watch, gateway intake, hold, committer.

`headrace.stream.runtime` starts and stops it, and `headrace.stream.waiting` waits for it. No thread holds the condition
variable of the planner watch while it waits for Spark.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.base.durable import is_of_state, state_error
from headrace.bridge.messages import STREAM_LANE
from headrace.bridge.spark_rows import clear_staging
from headrace.control.acks import Acks
from headrace.errors import ExternalError, HeadraceError, StreamFailed
from headrace.model.definitions import PipelineDef, StreamDef
from headrace.model.stream_options import StreamSettings, stream_settings
from headrace.state.checkpoint import checkpoint_id
from headrace.state.notices import Notice
from headrace.state.plans import PlanStore
from headrace.state.progress import ProgressView, read_applied
from headrace.state.quarantine import Quarantined, change_quarantine, read_quarantine
from headrace.state.wholeness import require_whole
from headrace.stream.epoch_log import EpochLog
from headrace.stream.hold import Hold
from headrace.stream.host import OnEnd, Query, QueryRequest, StreamFailures, StreamHost
from headrace.stream.inflight import InFlight, epoch_limit, letters_too_late, sink_hangs, too_long
from headrace.stream.intake import Intake
from headrace.stream.planner_watch import PlannerWatch
from headrace.stream.supervisor import QuerySupervisor

if TYPE_CHECKING:
    from headrace.spark.committer import EpochCommitter
    from headrace.spark.summary import EpochSummary

LOOK_SECONDS = 0.5  # how often the age of an epoch is checked
# How long a commit may wait for a sink of a pipeline that was stopped or dropped, before the stream goes on without it.
STUCK_SECONDS = 60.0
STOP_SECONDS = 1.0  # how long a stop waits for the thread that limits epochs: it may be busy with the same query


@dataclass(frozen=True, slots=True)
class TooOld:
    """An epoch was aborted because of its age, while it waited for `phase`: a sink of this instance, or the sink of
    the dead letters."""

    instance: int
    phase: str


class ManagedQuery:
    """Starts, stops and limits the query of one stream. Any thread may call.

    The supervisor calls `launch_query`, `blame` and `query_changed`. The committer calls `on_commit`, in Spark's
    streaming thread. `acks` fail when the query ends.
    """

    def __init__(
        self,
        stream: StreamDef,
        directory: Path,
        host: StreamHost,
        *,
        plans: PlanStore,
        progress: ProgressView,
        acks: Acks,
        on_commit: Callable[[EpochSummary], None],
    ) -> None:
        self.stream, self.directory, self._host = stream, directory, host
        self._plans, self._progress, self._acks, self._on_commit = plans, progress, acks, on_commit
        self.watch, self.planning_hold, self.log = PlannerWatch(), Hold(directory), EpochLog(stream, directory)
        self.intake = Intake(host.gateway, stream, directory)
        self.supervisor = QuerySupervisor(directory, plans, self)
        self._committer: EpochCommitter | None = None
        self._trouble = ""
        self._limiting: tuple[threading.Thread, threading.Event] | None = None  # the newest query's
        self._too_old: TooOld | None = None  # what the newest epoch that was aborted waited for

    def redeclare(self, stream: StreamDef) -> None:
        """Take the declaration as it is now. Only its changeable options can differ."""
        self.stream = stream
        self.intake.redeclare(stream)

    @property
    def settings(self) -> StreamSettings:
        """The options of the stream as it is declared now."""
        return stream_settings(self.stream)

    @property
    def problem(self) -> str:
        """Why the query is dead or retrying; otherwise why the gateway takes no bytes, or what the hub last failed to
        do for the stream."""
        retrying = self.supervisor.retrying
        failure = self.supervisor.problem or ("" if retrying is None else retrying.problem)
        return failure or self.intake.problem or self._trouble

    def note_trouble(self, problem: str) -> None:
        """Remember what the hub failed to do for this stream; empty when all is well."""
        self._trouble = problem

    def error(self, how: str) -> StreamFailed:
        """The error for a query that failed or does not run."""
        return StreamFailed(
            f"the query of stream {self.stream.name} {how}",
            advice="Nothing committed is lost; starting again continues from the last epoch.",
            stream=self.stream.name,
        )

    def raise_failure(self) -> None:
        """Raise StreamFailed if the query has died."""
        problem = self.supervisor.problem
        if self.supervisor.started and problem is not None:
            raise self.error(f"failed: {problem}")

    # --- starting and stopping --------------------------------------------------------------------

    def start(self, patient: bool = False) -> None:
        """Start the query unless it runs. A failure to start is raised, or, with `patient`, retried."""
        if self.supervisor.running:
            return
        try:
            self.planning_hold.lift()
            self.supervisor.start(patient)
        except HeadraceError:
            raise
        except Exception as problem:
            if is_of_state(problem):
                raise state_error(problem, self.directory) from problem
            raise self.error(f"failed: {type(problem).__name__}: {problem}") from problem

    def stop(self) -> None:
        """End the query at once. The next start runs an epoch in flight again. Bytes that a pushed stream has taken and
        not read wait in its journal."""
        self.intake.close()
        self.supervisor.stop()
        self._end_limiting()
        with contextlib.suppress(ExternalError):  # the next start deletes what an epoch in flight has staged
            clear_staging(self.directory)
        self.query_changed()
        self._acks.fail(self.error("was stopped"))
        with contextlib.suppress(ExternalError):  # the next start lifts the hold
            self.planning_hold.lift()

    def close(self) -> None:
        """End the query and release the sinks."""
        self.stop()
        if self._committer is not None:
            self._committer.close()

    def ask_to_hold(self) -> None:
        """Plan no epoch from now on. The epoch in flight goes on."""
        if self.supervisor.running and not self.planning_hold.requested:
            self.planning_hold.request()

    def release(self) -> None:
        """Plan epochs again."""
        self.watch.hold_released()
        self.planning_hold.lift()

    # --- for the supervisor -----------------------------------------------------------------------

    def launch_query(self, on_end: OnEnd) -> Query:
        """Start a query, for the first time or again."""
        require_whole(self.directory)
        self.watch.query_starting()
        self.intake.open(self._progress.read().end)
        options = {
            "directory": str(self.directory),
            "checkpoint": self.checkpoint_id(),
            "port": str(self._host.board.port),
            "token": self._host.board.token,
        }
        self._pass_hanging_commit()
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
        over = threading.Event()
        thread = threading.Thread(
            target=self._limit_epochs, args=(query, over), name="headrace-epoch-limit", daemon=True
        )
        thread.start()
        self._limiting = thread, over
        return query

    def _pass_hanging_commit(self) -> None:
        """If the commit of an earlier query still hangs in a sink, go on without its pipeline, if that is left out of
        the epoch. If the epoch was aborted because of its age, that pipeline is to blame."""
        applied = read_applied(self.directory)
        if applied is None:
            return
        out = set(read_quarantine(self.directory).reasons(applied.version))
        stuck, too_old, self._too_old = self.committer.stuck, self._too_old, None  # it explains one hang only
        blamed = stuck is not None and stuck != STREAM_LANE and stuck not in out
        if stuck is not None and blamed and too_old is not None and too_old.instance == stuck:
            reason = sink_hangs(too_old.phase, applied.epoch).render()
            found = self._plans.load(applied.version).known.get(stuck)
            entry = Quarantined(stuck, reason, generation=0 if found is None else found.generation)
            change_quarantine(self.directory, lambda known: replace(known, out=(*known.out, entry)))
            self.blame({entry.run: reason})
            out.add(stuck)
        self.committer.give_up(out)

    def query_changed(self) -> None:
        """The query changed its state."""
        supervisor = self.supervisor
        problem, retrying = supervisor.problem, supervisor.retrying
        self.log.query(supervisor.state, self.problem, 0 if retrying is None else retrying.attempt)
        if problem is not None:
            self._acks.fail(self.error(f"failed: {problem}"))
        self.watch.wake()

    def blame(self, failed: Mapping[str, str], detached: Mapping[str, dict[str, str]] | None = None) -> None:
        """Report failed pipelines and lost sinks to the hub; see `StreamFailures`."""
        self._host.report(StreamFailures(self.stream.name, failed, detached or {}))

    def _planner_pid(self) -> int | None:
        return self.watch.planner

    def _planned_names(self) -> list[str]:
        return [p.name for p in self._current_pipelines()]

    def _current_pipelines(self) -> tuple[PipelineDef, ...]:
        return self._plans.load(self._plans.current()).pipelines

    def _end_limiting(self) -> None:
        """End the thread that limits epochs, unless this is it."""
        if self._limiting is not None:
            thread, over = self._limiting
            over.set()
            if thread is not threading.current_thread():
                thread.join(STOP_SECONDS)

    def _limit_epochs(self, query: Query, over: threading.Event) -> None:
        """Abort the query when an epoch takes too long, or when its commit waits for a sink for which nobody waits.
        Ends with the query, or when it is `over`."""
        stuck, since = None, 0.0
        while not over.wait(LOOK_SECONDS):
            if self.supervisor.query is not query:
                return
            now = time.monotonic()
            if self.committer.stuck != stuck:
                stuck, since = self.committer.stuck, now
            try:
                if stuck is not None and now - since > STUCK_SECONDS and self._is_left_out(stuck):
                    self.supervisor.bounce()
                    return
                if self._aborted():
                    return
            except HeadraceError:  # a file of the state cannot be read now; the limit must not end with that
                continue

    def _is_left_out(self, instance: int) -> bool:
        """True if the stream goes on without an instance when its query is started again (`EpochCommitter.give_up`)."""
        if instance == STREAM_LANE:
            return False
        applied = read_applied(self.directory)
        out = set() if applied is None else read_quarantine(self.directory).reasons(applied.version).keys()
        return instance in out or instance not in self._host.declared_instances()

    def _aborted(self) -> bool:
        """Abort the query if the epoch in flight is too old. True if that was done."""
        if epoch_limit(self.settings, 0) is None:
            return False
        found = self.in_flight()
        if found is None:
            return False
        limit = epoch_limit(self.settings, len(self._current_pipelines()))
        if limit is None or found.age <= limit:
            return False
        stuck = self.committer.stuck
        self._too_old = None if stuck is None else TooOld(stuck, found.phase)
        late = letters_too_late if stuck == STREAM_LANE else too_long
        self.supervisor.abort(late(self.stream.name, found, limit).render())
        return True

    # --- epochs -----------------------------------------------------------------------------------

    def on_notice(self, notice: Notice) -> None:
        """Take a notice from the planning process."""
        self.watch.on_notice(notice)
        self.supervisor.well()
        if self.supervisor.state == "running":
            self.log.query("running", "", 0)

    def in_flight(self) -> InFlight | None:
        """The epoch that is being planned or run, if there is one."""
        if not self.supervisor.up:
            return None
        doing = self._committer.doing if self._committer is not None else ""
        return self.watch.in_flight(doing, self.settings.max_latency / 1e6)

    def readmit(self, pipelines: Sequence[PipelineDef]) -> None:
        """Commit these pipelines again, although they were stopped at once."""
        if self._committer is not None:
            self._committer.readmit(pipelines)

    @property
    def committer(self) -> EpochCommitter:
        """Commits the stream's epochs. One object for as long as the hub is open."""
        if self._committer is None:
            from headrace.spark.committer import EpochCommitter

            self._committer = EpochCommitter(
                self.directory,
                self.checkpoint_id(),
                self._plans,
                done=self._on_commit,
                known=self._host.declared_instances,
                probe_lived=self.supervisor.probe_lived,
                run_again=self.supervisor.run_again,
                reveal=self._host.gateway.reveal,
            )
        return self._committer

    def notes(self, pipeline: PipelineDef) -> dict[str, str]:
        """Problems of sinks that fail no epoch, such as a console that nobody reads."""
        return self._committer.notes(pipeline) if self._committer is not None else {}

    def checkpoint_id(self) -> str:
        """The id of the stream's checkpoint; see `headrace.state.checkpoint`."""
        return checkpoint_id(self.directory, self.stream.name)
