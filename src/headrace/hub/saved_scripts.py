"""Saves what scripts declare, and takes it back when a script cannot be carried out."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from functools import partial

from headrace.errors import HeadraceError
from headrace.hub.damage import DamagedStreams
from headrace.hub.declarations import Declarations
from headrace.hub.dedicated_pipelines import DedicatedPipelines
from headrace.hub.effects import DeclaredScript, ScriptEffects
from headrace.hub.reservations import StreamReservations
from headrace.hub.reserve import Reserve
from headrace.hub.runtimes import Runtimes
from headrace.model.definitions import StreamDef
from headrace.model.plan_version import PipelineExit
from headrace.sinks.feed_log import make_fed_stream
from headrace.sources import keeps_progress
from headrace.state.catalog import Catalog
from headrace.state.state_dir import StateDir
from headrace.state.undo import take_back, withdrawn


class SavedScripts:
    """The scripts of one hub, between saving and the end of carrying them out. Any thread may call.

    It changes the catalog and the files of dropped streams. The only queries that it starts are those that a script
    stopped and its rollback needs again.
    """

    def __init__(
        self,
        state: StateDir,
        declarations: Declarations,
        runtimes: Runtimes,
        damaged: DamagedStreams,
        *,
        dedicated: DedicatedPipelines,
        reservations: StreamReservations,
        reserve: Reserve,
    ) -> None:
        self._state, self._declarations, self._runtimes, self._damaged = state, declarations, runtimes, damaged
        self._reservations, self._reserve, self._dedicated = reservations, reserve, dedicated
        # Scripts that are being carried out and may be rolled back, by their `id`: comparing catalogs is slow.
        self._pending: dict[int, DeclaredScript] = {}

    def save(self, effects: ScriptEffects) -> DeclaredScript:
        """Save what a script declares. Under the lock, since the draft of the script was made."""
        before, after = self._declarations.catalog, effects.catalog
        changes = tuple(c for c in effects.changes if after.stream(c.stream) is not None)
        dropped = {name for name in effects.dropped if before.stream(name) is not None}
        # Stopping and dropping must work on a full disk too.
        leaves_only = all(c.only_leaves for c in changes) and bool(changes or dropped)
        warnings = self._forget(dropped, needed=leaves_only)
        if after != self._declarations.catalog or self._declarations.unsaved:
            # Once streams are gone, half of the script is stored, so the other half must follow.
            must = leaves_only or bool(dropped)
            self._reserve.with_room(partial(self._declarations.save, after), needed=must)
        self.make_feeds()
        quick = tuple(p for change in effects.changes for p in change.quick)
        return DeclaredScript(before, after, changes, quick, warnings=tuple(warnings))

    def make_feeds(self) -> None:
        """Make the directories of streams that pipelines feed: a pipeline drops the rows of a stream without one."""
        catalog = self._declarations.catalog
        for stream in catalog.streams.values():
            producer = None if stream.fed_by is None else catalog.pipeline(stream.fed_by)
            if producer is not None:
                make_fed_stream(self._state.stream(stream.name.lower()), producer.definition.instance)

    @contextlib.contextmanager
    def pending(self, script: DeclaredScript) -> Iterator[None]:
        """While the block runs, the script may be rolled back: what it removed may come back."""
        self._pending[id(script)] = script
        try:
            yield
        finally:
            del self._pending[id(script)]

    def declared_instances(self) -> set[int]:
        """The pipeline instances in the catalog, and those that come back if a script is rolled back."""
        catalogs = (self._declarations.catalog, *(script.before for script in tuple(self._pending.values())))
        return {record.definition.instance for catalog in catalogs for record in catalog.pipelines.values()}

    def roll_back(self, script: DeclaredScript) -> None:
        """Undo what a script declared, and plan its streams without it."""
        before, after = script.before, script.after
        with self._declarations.lock:
            self._reservations.wait(script.streams | set(after.streams))
            if self._declarations.closed:
                return
            now = self._declarations.catalog
            catalog = take_back(now, before, after)
            changed = {n for n in after.streams if not _continues(now.stream(n), catalog.stream(n))}
            self._forget(changed)
            self._reserve.with_room(partial(self._declarations.save, catalog))
            self.make_feeds()
            cancelled = withdrawn(catalog, before, after)
            for name in script.streams & set(catalog.streams):
                self._plan_again(name, catalog, cancelled)

    def _plan_again(self, name: str, catalog: Catalog, cancelled: tuple[PipelineExit, ...]) -> None:
        """Publish the plan of a stream without a script that was rolled back. The failure of the script is raised, so
        one of these steps is only shown in the stream's status."""
        runtime, pipelines, exits = self._runtimes.get(name), catalog.running(name), catalog.ended_on(name)
        try:
            self._reserve.with_room(partial(runtime.readmit, pipelines))
            self._reserve.with_room(partial(runtime.publish, pipelines, exits, cancelled=cancelled))
            self._reserve.with_room(partial(self._declarations.exits_published, name))
            if pipelines and not runtime.started and name not in self._damaged:  # the script has stopped it
                runtime.start(patient=True)
        except HeadraceError as problem:
            runtime.note_trouble(problem.render())
        if not pipelines:
            runtime.stop()

    def _forget(self, streams: Collection[str], needed: bool = True) -> list[str]:
        """Delete streams with their pipelines. Returns warnings about rows that their sinks may lack. Under the
        lock."""
        warnings = self._dedicated.deliver_last(streams)
        try:
            self._reserve.with_room(partial(self._runtimes.forget, streams), needed=needed)
        except Exception:  # the queries of what is still declared have ended
            with contextlib.suppress(HeadraceError):  # this failure is raised
                self._dedicated.align()
            raise
        self._damaged.clear(streams)
        return warnings


def _continues(old: StreamDef | None, new: StreamDef | None) -> bool:
    """True if a stream that is declared as `new` instead of `old` keeps its progress."""
    return old is new or (old is not None and new is not None and keeps_progress(old, new))
