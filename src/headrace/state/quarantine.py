"""The quarantine list: pipelines that are left out of epochs, even of epochs that are already planned.

A worker cannot catch its own death (out of memory, a crash in native code), and Spark would repeat the logged epoch
with the logged plan forever. Therefore this list is separate from the plan versions. The hub writes it, and the
planning process applies it to every plan (docs/design/2026-11-16-founding.md).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.model.codec import stored_as
from headrace.model.definitions import PipelineDef
from headrace.model.plan_version import PlanVersion
from headrace.model.stored import store, stored


@dataclass(frozen=True, slots=True)
class Quarantined:
    """An instance that is left out of epochs: of all, or of those with plan versions up to `until`, because it was
    started again after that version. With `ended` it did not fail: it was stopped at once or dropped. Its output of the
    current epoch is discarded, even when that epoch runs again after a crash."""

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
    """The instances in `out` are left out. During a `probe` only its instances run, and nothing is committed: the hub
    is searching for the pipeline that kills workers."""

    out: tuple[Quarantined, ...] = ()
    probe: tuple[int, ...] | None = None

    def reasons(self, version: int) -> dict[int, str]:
        """The instances that are left out of epochs with this plan version, and why."""
        return {q.instance: q.reason for q in self.out if q.until is None or version <= q.until}

    def ended(self, version: int) -> set[str]:
        """The pipelines that were stopped at once or dropped before epochs with this plan version, by
        `PipelineDef.run`."""
        return {q.run for q in self.out if q.ended and (q.until is None or version <= q.until)}

    def ending(self, pipelines: Iterable[PipelineDef], version: int, reason: str) -> Quarantine:
        """Leave these pipelines out of epochs with plan versions up to `version`: they were stopped at once or
        dropped."""
        known = {(q.run, q.until) for q in self.out}
        new = (Quarantined(p.instance, reason, version, p.generation, ended=True) for p in pipelines)
        return replace(self, out=(*self.out, *(q for q in new if (q.run, q.until) not in known)))

    def returning(self, pipelines: Iterable[PipelineDef]) -> Quarantine:
        """Take back that these pipelines were stopped at once or dropped: the script that did so is rolled back."""
        runs = {p.run for p in pipelines}
        return replace(self, out=tuple(q for q in self.out if not (q.ended and q.run in runs)))

    def apply(self, plan: PlanVersion) -> PlanVersion:
        """`plan` without the quarantined pipelines, or `plan` itself if there are none. Quarantined pipelines that
        leave the plan do so without reading their state."""
        out = self.reasons(plan.version)

        def may_run(pipeline: PipelineDef) -> bool:
            return pipeline.instance not in out and (self.probe is None or pipeline.instance in self.probe)

        kept = tuple(p for p in plan.pipelines if may_run(p))
        left = tuple(e if may_run(e.pipeline) else replace(e, flush=False, drop=True) for e in plan.left)
        return plan if (kept, left) == (plan.pipelines, plan.left) else replace(plan, pipelines=kept, left=left)

    def without(self, instances: Collection[int], version: int) -> Quarantine:
        """Limit the quarantine of these instances to plan versions up to `version`: they were started again."""
        return replace(
            self,
            out=tuple(
                replace(q, until=version) if q.instance in instances and q.until is None else q for q in self.out
            ),
        )

    def forgetting(self, instances: Collection[int]) -> Quarantine:
        """Forget these instances: no epoch can name them any more."""
        return replace(self, out=tuple(q for q in self.out if q.instance not in instances))


def read_quarantine(stream_dir: Path) -> Quarantine:
    """The stored list, or an empty one. Raises StateDamaged."""
    return stored(Quarantine, stream_dir / "quarantine.json") or Quarantine()


_changing = threading.Lock()


def change_quarantine(stream_dir: Path, change: Callable[[Quarantine], Quarantine]) -> None:
    """Apply `change` to the list and store the result durably. Thread-safe within the hub."""
    with _changing:
        old = read_quarantine(stream_dir)
        new = change(old)
        if new != old:
            store(stream_dir / "quarantine.json", new)
