"""Publishes the plan of a stream, waits until it is in force, and stops queries that no pipeline needs any more."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from headrace.base.background import BackgroundQueue
from headrace.control.acks import Ack
from headrace.control.signals import GRACEFUL_END
from headrace.errors import StartTimeout, StopTimeout, StreamFailed
from headrace.hub.declarations import Declarations
from headrace.hub.effects import StreamChange
from headrace.hub.reservations import StreamReservations
from headrace.hub.runtimes import Runtimes
from headrace.model.definitions import PipelineDef
from headrace.model.plan_version import PipelineExit
from headrace.state.catalog import Catalog
from headrace.stream.runtime import StreamRuntime

# How long a graceful end, a shutdown or a savepoint waits for the epochs in flight.
DRAIN_SECONDS = 60.0
# How long a DROP or STOP NOW waits for the epoch in flight. Then that epoch is given up and runs again without the
# pipelines that left.
STUCK_SECONDS = 60.0


@dataclass(frozen=True)
class PublishedPlan:
    """A plan version of a stream, and the change that it was published for.

    It is `needed` if it has a pipeline. The pipelines in `change.graceful` have ended when `ack` completes. The
    pipelines in `dropped` keep nothing, so an epoch that does not end may be given up to get rid of them.
    """

    change: StreamChange
    runtime: StreamRuntime
    version: int
    needed: bool
    ack: Future[Ack] | None
    dropped: tuple[PipelineDef, ...] = ()

    @property
    def stream(self) -> str:
        return self.change.stream

    @property
    def in_force(self) -> bool:
        """True if an epoch was planned with it and no pipeline is still ending."""
        return self.runtime.planned >= self.version and (self.ack is None or self.ack.done())


class Rollout:
    """Publishes plans and follows them. Never holds the hub's lock while it waits for an epoch.

    `start_timeout` is how many seconds the first epoch with a plan may take to be planned.
    """

    def __init__(
        self,
        declarations: Declarations,
        runtimes: Runtimes,
        reservations: StreamReservations,
        background: BackgroundQueue,
        *,
        start_timeout: float,
    ) -> None:
        self._declarations, self._runtimes, self._reservations = declarations, runtimes, reservations
        self._background, self._start_timeout = background, start_timeout

    def publish(self, change: StreamChange) -> list[PublishedPlan]:
        """Publish a stream's plan, and start its query if it must run. Returns an empty list if there is nothing to
        wait for."""
        name, declarations = change.stream, self._declarations
        with declarations.lock:
            self._reservations.wait({name})
            declarations.require_open()
            runtime, ack = self._runtimes.get(name), None
            pipelines, exits = declarations.catalog.running(name), declarations.catalog.ended_on(name)
            if not pipelines and not exits and not runtime.running:
                self._runtimes.stop_unneeded(runtime)
                return []
            if change.graceful and runtime.running:  # before the plan, whose first epoch must carry the barrier
                ack = runtime.barrier(GRACEFUL_END, plan=runtime.plans.current() + 1)
            version = runtime.publish(pipelines, exits)
            dropped = _dropped(exits, declarations.catalog)
            start = change.start and bool(pipelines)
            if change.only_leaves and runtime.state == "dead":  # it stays dead
                runtime.leave_out(dropped, version - 1)
                start = False
            if start:
                declarations.starting(name, version)
            if exits:
                declarations.exits_published(name)
            if start:
                runtime.revive() if change.revive else runtime.start(change.patient)
            elif not runtime.running:  # the exits wait in the plan for the stream's next epoch
                declarations.stopped(change.graceful, "its stream was not running")
                self._runtimes.stop_unneeded(runtime)
                return []
            return [PublishedPlan(change, runtime, version, needed=bool(pipelines), ack=ack, dropped=dropped)]

    def follow(self, plan: PublishedPlan) -> None:
        """Wait until a plan is in force, as far as its change asks for that. With pipelines that end now, a query that
        no pipeline needs is stopped instead."""
        quick, wait = bool(plan.change.quick), plan.change.wait
        if quick and not plan.needed and plan.ack is None:
            self._runtimes.stop_unneeded(plan.runtime)
            return
        if quick and not wait:
            self._background.later(plan.stream, partial(self._unstick, plan), STUCK_SECONDS)
        patience = DRAIN_SECONDS
        try:
            if wait or not plan.needed:
                if self._was_planned(plan):
                    self._declarations.planned(plan.stream, plan.version)
                else:
                    patience = 0.0
            if plan.ack is not None:
                self._await_end(plan, plan.ack)
        except (StartTimeout, StopTimeout):
            if not plan.needed:
                self._stop_when_in_force(plan)
            raise
        if not plan.needed:
            self._drain_and_stop(plan, patience)

    def _was_planned(self, plan: PublishedPlan) -> bool:
        """Wait for the first epoch with this plan. False if it cannot come, and that does not matter.

        An epoch in flight that does not end, or fails again and again, runs again without the pipelines that were
        dropped: they may be the cause. If that does not help, they are dropped anyway. That is done only for a
        change that cannot be rolled back: a pipeline that comes back needs its rows of this epoch.
        """
        drops = plan.change.only_leaves and plan.change.wait and plan.dropped and plan.ack is None
        limit = min(STUCK_SECONDS, self._start_timeout) if drops else self._start_timeout
        try:
            plan.runtime.wait_planned(plan.version, limit)
        except (StartTimeout, StreamFailed):
            if not drops:
                raise
            if not plan.needed:
                return False
            self._unstick(plan)
            try:
                plan.runtime.wait_planned(plan.version, self._start_timeout)
            except (StartTimeout, StreamFailed):
                return False
        return True

    def _unstick(self, plan: PublishedPlan) -> None:
        """Run the epoch in flight again without the dropped pipelines, unless it has ended meanwhile, or they are
        back because their script was rolled back."""
        with self._declarations.lock:
            running = {p.run for p in self._declarations.catalog.running(plan.stream)}
            dropped = [p for p in plan.dropped if p.run not in running]
            if not dropped or plan.in_force or not plan.runtime.running:
                return
            plan.runtime.leave_out(dropped, plan.version - 1)
        plan.runtime.run_again()

    def _await_end(self, plan: PublishedPlan, ack: Future[Ack]) -> None:
        """Wait until all rows before a graceful end are in the sinks. Then the pipelines are stopped. If that takes too
        long, they are marked as stopped when the barrier is acknowledged."""
        ack.add_done_callback(partial(self._ended_later, plan))
        try:
            ack.result(DRAIN_SECONDS)
        except TimeoutError:
            names = ", ".join(p.name for p in plan.change.graceful)
            raise StopTimeout(
                f"{names} did not end within {DRAIN_SECONDS:g} s",
                advice="It ends when the epoch in flight is committed. STOP PIPELINE ... NOW does not wait for that.",
                names=names,
            ) from None
        self._ended(plan, ack)

    def _ended_later(self, plan: PublishedPlan, ack: Future[Ack]) -> None:
        """Called by the thread that acknowledges the barrier, which must not wait for the hub's lock."""
        self._background.put(plan.stream, partial(self._ended, plan, ack))

    def _ended(self, plan: PublishedPlan, ack: Future[Ack]) -> None:
        problem = ack.exception()
        reason = (
            f"all rows before {ack.result().signal} are in its sinks"
            if problem is None
            else f"the stream ended first: {problem}"
        )
        self._declarations.stopped(plan.change.graceful, reason)

    # --- queries that no pipeline needs -----------------------------------------------------------

    def _stop_when_in_force(self, plan: PublishedPlan) -> None:
        if plan.in_force:
            self._drain_and_stop(plan)
        elif plan.runtime.running:
            self._background.later(plan.stream, partial(self._stop_when_in_force, plan))

    def _drain_and_stop(self, plan: PublishedPlan, patience: float = DRAIN_SECONDS) -> None:
        """Let the epoch in flight commit the exits of the last pipelines, then stop the query."""
        runtime = plan.runtime
        runtime.hold(patience)
        with self._declarations.lock:
            if self._declarations.closed or runtime.forgotten:
                return
            if self._declarations.catalog.running(plan.stream):  # a pipeline has joined meanwhile
                runtime.release()
            else:
                runtime.stop()


def _dropped(exits: Sequence[PipelineExit], catalog: Catalog) -> tuple[PipelineDef, ...]:
    """The pipelines that keep no state and whose rows no other pipeline needs. A pipeline that is replaced, on this
    stream or on another one, is not among them: its successor is not in the epoch in flight, so without it the rows of
    that epoch would be in neither."""

    def replaced(pipeline: PipelineDef) -> bool:
        now = catalog.pipeline(pipeline.name)
        return now is not None and now.definition.run != pipeline.run

    return tuple(e.pipeline for e in exits if e.drop and not e.flush and not replaced(e.pipeline))
