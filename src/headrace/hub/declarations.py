"""The hub's catalog and its lock, and the states of pipelines as events change them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from headrace.hub.launcher import hub_closed
from headrace.model.definitions import PipelineDef
from headrace.state import transitions
from headrace.state.catalog import Catalog, CatalogFile


class Declarations:
    """The current catalog. Every change is saved before it is visible.

    Hold `lock` to change it. Any thread may read `catalog` without the lock, because a catalog is immutable.
    """

    def __init__(self, file: CatalogFile) -> None:
        self._file = file
        self.lock = threading.RLock()
        self.catalog = file.catalog
        self.closed = False
        # By stream, the runs that wait for a plan version, with that version. The inner tables are replaced, never
        # changed, so any thread may read them.
        self._starting: dict[str, dict[str, int]] = {}

    def close(self) -> None:
        """Refuse all changes from now on."""
        self.closed = True

    def require_open(self) -> None:
        """Raise HubClosed if the hub is closed."""
        if self.closed:
            raise hub_closed()

    def current(self) -> Catalog:
        """The catalog as it is now."""
        return self.catalog

    @property
    def unsaved(self) -> bool:
        """True if there are secrets that are not stored yet."""
        return self._file.vault.unsaved

    def save(self, catalog: Catalog) -> None:
        """Store a catalog and make it the current one. Under the lock."""
        self._file.save(catalog)
        self.catalog = catalog

    def change(self, catalog: Catalog) -> bool:
        """Save a catalog unless it is the current one. True if it was saved. Under the lock."""
        if catalog is self.catalog:
            return False
        self.save(catalog)
        return True

    def exits_published(self, stream: str) -> None:
        """A plan version has the exits of this stream now, so the catalog need not keep them. Under the lock."""
        self.save(self.catalog.without_ends(stream))

    # --- states of pipelines ----------------------------------------------------------------------

    def reopened(self) -> None:
        """The hub was opened: pipelines that ran are starting."""
        with self.lock:
            self.change(transitions.reopened(self.catalog))

    def starting(self, stream: str, version: int) -> None:
        """The pipelines that are starting on a stream run as soon as an epoch is planned with this plan version. Under
        the lock."""
        self.change(transitions.going_on(self.catalog, stream))
        known = self._starting.get(stream, {})
        runs = transitions.starting(self.catalog, stream)
        self._starting[stream] = {run: known.get(run, version) for run in runs}

    def awaits(self, stream: str, version: int) -> bool:
        """True if a pipeline waits for this plan version or an older one. Any thread may call, without the lock."""
        return any(first <= version for first in self._starting.get(stream, {}).values())

    def planned(self, stream: str, version: int) -> None:
        """An epoch was planned with this plan version: the pipelines that waited for it run."""
        with self.lock:
            waiting = self._starting.get(stream, {})
            now = {run for run, first in waiting.items() if first <= version}
            if now and not self.closed:
                self.change(transitions.planned(self.catalog, stream, now))
                self._starting[stream] = {run: first for run, first in waiting.items() if run not in now}

    def stopped(self, pipelines: Sequence[PipelineDef], reason: str) -> None:
        """These pipelines have stopped."""
        with self.lock:
            if not self.closed:
                self.change(transitions.stopped(self.catalog, pipelines, reason))

    def finished(self, pipelines: Sequence[PipelineDef]) -> None:
        """The source of these pipelines has ended. Under the lock."""
        self.change(self.catalog.marked([p.instance for p in pipelines], "finished", "its source has ended"))

    def failed(self, stream: str, failures: Mapping[str, str]) -> bool:
        """These pipelines failed; by `PipelineDef.run`. True if that is new."""
        with self.lock:
            self.require_open()
            return self.change(transitions.failed(self.catalog, stream, failures))

    def detached(self, stream: str, lost: Mapping[str, dict[str, str]]) -> bool:
        """These pipelines lost sinks; by `PipelineDef.run`. True if that is new."""
        with self.lock:
            self.require_open()
            return self.change(transitions.detached(self.catalog, stream, lost))
