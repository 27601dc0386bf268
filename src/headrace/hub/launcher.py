"""Starts Spark when the first query needs it, and starts queries on it."""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Protocol

from headrace.base.durable import state_errors
from headrace.base.logs import SPARK_LOG, facts
from headrace.errors import BadOption, HubClosed, InternalError, SessionMismatch
from headrace.hub.first_use import kernels_compiled
from headrace.hub.time_zone import session_meaning
from headrace.model.program import Meaning
from headrace.model.spark_options import SparkOptions
from headrace.state.catalog import Catalog
from headrace.state.plans import PlanStore
from headrace.state.state_dir import StateDir
from headrace.stream.dedicated_runtime import DedicatedRequest, DedicatedRun
from headrace.stream.host import Query, QueryRequest
from headrace.stream.managed_query import ManagedQuery
from headrace.stream.waiting import QueryWaits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.spark.session import Engine
    from headrace.sql.hosts.spark_checker import SparkChecker

_log = logging.getLogger(__name__)


def hub_closed() -> HubClosed:
    """The error for a call on a closed hub."""
    return HubClosed("the hub is closed", advice="Open it again with headrace.connect(...).")


class QueryLauncher(Protocol):
    """Runs the queries of one hub. Any thread may call."""

    def bind(self, state: StateDir, catalog: Catalog) -> Meaning:
        """Use this state directory. Returns what SQL means here. Raises SessionMismatch when the stored plans were made
        for another meaning. Called once, before all others."""
        ...

    def ready(self) -> None:
        """Start the engine if it does not run. Raises MissingJava and others."""
        ...

    def launch(self, request: QueryRequest) -> Query:
        """Start a query. Starts the engine first if it does not run."""
        ...

    def launch_dedicated(self, request: DedicatedRequest) -> DedicatedRun:
        """Start the query of a pipeline on the dedicated host. Starts the engine first if it does not run."""
        ...

    def waits(self, query: ManagedQuery, plans: PlanStore) -> QueryWaits:
        """Waits for a query of this engine. An engine that runs no epoch by itself runs some meanwhile."""
        ...

    def session(self) -> SparkSession:
        """The session that queries run on. Starts Spark if it does not run."""
        ...

    def checker(self, start: bool) -> SparkChecker | None:
        """Checks queries that only Spark understands. With `start`, it starts Spark for the first one if Spark does not
        run; otherwise None while Spark does not run."""
        ...

    def stop(self) -> None:
        """Stop the engine, if this launcher started it. Nothing can be started afterwards."""
        ...


class SparkLauncher:
    """Launches queries on a session that was passed in, or on one that it starts when it is first needed.

    It has its own lock. A supervisor that restarts a query calls it from another thread, while a thread that holds the
    hub's lock may be waiting to stop that query. So this class never takes the hub's lock.
    """

    def __init__(self, spark: SparkSession | None, options: SparkOptions, time_zone: str | None = None) -> None:
        if spark is not None and not options.is_default:
            raise BadOption(
                "a session that is passed in has its own master and settings",
                advice="Leave out master, conf, packages and ui, or leave out spark.",
                option="spark",
            )
        self._spark, self._options, self._time_zone = spark, options, time_zone
        self._lock = threading.Lock()
        self._state: StateDir | None = None
        self._engine: Engine | None = None
        self._meaning, self._stopped = Meaning(), False

    def bind(self, state: StateDir, catalog: Catalog) -> Meaning:
        self._state = state
        self._meaning = session_meaning(catalog, self._time_zone)
        if self._spark is not None:
            from headrace.spark.session import adopt

            if self._time_zone is None:
                self._meaning = Meaning(time_zone=str(self._spark.conf.get("spark.sql.session.timeZone")))
            self._engine = adopt(self._spark, self._meaning)
        _require_meaning(catalog, self._meaning)
        return self._meaning

    def ready(self) -> None:
        self._running()

    def launch(self, request: QueryRequest) -> Query:
        from headrace.spark.query import StreamQuery

        engine = self._running()
        _log.info("starting stream %s", request.stream, extra=facts("phase", stream=request.stream))
        return StreamQuery(
            engine,
            name=request.stream,
            directory=request.directory,
            committer=request.committer,
            options=request.options,
            ended=request.on_end,
            planner=request.planner_pid,
            members=request.pipelines,
        )

    def launch_dedicated(self, request: DedicatedRequest) -> DedicatedRun:
        from headrace.spark.dedicated_run import DedicatedSparkQuery

        return DedicatedSparkQuery(
            self._running(),
            directory=request.directory,
            committer=request.committer,
            places=request.places,
            runtime=request.runtime,
            ended=request.on_end,
        )

    def waits(self, query: ManagedQuery, plans: PlanStore) -> QueryWaits:
        return QueryWaits(query, plans)

    def session(self) -> SparkSession:
        return self._running().spark

    def checker(self, start: bool) -> SparkChecker | None:
        with self._lock:
            running = self._engine is not None and self._engine.alive
        if not running and not start:
            return None
        from headrace.spark.query_checker import QueryChecker

        return QueryChecker(self.session, running)

    def stop(self) -> None:
        with self._lock:
            self._stopped, engine = True, self._engine
        if engine is not None:
            engine.stop()

    def _running(self) -> Engine:
        """The engine. Starts one if there is none, or if the JVM of our own has died."""
        with self._lock:
            if self._stopped:
                raise hub_closed()
            if self._engine is not None and self._engine.owned and not self._engine.alive:
                gone, self._engine = self._engine, None
                gone.stop()
            if self._engine is None:
                self._engine = self._start()
            return self._engine

    def _start(self) -> Engine:
        """Start Spark, and record in the state directory which process owns it. Without `verbose` it logs to a file."""
        from headrace.spark.session import start

        if self._state is None:
            raise InternalError("the launcher has no state directory")
        if "HEADRACE_FAULT" in os.environ:  # a fault that is injected in a task must also kill this process
            os.environ.setdefault("HEADRACE_FAULT_PID", str(os.getpid()))
        log = None if self._options.verbose else self._state.path / SPARK_LOG
        began = time.monotonic()
        with state_errors(self._state.path), kernels_compiled(self._options.master):
            _log.info("starting Spark on %s", self._options.master or "local[*]", extra=facts("phase"))
            engine = start(self._options, log, self._meaning)
            self._state.record_owner(engine.jvm_pid)
        took, spark = time.monotonic() - began, engine.spark
        _log.info("Spark %s runs after %.1f s", spark.version, took, extra=facts("phase", seconds=round(took, 1)))
        if (page := spark.sparkContext.uiWebUrl) is not None:
            _log.info("Spark's web page is on %s", page, extra=facts("spark_ui", address=page))
        return engine


def _require_meaning(catalog: Catalog, meaning: Meaning) -> None:
    for record in catalog.pipelines.values():
        stored = record.definition.program.meaning
        if stored != meaning:
            raise SessionMismatch(
                f"pipeline {record.definition.name} was planned for time zone {stored.time_zone}, "
                f"not {meaning.time_zone}",
                advice=f"Use --time-zone {stored.time_zone}, or a session with this spark.sql.session.timeZone.",
                wanted=stored.time_zone,
                found=meaning.time_zone,
            )
