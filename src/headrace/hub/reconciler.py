"""Reconciles running streams with the catalog.

The reconciler owns the catalog and its lock, the engine, and the runtimes of all streams. A script goes through it in
two steps: `declare` saves the new catalog, and `carry_out` brings each stream in line with it. Failures take the same
path: a stream reports them, and the next plan version leaves the failed pipelines out.

Every change of the catalog holds the lock. No thread holds it while it waits for an epoch. Spark's streaming thread and
the notice thread never take it: they leave their work to the background queue.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

from headrace.base.background import BackgroundQueue
from headrace.base.durable import state_errors
from headrace.errors import DiskFull, HeadraceError, StateUnavailable, StopTimeout, UnknownStream
from headrace.hub.chains import connected, in_order
from headrace.hub.collected_problems import CollectedProblems
from headrace.hub.damage import DamagedStreams, stored_failures
from headrace.hub.declarations import Declarations
from headrace.hub.dedicated_pipelines import DedicatedPipelines
from headrace.hub.effects import DeclaredScript, ScriptEffects, StreamChange
from headrace.hub.failure_records import FailureRecords
from headrace.hub.launcher import QueryLauncher
from headrace.hub.reservations import StreamReservations
from headrace.hub.reserve import Reserve
from headrace.hub.rollout import PublishedPlan, Rollout
from headrace.hub.runtimes import Runtimes
from headrace.hub.saved_scripts import SavedScripts
from headrace.ingress.gateway_service import GatewayService
from headrace.model.definitions import PipelineDef
from headrace.sinks import DriverSink
from headrace.state import savepoints
from headrace.state.catalog import Catalog
from headrace.state.notices import EpochPlanned, Notice, NoticeBoard, PlanningPaused, SourceIdle
from headrace.state.plans import PlanStore
from headrace.state.sealing import seal_directory, seal_savepoints
from headrace.state.secrets import Vault
from headrace.state.state_dir import StateDir
from headrace.stream.dedicated_runtime import DedicatedRequest, DedicatedRun
from headrace.stream.dedicated_status import DedicatedState
from headrace.stream.host import Query, QueryRequest, StreamFailures
from headrace.stream.managed_query import ManagedQuery
from headrace.stream.runtime import StreamRuntime
from headrace.stream.waiting import QueryWaits


class Reconciler:
    """The streams of one hub, and everything that runs for them. Any thread may call.

    Streams see it as their `headrace.stream.host.StreamHost`. Opening it locks the state directory; `recover` starts
    what ran before, and `close` releases everything.
    """

    def __init__(self, directory: Path, launcher: QueryLauncher, start_timeout: float) -> None:
        self._state, self._launcher = StateDir.open(directory.absolute()), launcher
        try:
            file = seal_directory(self._state.path)
            seal_savepoints(self._state.path)
            with state_errors(self._state.path):
                self._state.sweep(file.catalog.streams)
            self.meaning = launcher.bind(self._state, file.catalog)
            self.vault: Vault = file.vault
            self.declarations = Declarations(file)
            self.gateway = GatewayService(self._state.path / "gateway.log", file.vault.reveal)
            self.board = NoticeBoard(self._on_notice)
        except BaseException:
            self._state.close()
            raise
        self.lock = self.declarations.lock
        self.reservations = StreamReservations(self.lock)
        self._runtimes = Runtimes(self.declarations, self._state, self)
        self._damaged = DamagedStreams(self.declarations, self._runtimes)
        self._failures = FailureRecords(self.declarations)
        self.dedicated = DedicatedPipelines(self.declarations, self.stream_directory, self)
        self._background = BackgroundQueue(self._runtimes.show_trouble)
        self.reserve = Reserve(self._state.path, self._background)
        self._rollout = Rollout(
            self.declarations, self._runtimes, self.reservations, self._background, start_timeout=start_timeout
        )
        self._scripts = SavedScripts(
            self._state,
            self.declarations,
            self._runtimes,
            self._damaged,
            dedicated=self.dedicated,
            reservations=self.reservations,
            reserve=self.reserve,
        )
        self._background.start()

    @property
    def directory(self) -> Path:
        """The state directory."""
        return self._state.path

    @property
    def catalog(self) -> Catalog:
        """The current catalog."""
        return self.declarations.catalog

    @property
    def closed(self) -> bool:
        return self.declarations.closed

    def close(self, callbacks: Sequence[Callable[[], None]] = ()) -> None:
        """End all queries, stop the engine, call `callbacks`, and release the state directory. A step that fails does
        not keep the others from running: a JVM that died must not keep the directory locked."""
        with self.lock, contextlib.ExitStack() as steps:  # the last step runs first
            self.declarations.close()
            steps.callback(self._state.close)
            for callback in callbacks:
                steps.callback(callback)
            steps.callback(self.board.close)
            steps.callback(self._launcher.stop)
            steps.callback(self._background.close)
            steps.callback(self.gateway.stop)
            for runtime in self._runtimes.all():
                steps.callback(runtime.close)
            steps.callback(self.dedicated.close)
        self._background.join(timeout=5)

    # --- the host of its streams ------------------------------------------------------------------

    def launch(self, request: QueryRequest) -> Query:
        """Start a query of a stream."""
        self.declarations.require_open()
        return self._launcher.launch(request)

    def launch_dedicated(self, request: DedicatedRequest) -> DedicatedRun:
        """Start the query of a pipeline on the dedicated host."""
        self.declarations.require_open()
        return self._launcher.launch_dedicated(request)

    def dedicated_failed(self, pipeline: PipelineDef, failure: str, detached: dict[str, str]) -> None:
        """The query of a pipeline on the dedicated host failed, or lost sinks."""
        failed = {pipeline.run: failure} if failure else {}
        lost = {pipeline.run: detached} if detached else {}
        self.report(StreamFailures(pipeline.program.stream, failed, lost))

    def reads_backlog(self, pipeline: PipelineDef) -> bool:
        """True if a stream of the pipeline reads a backlog, and not only for queries on the dedicated host."""
        for name in pipeline.streams:
            runtime = self._runtimes.known(name)
            if runtime is not None and runtime.reads_backlog:
                others = (r for r in self.catalog.of_stream(name) if r.desired == "running")
                if any(r.definition.program.dedicated is None for r in others):
                    return True
        return False

    def dedicated_sink(self, pipeline: PipelineDef, name: str) -> DriverSink | None:
        """A sink of a pipeline on the dedicated host; None for other pipelines."""
        found = self.dedicated.get(pipeline)
        return None if found is None else found.committer.sinks.of(pipeline, name)

    def drain_dedicated(self, stream: str, timeout: float) -> bool:
        """Wait until pipelines on the dedicated host have read the rows of a stream."""
        return self.dedicated.drain([stream], timeout)

    def dedicated_state(self, instance: int) -> DedicatedState:
        """What the query of a pipeline on the dedicated host does now."""
        known = self.dedicated.known(instance)
        return DedicatedState() if known is None else DedicatedState(known.trouble[1], known.batch_ms)

    def reveal(self, secret: str) -> str:
        """The value of a secret in a sink's options."""
        return self.vault.reveal(secret)

    def waits(self, query: ManagedQuery, plans: PlanStore) -> QueryWaits:
        """Waits for a query of a stream."""
        return self._launcher.waits(query, plans)

    def declared_instances(self) -> set[int]:
        """The pipeline instances in the catalog, and those that come back if a script is rolled back."""
        return self._scripts.declared_instances()

    def report(self, failures: StreamFailures) -> None:
        """Drop failed pipelines and lost sinks from the next plan version. Called in Spark's streaming thread, which
        must not wait for the lock."""
        name = failures.stream
        if failures.detached:
            self._background.put(name, partial(self._detach, failures))
        if failures.failed:
            self._background.put(name, partial(self.drop_failed, failures))
        if not failures.failed and not failures.detached:
            self._background.put(name, partial(self._replan, name))

    def drop_failed(self, failures: StreamFailures) -> None:
        """Drop failed pipelines from the next plan version. Their error is kept."""
        if self._failures.failed(failures):
            self._replan(*self._streams_of(failures))

    def _streams_of(self, failures: StreamFailures) -> list[str]:
        """The streams whose plans the failed pipelines are in: the one that reports, and those that a join reads."""
        known = [r.definition for r in self.catalog.of_stream(failures.stream) if r.definition.run in failures.failed]
        return list(dict.fromkeys([failures.stream.lower(), *(s.lower() for d in known for s in d.streams)]))

    def _detach(self, failures: StreamFailures) -> None:
        if self._failures.detached(failures):
            self._replan(failures.stream)

    def _replan(self, *streams: str) -> None:
        self.reconcile([StreamChange(stream.lower(), start=False) for stream in streams])

    def _on_notice(self, notice: Notice) -> None:
        runtime = self._runtimes.known(notice.stream)
        if runtime is None:
            return
        runtime.on_notice(notice)
        name = runtime.stream.name.lower()
        if isinstance(notice, EpochPlanned | SourceIdle | PlanningPaused) and self.declarations.awaits(
            name, notice.plan
        ):
            self._background.put(name, partial(self.declarations.planned, name, notice.plan))

    # --- runtimes ---------------------------------------------------------------------------------

    def runtime(self, name: str) -> StreamRuntime:
        """The runtime of a declared stream. Raises UnknownStream."""
        return self._runtimes.get(name)

    def stream_directory(self, name: str) -> Path:
        """Where a stream of this name keeps its state."""
        return self._state.stream(name.lower())

    def started(self) -> list[StreamRuntime]:
        """The streams whose query was started and not stopped, dead ones included. A stream that a pipeline feeds comes
        after the one that the pipeline reads."""
        found = {runtime.stream.name: runtime for runtime in self._runtimes.started()}
        return [found[name] for name in in_order(self.catalog, list(found))]

    # --- recovery ---------------------------------------------------------------------------------

    def recover(self) -> None:
        """Continue everything that ran when the state directory was last closed. A stream that cannot continue is dead,
        with the reason; the others run."""
        self.reserve.keep()
        if any(self.catalog.running(stream) for stream in self.catalog.streams):
            self._launcher.ready()  # without Spark no stream can run, so that is an error of opening the hub
        for stream in self.catalog.streams:
            self._read_failures(stream)
        self.dedicated.sweep()
        self.reserve.with_room(self.declarations.reopened)
        with state_errors(self._state.path):
            self._scripts.make_feeds()
        for stream in set(self.catalog.streams) - self._damaged.names():
            self._continue(stream)

    def _continue(self, stream: str) -> None:
        try:
            self.reconcile([StreamChange(stream, patient=True)])
        except HeadraceError as problem:
            self._give_up(stream, problem)

    def _read_failures(self, stream: str) -> HeadraceError | None:
        """Add failures from the stream's directory that a crash kept from the catalog. Returns what makes the stream
        unusable, if anything does; then it is dead."""
        self._damaged.clear([stream])
        try:
            found = stored_failures(stream, self._state.stream(stream))
            self.drop_failed(found)
            self._detach(found)
        except HeadraceError as problem:
            self._give_up(stream, problem)
            return problem
        return None

    def _give_up(self, stream: str, problem: HeadraceError) -> None:
        """Mark a stream as dead. Problems with the disk may pass, so those are tried again."""
        if self._damaged.give_up(stream, problem) and isinstance(problem, DiskFull | StateUnavailable):
            self._background.later(stream, partial(self._try_again, stream))

    def _try_again(self, stream: str) -> None:
        if stream in self._damaged and not self.closed and self._read_failures(stream) is None:
            self._continue(stream)

    # --- scripts ----------------------------------------------------------------------------------

    def declare(self, effects: ScriptEffects) -> DeclaredScript:
        """Save what a script declares. Under the lock, since the draft of the script was made. Starts Spark first:
        without it, the script has no effect."""
        with state_errors(self._state.path):
            if any(effects.catalog.running(change.stream) for change in effects.changes):
                self._launcher.ready()
            return self._scripts.save(effects)

    def carry_out(self, script: DeclaredScript) -> list[str]:
        """Bring the streams of a script in line with it. Returns warnings about rows that sinks of dropped pipelines
        may lack. If it fails, roll the script back and raise. A StopTimeout rolls nothing back: the stop is declared,
        and happens when the epoch in flight ends."""
        with self._scripts.pending(script):
            try:
                warnings = self.reconcile(script.changes)
            except StopTimeout:
                self.declarations.stopped(script.quick, "it was stopped at once")
                raise
            except HeadraceError:
                self._scripts.roll_back(script)
                if not self.closed:
                    with contextlib.suppress(HeadraceError):  # the failure of the script is raised
                        self.dedicated.align()
                raise
        self.declarations.stopped(script.quick, "it was stopped at once")
        return [*script.warnings, *warnings]

    # --- reconciling ------------------------------------------------------------------------------

    def reconcile(self, changes: Collection[StreamChange]) -> list[str]:
        """Bring the query of each stream in line with the catalog, and wait as each change asks for. Returns warnings
        about rows that sinks of dropped pipelines may lack. The problems are raised at the end.

        What is most likely to fail comes first: queries that must be started, then other changes, and last streams
        that pipelines only leave. After a problem for which a script is rolled back, the rest is not touched, so its
        pipelines miss nothing. Any other problem does not keep the other streams from their plans.
        """
        if not changes:  # a script that only asks waits for nothing
            return []
        problems, warnings = CollectedProblems(), list[str]()
        with problems.collecting(), state_errors(self._state.path):
            self.dedicated.prepare()
        phases: dict[int, list[StreamChange]] = {0: [], 1: [], 2: []}
        for change in sorted(changes, key=lambda c: c.stream):
            phases[self._phase(change)].append(change)
        for phase in phases.values():
            if not problems.roll_back:
                self._reconcile_phase(phase, problems)
        if not problems.roll_back:
            with problems.collecting():
                warnings = self.dedicated.align()
        problems.raise_first()
        return warnings

    def _phase(self, change: StreamChange) -> int:
        if change.only_leaves:
            return 2
        known = self._runtimes.known(change.stream)
        return 0 if change.revive or known is None or not known.running else 1

    def _reconcile_phase(self, changes: Collection[StreamChange], problems: CollectedProblems) -> None:
        """Publish the plans of some streams, then wait for them. Adds what goes wrong to `problems`."""
        published: list[PublishedPlan] = []
        for change in changes:
            with problems.collecting(), state_errors(self._state.stream(change.stream)):
                self._end_quickly(change)
                if change.stream not in self._damaged or self._repaired(change):
                    publish = partial(self._rollout.publish, change)
                    published += self.reserve.with_room(publish, needed=change.only_leaves)
        for plan in published:
            if not problems.roll_back:
                with problems.collecting():
                    self._rollout.follow(plan)

    def _end_quickly(self, change: StreamChange) -> None:
        """Commit nothing more of the pipelines that end now."""
        if change.quick and self.runtime(change.stream).running:
            self.reserve.with_room(partial(self.runtime(change.stream).quick_end, change.quick))

    def _repaired(self, change: StreamChange) -> bool:
        """True if a damaged stream can run again. If not, the problem is raised, unless nothing is to be started."""
        problem = self._read_failures(change.stream)
        if problem is None:
            return True
        if change.start and not change.only_leaves:
            raise problem
        self.declarations.stopped(change.graceful, "its stream cannot run")
        self._runtimes.stop_unneeded(self.runtime(change.stream))
        return False

    # --- savepoints -------------------------------------------------------------------------------

    def savepoint(self, target: Path, stream: str | None, timeout: float) -> Path:
        """Copy a stream, or all of them, to `target` at a barrier. Scripts about these streams wait until then."""
        with contextlib.ExitStack() as reserved:
            with self.lock:
                streams = self._to_copy(stream)
                while not self.reservations.is_free(streams):
                    if not self.reservations.wait(streams, timeout):
                        raise savepoints.too_late(streams, timeout)
                    streams = self._to_copy(stream)
                reserved.enter_context(self.reservations.reserve(streams))
                self.dedicated.require_whole(streams)
            reserved.enter_context(self.dedicated.paused(streams))
            return savepoints.take(
                target, streams, catalog=self.declarations.current, timeout=timeout, vault=self.vault
            )

    def _to_copy(self, stream: str | None) -> dict[str, StreamRuntime]:
        self.declarations.require_open()
        # A stream and the streams derived from it are saved together, with the rows between them.
        chain = set() if stream is None else connected(self.catalog, stream)
        names = sorted(chain if stream is not None else {*self.catalog.streams} - {*self.catalog.looks})
        if not names:
            raise UnknownStream("there is no stream to take a savepoint of", advice="Create one first.")
        return {name: self.runtime(name) for name in names}
