"""Lists only the directories that may still get files, of a path with the time in it (`headrace.sources.timed_path`).

A directory gets files until `lookback` after its time. The first listing takes everything. Then the *horizon*, the
oldest period that is listed, follows the clock. It is durable and never goes back. It advances when everything older is
logged, so a hub that was away for a week lists the directories of that week first. Files before the horizon are never
listed, checked or remembered: the cost follows the files of the lookback, not all files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from headrace.model.stored import parsed, store_text
from headrace.sources.extent import Stamp, look_at
from headrace.sources.listing import Listing
from headrace.sources.object_listing import ObjectListing
from headrace.sources.timed_path import TimedPath
from headrace.stores.object_store import ObjectStore

_HORIZON = "horizon.json"


class FilePlaces(Protocol):
    """Lists files of one place, local or on a store."""

    @property
    def store(self) -> ObjectStore | None: ...

    def require(self) -> None:
        """Raise a coded error if nothing can be listed now. An empty listing would move the horizon."""
        ...

    def files(self, pattern: str) -> list[str]:
        """The files that a path or glob pattern names now."""
        ...

    def unchanged(self, pattern: str) -> bool:
        """True if no file was added or removed since the last call of `files`."""
        ...

    def keep(self, patterns: Iterable[str]) -> None:
        """Forget what is known about all other patterns."""
        ...

    def stamps(self, paths: Iterable[str]) -> dict[str, Stamp]: ...


class LocalPlaces:
    """Directories of a file system below `root`. Lists one only if its time has changed."""

    store = None

    def __init__(self, root: str) -> None:
        self._root = Listing(root)
        self._listings: dict[str, Listing] = {}

    def require(self) -> None:
        self._root.check()

    def files(self, pattern: str) -> list[str]:
        listing = self._listings.setdefault(pattern, Listing(pattern))
        return listing.paths() if os.path.isdir(listing.root) else []

    def unchanged(self, pattern: str) -> bool:
        listing = self._listings.get(pattern)
        return listing is not None and (listing.unchanged() or not os.path.isdir(listing.root))

    def keep(self, patterns: Iterable[str]) -> None:
        self._listings = {pattern: self._listings[pattern] for pattern in patterns if pattern in self._listings}

    def stamps(self, paths: Iterable[str]) -> dict[str, Stamp]:
        return {path: stamp for path in paths if (stamp := look_at(path)) is not None}


class StorePlaces:
    """Prefixes of an object store: one request, or a few, for each listing."""

    def __init__(self, listing: ObjectListing) -> None:
        self._listing, self.store = listing, listing.store

    def require(self) -> None:
        """Every listing asks the store, and raises what it answers."""

    def files(self, pattern: str) -> list[str]:
        return self._listing.more(pattern)

    def unchanged(self, pattern: str) -> bool:
        return False

    def keep(self, patterns: Iterable[str]) -> None:
        self._listing.clear()

    def stamps(self, paths: Iterable[str]) -> dict[str, Stamp]:
        return self._listing.stamps(paths)


class TimedListing:
    """The files of the periods from the horizon on. One thread uses it."""

    def __init__(
        self,
        timed: TimedPath,
        lookback: float,
        places: FilePlaces,
        state: Path,
        clock: Callable[[], float],
        all_first: bool,
    ) -> None:
        """`lookback` is in seconds. With `all_first` the first listing of a new stream takes the files of all times."""
        self.path, self.store, self.is_glob = timed.path, places.store, True
        self._timed, self._lookback, self._places, self._clock = timed, lookback, places, clock
        self._file = state / _HORIZON
        self._horizon: float | None = parsed(self._file, _since)
        if self._horizon is None and not all_first:
            self._horizon = self._due()
        self._found: dict[str, list[str]] = {}  # by path of a period

    def _due(self) -> float:
        return self._timed.floor(self._clock() - self._lookback)

    def _patterns(self) -> list[str]:
        if self._horizon is None:
            return [self._timed.everything]
        return self._timed.between(self._horizon, max(self._horizon, self._clock()))

    def unchanged(self) -> bool:
        patterns = self._patterns()
        return patterns == list(self._found) and all(self._places.unchanged(pattern) for pattern in patterns)

    def paths(self) -> list[str]:
        """The files of all periods that are listed. Lists a directory only if it has changed."""
        self._places.require()
        found = {}
        patterns = self._patterns()
        self._places.keep(patterns)
        for pattern in patterns:
            known = self._found.get(pattern)
            same = known is not None and self._places.unchanged(pattern)
            found[pattern] = known if known is not None and same else self._places.files(pattern)
        self._found = found
        return [path for paths in found.values() for path in paths]

    def stamps(self, paths: Iterable[str]) -> dict[str, Stamp]:
        return self._places.stamps(paths)

    def logged(self) -> None:
        """The files of the newest listing are logged: advance the horizon."""
        due = self._due()
        if self._horizon is None or due > self._horizon:
            store_text(self._file, json.dumps({"since": due}))
            self._horizon = due

    def beyond(self, path: str) -> bool:
        """True if a file will never be listed again."""
        time = self._timed.time_of(path)
        return self._horizon is not None and time is not None and time < self._horizon


def _since(text: str) -> float:
    return float(json.loads(text)["since"])
