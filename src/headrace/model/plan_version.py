"""Plan versions: the pipelines of a stream at one moment, as tasks get them."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model.definitions import PipelineDef, StreamDef
from headrace.model.program import families
from headrace.model.schema import NESTED, View


@dataclass(frozen=True, slots=True)
class PipelineExit:
    """An instance that left the plan: its lanes get an eof, which emits what is open (`flush`) and forgets the state
    (`drop`) or keeps it for a later start. `number` is the end's own, from the counter of instances."""

    pipeline: PipelineDef
    flush: bool
    number: int = 0
    drop: bool = True

    @property
    def key(self) -> tuple[int, int]:
        """Tells one end of an instance from another: it may be started again and end again."""
        return self.pipeline.instance, self.number


@dataclass(frozen=True, slots=True)
class PlanVersion:
    """The pipelines of a stream at one moment. Immutable. With `ending` the finite source is over, and the first epoch
    of this version closes every window. If more input arrives, later epochs of this version are like any other.

    `left` are the instances that ended and whose eof may still be due: an epoch sends one to those in its plan's `left`
    and not in its predecessor's. Instances in `alone` are not aggregated with their family, while their cost is
    measured.
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
        if union.columns is None and parts:  # ALL has every column whole, and not the fields that others read
            union = View.some({*range(len(self.stream.schema)), *parts})
        event_time = self.stream.event_time
        return self.stream.closed(union if event_time is None else union | View.some([event_time]))
