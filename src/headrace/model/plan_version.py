"""Plan versions: the pipelines of a stream at one moment, as tasks get them."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model.definitions import PipelineDef, StreamDef
from headrace.model.program import families
from headrace.model.schema import NESTED, View


@dataclass(frozen=True, slots=True)
class PipelineExit:
    """An instance that left the plan. Its lanes get an end message: with `flush` they emit open windows. With `drop`
    they delete the state, else they keep it for a later start. `number` identifies this exit; it comes from the counter
    of instances."""

    pipeline: PipelineDef
    flush: bool
    number: int = 0
    drop: bool = True

    @property
    def key(self) -> tuple[int, int]:
        """Identifies this exit. An instance can be started again, and exit again."""
        return self.pipeline.instance, self.number


@dataclass(frozen=True, slots=True)
class PlanVersion:
    """The pipelines of a stream at one moment. Immutable. With `ending` the finite source is over, and the first epoch
    of this version closes every window. If more input arrives, later epochs of this version are like any other.

    `left` are instances that ended and may still need their end message: an epoch sends one to each instance that is in
    `left` of its plan and was not in `left` of the plan before. Instances in `alone` are aggregated apart from their
    family, so that their cost can be measured.
    """

    version: int
    stream: StreamDef
    pipelines: tuple[PipelineDef, ...]
    ending: bool = False
    left: tuple[PipelineExit, ...] = ()
    alone: tuple[int, ...] = ()

    @property
    def known(self) -> dict[int, PipelineDef]:
        """Every pipeline that an epoch may concern, by instance: those that left and those that run."""
        return {left.pipeline.instance: left.pipeline for left in self.left} | {p.instance: p for p in self.pipelines}

    @property
    def families(self) -> list[tuple[int, ...]]:
        """The instances that share a pass under this plan version, family by family."""
        return families({p.instance: p.program for p in self.pipelines if p.instance not in self.alone})

    @property
    def view(self) -> View:
        """The columns that any pipeline needs, and always the event time. Also those that computed columns read."""
        union = View.union(p.program.view for p in self.pipelines)
        parts = {c for p in self.pipelines for c in p.program.view.columns or () if c >= NESTED}
        if union.columns is None and parts:  # View.all() has no fields of STRUCT columns
            union = View.some({*range(len(self.stream.schema)), *parts})
        event_time = self.stream.event_time
        return self.stream.closed(union if event_time is None else union | View.some([event_time]))
