"""Publishes plan versions. Each exit of a pipeline reaches its lanes exactly once, whatever crashes in between."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from headrace.base.durable import private_directory, state_errors
from headrace.model.definitions import PipelineDef, StreamDef
from headrace.model.plan_version import PipelineExit, PlanVersion
from headrace.state.plans import PlanStore
from headrace.state.progress import read_progress
from headrace.state.quarantine import Quarantine, change_quarantine
from headrace.stream.history import History
from headrace.stream.planner_watch import PlannerWatch


class PlanPublisher:
    """Publishes the plan versions of one stream. Call it under the hub's lock.

    `watch` knows the newest version that an epoch was planned with. `history` knows which pipelines must be measured
    alone and therefore share no pass.
    """

    def __init__(self, directory: Path, plans: PlanStore, watch: PlannerWatch, history: History) -> None:
        self._directory, self._plans, self._watch, self._history = directory, plans, watch, history

    def publish(
        self,
        stream: StreamDef,
        pipelines: tuple[PipelineDef, ...],
        exits: tuple[PipelineExit, ...],
        *,
        ending: bool,
        cancelled: tuple[PipelineExit, ...],
    ) -> int:
        """Publish the next plan version and return its number. Exits in `cancelled` are withdrawn, unless an epoch was
        already planned with the version that has them."""
        current = self._plans.current()
        pending: tuple[PipelineExit, ...] = ()
        if current:
            old, carried = self._plans.load(current).left, self._carried()
            # Publishing may skip a version that no epoch was planned with, so exits that no committed epoch has carried
            # are copied. Exits that were carried are not: under steady change there is always a newer version than the
            # committed one, and the list would grow forever.
            pending = tuple(e for e in old if e not in carried)
            # After a crash between publishing and saving, the catalog still has exits that the plan already has.
            exits = tuple(e for e in exits if e not in old and e not in carried)
            if current > self._watch.planned:
                pending = tuple(e for e in pending if e not in cancelled)
        with state_errors(self._directory):
            private_directory(self._directory)
        self._update_quarantine(current, pipelines)
        alone = tuple(p.instance for p in pipelines if p.instance in self._history.alone)
        version = PlanVersion(
            version=current + 1,
            stream=stream,
            pipelines=pipelines,
            ending=ending,
            left=(*pending, *exits),
            alone=alone,
        )
        self._plans.publish(version)
        return version.version

    def _carried(self) -> tuple[PipelineExit, ...]:
        """The exits that the newest committed epoch, or one before it, has carried."""
        committed = read_progress(self._directory).plan
        return self._plans.load(committed).left if committed else ()

    def _update_quarantine(self, current: int, pipelines: tuple[PipelineDef, ...]) -> None:
        """Let pipelines that killed a worker and were started again run from the next version on. Remove entries that
        no epoch can refer to any more."""
        generations = {p.instance: p.generation for p in pipelines}
        committed = read_progress(self._directory).plan

        def change(old: Quarantine) -> Quarantine:
            out = (q for q in old.out if q.until is None)  # the others have an end already, maybe from an older start
            restarted = {q.instance for q in out if generations.get(q.instance, q.generation) != q.generation}
            new = old.without(restarted, current)
            return replace(new, out=tuple(q for q in new.out if q.until is None or q.until >= committed))

        change_quarantine(self._directory, change)
