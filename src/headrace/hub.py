"""The hub: one state directory, its streams and pipelines, and the Spark session they run on.

    with headrace.connect(state_dir=".headrace") as hub:
        hub.sql("CREATE STREAM ...; CREATE SINK ...; CREATE PIPELINE ...")

A script is worked out as a `Draft`, saved whole, and then made so by the `Conductor`: one new plan version per stream
it touched. Spark starts with the first pipeline. All methods may be called from any thread; scripts are serialised.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from headrace import savepoints
from headrace.conductor import Conductor
from headrace.describe import describe, live_stream, show
from headrace.draft import Draft
from headrace.durable import state_errors
from headrace.ending import DRAIN_SECONDS, Ending
from headrace.engine import launch, settle
from headrace.errors import (
    BadOption,
    HeadraceError,
    StopTimeout,
    UnknownPipeline,
    UnknownStream,
)
from headrace.ingress.service import GatewayService
from headrace.objects import Pipeline, Stream
from headrace.results import Result
from headrace.runtime import START_LIMIT_SECONDS, StreamRuntime
from headrace.sealing import seal_directory, seal_savepoints
from headrace.sql import LiveStream, parse_script
from headrace.status import Waited
from headrace.streams.catalog import Catalog, PipelineRecord
from headrace.streams.secrets import Vault
from headrace.streams.state_dir import SAVEPOINTS, StateDir, require_savepoint_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.spark.session import Engine


def open_hub(
    state_dir: str | os.PathLike[str] = ".headrace",
    spark: SparkSession | None = None,
    *,
    master: str | None = None,
    verbose: bool = False,
    buckets: int | None = None,
    start_timeout: float = START_LIMIT_SECONDS,
) -> Hub:
    """Open a hub on `state_dir`. The arguments are those of `headrace.connect`."""
    if buckets is not None and buckets < 1:
        raise BadOption(f"buckets cannot be {buckets}", advice="It must be 1 or more.", option="buckets", value=buckets)
    if not start_timeout > 0:
        raise BadOption(
            f"start_timeout cannot be {start_timeout}",
            advice="It must be more than 0 seconds.",
            option="start_timeout",
            value=start_timeout,
        )
    return Hub(Path(state_dir), spark, master, verbose, buckets or min(8, os.cpu_count() or 1), start_timeout)


T = TypeVar("T")


def _call(act: Callable[[], T]) -> T:
    return act()


def _only_leaves(before: Catalog, after: Catalog, stream: str) -> bool:
    """Whether a script starts and changes nothing on a stream."""
    same = before.stream(stream) == after.stream(stream)
    return same and {p.run for p in after.running(stream)} <= {p.run for p in before.running(stream)}


class Hub:
    """See the module. Use it as a context manager, or call `close`."""

    def __init__(
        self,
        state_dir: Path,
        spark: SparkSession | None,
        master: str | None,
        verbose: bool,
        buckets: int,
        start_timeout: float,
    ) -> None:
        self._state = StateDir.open(state_dir.absolute())
        self._closers: list[Callable[[], None]] = []
        self._master, self._verbose, self._buckets = master, verbose, buckets
        self._engine_lock = threading.Lock()  # taken after the hub's, never before it
        try:
            file = seal_directory(self._state.path)
            seal_savepoints(self._state.path)
            catalog, self._vault = file.catalog, file.vault
            self._gateway = GatewayService(self._state.path / "gateway.log", self._vault.reveal)
            with state_errors(self._state.path):
                self._state.sweep(catalog.streams)
            self._meaning, self._engine = settle(spark, catalog)
            self._conductor = Conductor(
                self._state, file, catalog, self._gateway, lambda: self._start_engine(), start_timeout
            )
        except BaseException:
            self._state.close()
            raise
        conductor = self._conductor
        self._lock = conductor.lock
        self._ending = Ending(
            self._lock,
            conductor.exclusive,
            conductor.started,
            lambda name: self.catalog.running(name),
            conductor.finished,
            conductor.reserve.with_room,
        )
        conductor.chores.start()
        try:
            conductor.go_on()
        except BaseException:
            self.close()
            raise

    @property
    def directory(self) -> Path:
        """The state directory."""
        return self._state.path

    # --- scripts ----------------------------------------------------------------------------------

    def sql(self, text: str) -> list[Result]:
        """Run a script: all of its statements take effect, or none. Returns one result per statement.

        Pipelines of one script that read the same stream join it in the same epoch. Returns when that epoch is planned.
        When a query dies, plans nothing in time or cannot be started, the script is taken back and the error raised;
        only the state of what it dropped or replaced may be gone by then. StopTimeout takes nothing back: what was
        stopped ends when its stream comes to it.
        """
        conductor = self._conductor
        with self._lock, state_errors(self._state.path):
            draft, results = self._work_out(text)
            dropped = {name.lower() for name in draft.dropped if self.catalog.stream(name) is not None}
            if any(draft.catalog.running(stream) for stream in draft.touched):
                self._start_engine()  # before anything is stored: without Java the script has no effect
            before = self.catalog
            touched = {stream for stream in draft.touched if draft.catalog.stream(stream) is not None}
            leaving = {name for name in touched - draft.revived if _only_leaves(before, draft.catalog, name)}
            # Stopping and dropping work on a full disk too. When streams are gone, half of the script is stored: the
            # other half must follow.
            must = bool(leaving | dropped) and leaving == touched
            (conductor.reserve.with_room if must else _call)(lambda: conductor.forget(dropped))
            if draft.catalog != self.catalog or self._vault.unsaved:
                (conductor.reserve.with_room if must or dropped else _call)(lambda: conductor.save(draft.catalog))
        quick = [p for ended in draft.quick.values() for p in ended]
        try:
            for name in draft.quick.keys() & touched:
                if self.runtime(name).running:
                    conductor.reserve.with_room(partial(self.runtime(name).quick_end, draft.quick[name]))
            conductor.make_so(
                touched, draft.waits, draft.graceful, now=draft.quick.keys(), leaving=leaving, revived=draft.revived
            )
        except StopTimeout:  # what is declared stands, and comes to be
            self._conductor.stopped(quick, "it was stopped at once")
            raise
        except HeadraceError:
            conductor.take_back(before, draft.catalog, touched)
            raise
        self._conductor.stopped(quick, "it was stopped at once")
        for savepoint, stream in draft.savepoints:
            self.savepoint(savepoint, stream)
        return results

    def _work_out(self, text: str) -> tuple[Draft, list[Result]]:
        """What a script comes to, once nobody copies or stops the streams that it is about. Under the lock."""
        statements = parse_script(text)
        while True:
            self._conductor.require_open()
            draft = self._draft(self._vault)
            results = [draft.apply(statement) for statement in statements]
            wanted = draft.touched | {name.lower() for name in draft.dropped}
            if self._conductor.exclusive.is_free(wanted):
                return draft, results
            self._conductor.exclusive.wait(wanted)

    def check(self, text: str) -> list[Result]:
        """Plan a script against what is declared here, without any effect. Raises what `sql` would raise."""
        with self._lock:
            self._conductor.require_open()
            draft = self._draft(self._vault.copy())
            return [draft.apply(statement) for statement in parse_script(text)]

    def _draft(self, vault: Vault) -> Draft:
        return Draft(
            self.catalog,
            self._meaning,
            self._buckets,
            live=self._live,
            ill=self._ill,
            describe=lambda catalog, kind, name: describe(self, catalog, kind, name),
            show=lambda catalog, kind: show(self, catalog, kind),
            vault=vault,
        )

    def _live(self, stream: str) -> LiveStream | None:
        runtime = self._conductor.runtimes.get(stream.lower())
        return None if runtime is None else live_stream(runtime, self.catalog)

    def _ill(self, stream: str) -> str:
        """What is wrong with a stream's query: retrying, dead or nothing."""
        runtime = self._conductor.runtimes.get(stream.lower())
        return runtime.state if runtime is not None and runtime.state in ("retrying", "dead") else ""

    # --- objects ----------------------------------------------------------------------------------

    @property
    def streams(self) -> dict[str, Stream]:
        """The declared streams, by name."""
        return {s.name: Stream(self, s.name) for s in self.catalog.streams.values()}

    @property
    def pipelines(self) -> dict[str, Pipeline]:
        """The declared pipelines, by name."""
        return {p.definition.name: Pipeline(self, p.definition.name) for p in self.catalog.pipelines.values()}

    @property
    def spark(self) -> SparkSession:
        """The session that everything runs on; starts it if need be."""
        return self._start_engine().spark

    def record(self, name: str) -> PipelineRecord:
        """The declaration of a pipeline. Raises UnknownPipeline."""
        found = self.catalog.pipeline(name)
        if found is None:
            raise UnknownPipeline(f"there is no pipeline {name}", name=name)
        return found

    def runtime(self, stream: str) -> StreamRuntime:
        """The running side of a stream. Raises UnknownStream. Waits for no script if the stream has run: one holds the
        lock while it starts Spark or a query, and a status must not wait for that."""
        known, declared = self._conductor.runtimes.get(stream.lower()), self.catalog.stream(stream)
        if known is not None and known.stream is declared:
            return known
        with self._lock:
            return self._conductor.runtime_of(stream)

    def _start_engine(self) -> Engine:
        """The engine; a new one when there is none, or when the JVM of our own has died. Without the hub's lock: a
        query is started again by a thread of its own, while one that has the hub's lock may be waiting to stop it."""
        self._conductor.require_open()
        with self._engine_lock:
            self._conductor.require_open()
            if self._engine is not None and self._engine.owned and not self._engine.alive:
                gone, self._engine = self._engine, None
                gone.stop()
            if self._engine is None:
                with state_errors(self._state.path):
                    self._engine = launch(self._state, self._master, self._verbose, self._meaning)
            return self._engine

    # --- savepoints -------------------------------------------------------------------------------

    def savepoint(self, name: str, stream: str | None = None, timeout: float = DRAIN_SECONDS) -> Path:
        """Take a consistent cut of a stream, or of all, with their pipelines, while they run. Where it is.

        `headrace restore` makes a state directory of it. Raises SavepointTimeout, naming the streams, when their epochs
        in flight do not end in time. Scripts that are about these streams wait until it is taken.
        """
        target = self._state.path / SAVEPOINTS / require_savepoint_name(name)
        exclusive = self._conductor.exclusive
        with contextlib.ExitStack() as mine:
            with self._lock:
                streams = self._to_copy(stream)
                while not exclusive.is_free(streams):
                    if not exclusive.wait(streams, timeout):
                        raise savepoints.too_late(streams, timeout)
                    streams = self._to_copy(stream)
                mine.enter_context(exclusive.taken(streams))
            return savepoints.take(target, streams, lambda: self.catalog, timeout, self._vault)

    def savepoints(self) -> list[Path]:
        """The savepoints in this state directory, by name."""
        directory = self._state.path / SAVEPOINTS
        return sorted(p for p in directory.iterdir() if not p.name.startswith(".")) if directory.is_dir() else []

    def _to_copy(self, stream: str | None) -> dict[str, StreamRuntime]:
        self._conductor.require_open()
        names = [stream.lower()] if stream is not None else sorted(self.catalog.streams)
        if not names:
            raise UnknownStream("there is no stream to take a savepoint of", advice="Create one first.")
        return {name: self._conductor.runtime_of(name) for name in names}

    # --- ends -------------------------------------------------------------------------------------

    def wait_until_end(self, timeout: float | None = None) -> bool:
        """Wait until every finite source is drained, then close all windows (unless the stream says close_at_end =
        'false'), commit, and stop the queries.

        Whether that happened in time. Raises StreamFailed if a query dies. A source that never ends is waited for.
        """
        return self._ending.wait(timeout)

    def drain(self, timeout: float = DRAIN_SECONDS, told: Callable[[Waited], None] = lambda waited: None) -> bool:
        """Let every epoch in flight finish, then stop the queries; whether all finished in time. `told` hears of each
        stream that was waited for."""
        return self._ending.drain(timeout, told)

    def close(self, drain: bool = True) -> None:
        """Stop everything that this hub started. What runs now goes on when the directory is opened again."""
        if self._conductor.closed:
            return
        try:
            if drain:
                self.drain()
        finally:
            self._release()

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the hub has stopped everything else, before it gives up the state directory."""
        self._closers.append(callback)

    def _release(self) -> None:
        """Let go of everything, also when something on the way fails: a JVM that died must not keep the directory."""
        with self._lock, contextlib.ExitStack() as steps:  # the last first
            self._conductor.closed = True
            steps.callback(self._state.close)
            for callback in self._closers:
                steps.callback(callback)
            steps.callback(self._conductor.board.close)
            with self._engine_lock:
                if self._engine is not None:
                    steps.callback(self._engine.stop)
            steps.callback(self._conductor.release)
        self._conductor.chores.join(timeout=5)

    def __enter__(self) -> Hub:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _repr_html_(self) -> str:
        return "".join(show(self, self.catalog, kind)._repr_html_() for kind in ("streams", "pipelines"))

    @property
    def catalog(self) -> Catalog:
        """What is declared now."""
        return self._conductor.catalog
