"""Plan versions on disk: written by the hub, read by the process that plans epochs.

A version is immutable once written; `current` names the newest. A reader sees a version whole or not at all, because
the pointer is replaced after the version is durable.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from headrace.codec import load
from headrace.durable import private_directory, state_errors
from headrace.program import PipelineDef, PlanVersion
from headrace.stored import damaged, parsed, store, store_text

T = TypeVar("T")


class PlanStore:
    """The plan versions of one stream. Any number of readers; one writer, the hub."""

    def __init__(self, stream_dir: Path) -> None:
        self.directory = stream_dir / "plans"
        self._pointer = stream_dir / "current"

    def publish(self, plan: PlanVersion) -> None:
        """Make `plan` the newest version: in force from the next epoch on."""
        with state_errors(self.directory):
            private_directory(self.directory)
        store(self._file(plan.version), plan)
        store_text(self._pointer, str(plan.version))

    def current(self) -> int:
        """The newest version; 0 when there is none. Raises StateDamaged."""
        found = parsed(self._pointer, int, lambda text: text == str(max(self._versions(), default=0)))
        if found is None and any(self.directory.glob("*.json")):
            raise damaged(self._pointer, "is missing beside the plans that it points to")
        return found or 0

    def load(self, version: int) -> PlanVersion:
        """One version. Raises StateDamaged when it is not there: it is kept while an uncommitted epoch names it."""
        return self._loaded(version, lambda text: load(PlanVersion, text))

    def parsed(self, version: int) -> PlanVersion:
        """One version, parsed once per process. Raises StateDamaged."""
        return self._loaded(version, parse_plan)

    def text(self, version: int) -> str:
        """One version as it is stored."""
        return self._loaded(version, lambda text: text)

    def _loaded(self, version: int, parse: Callable[[str], T]) -> T:
        file = self._file(version)
        found = parsed(file, parse)
        if found is None:
            raise damaged(file, "is missing", version=version)
        return found

    def forgettable(self, before: int, now: int) -> dict[int, PipelineDef]:
        """The pipelines, by instance, that versions on disk name and no epoch can: neither the newest committed one, if
        it is run again from plan `before` to plan `now`, nor any that follows."""
        plans = {version: self.parsed(version) for version in self._versions()}
        told = {version: {left.key for left in plan.left} for version, plan in plans.items()}
        named: set[int] = set()
        for version, plan in plans.items():
            if version >= now:
                earlier = told.get(before if version == now else now, set())
                named |= {p.instance for p in plan.pipelines}
                named |= {left.pipeline.instance for left in plan.left if left.key not in earlier}
        known = {instance: p for plan in plans.values() for instance, p in plan.known.items()}
        return {instance: p for instance, p in known.items() if instance not in named}

    def all(self) -> list[PipelineDef]:
        """The pipelines that any version on disk names, each instance once."""
        plans = [self.parsed(version) for version in self._versions()]
        return list({instance: p for plan in plans for instance, p in plan.known.items()}.values())

    def names(self, instance: int) -> bool:
        """Whether a version on disk names the instance."""
        return any(instance in self.parsed(version).known for version in self._versions())

    def prune(self, oldest_needed: int) -> None:
        """Remove versions that no uncommitted epoch can name."""
        for version in self._versions():
            if version < oldest_needed:
                file = self._file(version)
                with state_errors(file):
                    file.unlink(missing_ok=True)

    def _versions(self) -> list[int]:
        return sorted(int(file.stem) for file in self.directory.glob("*.json") if file.stem.isdigit())

    def _file(self, version: int) -> Path:
        return self.directory / f"{version:08}.json"


@lru_cache(maxsize=8)
def parse_plan(text: str) -> PlanVersion:
    """A plan version from its text; parsed once per process, because tasks of many epochs bring the same text."""
    return load(PlanVersion, text)
