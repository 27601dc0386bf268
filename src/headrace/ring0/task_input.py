"""What a task is given, and all that it knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.control.signals import EPOCH, Barrier
from headrace.model.program import PipelineExit, PlanVersion
from headrace.sources.base import Split


@dataclass(frozen=True, slots=True)
class TaskInput:
    """All that a task knows. `watermark` is the stream's after the epoch before; `task` counts from 0 to `tasks` - 1;
    `now` is the clock in microseconds when the epoch was planned, None for no clock.

    `out` are instances of the plan version that are in quarantine and not in `plan` any more; while `probing`, nothing
    that this task does is committed. `end` is the offset at which the epoch ends, for the report.
    """

    plan: PlanVersion
    split: Split | None
    task: int
    tasks: int
    epoch: int
    checkpoint: str
    watermark: int | None
    leaving: tuple[PipelineExit, ...] = ()
    out: tuple[int, ...] = ()
    probing: bool = False
    now: int | None = None
    barrier: Barrier | None = None
    end: dict[str, Any] | None = None

    @property
    def cut(self) -> Barrier:
        """The barrier behind the epoch's rows: the one that it was cut for, or the epoch's own."""
        return self.barrier or Barrier(EPOCH.name, self.epoch)
