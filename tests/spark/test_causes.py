"""The cause of a failed query, found in texts that Spark really reports."""

from __future__ import annotations

import pytest

from headrace.errors import DiskFull, StateDamaged, kind_of
from headrace.spark.causes import cause_of, from_state, in_short

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
