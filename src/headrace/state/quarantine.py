"""Pipelines that kill the Python worker they run in: who is left out of epochs that are already planned.

What kills a worker (out of memory, a crash in native code) cannot be caught there, and Spark would run the logged epoch
with the logged plan again and again. So this list stands outside the plan versions: the hub writes it, and the planning
process applies it whenever it hands out a plan (DESIGN section 6).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.model.codec import stored_as
from headrace.model.program import PipelineDef, PlanVersion
from headrace.model.stored import store, stored


@dataclass(frozen=True, slots=True)
class Quarantined:
    """An instance that is left out of every epoch, or only of those with plan versions up to `until`: later ones were
    made when it had been started again. With `ended` it did nothing wrong: it was stopped at once, or dropped, and what
    an epoch in flight would bring of it is not wanted, also when that epoch is run again after a crash."""

    instance: int
    reason: str
    until: int | None = None
    generation: int = stored_as("life", default=0)
    ended: bool = False

    @property
    def run(self) -> str:
        """As `PipelineDef.run`."""
        return f"{self.instance}/{self.generation}"


@dataclass(frozen=True, slots=True)
class Quarantine:
    """`out` are left out. With a `probe` only the instances in it run, and nothing is committed: somebody is guilty and
    is being looked for."""

    out: tuple[Quarantined, ...] = ()
    probe: tuple[int, ...] | None = None

    def reasons(self, version: int) -> dict[int, str]:
        """Who is left out of epochs with this plan version, and why."""
        return {q.instance: q.reason for q in self.out if q.until is None or version <= q.until}

    def ended(self, version: int) -> set[str]:
        """Who was stopped at once or dropped before epochs with this plan version, by `PipelineDef.run`."""
        return {q.run for q in self.out if q.ended and (q.until is None or version <= q.until)}

    def ending(self, pipelines: Iterable[PipelineDef], version: int, reason: str) -> Quarantine:
        """These were stopped at once or dropped: they are left out of epochs with plan versions up to `version`."""
        known = {(q.run, q.until) for q in self.out}
        new = (Quarantined(p.instance, reason, version, p.generation, ended=True) for p in pipelines)
        return replace(self, out=(*self.out, *(q for q in new if (q.run, q.until) not in known)))

    def apply(self, plan: PlanVersion) -> PlanVersion:
        """`plan` without those who may not run; `plan` itself when all may. Those who leave do so without a look at
        their state."""
        out = self.reasons(plan.version)

        def may_run(pipeline: PipelineDef) -> bool:
            return pipeline.instance not in out and (self.probe is None or pipeline.instance in self.probe)

        kept = tuple(p for p in plan.pipelines if may_run(p))
        left = tuple(e if may_run(e.pipeline) else replace(e, flush=False, drop=True) for e in plan.left)
        return plan if (kept, left) == (plan.pipelines, plan.left) else replace(plan, pipelines=kept, left=left)

    def without(self, instances: Collection[int], version: int) -> Quarantine:
        """These were started again: they are left out of epochs up to `version` only."""
        return replace(
            self,
            out=tuple(
                replace(q, until=version) if q.instance in instances and q.until is None else q for q in self.out
            ),
        )

    def forgetting(self, instances: Collection[int]) -> Quarantine:
        """Without these: no epoch can name them any more."""
        return replace(self, out=tuple(q for q in self.out if q.instance not in instances))


def read_quarantine(stream_dir: Path) -> Quarantine:
    """The list as it stands; empty when there never was one. Raises StateDamaged."""
    return stored(Quarantine, stream_dir / "quarantine.json") or Quarantine()


_changing = threading.Lock()


def change_quarantine(stream_dir: Path, change: Callable[[Quarantine], Quarantine]) -> None:
    """Store durably what `change` makes of the list. The hub's threads may call it at the same time."""
    with _changing:
        old = read_quarantine(stream_dir)
        new = change(old)
        if new != old:
            store(stream_dir / "quarantine.json", new)
