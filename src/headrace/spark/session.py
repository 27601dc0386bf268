"""The Spark session: an embedded one that is quiet and starts fast, or the user's own, whose settings are checked.

docs/design/2026-11-16-state-operator.md explains the settings that were measured.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from headrace.base.durable import private_opener
from headrace.base.hadoop import hadoop_text
from headrace.base.logs import SPARK_LOGS, keep_previous
from headrace.errors import SessionMismatch, SparkNotStarted
from headrace.model.program import Meaning
from headrace.model.spark_options import SparkOptions
from headrace.spark import archive
from headrace.spark.causes import in_short
from headrace.spark.java import find_java
from headrace.spark.python import PreloadedPython, preloaded_python, worker_python
from headrace.spark.reachable import registration_limited, require_reachable, unreachable

_FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

# Spark keeps one fork server per set of environment variables. By default it shortens tracebacks for data sources only,
# by such a variable, and so would run two fork servers that both load our packages.
_TRACEBACKS = "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled"

# The JVM only plans and moves payloads here. Python, DuckDB and compiled kernels do the work. Without its second
# compiler the JVM took 20 instead of 34 s of CPU from its start to the first result, cold, on two cores.
FAST_START = "-XX:TieredStopAtLevel=1"
# Without the second compiler Java has 48 MB for compiled code. Seven pipelines on three hosts filled that in a minute.
# Java then compiles nothing any more. This is the size that it has with both compilers; it is reserved, not used.
CODE_CACHE = "-XX:ReservedCodeCacheSize=240m"

# Which queries get free task slots first.
POOLS = Path(__file__).with_name("pools.xml")

# The JVM's heap, unless the user sets one. With Spark's default of 1 GB, 110 pipelines on the epoch host ran out of it,
# and Spark ends the whole JVM then.
_HEAP_MB = 2048

# Settings that a stream's query needs, even in a session of the user. They are runtime settings, so queries may differ.
QUERY_SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": _FILE_MANAGER,
    # Only the newest epoch is ever run again. With Spark's default of 100 a stream keeps a thousand files, and every
    # savepoint copies them.
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.adaptive.enabled": "false",
    _TRACEBACKS: "false",
    "spark.sql.streaming.stopTimeout": "20s",  # without it, stopping waits forever for a commit that hangs
}


_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# How long Spark, and then its JVM, may take to stop before they are killed.
STOP_SECONDS = 60.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Engine:
    """A session. `owned` says that we started it, and stop it."""

    spark: SparkSession
    owned: bool
    python: PreloadedPython | None = None

    @property
    def cores(self) -> int:
        """Task slots: how many tasks of an epoch run at once."""
        return max(1, int(self.spark.sparkContext.defaultParallelism))

    @property
    def one_machine(self) -> bool:
        """True if all tasks run on this machine, so that they see the state directory."""
        return str(self.spark.sparkContext.master).startswith("local")

    @property
    def jvm_pid(self) -> int | None:
        """The process id of Spark's JVM, if we started it."""
        process = getattr(self.spark.sparkContext._gateway, "proc", None) if self.owned else None
        return None if process is None else int(process.pid)

    @property
    def alive(self) -> bool:
        """True if the session can still run queries. Its JVM may have died, or its master may have ended it."""
        try:
            context: Any = self.spark.sparkContext._jsc
            return context is not None and not context.sc().isStopped()
        except Exception:  # the JVM does not answer
            return False

    def stop(self) -> None:
        """Stop Spark and its JVM within a bounded time, if we started them."""
        if not self.owned:
            return
        context: Any = self.spark.sparkContext
        gateway = context._gateway
        # In a thread, because stopping waits for tasks and for the JVM, and either may hang.
        stopping = threading.Thread(target=self._stop, name="headrace-stop-spark", daemon=True)
        stopping.start()
        stopping.join(STOP_SECONDS)
        _shut_down(gateway)
        updates = getattr(context, "_accumulatorServer", None)
        if updates is not None:  # Spark leaves this thread running if the JVM does not answer
            with suppress(Exception):  # the thread that stops Spark may shut it down at the same time
                updates.shutdown()
        if self.python is not None:
            self.python.stop()

    def _stop(self) -> None:
        try:
            self.spark.stop()
        except Exception as problem:  # the JVM is gone, and with it everything to stop
            _log.info("stopping Spark: %s", problem)


