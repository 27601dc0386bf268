"""Keeps the query of one stream up: starts it, stops it, and starts it again when it has failed.

Any failure that may pass is retried with growing waits (`headrace.streams.retries`); what cannot pass, or comes back
too often without progress, leaves the query dead until somebody starts it.

A pipeline that fails is caught in its task. What kills the worker, or never ends, is not: Spark's query dies, and would
die again with the epoch that it has logged. Then the epoch is run once more, because the machine may have been to
blame; if it dies again, the guilty pipeline is found by elimination (`headrace.streams.culprit`), put on the quarantine
list, and the query goes on with the same epoch and all other pipelines. Nothing of a run that died, or that only looked
for the guilty one, is committed: the neighbours lose nothing and get nothing twice.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal, Protocol

from headrace.durable import is_of_state, state_error
from headrace.errors import EpochTimeout, HeadraceError, WorkerDied, kind_of
from headrace.streams.culprit import Search
from headrace.streams.plans import PlanStore
from headrace.streams.progress import Applied, read_applied, read_progress
from headrace.streams.quarantine import Quarantined, change_quarantine, read_quarantine
from headrace.streams.retries import Retries, Retrying, RetryPolicy

OnEnd = Callable[[str | None], None]
QueryState = Literal["stopped", "running", "retrying", "dead"]

# How Spark says that a worker, or the executor that it belonged to, is gone.
_DEATHS = re.compile(r"Python worker exited unexpectedly|ExecutorLostFailure")


def worker_died(problem: str) -> bool:
    """Whether a query's failure is the death of a process that ran pipelines."""
    return _DEATHS.search(problem) is not None


def _of_a_pipeline(problem: str) -> bool:
    """Whether one pipeline may be to blame for a query's failure."""
    return worker_died(problem) or kind_of(problem) is EpochTimeout


class Query(Protocol):
    """A running query, as the keeper sees it."""

    def stop(self) -> None:
        """End it, within a bounded time."""
        ...


