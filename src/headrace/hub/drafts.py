"""Begins drafts of scripts (`headrace.hub.draft`) over the current catalog of a hub."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.hub.draft import Draft
from headrace.hub.launcher import QueryLauncher
from headrace.hub.reconciler import Reconciler


@dataclass(frozen=True, slots=True)
class Drafts:
    """Begins drafts. Call it under the hub's lock. A new pipeline with state gets `buckets` buckets."""

    reconciler: Reconciler
    launcher: QueryLauncher
    buckets: int

    def to_run(self) -> Draft:
        """A draft of a script that takes effect. Starts Spark if Spark must check a query."""
        return self._begin(start=True)

    def to_check(self) -> Draft:
        """A draft that has no effect: it does not start Spark, and keeps no secret."""
        return self._begin(start=False)

    def _begin(self, start: bool) -> Draft:
        reconciler = self.reconciler
        return Draft(
            reconciler.catalog,
            reconciler.meaning,
            self.buckets,
            streams=reconciler,
            vault=reconciler.vault if start else reconciler.vault.copy(),
            spark=self.launcher.checker(start),
        )
