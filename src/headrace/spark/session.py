"""The Spark session: made quiet, small and fast, or taken as it is and checked.

Settings that were measured are explained in docs/design/2026-11-16-state-operator.md.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from headrace.durable import private_opener
from headrace.errors import SessionMismatch, SparkNotStarted
from headrace.java import find_java
from headrace.logs import keep_previous
from headrace.program import Meaning
from headrace.spark import archive
from headrace.spark.python import worker_python

_FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

# Spark keeps one fork server per set of environment variables, and tells only data sources to shorten tracebacks: with
# that our packages would be loaded twice.
_TRACEBACKS = "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled"

# The JVM only plans and moves payloads here; the work is done in Python, DuckDB and compiled kernels. Without the
# second compiler the JVM took 20 instead of 34 s of CPU from its start to the first result, cold, on two cores.
FAST_START = "-XX:TieredStopAtLevel=1"

# What a stream's query needs, whoever made the session. Runtime settings: they may differ between queries.
QUERY_SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": _FILE_MANAGER,
    # Only the newest epoch is ever run again. With Spark's 100 a stream keeps a thousand files, which savepoints copy.
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.adaptive.enabled": "false",
    _TRACEBACKS: "false",
    "spark.sql.streaming.stopTimeout": "20s",  # without it, stopping waits for ever for a commit that hangs
}


# How long Spark, and then its JVM, have to end before they are killed.
STOP_SECONDS = 60.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Engine:
    """A session and whether it is ours to stop."""

    spark: SparkSession
    owned: bool

    @property
    def cores(self) -> int:
        """Task slots: how many tasks of an epoch run at once."""
        return max(1, int(self.spark.sparkContext.defaultParallelism))

    @property
    def jvm_pid(self) -> int | None:
        """The process of Spark's driver when we started it."""
        process = getattr(self.spark.sparkContext._gateway, "proc", None) if self.owned else None
        return None if process is None else int(process.pid)

    @property
    def alive(self) -> bool:
        """Whether the session can still run queries: its JVM may have died, or its master have ended it."""
        try:
            context: Any = self.spark.sparkContext._jsc
            return context is not None and not context.sc().isStopped()
        except Exception:  # the JVM does not answer
            return False

    def stop(self) -> None:
        """Stop Spark and its JVM, if they are ours, within a bounded time."""
        if not self.owned:
            return
        gateway: Any = self.spark.sparkContext._gateway
        # In a thread: stopping waits for tasks and for the JVM, and either may hang.
        stopping = threading.Thread(target=self._stop, name="headrace-stop-spark", daemon=True)
        stopping.start()
        stopping.join(STOP_SECONDS)
        _shut(gateway)

    def _stop(self) -> None:
        try:
            self.spark.stop()
        except Exception as problem:  # the JVM is gone: what it held went with it
            _log.info("stopping Spark: %s", problem)


def _shut(gateway: Any) -> None:
    """End the JVM that we started, if there is one, and let a later session start its own."""
    if gateway is not None:
        process = getattr(gateway, "proc", None)
        with suppress(Exception):  # it may be gone already
            gateway.shutdown()
        if process is not None:
            process.stdin.close()  # the JVM of an embedded driver ends with its standard input
            try:
                process.wait(timeout=STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=STOP_SECONDS)
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


@contextmanager
def errors_to(log: Path | None) -> Iterator[None]:
    """Processes started in here write their standard error to `log`: the JVM's and its Python workers' chatter."""
    if log is None:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(log, "wb", opener=private_opener) as out:
            os.dup2(out.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def start(master: str | None, log: Path | None, meaning: Meaning, java_options: list[str] | None = None) -> Engine:
    """An embedded session on `master` (default `local[*]`). Spark is quiet and writes errors to the file `log`; with
    None it is verbose, on standard error. `java_options` replace those that use the class archive."""
    if SparkContext._active_spark_context is not None:  # Spark would give us that one, and we would stop it in the end
        raise SessionMismatch(
            "a Spark session is already running in this process",
            advice="Hand it in with headrace.connect(spark=...), or stop it first.",
        )
    java_home = find_java()
    os.environ["JAVA_HOME"] = str(java_home)
    chosen = master or "local[*]"
    # The worker Python is always this one: another may lack our packages, and Spark only says "failed to connect back".
    os.environ["PYSPARK_PYTHON"] = worker_python() if chosen.startswith("local") else sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder.appName("headrace").master(chosen)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Kept for the page that is off: a thousand of each by default.
        "spark.ui.retainedJobs": "50",
        "spark.ui.retainedStages": "50",
        "spark.ui.retainedTasks": "500",
        "spark.sql.ui.retainedExecutions": "20",
        "spark.sql.session.timeZone": meaning.time_zone,
        "spark.sql.ansi.enabled": str(meaning.ansi).lower(),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        _TRACEBACKS: "false",
        "spark.python.worker.reuse": "true",
        "spark.python.daemon.module": "headrace.spark.daemon",
        "spark.scheduler.mode": "FAIR",
        "spark.log.level": "INFO" if log is None else "ERROR",
    }
    if chosen.startswith("local"):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    java = [FAST_START, *(archive.using(java_home) if java_options is None else java_options)]
    if log is not None:
        java.append(f"-Dlog4j2.configurationFile={Path(__file__).with_name('quiet.properties')}")
    settings["spark.driver.extraJavaOptions"] = " ".join(java)
    for key, value in settings.items():
        builder = builder.config(key, value)
    if log is not None:
        keep_previous(log)
    with errors_to(log):
        try:
            spark = builder.getOrCreate()
        except Exception as problem:
            told = _not_started(chosen, problem, log)  # asks the JVM
            _shut(SparkContext._gateway)
            raise told from None
    return Engine(spark, owned=True)


def _not_started(master: str, problem: Exception, log: Path | None) -> SparkNotStarted:
    causes = [line for line in str(problem).splitlines() if "Exception: " in line or "Error: " in line]
    reason = causes[-1].strip(": ") if causes else f"{type(problem).__name__}: {problem}"
    more = f" See {log}." if log else ""
    return SparkNotStarted(
        f"Spark did not start with master {master}: {reason}",
        advice=f"Is the master right and running, and can it be reached from here?{more}",
        master=master,
    )


def adopt(spark: SparkSession, meaning: Meaning) -> Engine:
    """A session that was handed in. It must mean by SQL what the plans mean."""
    wanted = {
        "spark.sql.ansi.enabled": str(meaning.ansi).lower(),
        "spark.sql.session.timeZone": meaning.time_zone,
        "spark.sql.caseSensitive": str(meaning.case_sensitive).lower(),
    }
    for key, value in wanted.items():
        found = str(spark.conf.get(key)).lower()
        if found != value.lower():
            raise SessionMismatch(
                f"the session has {key} = {found}, but the plans here mean {value}",
                advice=f"Set it with spark.conf.set('{key}', '{value}') before connecting.",
                setting=key,
                found=found,
                wanted=value,
            )
    return Engine(spark, owned=False)
