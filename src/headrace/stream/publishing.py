"""Puts plan versions in force, so that no end is forgotten or told twice, whatever crashed in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from headrace.base.durable import private_directory, state_errors
from headrace.model.program import PipelineDef, PipelineExit, PlanVersion, StreamDef
from headrace.state.plans import PlanStore
from headrace.state.progress import read_progress
from headrace.state.quarantine import Quarantine, change_quarantine


def publish(
    plans: PlanStore,
    directory: Path,
    stream: StreamDef,
    pipelines: tuple[PipelineDef, ...],
    left: tuple[PipelineExit, ...],
    *,
    ending: bool,
    cancelled: tuple[PipelineExit, ...],
    planned: Callable[[], int],
    alone: frozenset[int],
) -> int:
    """Publish the next plan version of a stream; returns its number.

    `cancelled` ends are forgotten if the version that has them is newer than `planned`, which tells the newest that an
    epoch was planned with. Instances in `alone` share no pass.
    """
    current = plans.current()
    version = current + 1
    pending: tuple[PipelineExit, ...] = ()
    if current:
        old, carried = plans.load(current).left, _carried(plans, directory)
        # An eof that no committed epoch has carried yet must not be forgotten by skipping a version. One that was
        # carried is not kept: under steady change there is always a newer version than the committed one.
        pending = tuple(ended for ended in old if ended not in carried)
        # After a crash between publishing and saving, the catalog tells of ends that the plan knows already.
        left = tuple(ended for ended in left if ended not in old and ended not in carried)
        if current > planned():
            pending = tuple(ended for ended in pending if ended not in cancelled)
    with state_errors(directory):
        private_directory(directory)
    _let_out(directory, current, pipelines)
    own_pass = tuple(p.instance for p in pipelines if p.instance in alone)
    plans.publish(PlanVersion(version, stream, pipelines, ending, (*pending, *left), own_pass))
    return version


def _carried(plans: PlanStore, directory: Path) -> tuple[PipelineExit, ...]:
    """The ends that the newest committed epoch, or one before it, has carried."""
    committed = read_progress(directory).plan
    return plans.load(committed).left if committed else ()


def _let_out(directory: Path, current: int, pipelines: tuple[PipelineDef, ...]) -> None:
    """Those who killed a worker and are started again may run from the next plan version on; forget those that no
    epoch can name any more."""
    generations = {p.instance: p.generation for p in pipelines}
    committed = read_progress(directory).plan

    def change(old: Quarantine) -> Quarantine:
        new = old.without(
            {q.instance for q in old.out if generations.get(q.instance, q.generation) != q.generation}, current
        )
        return replace(new, out=tuple(q for q in new.out if q.until is None or q.until >= committed))

    change_quarantine(directory, change)
