"""The cause of a failed query, found in texts that Spark really reports."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, PythonException

from headrace.errors import DiskFull, HeadraceError, StateDamaged, kind_of
from headrace.model.definitions import PipelineDef
from headrace.model.program import Meaning, PipelineProgram, Ring0Program
from headrace.model.schema import Field, Schema, View, parse_type
from headrace.spark.causes import NO_FORKS, WORKER_GONE, cause_of, from_state, in_short
from headrace.spark.query_failures import is_of_spark, query_failure

SCHEMA = Schema((Field("id", parse_type("BIGINT")),))
WRAPPED = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: boom SQLSTATE: XXKST
=== Streaming Query ===
Identifier: s [id = 1, runId = 2]
org.apache.spark.sql.streaming.StreamingQueryException: [STREAM_FAILED] Query [id = 1] terminated: boom
\tat org.apache.spark.sql.execution.streaming.StreamExecution.run(StreamExecution.scala:354)
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: {first}
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)
\t... 20 more
Caused by: {root}
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
\t... 33 more
"""
TRACEBACK = """org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
{raised}

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:1)"""

# An idle worker of a daemon that was killed: Spark wants to tell the daemon.
NO_DAEMON = """An error occurred while calling o271.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 4.0 failed 1 times
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)
Caused by: java.io.IOException: Stream closed
\tat java.base/java.lang.ProcessBuilder$NullOutputStream.write(ProcessBuilder.java:445)
\tat java.base/java.io.DataOutputStream.flush(DataOutputStream.java:128)
\tat org.apache.spark.api.python.PythonWorkerFactory.$anonfun$stopWorker$2(PythonWorkerFactory.scala:527)
\tat scala.Option.foreach(Option.scala:437)
\tat org.apache.spark.api.python.BasePythonRunner.compute(PythonRunner.scala:637)
"""
# It was killed while it started.
NO_PORT = "EOFException occurred while reading the port number from headrace.spark.daemon's stdout."
UNBORN = f"""An error occurred while calling o269.collectToPython.
: org.apache.spark.SparkException: {NO_PORT}
\tat org.apache.spark.errors.SparkCoreErrors$.eofExceptionWhileReadPortNumberError(SparkCoreErrors.scala:55)
\tat org.apache.spark.api.python.PythonWorkerFactory.startDaemon(PythonWorkerFactory.scala:382)
"""
RESET = """org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 4.0 failed 1 times
Caused by: java.net.SocketException: Connection reset
\tat java.base/sun.nio.ch.SocketChannelImpl.read(SocketChannelImpl.java:426)
\tat org.apache.spark.api.python.BasePythonRunner$ReaderInputStream.read(PythonRunner.scala:1)
"""
# The rows that a worker gets come from a file that cannot be read.
NO_PROGRAM = """org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 4.0 failed 1 times
Caused by: java.io.IOException: Cannot run program "/gone/python": error=2, No such file or directory
\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)
\tat org.apache.spark.api.python.PythonWorkerFactory.startDaemon(PythonWorkerFactory.scala:352)
"""
NO_BROADCAST = """org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 4.0 failed 1 times
Caused by: java.io.NotSerializableException: a.B
\tat java.base/java.io.ObjectOutputStream.writeObject0(ObjectOutputStream.java:1187)
\tat org.apache.spark.api.python.PythonBroadcast.writeObject(PythonRDD.scala:1)
"""
FROM_A_FILE = """org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 4.0 failed 1 times
Caused by: java.io.IOException: Input/output error
\tat java.base/java.io.FileInputStream.readBytes(Native Method)
\tat org.apache.hadoop.fs.RawLocalFileSystem$LocalFSFileInputStream.read(RawLocalFileSystem.java:1)
\tat org.apache.spark.api.python.BasePythonRunner$ReaderInputStream.read(PythonRunner.scala:1)
"""


def wrapped(root: str, first: str = "Task 0 failed") -> str:
    return WRAPPED.replace("{root}", root).replace("{first}", first)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (wrapped("java.net.ConnectException: Connection refused"), "java.net.ConnectException: Connection refused"),
        (
            wrapped(TRACEBACK.format(raised="headrace.errors.FileChanged: [FILE_CHANGED] a.json grew\n  Do this.")),
            "[FILE_CHANGED] a.json grew\n  Do this.",
        ),
        (
            wrapped(
                TRACEBACK.format(raised="headrace.errors.FileChanged: [FILE_CHANGED] a\n  Do this.\n SQLSTATE: 38000")
            ),
            "[FILE_CHANGED] a\n  Do this.",
        ),
        (
            wrapped(TRACEBACK.format(raised="ZeroDivisionError: division by zero")),
            "ZeroDivisionError: division by zero",
        ),
        (
            wrapped("java.io.EOFException", "Python worker exited unexpectedly (crashed)"),
            "Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: "
            "Python worker exited unexpectedly (crashed)",
        ),
        (
            "An error occurred while calling o891.executeCollect.\n"
            ": org.apache.spark.SparkException: Cannot broadcast the table that is larger than 4.0 MiB: 9.0 MiB.\n"
            "\tat org.apache.spark.sql.execution.exchange.BroadcastExchangeExec.run(BroadcastExchangeExec.scala:1)",
            "org.apache.spark.SparkException: Cannot broadcast the table that is larger than 4.0 MiB: 9.0 MiB.",
        ),
        ("nothing that we know", "nothing that we know"),
    ],
)
def test_the_innermost_cause_is_reported(text: str, cause: str) -> None:
    assert in_short(text) == cause