def _shut_down(gateway: Any) -> None:
    """Stop the JVM that we started, if there is one, and let a later session start its own."""
    if gateway is not None:
        process = getattr(gateway, "proc", None)
        with suppress(Exception):  # it may be gone already
            gateway.shutdown()
        if process is not None:
            process.stdin.close()  # the JVM of an embedded driver exits when its standard input closes
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
    """Send the standard error of processes that are started in here to `log`: the JVM and its Python workers."""
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


def errors_file(log: Path) -> Path:
    """The file beside Spark's log that gets what the JVM and its Python workers write to standard error."""
    return log.with_suffix(".err")


def start(
    master: str | SparkOptions | None, log: Path | None, meaning: Meaning, java_options: list[str] | None = None
) -> Engine:
    """An embedded session with these options, or on this master (default `local[*]`). Spark writes warnings and errors
    to the file `log`; with None it is verbose, on standard error. `java_options` replace those that use the class
    archive. Raises SparkNotStarted, SessionMismatch and MissingJava."""
    if SparkContext._active_spark_context is not None:  # getOrCreate would return it, and we would stop it at the end
        raise SessionMismatch(
            "a Spark session is already running in this process",
            advice="Pass it with headrace.connect(spark=...), or stop it first.",
        )
    options = master if isinstance(master, SparkOptions) else SparkOptions(master)
    chosen = options.master or "local[*]"
    require_reachable(chosen)
    java_home = find_java()
    _set_environment(chosen, java_home)
    java = [FAST_START, CODE_CACHE, *(archive.using(java_home) if java_options is None else java_options)]
    builder: Any = SparkSession.builder.appName("headrace").master(chosen)
    for key, value in _session_settings(
        master=chosen, log=log, meaning=meaning, java=java, added=options.settings()
    ).items():
        builder = builder.config(key, value)
    errors = None if log is None else errors_file(log)
    if log is not None and errors is not None:
        keep_previous(log, SPARK_LOGS)
        keep_previous(errors)
    with errors_to(errors), registration_limited(chosen, log, _kill_jvm) as registration:
        python = preloaded_python(chosen)  # before the JVM, which passes our environment on
        for key, value in ({} if python is None else python.settings()).items():
            builder = builder if key in options.settings() else builder.config(key, value)
        try:
            with nullcontext() if python is None else python.in_environment():
                spark = builder.getOrCreate()
        except Exception as problem:
            if registration.timed_out:
                failure = unreachable(chosen, "it takes connections, but does not answer as a Spark master")
            else:
                failure = _not_started(chosen, problem, log)  # needs the JVM, so it comes before it is shut down
            _shut_down(SparkContext._gateway)
            if python is not None:
                python.stop()
            raise failure from None
    return Engine(spark, owned=True, python=python)


def _kill_jvm() -> None:
    """End a start that waits inside the JVM."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.kill()


def _set_environment(master: str, java_home: Path) -> None:
    os.environ["JAVA_HOME"] = str(java_home)
    # Workers always run this Python. Another may lack our packages, and Spark would only say "failed to connect back".
    os.environ["PYSPARK_PYTHON"] = worker_python() if master.startswith("local") else sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Settings of the user win: Spark reads this variable last.
    os.environ.setdefault("SPARK_DRIVER_MEMORY", f"{_heap_mb(_machine_memory())}m")


def _heap_mb(memory: int) -> int:
    """Megabytes of heap on a machine with this many bytes: Spark's default of 1 GB if it is small.

    >>> _heap_mb(2 << 30), _heap_mb(6 << 30), _heap_mb(64 << 30)
    (1024, 1536, 2048)
    """
    return max(1024, min(_HEAP_MB, memory // 4 >> 20))


def _machine_memory() -> int:
    """The bytes that this process may use: those of the machine, or of its container."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # there is none, or it says "max"
            found = min(found, int(Path(limit).read_text()))
    return found


