"""The pipelines of a hub that run on the dedicated host: starts and stops their queries as the catalog says.

The reconciler calls `prepare` before it publishes plans, so that every feed has its consumer before the first row
arrives, and `align` when the plans are in force.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from headrace.errors import HeadraceError, SavepointTooSmall, StopTimeout
from headrace.hub.declarations import Declarations
from headrace.model.definitions import PipelineDef
from headrace.sinks.feed_log import FEEDS, FeedLog, stream_feed
from headrace.sinks.feed_retention import end_writer, remove_feed
from headrace.state.catalog import Catalog, PipelineRecord
from headrace.state.dedicated_state import DEDICATED, last_definition, states_of
from headrace.stream.dedicated_runtime import DedicatedHost, DedicatedRuntime, remove_empty
from headrace.stream.last_attempt import deliver_last, forget

# How long a graceful end waits for rows that are in feeds.
DRAIN_SECONDS = 120.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Finished:
    """The pipelines that have read the end of their input, and those that died before it, with the reason."""

    done: tuple[PipelineDef, ...]
    failed: tuple[tuple[PipelineDef, str], ...]


class DedicatedPipelines:
    """The runtimes of one hub's pipelines on the dedicated host, by instance. Any thread may call, except for Spark's:
    they must not wait for its lock."""

    def __init__(self, declarations: Declarations, directory_of: Callable[[str], Path], host: DedicatedHost) -> None:
        self._declarations, self._directory_of, self._host = declarations, directory_of, host
        self._lock = threading.RLock()
        self._made: dict[int, DedicatedRuntime] = {}
        self._leaving: set[int] = set()  # instances whose sinks get what they owe at the moment
        self._held: set[int] = set()  # instances whose queries must not run, because their streams are copied

    def get(self, definition: PipelineDef) -> DedicatedRuntime | None:
        """The runtime of a pipeline; None if it is on another host."""
        if definition.program.dedicated is None:
            return None
        known = self._made.get(definition.instance)
        if known is not None and known.pipeline.fresh == definition.fresh:  # without the lock: a drain may hold it
            known.redefine(definition)
            return known
        with self._lock:
            known = self._made.get(definition.instance)
            if known is not None:  # its state is dropped
                known.close()
            made = self._made[definition.instance] = DedicatedRuntime(definition, self._directory_of, self._host)
            return made

    def _runtime(self, record: PipelineRecord) -> DedicatedRuntime:
        found = self.get(record.attached)
        assert found is not None, "the caller asks for pipelines on the dedicated host"
        return found

    def known(self, instance: int) -> DedicatedRuntime | None:
        """The runtime of an instance, if it was needed before. Never waits."""
        return self._made.get(instance)

    def prepare(self) -> None:
        """Make the directories and the places in feeds of all pipelines that should run."""
        for record in _dedicated(self._declarations.catalog):
            if record.desired == "running":
                self._runtime(record).prepare()
            elif record.definition.instance not in self._made:  # so that DROP finds what it has on disk
                self._runtime(record)

    def align(self) -> list[str]:
        """Start and stop queries as the catalog says, and forget dropped pipelines. Returns warnings about rows that
        sinks may lack: theirs, and those of pipelines that begin without a damaged state. A pipeline that ends
        gracefully first reads what is in its feeds. Raises StopTimeout if that takes too long; it is stopped anyway."""
        late = [runtime.pipeline.name for runtime in self._ending() if not self._end(runtime)]
        warnings = [] if self._declarations.closed else self.sweep()
        with self._lock:
            for record in () if self._declarations.closed else _dedicated(self._declarations.catalog):
                held = record.definition.instance in self._held
                # One whose input is over starts again when its streams go on.
                if record.desired == "running" and record.state != "finished" and not held:
                    self._runtime(record).start()
            warnings += [warning for runtime in self._made.values() for warning in runtime.take_warnings()]
        if late:
            raise StopTimeout(
                f"{', '.join(late)} did not read the rest of the input within {DRAIN_SECONDS:g} s",
                advice="Rows that wait stay in the feed, and START PIPELINE continues with them.",
                names=", ".join(late),
            )
        return warnings

    def deliver_last(self, streams: Collection[str]) -> list[str]:
        """These streams are about to be deleted, with the state of the pipelines that read them: deliver what the sinks
        of these pipelines owe. Returns warnings about rows that they may lack."""
        wanted = {s.lower() for s in streams}
        return deliver_last([r for r in list(self._made.values()) if r.pipeline.program.stream.lower() in wanted])

    def _ending(self) -> list[DedicatedRuntime]:
        """The runtimes whose queries run and should not."""
        with self._lock:
            found = [(runtime, self._record(runtime)) for runtime in self._made.values() if runtime.supervisor.started]
            return [runtime for runtime, record in found if record is not None and record.desired != "running"]

    def _record(self, runtime: DedicatedRuntime) -> PipelineRecord | None:
        found = _dedicated(self._declarations.catalog)
        return next((r for r in found if r.definition.instance == runtime.pipeline.instance), None)

    def _end(self, runtime: DedicatedRuntime) -> bool:
        """Stop a query. False if it had to read its feeds to the end first, and that took too long. The lock is not
        held while it reads, so the pipeline may be started again meanwhile."""
        record = self._record(runtime)
        graceful = record is not None and record.desired == "stopped"
        graceful = graceful and record is not None and record.definition.fresh == runtime.pipeline.fresh
        done = not graceful or runtime.drain(DRAIN_SECONDS)
        with self._lock:
            now = self._record(runtime)
            if now is None or now.desired != "running":
                runtime.stop()
        return done

    def drain(self, streams: Collection[str], timeout: float) -> bool:
        """Wait until the rows of these streams that are in feeds are in the sinks, and no sink owes an epoch. True if
        that happened in time."""
        deadline = time.monotonic() + timeout
        wanted = {s.lower() for s in streams}
        with self._lock:
            found = [r for r in self._made.values() if wanted & {s.lower() for s in r.pipeline.streams}]
            found = [r for r in found if r.supervisor.running]
        drained = [runtime.drain(max(0.1, deadline - time.monotonic())) for runtime in found]
        return all(drained) and all(runtime.settle(deadline - time.monotonic()) for runtime in found)

    def finish(self, timeout: float, stuck: Callable[[DedicatedRuntime], bool]) -> Finished | None:
        """The input of all streams is over: read the feeds to the end, then stop. None if time ran out. Those that are
        `stuck` are only stopped: nothing will read their output, so they can neither finish nor fail."""
        with self._lock:
            found = [r for r in self._made.values() if r.supervisor.started]
        drained = [runtime.drain(timeout, partial(stuck, runtime)) for runtime in found]
        if not all(drained):
            return None
        dead = {r: r.supervisor.problem for r in found}
        done = [r.pipeline for r, problem in dead.items() if problem is None and not stuck(r)]
        for runtime in found:
            runtime.stop()
        return Finished(tuple(done), tuple((r.pipeline, problem) for r, problem in dead.items() if problem is not None))

    @contextmanager
    def paused(self, streams: Collection[str]) -> Iterator[None]:
        """Stop the queries that read these streams, for as long as the block runs. A batch in flight runs again."""
        wanted = {s.lower() for s in streams}
        with self._lock:
            found = {i for i, r in self._made.items() if wanted & {s.lower() for s in r.pipeline.streams}}
            self._held |= found
            for instance in found:
                self._made[instance].stop()
        try:
            yield
        finally:
            with self._lock:
                self._held -= found
            if found:
                self.align()

    def require_whole(self, streams: Collection[str]) -> None:
        """Raise SavepointTooSmall if a pipeline reads one of these streams and another stream that is not among them.
        Its state cannot be cut in two."""
        wanted = {s.lower() for s in streams}
        for record in _dedicated(self._declarations.catalog):
            read = {s.lower() for s in record.definition.streams}
            if read & wanted and not read <= wanted:
                raise SavepointTooSmall(
                    f"pipeline {record.definition.name} also reads {', '.join(sorted(read - wanted))}",
                    advice="Take a savepoint of all streams: SAVEPOINT 'name', without a stream.",
                    pipeline=record.definition.name,
                    streams=sorted(read - wanted),
                )

    def sweep(self) -> list[str]:
        """Delete the feeds and queries of pipelines that no catalog and no plan names: dropped ones, and what a crash
        has left. Their sinks get what they owe first, if they take it. Returns warnings about rows that they may
        lack."""
        with self._lock:
            gone = self._dropped() + self._left_over()
            numbers = {runtime.pipeline.instance for runtime in gone}
            self._leaving |= numbers
        try:
            return forget(gone)  # without the lock, because sinks are slow
        finally:
            with self._lock:
                self._leaving -= numbers
                for instance in numbers:
                    self._end_writer(instance, self._declarations.catalog)
                for _, entry in self._undeclared():
                    self._delete(entry)

    def _dropped(self) -> list[DedicatedRuntime]:
        """The runtimes of pipelines that were dropped and whose ends are published."""
        named = self._named(self._declarations.catalog)
        return [self._made.pop(instance) for instance in set(self._made) - named]

    def _left_over(self) -> list[DedicatedRuntime]:
        """The same for pipelines that were dropped before the hub was opened, as far as their directories show what
        their sinks may owe."""
        directories = {(e.parent, int(i)) for i, e in self._undeclared() if e.parent.name == DEDICATED and i.isdigit()}
        found = []
        for directory, instance in directories:
            try:
                pipeline = last_definition(states_of(directory, instance))
                if pipeline is not None:
                    found.append(DedicatedRuntime(pipeline, self._directory_of, self._host))
            except HeadraceError as problem:
                _log.warning("pipeline %d was dropped; its sinks may lack rows: %s", instance, problem.message)
        return found

    def _named(self, catalog: Catalog) -> set[int]:
        """The instances that the catalog names, or a plan still has to end."""
        ended = {left.pipeline.instance for left in catalog.ended}
        return ended | {record.definition.instance for record in catalog.pipelines.values()}

    def _undeclared(self) -> list[tuple[str, Path]]:
        """The directories of feeds and queries of pipelines that nothing names, with their instances. The directories
        are listed before the catalog is read: those of a pipeline that is declared meanwhile are not among them."""
        places = [
            self._directory_of(s) / kind for s in self._declarations.catalog.streams for kind in (FEEDS, DEDICATED)
        ]
        entries: list[Path] = []
        for place in places:
            with contextlib.suppress(FileNotFoundError):
                entries += place.iterdir()
        named = {str(i) for i in self._named(self._declarations.catalog) | self._leaving}
        return [(instance, e) for e in entries if (instance := e.name.split("-")[0]) not in named]

    def _delete(self, entry: Path) -> None:
        instance = entry.name.split("-")[0]
        if entry.parent.name == DEDICATED and instance.isdigit():
            self._end_writer(int(instance), self._declarations.catalog)
        if entry.parent.name == FEEDS and not entry.name.startswith("."):
            remove_feed(entry)
        else:
            shutil.rmtree(entry, ignore_errors=True)
        remove_empty(entry.parent)

    def _end_writer(self, instance: int, catalog: Catalog) -> None:
        """Tell the streams that a query may have fed that no batch of it is ever run again."""
        for stream in catalog.streams:
            with contextlib.suppress(HeadraceError):  # damaged: the stream says so, and one manifest stays
                end_writer(FeedLog(stream_feed(self._directory_of(stream))), instance)

    def close(self) -> None:
        """Stop all queries and release the sinks."""
        with self._lock:
            for runtime in self._made.values():
                runtime.close()


def _dedicated(catalog: Catalog) -> list[PipelineRecord]:
    return [r for r in catalog.pipelines.values() if r.definition.program.dedicated is not None]