def test_a_full_disk_in_spark_is_one_of_our_errors() -> None:
    assert kind_of(in_short(wrapped("java.io.IOException: No space left on device"))) is DiskFull


@pytest.mark.parametrize("state", ["/s", "/my state/50%/größe"])
def test_a_damaged_file_of_the_checkpoint_is_named_and_not_retried(state: str) -> None:
    path = f"{state}/checkpoint/offsets/1"
    text = wrapped(f"org.apache.hadoop.fs.ChecksumException: Checksum error: file:{path} at 0 exp: 1")
    assert kind_of(in_short(text)) is StateDamaged
    assert f"{path} does not match" in in_short(text)


@pytest.mark.parametrize("state", ["/s", "/my state/50%/größe"])
def test_a_missing_file_of_the_checkpoint_is_looked_for(state: str) -> None:
    text = wrapped(f"java.io.FileNotFoundException: File file:{state}/checkpoint/state/0/0/1.zip does not exist")
    assert from_state(Exception(text))


def test_the_cause_is_found_although_pyspark_shows_only_the_outermost_error() -> None:
    class Captured(Exception):
        _stackTrace = wrapped("java.io.IOException: it is a directory")

    assert cause_of(Captured("[STREAM_FAILED] Query terminated")) == "java.io.IOException: it is a directory"


@pytest.mark.parametrize(
    ("text", "cause", "of_spark"),
    [
        (NO_DAEMON, f"{NO_FORKS}: java.io.IOException: Stream closed", True),
        (UNBORN, f"{NO_FORKS}: {NO_PORT}", True),
        (RESET, f"{WORKER_GONE}: java.net.SocketException: Connection reset", False),
        (FROM_A_FILE, "java.io.IOException: Input/output error", False),
    ],
)
def test_a_lost_worker_is_told_from_a_file_that_cannot_be_read(text: str, cause: str, of_spark: bool) -> None:
    failure = Py4JError(text)
    assert cause_of(failure) == cause
    assert is_of_spark(failure) == of_spark, "no pipeline is to blame if there is nothing that forks workers"
    code = failure_of(failure).code
    assert code == ("DISK_FAILED" if text == FROM_A_FILE else "WORKER_DIED")


def failure_of(problem: Exception) -> HeadraceError:
    program = PipelineProgram("s", View.some((0,)), Ring0Program(None), None, SCHEMA, Meaning())
    return query_failure(problem, PipelineDef("p", 1, (), program, 1))


@pytest.mark.parametrize(
    ("cause", "code"),
    [
        ("java.io.IOException: Input/output error", "DISK_FAILED"),
        ("java.io.FileNotFoundException: /tmp/blockmgr-1/0c/shuffle_0_0_0.data (Input/output error)", "DISK_FAILED"),
        ("java.io.FileNotFoundException: /tmp/blockmgr-1/0c/temp_shuffle_1 (Read-only file system)", "DISK_FAILED"),
        ("java.io.FileNotFoundException: File file:/data/dim/part-0.parquet does not exist", "SPARK_REFUSED"),
        ("java.io.IOException: No space left on device", "DISK_FULL"),
        ("java.lang.ArithmeticException: Input/output error", "EVALUATION_FAILED"),
    ],
)
def test_a_disk_that_fails_under_a_query_is_told_from_a_missing_table_and_a_bad_row(cause: str, code: str) -> None:
    """And a query may run again, unless a table or a row is the reason."""
    failure = failure_of(Py4JError(wrapped(cause)))
    assert failure.code == code
    assert failure.retry_helps == code.startswith("DISK")


@pytest.mark.parametrize("condition", ["USER_RAISED_EXCEPTION", "CAST_INVALID_INPUT"])
def test_a_row_that_speaks_of_a_full_disk_is_no_full_disk(condition: str) -> None:
    class Raised(PySparkException):
        def getCondition(self) -> str:
            return condition

    full = "No space left on device"
    assert failure_of(Raised(wrapped(f"org.apache.spark.SparkRuntimeException: {full}"))).code == "EVALUATION_FAILED"
    raised = PythonException(TRACEBACK.format(raised=f"OSError: [Errno 28] {full}"))
    assert failure_of(raised).code == "EVALUATION_FAILED"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            NO_PROGRAM,
            'java.io.IOException: Cannot run program "/gone/python": error=2, No such file or directory',
        ),
        (NO_BROADCAST, "java.io.NotSerializableException: a.B"),
    ],
)
def test_other_failures_beside_workers_are_no_deaths(text: str, cause: str) -> None:
    assert cause_of(Py4JError(text)) == cause
    assert not is_of_spark(Py4JError(text))


def test_what_a_user_raises_is_not_taken_for_a_failure_of_spark() -> None:
    class Raised(PySparkException):
        def getCondition(self) -> str:
            return "USER_RAISED_EXCEPTION"

    assert not is_of_spark(Raised(UNBORN))


def test_a_lost_worker_is_not_taken_for_a_damaged_checkpoint() -> None:
    early = RESET.replace("java.net.SocketException: Connection reset", "java.io.EOFException")
    assert from_state(Exception(early.replace("python.BasePythonRunner", "state.Store")))
    assert not from_state(Exception(early))
