"""The input of a task: all that it knows."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.bridge.reports import PlannedEpoch
from headrace.model.plan_version import PipelineExit, PlanVersion
from headrace.sources.source_kind import InputSplit


@dataclass(frozen=True, slots=True)
class TaskInput:
    """What one task gets. `plan` has no instance that is in quarantine. `split` is None for a task without input.
    `task` counts from 0 to `planned.tasks` - 1. The instances in `leaving` end in this epoch."""

    plan: PlanVersion
    split: InputSplit | None
    task: int
    planned: PlannedEpoch
    leaving: tuple[PipelineExit, ...] = ()
