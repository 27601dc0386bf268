"""Plan versions on disk. The hub writes them, and the planning process reads them.

A version is immutable once written. The file `current` names the newest. It is replaced after the version is durable,
so a reader never sees part of a version.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from headrace.base.durable import private_directory, state_errors
from headrace.model.codec import load, load_packed
from headrace.model.definitions import PipelineDef
from headrace.model.plan_version import PlanVersion
from headrace.model.stored import damaged, parsed, store, store_text

T = TypeVar("T")
FileStamp = tuple[int, int, int]
KEPT = 8


class PlanStore:
    """The plan versions of one stream. The hub is the only writer; any process may read."""

    def __init__(self, stream_dir: Path) -> None:
        self.directory = stream_dir / "plans"
        self._pointer = stream_dir / "current"
        self._kept: dict[int, tuple[FileStamp, PlanVersion]] = {}

    def publish(self, plan: PlanVersion) -> None:
        """Make `plan` the newest version. It takes effect with the next epoch."""
        with state_errors(self.directory):
            private_directory(self.directory)
        store(self._file(plan.version), plan)
        store_text(self._pointer, str(plan.version))

    def current(self) -> int:
        """The newest version, or 0 if there is none. Raises StateDamaged."""
        found = parsed(self._pointer, int, lambda text: text == str(max(self._versions(), default=0)))
        if found is None and any(self.directory.glob("*.json")):
            raise damaged(self._pointer, "is missing, although there are plans")
        return found or 0

    def load(self, version: int) -> PlanVersion:
        """One version, parsed once per process. Its file is only read again if it was replaced: a commit asks several
        times, and that of 1,000 pipelines has 2 MB. Raises StateDamaged if it is missing: versions are kept while an
        uncommitted epoch names them."""
        stamp, kept = _stamp(self._file(version)), self._kept.get(version)
        if kept is not None and kept[0] == stamp:
            return kept[1]
        plan = self._loaded(version, parse_plan)
        if stamp is not None:
            while len(self._kept) >= KEPT:
                self._kept.pop(next(iter(self._kept)), None)
            self._kept[version] = (stamp, plan)
        return plan

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
        """The pipelines, by instance, that only old versions name. No epoch can name them again: neither the newest
        committed epoch, if it runs again from plan `before` to plan `now`, nor a later one."""
        plans = {version: self.load(version) for version in self._versions()}
        leaving = {version: {left.key for left in plan.left} for version, plan in plans.items()}
        named: set[int] = set()
        for version, plan in plans.items():
            if version >= now:
                earlier = leaving.get(before if version == now else now, set())
                named |= {p.instance for p in plan.pipelines}
                named |= {left.pipeline.instance for left in plan.left if left.key not in earlier}
        known = {instance: p for plan in plans.values() for instance, p in plan.known.items()}
        return {instance: p for instance, p in known.items() if instance not in named}

    def all(self) -> list[PipelineDef]:
        """All pipelines that a version on disk names, each instance once."""
        plans = [self.load(version) for version in self._versions()]
        return list({instance: p for plan in plans for instance, p in plan.known.items()}.values())

    def names(self, instance: int) -> bool:
        """True if a version on disk names the instance."""
        return any(instance in self.load(version).known for version in self._versions())

    def prune(self, oldest_needed: int) -> None:
        """Delete the versions that no uncommitted epoch can name."""
        for version in self._versions():
            if version < oldest_needed:
                file = self._file(version)
                with state_errors(file):
                    file.unlink(missing_ok=True)

    def _versions(self) -> list[int]:
        return sorted(int(file.stem) for file in self.directory.glob("*.json") if file.stem.isdigit())

    def _file(self, version: int) -> Path:
        return self.directory / f"{version:08}.json"


def _stamp(file: Path) -> FileStamp | None:
    """What changes when a file is replaced; None if there is none."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


@lru_cache(maxsize=8)
def parse_plan(text: str) -> PlanVersion:
    """A plan version from its text. Cached, because its file is read for many epochs."""
    return load(PlanVersion, text)


@lru_cache(maxsize=8)
def unpack_plan(data: bytes) -> PlanVersion:
    """A plan version from its packed text. Cached, because the tasks of many epochs get the same bytes."""
    return load_packed(PlanVersion, data)
