"""The runtimes of a hub's streams, by name."""

from __future__ import annotations

from collections.abc import Collection

from headrace.base.unknown import unknown
from headrace.errors import HeadraceError, UnknownStream
from headrace.hub.declarations import Declarations
from headrace.state import transitions
from headrace.state.state_dir import StateDir
from headrace.stream.host import StreamHost
from headrace.stream.runtime import StreamRuntime


class Runtimes:
    """Makes the runtime of a stream when it is first needed, and keeps it until the stream is dropped. Any thread may
    call."""

    def __init__(self, declarations: Declarations, state: StateDir, host: StreamHost) -> None:
        self._declarations, self._state, self._host = declarations, state, host
        self._made: dict[str, StreamRuntime] = {}

    def get(self, name: str) -> StreamRuntime:
        """The runtime of a declared stream. Raises UnknownStream. If the stream has run, this does not wait for the
        lock: a script holds it while it starts Spark or a query, and a status must not wait for that."""
        known, declared = self.known(name), self._declarations.catalog.stream(name)
        if known is not None and known.stream is declared:
            return known
        with self._declarations.lock:
            found, stream = self.known(name), self._declarations.catalog.stream(name)
            if found is not None:
                if stream is not None:
                    found.redeclare(stream)
                return found
            if stream is None:
                raise unknown(UnknownStream, "stream", name, self._declarations.catalog.stream_names())
            made = StreamRuntime(stream, self._state.stream(name.lower()), self._host)
            self._made[name.lower()] = made
            return made

    def known(self, name: str) -> StreamRuntime | None:
        """The runtime of a stream, if it was needed before. Never waits for the lock."""
        return self._made.get(name.lower())

    def all(self) -> list[StreamRuntime]:
        """Every runtime that was made. Under the lock."""
        return list(self._made.values())

    def started(self) -> list[StreamRuntime]:
        """The streams whose query was started and not stopped. Dead ones are included, so that their failure is
        raised."""
        with self._declarations.lock:
            return [r for r in self._made.values() if r.started]

    def stop_unneeded(self, runtime: StreamRuntime) -> None:
        """Stop a stream that no pipeline needs. If its query is dead, its failure no longer matters."""
        with self._declarations.lock:
            if not self._declarations.catalog.running(runtime.stream.name):
                runtime.stop()

    def show_trouble(self, stream: str, problem: Exception | None) -> None:
        """Show in the status of a stream what a background task failed to do for it; None if it succeeded."""
        runtime = self.known(stream)
        if runtime is not None:
            text = problem.render() if isinstance(problem, HeadraceError) else f"{type(problem).__name__}: {problem}"
            runtime.note_trouble("" if problem is None else text)

    def forget(self, streams: Collection[str]) -> None:
        """Delete streams with their pipelines, first from the catalog and then from the disk. A crash in between leaves
        directories without a name, never a new stream with the progress of an old one. Under the lock."""
        found = {name: self.get(name) for name in streams}
        if streams:
            self._declarations.save(transitions.without_streams(self._declarations.catalog, streams))
        for name, runtime in found.items():
            runtime.forget()
            del self._made[name]
