"""Finds the pipeline that kills the query of a stream, and puts it on the quarantine list.

A pipeline that raises is caught in its task. One that kills its worker, or never ends, is not: Spark's query dies, and
dies again with the epoch that it has logged. That epoch runs once more, because the machine may be at fault. If it dies
again, the guilty pipeline is found by elimination (`headrace.stream.culprit`): the epoch runs with fewer and fewer
pipelines. The guilty one is left out, and the query goes on with the same epoch and all other pipelines. Nothing of a
run that died or that only probed is committed, so the other pipelines lose nothing and get nothing twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from headrace.errors import EpochTimeout, WorkerDied, kind_of
from headrace.state.plans import PlanStore
from headrace.state.progress import Applied, read_applied
from headrace.state.quarantine import Quarantined, change_quarantine, read_quarantine
from headrace.stream.culprit import Search
from headrace.stream.inflight import planning_took_too_long

# Spark's words for a lost worker, or a lost executor with its workers.
_DEATHS = re.compile(r"Python worker exited unexpectedly|ExecutorLostFailure")


def worker_died(problem: str) -> bool:
    """True if the query failed because a process that ran pipelines died."""
    return _DEATHS.search(problem) is not None


def _may_be_a_pipeline(problem: str) -> bool:
    return worker_died(problem) or (kind_of(problem) is EpochTimeout and not planning_took_too_long(problem))


@dataclass(frozen=True, slots=True)
class NextStep:
    """What to do after a failure. `counted` is the failure to count as an attempt; None if it is part of a search. With
    `at_once` the next attempt does not wait. `guilty` are the pipelines that were found, by `PipelineDef.run`."""

    counted: str | None
    at_once: bool = True
    guilty: Mapping[str, str] = field(default_factory=dict)


class Elimination:
    """The search for the pipeline that kills one stream's query. One caller at a time, but any thread may call
    `probe_lived` and `run_again`."""

    def __init__(self, directory: Path, plans: PlanStore) -> None:
        self._directory, self._plans = directory, plans
        self._search: Search | None = None
        self._charge = ""  # the failure that started the search
        self._retried: int | None = None  # the epoch that ran once more before a search
        self._lived = self._again = False

    def reset(self) -> None:
        """Forget all earlier failures."""
        self._retried = self._search = None

    def abandon(self) -> None:
        """End the search without a result."""
        self._search = None

    def clear_probe(self) -> None:
        """Let all pipelines run again, after a search that was not finished."""
        self._set_probe(None)

    def probe_lived(self) -> None:
        """A probe ran to its end. Called before its query is made to end."""
        self._lived = True

    def run_again(self) -> None:
        """The epoch in flight ends its query on purpose, to run again with another input. Called before that."""
        self._again = True

    def after_failure(self, problem: str) -> NextStep:
        """The next step after the query ended with this problem."""
        lived, self._lived = self._lived, False
        again, self._again = self._again, False
        if again:  # not a failure: a retry or a search that is under way continues
            return NextStep(None)
        applied = read_applied(self._directory) if lived or _may_be_a_pipeline(problem) else None
        if applied is None:  # a search that is under way continues with the same probe
            return NextStep(problem, at_once=False)
        if self._search is not None:
            if lived:
                self._search.lived()
            else:
                self._search.died()
            return self._continue(applied)
        if self._retried != applied.epoch:
            self._retried = applied.epoch
            return NextStep(problem)
        plan = read_quarantine(self._directory).apply(self._plans.load(applied.version))
        self._charge = problem
        self._search = Search(list(dict.fromkeys([*(p.instance for p in plan.pipelines), *applied.leaving])))
        return self._continue(applied)

    def _continue(self, applied: Applied) -> NextStep:
        """Run the next probe, or end the search."""
        assert self._search is not None
        probe, guilty, innocent = self._search.probe, self._search.guilty, self._search.innocent
        if probe is not None:
            self._set_probe(probe)
            return NextStep(None)
        self._search = self._retried = None
        self._set_probe(None)
        if innocent:
            return NextStep(None)
        if guilty is None:  # the epoch dies without any pipeline
            return NextStep(self._charge, at_once=False)
        self._retried = applied.epoch
        reason = _reason(self._charge, applied.epoch)
        generation = self._plans.load(applied.version).known[guilty].generation
        entry = Quarantined(guilty, reason, generation=generation)
        change_quarantine(self._directory, lambda found: replace(found, out=(*found.out, entry)))
        return NextStep(None, guilty={entry.run: reason})

    def _set_probe(self, probe: tuple[int, ...] | None) -> None:
        change_quarantine(self._directory, lambda found: replace(found, probe=probe))


def _reason(problem: str, epoch: int) -> str:
    """Why a pipeline that was found by elimination is stopped."""
    if kind_of(problem) is EpochTimeout:
        return EpochTimeout(
            f"epoch {epoch} does not end in time whenever this pipeline is in it",
            advice="Make it cheaper (a smaller result, fewer groups), or raise the stream's max_epoch_time. Then start "
            "it again: it begins without state.",
            epoch=epoch,
        ).render()
    return WorkerDied(
        f"the Python worker dies whenever this pipeline runs in epoch {epoch}",
        advice="It may need more memory than there is, or trigger a defect in native code. Make it smaller "
        "(fewer groups, shorter windows), then start it again: it begins without state.",
        epoch=epoch,
    ).render()
