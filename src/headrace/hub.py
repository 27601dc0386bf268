"""The hub: one state directory, its streams and pipelines, and the Spark session they run on.

    with headrace.connect(state_dir=".headrace") as hub:
        hub.sql("CREATE STREAM ...; CREATE SINK ...; CREATE PIPELINE ...")

A script is worked out as a `Draft`, saved whole, and then made so: one new plan version per stream it touched. Spark
starts with the first pipeline. All methods may be called from any thread; scripts are serialised.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any

from headrace import savepoints
from headrace.chores import Chores
from headrace.control.acks import Ack
from headrace.control.signals import GRACEFUL_END, QUICK_END
from headrace.describe import describe, live_stream, show
from headrace.draft import Draft
from headrace.ending import DRAIN_SECONDS, Ending
from headrace.engine import launch, settle
from headrace.errors import (
    AddressInUse,
    BadOption,
    GatewayFailed,
    HubClosed,
    StartTimeout,
    StopTimeout,
    StreamFailed,
    UnknownPipeline,
    UnknownStream,
)
from headrace.ingress.service import GatewayService
from headrace.objects import Pipeline, Stream
from headrace.program import PipelineDef
from headrace.results import Result
from headrace.runtime import START_LIMIT_SECONDS, StreamRuntime
from headrace.sql import LiveStream, parse_script
from headrace.status import Waited
from headrace.streams import transitions
from headrace.streams.catalog import Catalog, CatalogFile, PipelineRecord
from headrace.streams.notices import NoticeBoard
from headrace.streams.progress import read_progress
from headrace.streams.quarantine import read_quarantine
from headrace.streams.state_dir import StateDir
from headrace.undo import take_back

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.spark.session import Engine


def connect(
    state_dir: str | os.PathLike[str] = ".headrace",
    spark: SparkSession | None = None,
    *,
    master: str | None = None,
    verbose: bool = False,
    buckets: int | None = None,
    start_timeout: float = START_LIMIT_SECONDS,
) -> Hub:
    """Open a hub on `state_dir`, and go on with the pipelines that were running when it was last closed.

    `spark` is an existing session to run on; without it one is started on `master` (default `local[*]`) when the first
    pipeline needs it. `buckets` is how far the groups of a new pipeline are spread (default: the cores of this machine,
    at most 8); it is fixed for the life of a pipeline. `start_timeout` is how many seconds `sql` waits for a pipeline's
    first epoch to be planned.
    """
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
        self._closed = False
        self._master, self._verbose, self._buckets = master, verbose, buckets
        self._start_timeout = start_timeout
        self._lock = threading.RLock()
        self._runtimes: dict[str, StreamRuntime] = {}
        self._starting: dict[str, int] = {}  # streams with pipelines that wait for a plan version to be planned
        self._chores = Chores()
        self._ending = Ending(self._lock, self._started, lambda name: self._catalog.running(name), self._finished)
        self._gateway = GatewayService(self._state.path / "gateway.log")
        try:
            self._file = CatalogFile(self._state.path)
            self._catalog = self._file.read()
            self._state.sweep(self._catalog.streams)
            self._meaning, self._engine = settle(spark, self._catalog)
            self._board = NoticeBoard(self._on_notice)
        except BaseException:
            self._state.close()
            raise
        self._chores.start()
        try:
            for stream in self._catalog.streams:  # a crash may have kept a failure from the catalog
                directory = self._state.stream(stream)
                killers = {str(q.instance): q.reason for q in read_quarantine(directory).out if q.until is None}
                self._drop_failed(stream, read_progress(directory).failures | killers)
                self._detach(stream, _by_instance(read_progress(directory).detached))
            with self._lock:
                self._change(transitions.reopened(self._catalog))
            self._make_so(set(self._catalog.streams), set())
        except BaseException:
            self.close()
            raise

    # --- scripts ----------------------------------------------------------------------------------

    def sql(self, text: str) -> list[Result]:
        """Run a script: all of its statements take effect, or none. Returns one result per statement.

        Pipelines of one script that read the same stream join it in the same epoch. Returns when that epoch is planned.
        When a query dies, or plans nothing in time, the script is taken back and the error raised; only the state of
        what it dropped or replaced may be gone by then.
        """
        with self._lock:
            self._require_open()
            draft = self._draft()
            results = [draft.apply(statement) for statement in parse_script(text)]
            dropped = {name.lower() for name in draft.dropped if self._catalog.stream(name) is not None}
            if any(draft.catalog.running(stream) for stream in draft.touched):
                self._start_engine()  # before anything is stored: without Java the script has no effect
            before = self._catalog
            self._forget(dropped)
            if draft.catalog != self._catalog:
                self._save(draft.catalog)
        touched = {stream for stream in draft.touched if draft.catalog.stream(stream) is not None}
        for name in draft.quick.keys() & touched:
            if self.runtime(name).running:
                self.runtime(name).control(QUICK_END, draft.quick[name])
        try:
            self._make_so(touched, draft.waits, draft.graceful)
        except (StreamFailed, StartTimeout, AddressInUse, GatewayFailed):
            self._take_back(before, draft.catalog, touched)
            raise
        self._stopped([p for ended in draft.quick.values() for p in ended], "it was stopped at once")
        for savepoint, stream in draft.savepoints:
            self.savepoint(savepoint, stream)
        return results

    def _take_back(self, before: Catalog, after: Catalog, touched: set[str]) -> None:
        with self._lock:
            if self._closed:
                return
            catalog = take_back(self._catalog, before, after)
            changed = {n for n in after.streams if self._catalog.streams.get(n) != catalog.streams.get(n)}
            cancelled = tuple(e for e in after.ended if e not in before.ended)
            self._forget(changed)
            self._save(catalog)
            for name in touched & set(catalog.streams):
                runtime, pipelines = self._runtime_of(name), catalog.running(name)
                runtime.publish(pipelines, catalog.ended_on(name), cancelled=cancelled)
                self._save(self._catalog.without_ends(name))
                if not pipelines:
                    runtime.stop()

    def _save(self, catalog: Catalog) -> None:
        self._file.save(catalog)
        self._catalog = catalog

    def _change(self, catalog: Catalog) -> bool:
        """Save the catalog if it is another one; whether it is. Under the lock."""
        if catalog is self._catalog:
            return False
        self._save(catalog)
        return True

    def _forget(self, streams: set[str]) -> None:
        """Remove streams with their pipelines, first from the catalog and then from the disk: a crash in between leaves
        directories that nobody names, never a new stream with an old one's progress."""
        runtimes = {name: self._runtime_of(name) for name in streams}
        if streams:
            self._save(transitions.without_streams(self._catalog, streams))
        for name, runtime in runtimes.items():
            runtime.forget()
            del self._runtimes[name]

    def check(self, text: str) -> list[Result]:
        """Plan a script against what is declared here, without any effect. Raises what `sql` would raise."""
        with self._lock:
            self._require_open()
            draft = self._draft()
            return [draft.apply(statement) for statement in parse_script(text)]

    def _draft(self) -> Draft:
        return Draft(
            self._catalog,
            self._meaning,
            self._buckets,
            live=self._live,
            describe=lambda catalog, kind, name: describe(self, catalog, kind, name),
            show=lambda catalog, kind: show(self, catalog, kind),
        )

    def _live(self, stream: str) -> LiveStream | None:
        runtime = self._runtimes.get(stream.lower())
        return None if runtime is None else live_stream(runtime, self._catalog)

    def _make_so(
        self,
        streams: set[str],
        waits: set[str],
        graceful: Mapping[str, Sequence[PipelineDef]] = MappingProxyType({}),
        start: bool = True,
    ) -> None:
        """Bring each stream's query in line with the catalog, and wait for the new plan on those in `waits`. Pipelines
        in `graceful` end with a barrier: this returns when everything before it is in their sinks. Without `start`, a
        query that was stopped stays so."""
        for name in sorted(streams):
            ending, ack = graceful.get(name, ()), None
            with self._lock:
                runtime = self._runtime_of(name)
                pipelines = self._catalog.running(name)
                ended = self._catalog.ended_on(name)
                if not pipelines and not ended and not runtime.running:
                    continue
                if ending and runtime.running:  # before the plan: its first epoch is to carry the barrier
                    ack = runtime.barrier(GRACEFUL_END, plan=runtime.plans.current() + 1)
                version = runtime.publish(pipelines, ended)
                if start and pipelines:
                    self._starting[name] = version
                    self._change(transitions.going_on(self._catalog, name))
                if ended:
                    self._save(self._catalog.without_ends(name))
                if pipelines and start:
                    runtime.start()
                elif not runtime.running:
                    self._stopped(ending, "its stream was not running")
                    continue  # the eof waits in the plan for the stream's next epoch
            if name in waits or not pipelines:
                runtime.wait_planned(version, self._start_timeout)
                self._planned(name, version)
            if ack is not None:
                self._await_end(ack, ending)
            if not pipelines:
                runtime.hold(DRAIN_SECONDS)  # the last eof is committed before the query stops
                with self._lock:
                    if self._catalog.running(name):  # somebody has joined meanwhile
                        runtime.release()
                    else:
                        runtime.stop()

    def _await_end(self, ack: Future[Ack], ending: Sequence[PipelineDef]) -> None:
        """Wait until all rows before a graceful end are in the sinks; the pipelines are stopped then, at the latest
        when the barrier comes through after all."""
        ack.add_done_callback(lambda done: self._chores.put(lambda: self._stopped(ending, _end_of(done))))
        try:
            ack.result(DRAIN_SECONDS)
        except TimeoutError:
            names = ", ".join(p.name for p in ending)
            raise StopTimeout(
                f"{names} did not come to an end in {DRAIN_SECONDS:g} s",
                advice="It ends when the epoch in flight is committed. STOP PIPELINE ... NOW does not wait for that.",
                names=names,
            ) from None
        self._stopped(ending, _end_of(ack))

    # --- states -----------------------------------------------------------------------------------

    def _planned(self, stream: str, version: int) -> None:
        """An epoch with this plan version was planned: who waited for it runs."""
        with self._lock:
            if self._closed or self._starting.get(stream, version + 1) > version:
                return
            del self._starting[stream]
            self._change(transitions.planned(self._catalog, stream))

    def _stopped(self, pipelines: Sequence[PipelineDef], reason: str) -> None:
        with self._lock:
            if not self._closed:
                self._change(transitions.stopped(self._catalog, pipelines, reason))

    def _finished(self, pipelines: Sequence[PipelineDef]) -> None:
        self._change(self._catalog.marked([p.instance for p in pipelines], "finished", "its source has ended"))

    # --- objects ----------------------------------------------------------------------------------

    @property
    def streams(self) -> dict[str, Stream]:
        """The declared streams, by name."""
        return {s.name: Stream(self, s.name) for s in self._catalog.streams.values()}

    @property
    def pipelines(self) -> dict[str, Pipeline]:
        """The declared pipelines, by name."""
        return {p.definition.name: Pipeline(self, p.definition.name) for p in self._catalog.pipelines.values()}

    @property
    def spark(self) -> SparkSession:
        """The session that everything runs on; starts it if need be."""
        return self._start_engine().spark

    def record(self, name: str) -> PipelineRecord:
        """The declaration of a pipeline. Raises UnknownPipeline."""
        found = self._catalog.pipeline(name)
        if found is None:
            raise UnknownPipeline(f"there is no pipeline {name}", name=name)
        return found

    def runtime(self, stream: str) -> StreamRuntime:
        """The running side of a stream. Raises UnknownStream."""
        with self._lock:
            return self._runtime_of(stream)

    def _runtime_of(self, name: str) -> StreamRuntime:
        found = self._runtimes.get(name.lower())
        if found is None:
            stream = self._catalog.stream(name)
            if stream is None:
                raise UnknownStream(f"there is no stream {name}", name=name)
            directory = self._state.stream(name.lower())
            found = StreamRuntime(
                stream,
                directory,
                self._board,
                self._start_engine,
                self._report_failures,
                self._instances,
                self._gateway,
            )
            self._runtimes[name.lower()] = found
        return found

    def _start_engine(self) -> Engine:
        # At first without the lock: a query that is being mended is started under its keeper's, while a thread that has
        # this one may be waiting to stop it.
        self._require_open()
        engine = self._engine
        if engine is not None:
            return engine
        with self._lock:
            self._require_open()
            if self._engine is None:
                self._engine = launch(self._state, self._master, self._verbose, self._meaning)
            return self._engine

    # --- savepoints -------------------------------------------------------------------------------

    def savepoint(self, name: str, stream: str | None = None, timeout: float = DRAIN_SECONDS) -> Path:
        """Take a consistent cut of a stream, or of all, with their pipelines, while they run. Where it is.

        `headrace restore` makes a state directory of it. Raises MissingInput, naming the streams, when the epochs in
        flight do not end in time.
        """
        with self._lock:
            self._require_open()
            names = [stream.lower()] if stream is not None else sorted(self._catalog.streams)
            if not names:
                raise UnknownStream("there is no stream to take a savepoint of", advice="Create one first.")
            runtimes = {n: self._runtime_of(n) for n in names}
            target = self._state.path / savepoints.DIRECTORY / name
        return savepoints.take(target, runtimes, lambda: self._catalog, timeout)

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

    def _started(self) -> list[StreamRuntime]:
        """The streams with a query, dead ones included: their failure must be told, not passed over."""
        with self._lock:
            return [r for r in self._runtimes.values() if r.started]

    def close(self, drain: bool = True) -> None:
        """Stop everything that this hub started. What runs now goes on when the directory is opened again."""
        if self._closed:
            return
        try:
            if drain:
                self.drain()
        finally:
            self._release()

    def _release(self) -> None:
        """Let go of everything, also when something on the way fails: a JVM that died must not keep the directory."""
        with self._lock, contextlib.ExitStack() as steps:  # the last first
            self._closed = True
            steps.callback(self._state.close)
            steps.callback(self._board.close)
            if self._engine is not None:
                steps.callback(self._engine.stop)
            steps.callback(self._chores.close)
            steps.callback(self._gateway.stop)
            for runtime in self._runtimes.values():
                steps.callback(runtime.close)
        self._chores.join(timeout=5)

    def __enter__(self) -> Hub:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _require_open(self) -> None:
        if self._closed:
            raise HubClosed("the hub is closed", advice="Open it again with headrace.connect(...).")

    def _repr_html_(self) -> str:
        return "".join(show(self, self._catalog, kind)._repr_html_() for kind in ("streams", "pipelines"))

    # --- what happens -----------------------------------------------------------------------------

    def _on_notice(self, notice: dict[str, Any]) -> None:
        runtime = self._runtimes.get(str(notice.get("stream", "")).lower())
        if runtime is not None:
            runtime.on_notice(notice)
            name, plan = runtime.stream.name.lower(), int(notice.get("plan", 0))
            if plan >= self._starting.get(name, plan + 1):
                self._chores.put(lambda: self._planned(name, plan))

    def _instances(self) -> set[int]:
        """The instances that are declared. Called in Spark's streaming thread too: a catalog never changes."""
        return {record.definition.instance for record in self._catalog.pipelines.values()}

    def _report_failures(self, stream: str, failures: dict[int, str], detached: dict[int, dict[str, str]]) -> None:
        """Called in Spark's streaming thread, which must not wait for the hub's lock."""
        found = {str(instance): reason for instance, reason in failures.items()}
        if detached:
            self._chores.put(lambda: self._detach(stream, detached))
        if found:
            self._chores.put(lambda: self._drop_failed(stream, found))
        if not found and not detached:  # who is to be measured alone has changed
            self._chores.put(lambda: self._make_so({stream.lower()}, set(), start=False))

    def _drop_failed(self, stream: str, failures: dict[str, str]) -> None:
        """The next plan version does without the pipelines that failed; their error is kept."""
        with self._lock:
            self._require_open()
            if not self._change(transitions.failed(self._catalog, stream, failures)):
                return
        self._make_so({stream.lower()}, set(), start=False)

    def _detach(self, stream: str, detached: Mapping[int, dict[str, str]]) -> None:
        """The next plan version writes no longer to the sinks that failed; their pipelines go on with the others."""
        with self._lock:
            self._require_open()
            if not self._change(transitions.detached(self._catalog, stream, detached)):
                return
        self._make_so({stream.lower()}, set(), start=False)

    @property
    def catalog(self) -> Catalog:
        """What is declared now."""
        return self._catalog


def _end_of(ack: Future[Ack]) -> str:
    if (problem := ack.exception()) is not None:
        return f"the stream ended first: {problem}"
    return f"all rows before {ack.result().signal} are in its sinks"


def _by_instance(detached: Mapping[str, dict[str, str]]) -> dict[int, dict[str, str]]:
    """The detached sinks of a stream's progress, whose keys are "instance/life"."""
    return {int(key.partition("/")[0]): sinks for key, sinks in detached.items()}
