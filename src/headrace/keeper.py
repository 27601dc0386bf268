"""Keeps the query of one stream up: starts it, stops it, and mends it when a Python worker dies.

A pipeline that fails is caught in its task. What kills the worker is not: Spark's query dies, and would die again with
the epoch that it has logged. Then the epoch is run once more, because the machine may have been to blame; if it dies
again, the guilty pipeline is found by elimination (`headrace.streams.culprit`), put on the quarantine list, and the
query goes on with the same epoch and everybody else. Nothing of a run that died, or that only looked for the guilty
one, is committed: the neighbours lose nothing and get nothing twice.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from headrace.errors import WorkerDied
from headrace.streams.culprit import Search
from headrace.streams.plans import PlanStore
from headrace.streams.progress import Applied, read_applied
from headrace.streams.quarantine import Quarantined, change_quarantine, read_quarantine

OnEnd = Callable[[str | None], None]

# How Spark says that a worker, or the executor that it belonged to, is gone.
_DEATHS = re.compile(r"Python worker exited unexpectedly|ExecutorLostFailure")


def worker_died(problem: str) -> bool:
    """Whether a query's failure is the death of a process that ran pipelines."""
    return _DEATHS.search(problem) is not None


class Query(Protocol):
    """A running query, as the keeper sees it."""

    def stop(self) -> None:
        """End it, and wait for that; what it was started with is told of no end any more."""
        ...


class QueryKeeper:
    """One stream's query. `launch` starts one that tells its end to the function it is given, in a thread of its own;
    `failed` gets those that killed workers, by `PipelineDef.run`; `changed` is called after the query's state has
    changed.

    Any thread may call; `launch` runs under the keeper's lock, the other two outside of it.
    """

    def __init__(
        self,
        directory: Path,
        plans: PlanStore,
        launch: Callable[[OnEnd], Query],
        failed: Callable[[dict[str, str]], None],
        changed: Callable[[], None],
    ) -> None:
        self._directory, self._plans, self._launch = directory, plans, launch
        self._failed, self._changed = failed, changed
        self._lock = threading.RLock()
        self._life = 0  # tells the end of this query from that of one that was stopped
        self.query: Query | None = None
        self.problem: str | None = None
        self._retried: int | None = None
        self._search: Search | None = None
        self._lived = False
        self._again = False

    @property
    def running(self) -> bool:
        """Whether there is a query that runs, or is being mended."""
        return self.query is not None and self.problem is None

    def start(self) -> bool:
        """Start the query unless it runs; whether that was needed."""
        with self._lock:
            if self.running:
                return False
            self._set_probe(None)
            self.problem = self._retried = self._search = None
            self._relaunch()
            return True

    def stop(self) -> None:
        """End the query at once; an epoch in flight will be run again by the next start."""
        with self._lock:
            query, self.query = self.query, None
            self._life += 1
            self._search = None
        if query is not None:
            query.stop()  # outside of the lock: the query's thread may be waiting for it

    def probe_lived(self) -> None:
        """An epoch that only looked for the guilty one came through. Called before its query is made to end."""
        self._lived = True

    def run_again(self) -> None:
        """The epoch in flight ends its query, to be run again with another input. Called before that happens."""
        self._again = True

    def _relaunch(self) -> None:
        self._life += 1
        life = self._life
        self.query = self._launch(lambda problem: self._on_end(life, problem))

    def _on_end(self, life: int, problem: str | None) -> None:
        guilty: dict[str, str] = {}
        with self._lock:
            if life != self._life:  # stopped on purpose
                return
            try:
                guilty = self._mend(problem)
            except Exception as trouble:  # nobody is above this thread to hear of it
                self.problem = f"{type(trouble).__name__}: {trouble}"
        if guilty:
            self._failed(guilty)
        self._changed()

    def _mend(self, problem: str | None) -> dict[str, str]:
        """Let the query go on if that can be; who was found guilty, if anybody was."""
        lived, self._lived = self._lived, False
        again, self._again = self._again, False
        if again:  # not a failure: a retry that is under way, or a search, goes on with it
            self._relaunch()
            return {}
        applied = read_applied(self._directory)
        if problem is None or applied is None or not (lived or worker_died(problem)):
            self._set_probe(None)
            self.problem = problem or "it was stopped by somebody else"
        elif self._search is not None:
            if lived:
                self._search.lived()
            else:
                self._search.died()
            return self._look_on(problem, applied)
        elif self._retried != applied.epoch:
            self._retried = applied.epoch
            self._relaunch()
        else:
            plan = read_quarantine(self._directory).apply(self._plans.load(applied.version))
            self._search = Search(list(dict.fromkeys([*(p.instance for p in plan.pipelines), *applied.leaving])))
            return self._look_on(problem, applied)
        return {}

    def _look_on(self, problem: str, applied: Applied) -> dict[str, str]:
        assert self._search is not None
        probe, guilty = self._search.probe, self._search.guilty
        if probe is not None:
            self._set_probe(probe)
            self._relaunch()
            return {}
        self._search = None
        self._set_probe(None)
        if guilty is None:  # it dies without any pipeline
            self.problem = problem
            return {}
        reason = WorkerDied(
            f"the Python worker dies whenever this pipeline runs in epoch {applied.epoch}",
            advice="It may need more memory than there is, or have met a defect in native code. Make it smaller "
            "(fewer groups, shorter windows), then start it again: it begins anew.",
            epoch=applied.epoch,
        ).render()
        entry = Quarantined(guilty, reason, life=self._plans.load(applied.version).known[guilty].life)
        change_quarantine(self._directory, lambda found: replace(found, out=(*found.out, entry)))
        self._relaunch()
        return {entry.run: reason}

    def _set_probe(self, probe: tuple[int, ...] | None) -> None:
        change_quarantine(self._directory, lambda found: replace(found, probe=probe))