class Clock(Protocol):
    """Time, and calls at a later time: tests have their own."""

    def now(self) -> float:
        """Seconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Seconds that never jump."""
        ...

    def later(self, seconds: float, act: Callable[[], None]) -> Callable[[], None]:
        """Call `act` after some time, in another thread. Returns a function that cancels it."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def later(self, seconds: float, act: Callable[[], None]) -> Callable[[], None]:
        timer = threading.Timer(seconds, act)
        timer.daemon = True
        timer.start()
        return timer.cancel


class QueryKeeper:
    """One stream's query. `launch` starts one, which calls the function it is given when it ends, in a thread of its
    own; `failed` gets the pipelines that killed workers, by `PipelineDef.run`; `changed` is called after the query's
    state has changed.

    Any thread may call. None of the three is called under the lock that guards the state; two launches never overlap,
    and `stop` waits for one that is under way.
    """

    def __init__(
        self,
        directory: Path,
        plans: PlanStore,
        launch: Callable[[OnEnd], Query],
        failed: Callable[[dict[str, str]], None],
        changed: Callable[[], None],
        clock: Clock | None = None,
        policy: RetryPolicy | None = None,
    ) -> None:
        self._directory, self._plans, self._launch = directory, plans, launch
        self._failed, self._changed = failed, changed
        self._clock: Clock = clock or SystemClock()
        self._retries = Retries(policy or RetryPolicy())
        self._lock = threading.RLock()
        self._launching = threading.RLock()
        self._life = 0  # a query that ends with another number was stopped on purpose
        self._wanted = False
        self.query: Query | None = None
        self.problem: str | None = None  # why it is dead
        self.retrying: Retrying | None = None
        self._cancel: Callable[[], None] | None = None
        self._aborted: tuple[int, str] | None = None
        self._up_at = self._clock.monotonic()
        self._since = 0.0
        self._newest = ""  # the newest failure
        self._retried: int | None = None
        self._search: Search | None = None
        self._charge = ""  # the failure that the search is about
        self._lived = False
        self._again = False

    @property
    def started(self) -> bool:
        """Whether there should be a query; it may be dead."""
        return self._wanted or self.query is not None

    @property
    def running(self) -> bool:
        """Whether there is a query that runs, or will be started again."""
        return self.started and self.problem is None

    @property
    def state(self) -> QueryState:
        """What the query does."""
        if not self.started:
            return "stopped"
        if self.problem is not None:
            return "dead"
        return "retrying" if self.retrying is not None else "running"

    @property
    def up(self) -> bool:
        """Whether there is a query now: none that is dead, or waits to be started again."""
        return self.running and self._cancel is None

    @property
    def since(self) -> float:
        """When it came into this state, in seconds since 1970; for one that is retried, when it first failed."""
        retrying = self.retrying
        return self._since if retrying is None else retrying.since

    def start(self, patient: bool = False) -> bool:
        """Start the query unless it runs; whether that was needed. A start that fails is raised, or, with `patient`,
        handled like any failure of the query."""
        with self._lock:
            if self.running:
                return False
            before = self.problem
            self._wanted, self.problem, self.retrying = True, None, None
            self._retried = self._search = None
            self._retries.reset()
            self._life += 1
            self._since = self._clock.now()
            life = self._life
        try:
            self._set_probe(None)
            self._start(life)
        except Exception as problem:
            if patient:
                self._on_end(life, _text(problem))
                return True
            with self._lock:
                if life == self._life:
                    self._life += 1
                    self.query, self._wanted = None, before is not None
                    self.problem = None if before is None else _text(problem)
            raise
        return True

    def try_now(self) -> None:
        """Do not wait for the next try, and count failures from the beginning."""
        with self._lock:
            self._retries.reset()
            if self.retrying is not None:
                self.retrying = replace(self.retrying, attempt=0)
            if self._cancel is None:
                return
            self._cancel()
            self._cancel = None
            self._life += 1  # a timer that has fired already waits for the lock: its try is this one
            life = self._life
        self._try(life)

    def fail(self, problem: str) -> None:
        """There can be no query for this reason: it is dead until somebody starts it."""
        with self._lock:
            self._wanted, self.problem, self.retrying = True, problem, None
            self._since = self._clock.now()
        self._changed()

    def abort(self, problem: str) -> None:
        """End the query because of this problem, and handle that like any failure of it."""
        with self._lock:
            if not self.running or self._cancel is not None:
                return
            life, query = self._life, self.query
            self._aborted = (life, problem)
        if query is not None:
            query.stop()
        self._on_end(life, problem)

    def bounce(self) -> None:
        """Stop the query and start it again: the epoch in flight is run again, with the quarantine list of now.
        Failures are counted from the beginning."""
        with self._lock:
            if not self.running:
                return
            self._drop_timer()
            self._retries.reset()
            if self.retrying is not None:
                self.retrying = replace(self.retrying, attempt=0)
            self._life += 1
            life = self._life
        with self._launching:
            query, self.query = self.query, None
        if query is not None:
            query.stop()
        self._try(life)

    def stop(self) -> None:
        """End the query at once; an epoch in flight will be run again by the next start."""
        with self._lock:
            self._life += 1
            self._drop_timer()
            self._wanted = False
            self.problem = self.retrying = self._search = None
            self._since = self._clock.now()
        with self._launching:
            query, self.query = self.query, None
        if query is not None:
            query.stop()  # outside of the locks: the query's thread may be waiting for them

    def well(self) -> None:
        """The query does something: it is not merely about to fail again."""
        with self._lock:
            if self.retrying is not None and self._cancel is None:
                self.retrying = None
                self._since = self._clock.now()

    def probe_lived(self) -> None:
        """An epoch that only looked for the guilty one came through. Called before its query is made to end."""
        self._lived = True

    def run_again(self) -> None:
        """The epoch in flight ends its query, to be run again with another input. Called before that happens."""
        self._again = True

    def _drop_timer(self) -> None:
        if self._cancel is not None:
            self._cancel()
            self._cancel = None

    def _start(self, life: int) -> None:
        """Launch the query of this life, unless it is over already."""
        with self._launching:
            with self._lock:
                if life != self._life:
                    return
                self._up_at = self._clock.monotonic()
            query = self._launch(lambda problem: self._on_end(life, problem))
            with self._lock:
                if life == self._life:
                    self.query = query
                    return
        query.stop()

    def _try(self, life: int) -> None:
        """Start the query again. There is nobody above this call: what goes wrong is another failure."""
        with self._lock:
            if life != self._life:
                return
            self._cancel = None
        try:
            self._start(life)
        except Exception as problem:
            self._on_end(life, _text(problem))

    def _on_end(self, life: int, problem: str | None) -> None:
        guilty: dict[str, str] = {}
        with self._lock:
            if life != self._life:  # stopped on purpose
                return
            self._life += 1
            if self._aborted is not None and self._aborted[0] == life:
                problem = self._aborted[1]
            self._newest = problem or "the query was stopped from outside of headrace"
            try:
                again, guilty = self._mend(self._newest)
            except Exception as trouble:  # the state directory may be unusable
                again = self._count(_text(trouble))
            if again is None:
                self.problem, self.retrying = self._newest, None
                self._since = self._clock.now()
            elif again.next_try > self._clock.now():
                life = self._life
                self._cancel = self._clock.later(again.next_try - self._clock.now(), lambda: self._try(life))
            if again is not None:
                self.retrying = again if again.attempt else self.retrying
            now = again is not None and self._cancel is None
            life = self._life
        if guilty:
            self._failed(guilty)
        self._changed()
        if now:
            self._try(life)

    def _count(self, problem: str, at_once: bool = False) -> Retrying | None:
        """One failure more: what to do about it."""
        up = self._clock.monotonic() - self._up_at
        try:
            epoch = read_progress(self._directory).epoch
        except Exception as trouble:  # without it nothing can be committed
            problem, epoch = _text(trouble), -1
        self._newest = problem
        return self._retries.failed(problem, epoch, up, self._clock.now(), at_once)

    def _mend(self, problem: str) -> tuple[Retrying | None, dict[str, str]]:
        """What to do about a failure, and the pipelines that were found guilty of it."""
        lived, self._lived = self._lived, False
        again, self._again = self._again, False
        if again:  # not a failure: a retry that is under way, or a search, goes on with it
            return Retrying(0, 0.0, 0.0, problem), {}
        applied = read_applied(self._directory) if lived or _of_a_pipeline(problem) else None
        if applied is None:  # a search, if there is one, goes on with the same probe
            return self._count(problem), {}
        if self._search is not None:
            if lived:
                self._search.lived()
            else:
                self._search.died()
            return self._look_on(problem, applied)
        if self._retried != applied.epoch:
            self._retried = applied.epoch
            return self._count(problem, at_once=True), {}
        plan = read_quarantine(self._directory).apply(self._plans.load(applied.version))
        self._charge = problem
        self._search = Search(list(dict.fromkeys([*(p.instance for p in plan.pipelines), *applied.leaving])))
        return self._look_on(problem, applied)

    def _look_on(self, problem: str, applied: Applied) -> tuple[Retrying | None, dict[str, str]]:
        assert self._search is not None
        probe, guilty, innocent = self._search.probe, self._search.guilty, self._search.innocent
        at_once = Retrying(0, 0.0, 0.0, problem)  # part of the search: no failure more
        if probe is not None:
            self._set_probe(probe)
            return at_once, {}
        self._search = self._retried = None
        self._set_probe(None)
        if innocent:
            return at_once, {}
        if guilty is None:  # it dies without any pipeline
            return self._count(self._charge), {}
        self._retried = applied.epoch
        reason = _reason(self._charge, applied.epoch)
        entry = Quarantined(guilty, reason, life=self._plans.load(applied.version).known[guilty].life)
        change_quarantine(self._directory, lambda found: replace(found, out=(*found.out, entry)))
        return at_once, {entry.run: reason}

    def _set_probe(self, probe: tuple[int, ...] | None) -> None:
        change_quarantine(self._directory, lambda found: replace(found, probe=probe))


def _text(problem: Exception) -> str:
    """A failure as a stream's status shows it."""
    if is_of_state(problem):
        problem = state_error(problem)
    return problem.render() if isinstance(problem, HeadraceError) else f"{type(problem).__name__}: {problem}"


def _reason(problem: str, epoch: int) -> str:
    """Why a pipeline that was found by elimination is stopped."""
    if kind_of(problem) is EpochTimeout:
        return EpochTimeout(
            f"epoch {epoch} does not end in time whenever this pipeline is in it",
            advice="Make it cheaper (a smaller result, fewer groups), or raise the stream's max_epoch_time; then start "
            "it again: it begins without state.",
            epoch=epoch,
        ).render()
    return WorkerDied(
        f"the Python worker dies whenever this pipeline runs in epoch {epoch}",
        advice="It may need more memory than there is, or have met a defect in native code. Make it smaller "
        "(fewer groups, shorter windows), then start it again: it begins without state.",
        epoch=epoch,
    ).render()
