"""Reconciles running streams with the catalog: one catalog, the runtimes of its streams, and what happens to them.

Whoever changes the catalog holds `lock`; nobody holds it while waiting for an epoch. Spark's streaming thread and the
notice thread never take it: they leave chores.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from headrace.chores import Chores
from headrace.control.acks import Ack
from headrace.control.signals import GRACEFUL_END
from headrace.durable import state_errors
from headrace.ending import DRAIN_SECONDS
from headrace.errors import (
    DiskFull,
    HeadraceError,
    HubClosed,
    StartTimeout,
    StateUnavailable,
    StopTimeout,
    StreamFailed,
    UnknownStream,
)
from headrace.exclusive import Exclusive
from headrace.ingress.service import GatewayService
from headrace.logs import code_of, facts
from headrace.program import PipelineDef, StreamDef
from headrace.published import Published, end_of, noting, weightiest
from headrace.reserve import Reserve
from headrace.runtime import StreamRuntime
from headrace.sources import keeps_progress
from headrace.streams import transitions
from headrace.streams.catalog import Catalog, CatalogFile
from headrace.streams.notices import NoticeBoard
from headrace.streams.progress import read_progress
from headrace.streams.quarantine import read_quarantine
from headrace.streams.state_dir import StateDir
from headrace.undo import take_back
from headrace.wholeness import require_whole

if TYPE_CHECKING:
    from headrace.spark.session import Engine

# How long a DROP or STOP NOW waits for the epoch in flight before that is given up, and run again without what left.
STUCK_SECONDS = 60.0
_log = logging.getLogger(__name__)


class Conductor:
    """The streams of one hub. `engine` gives the Spark session, `start_timeout` is how long a plan may take."""

    def __init__(
        self,
        state: StateDir,
        file: CatalogFile,
        catalog: Catalog,
        gateway: GatewayService,
        engine: Callable[[], Engine],
        start_timeout: float,
    ) -> None:
        self._state, self._file, self._gateway, self._engine = state, file, gateway, engine
        self.catalog, self.start_timeout = catalog, start_timeout
        self.closed = False
        self.lock = threading.RLock()
        self.exclusive = Exclusive(self.lock)
        self.runtimes: dict[str, StreamRuntime] = {}
        # By stream, who waits for which plan version to be planned. The inner ones never change: any thread may look.
        self._starting: dict[str, dict[str, int]] = {}
        self._damaged: dict[str, HeadraceError] = {}  # streams that could not be recovered when the hub was opened
        self.chores = Chores(self._chore_done)
        self.reserve = Reserve(state.path, self._later)
        self.board = NoticeBoard(self._on_notice)

    def go_on(self) -> None:
        """Go on with what ran when the state directory was last let go of. A stream that cannot go on is dead, with
        the reason; the others run."""
        self.reserve.keep()
        if any(self.catalog.running(stream) for stream in self.catalog.streams):
            self._engine()  # without it none can run: that is an error of whoever opens the hub
        for stream in self.catalog.streams:
            self._recover(stream)
        with self.lock:
            self.reserve.with_room(lambda: self._change(transitions.reopened(self.catalog)))
        for stream in set(self.catalog.streams) - self._damaged.keys():
            self._go_on_with(stream)

    def _go_on_with(self, stream: str) -> None:
        try:
            self.make_so({stream}, set(), patient=True)
        except HeadraceError as problem:
            self._give_up(stream, problem)

    def _recover(self, stream: str) -> HeadraceError | None:
        """Bring the catalog in line with what the stream's directory says: a crash may have kept a failure from it.
        What keeps that from being done makes the stream dead."""
        self._damaged.pop(stream, None)
        directory = self._state.stream(stream)
        try:
            require_whole(directory)
            progress = read_progress(directory)
            killers = {q.run: q.reason for q in read_quarantine(directory).out if q.until is None}
            self.drop_failed(stream, progress.failures | killers)
            self.detach(stream, progress.detached)
        except HeadraceError as problem:
            self._give_up(stream, problem)
            return problem
        return None

    def _give_up(self, stream: str, problem: HeadraceError) -> None:
        """The stream is dead until it is repaired and started, or dropped. What is wrong with the disk may pass."""
        with self.lock:
            if isinstance(problem, HubClosed):
                return
            self._damaged[stream] = problem
            if self.catalog.running(stream):
                self.runtime_of(stream).fail(problem.render())
            else:
                self.runtime_of(stream).trouble = problem.render()
        if isinstance(problem, DiskFull | StateUnavailable):
            self.chores.later(stream, lambda: self._come_back(stream))

    def _come_back(self, stream: str) -> None:
        if stream in self._damaged and not self.closed and self._recover(stream) is None:
            self._go_on_with(stream)

    def _later(self, act: Callable[[], None]) -> None:
        if not self.closed:
            self.chores.later("", act)

    def release(self) -> None:
        """End all queries at once, whatever fails on the way, and take no more bytes and chores."""
        with contextlib.ExitStack() as steps:  # the last first
            steps.callback(self.chores.close)
            steps.callback(self._gateway.stop)
            for runtime in self.runtimes.values():
                steps.callback(runtime.close)

    def runtime_of(self, name: str) -> StreamRuntime:
        """The running side of a stream. Raises UnknownStream. Under the lock."""
        found, stream = self.runtimes.get(name.lower()), self.catalog.stream(name)
        if found is not None and stream is not None:
            found.stream = stream  # its changeable options may be others
        if found is None:
            if stream is None:
                raise UnknownStream(f"there is no stream {name}", name=name)
            directory = self._state.stream(name.lower())
            found = StreamRuntime(
                stream,
                directory,
                self.board,
                self._engine,
                self.report_failures,
                self._instances,
                self._gateway,
            )
            self.runtimes[name.lower()] = found
        return found

    def started(self) -> list[StreamRuntime]:
        """The streams with a query, dead ones included: their failure must be told, not passed over."""
        with self.lock:
            return [r for r in self.runtimes.values() if r.started]

    def require_open(self) -> None:
        """Raise HubClosed if the hub is closed."""
        if self.closed:
            raise HubClosed("the hub is closed", advice="Open it again with headrace.connect(...).")

    # --- what is declared --------------------------------------------------------------------------

    def take_back(self, before: Catalog, after: Catalog, touched: set[str]) -> None:
        """Undo a script that changed the catalog from `before` to `after`, and plan the streams in `touched` without
        it."""
        with self.lock:
            self.exclusive.wait(touched | set(after.streams))
            if self.closed:
                return
            catalog = take_back(self.catalog, before, after)
            changed = {n for n in after.streams if not _goes_on(self.catalog.stream(n), catalog.stream(n))}
            cancelled = tuple(e for e in after.ended if e not in before.ended)
            self.reserve.with_room(lambda: self.forget(changed))
            self.reserve.with_room(lambda: self.save(catalog))
            for name in touched & set(catalog.streams):
                runtime, pipelines = self.runtime_of(name), catalog.running(name)
                try:
                    ended = catalog.ended_on(name)
                    self.reserve.with_room(partial(runtime.publish, pipelines, ended, cancelled=cancelled))
                    self.reserve.with_room(lambda name=name: self.save(self.catalog.without_ends(name)))  # type: ignore[misc]
                except HeadraceError as problem:  # what made the script fail is raised, and tells of the stream too
                    runtime.trouble = problem.render()
                if not pipelines:
                    runtime.stop()

    def save(self, catalog: Catalog) -> None:
        """Declare this, durably. Under the lock."""
        self._file.save(catalog)
        self.catalog = catalog

    def _change(self, catalog: Catalog) -> bool:
        """Save the catalog if it is another one; whether it is. Under the lock."""
        if catalog is self.catalog:
            return False
        self.save(catalog)
        return True

    def forget(self, streams: set[str]) -> None:
        """Remove streams with their pipelines, first from the catalog and then from the disk: a crash in between leaves
        directories that nobody names, never a new stream with an old one's progress."""
        runtimes = {name: self.runtime_of(name) for name in streams}
        if streams:
            self.save(transitions.without_streams(self.catalog, streams))
        for name, runtime in runtimes.items():
            runtime.forget()
            del self.runtimes[name]
            self._damaged.pop(name, None)

    # --- what runs ---------------------------------------------------------------------------------

    def make_so(
        self,
        streams: set[str],
        waits: set[str],
        graceful: Mapping[str, Sequence[PipelineDef]] = MappingProxyType({}),
        start: bool = True,
        *,
        now: Collection[str] = (),
        leaving: Collection[str] = (),
        revived: Collection[str] = (),
        patient: bool = False,
    ) -> None:
        """Bring each stream's query in line with the catalog, and wait for the new plan on those in `waits`. Pipelines
        in `graceful` end with a barrier: this returns when everything before it is in their sinks. Without `start`, a
        query that was stopped stays so. What goes wrong with one stream keeps no other from getting its plan.

        Streams in `now` end at once when nobody needs them. On those in `leaving` nothing is started: that they are
        damaged, or the disk is full, is no reason to fail. Those in `revived` are started again if they are dead. With
        `patient`, a query that cannot be started is tried again.
        """
        problems: list[Exception] = []
        published: list[Published] = []
        for name in sorted(streams):
            with noting(problems), state_errors(self._state.stream(name)):
                if name in self._damaged and not self._repaired(name, graceful.get(name, ()), start, leaving):
                    continue
                step = partial(
                    self._publish, name, graceful.get(name, ()), start, patient, name in revived, name in leaving
                )
                published += self.reserve.with_room(step) if name in leaving else step()
        for new in published:
            with noting(problems):
                self._follow(new, new.name in waits, new.name in now)
        if problems:
            raise weightiest(problems)

    def _repaired(self, name: str, ending: Sequence[PipelineDef], start: bool, leaving: Collection[str]) -> bool:
        """Whether a damaged stream can run again. If not, that is raised, unless nothing is to be started there."""
        problem = self._recover(name)
        if problem is None:
            return True
        if start and name not in leaving:
            raise problem
        self.stopped(ending, "its stream cannot run")
        self._rest_dead(name)
        return False

    def _rest_dead(self, name: str) -> None:
        """A dead stream that nobody needs is stopped: its failure concerns nobody any more."""
        with self.lock:
            if not self.catalog.running(name):
                self.runtime_of(name).stop()

    def _publish(
        self, name: str, ending: Sequence[PipelineDef], start: bool, patient: bool, revived: bool, leaving: bool
    ) -> list[Published]:
        """Publish a stream's plan and start its query if need be; nothing when there is nothing to wait for then. When
        pipelines are only `leaving`, a dead query stays so."""
        with self.lock:
            self.exclusive.wait({name})
            self.require_open()
            runtime, ack = self.runtime_of(name), None
            pipelines = self.catalog.running(name)
            ended = self.catalog.ended_on(name)
            if not pipelines and not ended and not runtime.running:
                self._rest_dead(name)
                return []
            if ending and runtime.running:  # before the plan: its first epoch is to carry the barrier
                ack = runtime.barrier(GRACEFUL_END, plan=runtime.plans.current() + 1)
            version = runtime.publish(pipelines, ended)
            dropped = tuple(left.pipeline for left in ended if left.drop and not left.flush)
            if leaving and runtime.state == "dead":
                runtime.leave_out(dropped, version - 1)  # whoever starts it again gets rid of them
                start = False
            if start and pipelines:
                self._change(transitions.going_on(self.catalog, name))
                known = self._starting.get(name, {})
                keys = transitions.starting(self.catalog, name)
                self._starting[name] = {key: known.get(key, version) for key in keys}
            if ended:
                self.save(self.catalog.without_ends(name))
            if pipelines and start:
                if revived:
                    runtime.revive()
                else:
                    runtime.start(patient)
            elif not runtime.running:
                self.stopped(ending, "its stream was not running")
                self._rest_dead(name)
                return []  # the eof waits in the plan for the stream's next epoch
            return [Published(name, runtime, version, bool(pipelines), ending, ack, dropped, leaving)]

    def _follow(self, new: Published, wait: bool, now: bool) -> None:
        """Wait until what was published is in force. With `now`, a query that nobody needs is stopped instead."""
        if now and not new.needed and new.ack is None:
            with self.lock:
                if not self.catalog.running(new.name):
                    new.runtime.stop()
            return
        if now and not wait:
            self.chores.later(new.name, lambda: self._unstick(new), STUCK_SECONDS)
        patience = DRAIN_SECONDS
        try:
            if wait or not new.needed:
                if self._came(new, wait):
                    self._planned(new.name, new.version)
                else:
                    patience = 0.0
            if new.ack is not None:
                self._await_end(new.name, new.ack, new.ending)
        except (StartTimeout, StopTimeout):
            if not new.needed:
                self._rest_later(new)
            raise
        if not new.needed:
            self._rest(new, patience)

    def _came(self, new: Published, wait: bool) -> bool:
        """Wait for the first epoch with what was published; whether it came. With `wait`, an epoch in flight that does
        not end, or fails again and again, is run again without the pipelines that were dropped: they may be to blame.
        If that does not help, they are gone all the same."""
        drops = wait and new.dropped and new.ack is None
        try:
            new.runtime.wait_planned(
                new.version, min(STUCK_SECONDS, self.start_timeout) if drops else self.start_timeout
            )
        except (StartTimeout, StreamFailed):
            if not drops:
                raise
            if not new.needed:
                return False
            self._unstick(new)
            try:
                new.runtime.wait_planned(new.version, self.start_timeout)
            except StreamFailed:
                if new.leaving:
                    return False
                raise
        return True

    def _unstick(self, new: Published) -> None:
        """Run the epoch in flight again without the pipelines that were dropped, unless it has ended meanwhile."""
        if new.dropped and not new.reached and new.runtime.running:
            new.runtime.run_again_without(new.dropped, new.version - 1)

    def _rest_later(self, new: Published) -> None:
        """Stop the query of a stream that nobody needs when it has come to the plan that says so."""
        if new.reached:
            self._rest(new)
        elif new.runtime.running:
            self.chores.later(new.name, lambda: self._rest_later(new))

    def _rest(self, new: Published, patience: float = DRAIN_SECONDS) -> None:
        """Stop the query of a stream that nobody needs."""
        runtime = new.runtime
        runtime.hold(patience)  # the last eof is committed before the query stops
        with self.lock:
            if self.closed or self.runtimes.get(new.name) is not runtime:
                return
            if self.catalog.running(new.name):  # somebody has joined meanwhile
                runtime.release()
            else:
                runtime.stop()

    def _await_end(self, stream: str, ack: Future[Ack], ending: Sequence[PipelineDef]) -> None:
        """Wait until all rows before a graceful end are in the sinks; the pipelines are stopped then, at the latest
        when the barrier comes through after all."""
        ack.add_done_callback(lambda done: self.chores.put(stream, lambda: self.stopped(ending, end_of(done))))
        try:
            ack.result(DRAIN_SECONDS)
        except TimeoutError:
            names = ", ".join(p.name for p in ending)
            raise StopTimeout(
                f"{names} did not come to an end in {DRAIN_SECONDS:g} s",
                advice="It ends when the epoch in flight is committed. STOP PIPELINE ... NOW does not wait for that.",
                names=names,
            ) from None
        self.stopped(ending, end_of(ack))

    # --- states -----------------------------------------------------------------------------------

    def _planned(self, stream: str, version: int) -> None:
        """An epoch with this plan version was planned: who waited for it runs."""
        with self.lock:
            waiting = self._starting.get(stream, {})
            now = {key for key, first in waiting.items() if first <= version}
            if now and not self.closed:
                self._change(transitions.planned(self.catalog, stream, now))
                self._starting[stream] = {key: first for key, first in waiting.items() if key not in now}

    def stopped(self, pipelines: Sequence[PipelineDef], reason: str) -> None:
        """These have come to their end."""
        with self.lock:
            if not self.closed:
                self._change(transitions.stopped(self.catalog, pipelines, reason))

    def finished(self, pipelines: Sequence[PipelineDef]) -> None:
        """The source of these has ended. Under the lock."""
        self._change(self.catalog.marked([p.instance for p in pipelines], "finished", "its source has ended"))

    # --- what happens -----------------------------------------------------------------------------

    def _on_notice(self, notice: dict[str, Any]) -> None:
        runtime = self.runtimes.get(str(notice.get("stream", "")).lower())
        if runtime is not None:
            runtime.on_notice(notice)
            name, plan = runtime.stream.name.lower(), int(notice.get("plan", 0))
            if any(first <= plan for first in self._starting.get(name, {}).values()):
                self.chores.put(name, lambda: self._planned(name, plan))

    def _instances(self) -> set[int]:
        """The instances that are declared. Called in Spark's streaming thread too: a catalog never changes."""
        return {record.definition.instance for record in self.catalog.pipelines.values()}

    def report_failures(self, stream: str, failures: dict[str, str], detached: dict[str, dict[str, str]]) -> None:
        """Called in Spark's streaming thread, which must not wait for the hub's lock. Both are by `PipelineDef.run`."""
        if detached:
            self.chores.put(stream, lambda: self.detach(stream, detached))
        if failures:
            self.chores.put(stream, lambda: self.drop_failed(stream, failures))
        if not failures and not detached:  # who is to be measured alone has changed
            self.chores.put(stream, lambda: self.make_so({stream.lower()}, set(), start=False))

    def _chore_done(self, stream: str, problem: Exception | None) -> None:
        runtime = self.runtimes.get(stream.lower())
        if runtime is not None:
            said = problem.render() if isinstance(problem, HeadraceError) else f"{type(problem).__name__}: {problem}"
            runtime.trouble = "" if problem is None else said

    def drop_failed(self, stream: str, failures: dict[str, str]) -> None:
        """The next plan version does without the pipelines that failed; their error is kept."""
        with self.lock:
            self.require_open()
            names = {p.run: p.name for p in self.catalog.running(stream)}
            if not self._change(transitions.failed(self.catalog, stream, failures)):
                return
        for run, reason in failures.items():
            name = names.get(run, run)
            noted = facts("pipeline_failed", code_of(reason), stream=stream, pipeline=name)
            _log.error("pipeline %s failed: %s", name, reason, extra=noted)
        self.make_so({stream.lower()}, set(), start=False)

    def detach(self, stream: str, detached: Mapping[str, dict[str, str]]) -> None:
        """The next plan version writes no longer to the sinks that failed; their pipelines go on with the others."""
        with self.lock:
            self.require_open()
            names = {p.run: p.name for p in self.catalog.running(stream)}
            if not self._change(transitions.detached(self.catalog, stream, detached)):
                return
        for run, sinks in detached.items():
            for sink, reason in sinks.items():
                name = names.get(run, run)
                noted = facts("sink_detached", code_of(reason), stream=stream, pipeline=name, sink=sink)
                _log.warning("pipeline %s goes on without sink %s: %s", name, sink, reason, extra=noted)
        self.make_so({stream.lower()}, set(), start=False)


def _goes_on(old: StreamDef | None, new: StreamDef | None) -> bool:
    """Whether a stream that is declared as `new` instead of `old` keeps what it has read."""
    return old is new or (old is not None and new is not None and keeps_progress(old, new))
