"""Keeps the query of one stream up: starts it, stops it, and restarts it after a failure.

A failure that may pass is retried after growing waits (`headrace.stream.retries`). A failure that cannot pass, or that
returns too often without progress, leaves the query dead until a user starts it. A pipeline that kills the query is
found and left out (`headrace.stream.elimination`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

from headrace.base.durable import is_of_state, state_error
from headrace.errors import HeadraceError
from headrace.state.plans import PlanStore
from headrace.state.progress import read_progress
from headrace.stream.clock import Clock, SystemClock
from headrace.stream.elimination import Elimination
from headrace.stream.host import OnEnd, Query
from headrace.stream.retries import Retries, Retrying, RetryPolicy

QueryState = Literal["stopped", "running", "retrying", "dead"]


class SupervisedStream(Protocol):
    """A stream, as its supervisor sees it. No method is called under the supervisor's lock."""

    def launch_query(self, on_end: OnEnd) -> Query:
        """Start a query. It calls `on_end` in its own thread when it ends."""
        ...

    def blame(self, guilty: dict[str, str]) -> None:
        """These pipelines killed the query: reasons by `PipelineDef.run`."""
        ...

    def query_changed(self) -> None:
        """The query has changed its state."""
        ...


class QuerySupervisor:
    """Runs the query of one stream. Any thread may call. Two launches never overlap, and `stop` waits for one that is
    under way.

    - `query` is the query that runs now, if there is one.
    - `problem` is why the query is dead; None while it is not.
    - `retrying` is the retry that is under way, if there is one.
    """

    def __init__(
        self,
        directory: Path,
        plans: PlanStore,
        stream: SupervisedStream,
        clock: Clock | None = None,
        policy: RetryPolicy | None = None,
    ) -> None:
        self._directory, self._stream = directory, stream
        self._clock: Clock = clock or SystemClock()
        self.retries = Retries(policy or RetryPolicy())
        self._elimination = Elimination(directory, plans)
        self._lock = threading.RLock()
        self._launching = threading.RLock()
        # Counts starts and ends. A query that ends with an older number was stopped on purpose.
        self._generation = 0
        self._wanted = False
        self.query: Query | None = None
        self.problem: str | None = None
        self.retrying: Retrying | None = None
        self._cancel: Callable[[], None] | None = None  # cancels the timer of the next attempt
        self._aborted: tuple[int, str] | None = None  # the generation that was aborted, and why
        self._up_at = self._clock.monotonic()
        self._since = 0.0
        self._newest = ""  # the newest failure

    @property
    def started(self) -> bool:
        """True if the query was started and not stopped. It may be dead."""
        return self._wanted or self.query is not None

    @property
    def running(self) -> bool:
        """True if there is a query, or a failed one that will be started again."""
        return self.started and self.problem is None

    @property
    def state(self) -> QueryState:
        """The state of the query."""
        if not self.started:
            return "stopped"
        if self.problem is not None:
            return "dead"
        return "retrying" if self.retrying is not None else "running"

    @property
    def up(self) -> bool:
        """True if there is a query now. A dead one, or one that waits for its next attempt, is not up."""
        return self.running and self._cancel is None

    @property
    def since(self) -> float:
        """When the query entered this state, in seconds since 1970. For a retry, when it first failed."""
        retrying = self.retrying
        return self._since if retrying is None else retrying.since

    def start(self, patient: bool = False) -> bool:
        """Start the query unless it runs. True if it did not run. A failure to start is raised, or, with `patient`,
        retried like any failure of the query."""
        with self._lock:
            if self.running:
                return False
            before = self.problem
            self._wanted, self.problem, self.retrying = True, None, None
            self._elimination.reset()
            self.retries.reset()
            self._generation += 1
            self._since = self._clock.now()
            generation = self._generation
        try:
            self._elimination.clear_probe()
            self._start(generation)
        except Exception as problem:
            if patient:
                self._on_end(generation, _text(problem))
                return True
            with self._lock:
                if generation == self._generation:
                    self._generation += 1
                    self.query, self._wanted = None, before is not None
                    self.problem = None if before is None else _text(problem)
            raise
        return True

    def try_now(self) -> None:
        """Make the next attempt now, and count failures from zero."""
        with self._lock:
            self.retries.reset()
            if self.retrying is not None:
                self.retrying = replace(self.retrying, attempt=0)
            if self._cancel is None:
                return
            self._cancel()
            self._cancel = None
            self._generation += 1  # a timer that has already fired waits for the lock; this attempt replaces its own
            generation = self._generation
        self._try(generation)

    def fail(self, problem: str) -> None:
        """Mark the query as dead for this reason, until a user starts it."""
        with self._lock:
            self._wanted, self.problem, self.retrying = True, problem, None
            self._since = self._clock.now()
        self._stream.query_changed()

    def abort(self, problem: str) -> None:
        """End the query because of this problem, and handle it like any failure of the query."""
        with self._lock:
            if not self.running or self._cancel is not None:
                return
            generation, query = self._generation, self.query
            self._aborted = (generation, problem)
        if query is not None:
            query.stop()
        self._on_end(generation, problem)

    def bounce(self) -> None:
        """Restart the query, so that the epoch in flight runs again with the current quarantine list. Failures are
        counted from zero."""
        with self._lock:
            if not self.running:
                return
            self._drop_timer()
            self.retries.reset()
            if self.retrying is not None:
                self.retrying = replace(self.retrying, attempt=0)
            self._generation += 1
            generation = self._generation
        with self._launching:
            query, self.query = self.query, None
        if query is not None:
            query.stop()
        self._try(generation)

    def stop(self) -> None:
        """End the query at once. The next start runs an epoch in flight again."""
        with self._lock:
            self._generation += 1
            self._drop_timer()
            self._wanted = False
            self.problem = self.retrying = None
            self._elimination.abandon()
            self._since = self._clock.now()
        with self._launching:
            query, self.query = self.query, None
        if query is not None:
            query.stop()  # outside the locks: the thread of the query may be waiting for them

    def well(self) -> None:
        """The query works again, so the retry is over."""
        with self._lock:
            if self.retrying is not None and self._cancel is None:
                self.retrying = None
                self._since = self._clock.now()

    def probe_lived(self) -> None:
        """A probe ran to its end. Called before its query is made to end."""
        self._elimination.probe_lived()

    def run_again(self) -> None:
        """The epoch in flight ends its query on purpose, to run again with another input. Called before that."""
        self._elimination.run_again()

    def _drop_timer(self) -> None:
        if self._cancel is not None:
            self._cancel()
            self._cancel = None

    def _start(self, generation: int) -> None:
        """Launch the query of this generation, unless the generation is already over."""
        with self._launching:
            with self._lock:
                if generation != self._generation:
                    return
                self._up_at = self._clock.monotonic()
            query = self._stream.launch_query(partial(self._on_end, generation))
            with self._lock:
                if generation == self._generation:
                    self.query = query
                    return
        query.stop()

    def _try(self, generation: int) -> None:
        """Start the query again. Nothing above this call can catch an error, so an error counts as a failure."""
        with self._lock:
            if generation != self._generation:
                return
            self._cancel = None
        try:
            self._start(generation)
        except Exception as problem:
            self._on_end(generation, _text(problem))

    def _on_end(self, generation: int, problem: str | None) -> None:
        guilty: Mapping[str, str] = {}
        with self._lock:
            if generation != self._generation:  # stopped on purpose
                return
            self._generation += 1
            if self._aborted is not None and self._aborted[0] == generation:
                problem = self._aborted[1]
            self._newest = problem or "the query was stopped from outside headrace"
            try:
                again, guilty = self._after_failure(self._newest)
            except Exception as trouble:  # the state directory may be unusable
                again = self._count(_text(trouble))
            if again is None:
                self.problem, self.retrying = self._newest, None
                self._since = self._clock.now()
            elif again.next_try > self._clock.now():
                generation = self._generation
                self._cancel = self._clock.later(again.next_try - self._clock.now(), partial(self._try, generation))
            if again is not None:
                self.retrying = again if again.attempt else self.retrying
            now = again is not None and self._cancel is None
            generation = self._generation
        if guilty:
            self._stream.blame(dict(guilty))
        self._stream.query_changed()
        if now:
            self._try(generation)

    def _count(self, problem: str, at_once: bool = False) -> Retrying | None:
        """Count a failure. Returns the next attempt, or None to give up."""
        up = self._clock.monotonic() - self._up_at
        try:
            epoch = read_progress(self._directory).epoch
        except Exception as trouble:  # nothing can be committed without it
            problem, epoch = _text(trouble), -1
        self._newest = problem
        return self.retries.failed(problem, epoch=epoch, up=up, now=self._clock.now(), at_once=at_once)

    def _after_failure(self, problem: str) -> tuple[Retrying | None, Mapping[str, str]]:
        """The next attempt after a failure, or None to give up; and the pipelines that were found guilty of it."""
        step = self._elimination.after_failure(problem)
        if step.counted is None:
            return Retrying(0, 0.0, 0.0, problem), step.guilty
        return self._count(step.counted, step.at_once), step.guilty


def _text(problem: Exception) -> str:
    """A failure as a stream's status shows it."""
    if is_of_state(problem):
        problem = state_error(problem)
    return problem.render() if isinstance(problem, HeadraceError) else f"{type(problem).__name__}: {problem}"