def _session_settings(
    master: str, log: Path | None, meaning: Meaning, java: list[str], added: Mapping[str, str]
) -> dict[str, str]:
    """The settings of an embedded session, with these JVM options and the settings that the user added."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Spark keeps these for its UI although that is off: a thousand of each by default.
        "spark.ui.retainedJobs": "50",
        "spark.ui.retainedStages": "50",
        "spark.ui.retainedTasks": "500",
        "spark.sql.ui.retainedExecutions": "20",
        "spark.sql.session.timeZone": meaning.time_zone,
        "spark.sql.ansi.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        _TRACEBACKS: "false",
        "spark.python.worker.reuse": "true",
        "spark.python.daemon.module": "headrace.spark.daemon",
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": hadoop_text(POOLS),
        "spark.log.level": "INFO" if log is None else "WARN",
    }
    if master.startswith("local"):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        # What every aggregation, sort and join of a task begins with. Spark would choose 16 or 32 MB with few cores.
        # Joins of 600 rows took 12 % less CPU with this size, and a third fewer collections.
        settings["spark.buffer.pageSize"] = "2m"
        # By default Spark ends the JVM if a task runs out of heap, and with it all streams. With 0 only the task fails,
        # and with it the pipeline whose query made a value that is too large.
        settings["spark.executor.killOnFatalError.depth"] = "0"
    if log is not None:
        java = [*java, f"-Dlog4j2.configurationFile={Path(__file__).with_name('spark_log.properties')}"]
        java = [*java, f"-Dheadrace.spark.log={log.absolute()}"]
    theirs = added.get(_JAVA_OPTIONS, "")
    ours = " ".join(f'"{option}"' if " " in option else option for option in java)
    return settings | dict(added) | {_JAVA_OPTIONS: f"{ours} {theirs}".strip()}


def _not_started(master: str, problem: Exception, log: Path | None) -> SparkNotStarted:
    reason = in_short(str(problem).replace("\n: ", "\n"))  # py4j puts a colon before the JVM's exception
    if log is not None and "JAVA_GATEWAY_EXITED" in str(problem):  # the JVM did not get as far as an exception
        reason = _last_words(errors_file(log)) or reason
    more = f" See {log} and {errors_file(log).name}." if log else ""
    return SparkNotStarted(
        f"Spark did not start with master {master}: {reason}",
        advice=f"Check the master and the settings, and that both can be used from this machine.{more}",
        master=master,
    )


def _last_words(errors: Path) -> str:
    """The reason that a JVM gave before it ended: its last exception, or its last line."""
    with suppress(OSError):
        lines = [line.strip() for line in errors.read_text(encoding="utf-8", errors="replace").splitlines()]
        said = [line for line in lines if line and not line.startswith(("at ", "...", "WARNING:", "Picked up"))]
        if "Error: Could not create the Java Virtual Machine." in said:
            said = said[: said.index("Error: Could not create the Java Virtual Machine.")]
        raised = [line for line in said if "Exception: " in line or "Error: " in line]
        return (raised or said or [""])[-1].removeprefix('Exception in thread "main" ')
    return ""


def adopt(spark: SparkSession, meaning: Meaning) -> Engine:
    """The user's own session. Its SQL settings must be those that the plans were made with. Raises SessionMismatch."""
    wanted = {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": meaning.time_zone,
        "spark.sql.caseSensitive": "false",
    }
    for key, value in wanted.items():
        found = str(spark.conf.get(key)).lower()
        if found != value.lower():
            raise SessionMismatch(
                f"the session has {key} = {found}, but the plans were made with {value}",
                advice=f"Call spark.conf.set('{key}', '{value}') before connecting.",
                setting=key,
                found=found,
                wanted=value,
            )
    return Engine(spark, owned=False)
