"""Streams that cannot run because their directory is damaged or their disk cannot be used."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from headrace.errors import HeadraceError, HubClosed
from headrace.hub.declarations import Declarations
from headrace.hub.runtimes import Runtimes
from headrace.state.progress import read_progress
from headrace.state.quarantine import read_quarantine
from headrace.state.wholeness import require_whole
from headrace.stream.host import StreamFailures


class DamagedStreams:
    """The streams of one hub that could not be recovered, each with the reason. Any thread may call."""

    def __init__(self, declarations: Declarations, runtimes: Runtimes) -> None:
        self._declarations, self._runtimes = declarations, runtimes
        self._found: dict[str, HeadraceError] = {}

    def __contains__(self, stream: str) -> bool:
        return stream in self._found

    def names(self) -> set[str]:
        """The damaged streams."""
        return set(self._found)

    def clear(self, streams: Collection[str]) -> None:
        """These streams are whole, or gone."""
        for stream in streams:
            self._found.pop(stream, None)

    def give_up(self, stream: str, problem: HeadraceError) -> bool:
        """Mark a stream as dead until it is repaired and started, or dropped. False if the hub is closed, which is not
        a problem of the stream."""
        with self._declarations.lock:
            if isinstance(problem, HubClosed):
                return False
            self._found[stream] = problem
            if self._declarations.catalog.running(stream):
                self._runtimes.get(stream).fail(problem.render())
            else:
                self._runtimes.get(stream).note_trouble(problem.render())
        return True


def stored_failures(stream: str, directory: Path) -> StreamFailures:
    """The failures in a stream's directory, which a crash may have kept from the catalog. Raises StateDamaged and
    others if the stream cannot be used."""
    require_whole(directory)
    progress = read_progress(directory)
    killers = {q.run: q.reason for q in read_quarantine(directory).out if q.until is None}
    return StreamFailures(stream, progress.failures | killers, progress.detached)
