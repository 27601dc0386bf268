"""Why the Spark query of a pipeline failed, as a coded error."""

from __future__ import annotations

import re

from py4j.protocol import Py4JNetworkError
from pyspark.errors import AnalysisException, ParseException, PySparkException, PythonException

from headrace.errors import (
    DiskFailed,
    DiskFull,
    EvaluationFailed,
    HeadraceError,
    OutOfMemory,
    SparkRefused,
    TableTooLarge,
    WorkerDied,
    kind_of,
)
from headrace.exec.failures import coded
from headrace.model.definitions import PipelineDef
from headrace.spark.causes import NO_FORKS, cause_of

_GONE = re.compile(r"stopped SparkContext|SparkContext was shut down|Job \d+ cancelled because SparkContext")
_DIED = re.compile(rf"Python worker exited unexpectedly|ExecutorLostFailure|{NO_FORKS}")
_MEMORY = re.compile(r"java\.lang\.OutOfMemoryError|SparkOutOfMemoryError|UNABLE_TO_ACQUIRE_MEMORY")
_BROADCAST = re.compile(
    r"[Cc]annot broadcast the table|[Nn]ot enough memory to build and broadcast|Could not execute broadcast in"
)
_NO_FILE = re.compile(r"FAILED_READ_FILE|FileNotFoundException: (?!.*/checkpoint/)")
# Java puts the error of an open file there, and that of opening one in parentheses after its path.
_DISK = re.compile(r"java\.io\.\w*Exception: (?:.*\()?(?:Input/output error|Read-only file system)")
_STATE = re.compile(r"\s*SQLSTATE: \w+")
_UDF = re.compile(r'File "([^"]+)", line (\d+), in (\w+)')
_SHOWN = 600
_SOME_ROW = "on some row"


def is_of_spark(problem: Exception) -> bool:
    """True if Spark itself is gone, or its process that forks workers, so that no pipeline is to blame."""
    if isinstance(problem, Py4JNetworkError | ConnectionError):
        return True
    if isinstance(problem, HeadraceError | PythonException | AnalysisException):  # their texts are the user's
        return False
    if condition_of(problem) == "USER_RAISED_EXCEPTION":
        return False
    return _GONE.search(str(problem)) is not None or cause_of(problem).startswith(NO_FORKS)


def query_failure(problem: Exception, pipeline: PipelineDef) -> HeadraceError:
    """The failure of a query while it ran. Spark's condition is in the message, with the part of the SQL or the line of
    the user's function that failed."""
    if isinstance(problem, HeadraceError):
        return problem
    said = cause_of(problem)
    if kind_of(said) is DiskFull and not isinstance(problem, PythonException) and not condition_of(problem):
        return DiskFull(said.split("] ", 1)[1])
    if _DISK.search(said):
        return DiskFailed(
            f"the disk failed under the Spark query of pipeline {pipeline.name}: {spark_says(problem)}",
            advice="Check the disks of the state directory, of Spark's temporary directory (spark.local.dir, /tmp) and "
            "of the tables that the query reads. Then start the pipeline again.",
            said=said,
        )
    if isinstance(problem, AnalysisException | ParseException) or _NO_FILE.search(said):
        return SparkRefused(
            f"Spark refuses the query of pipeline {pipeline.name} now: {spark_says(problem)}",
            advice="A table, view or function of the session is missing or has changed. Restore it, and start the "
            "pipeline again.",
            condition=condition_of(problem),
        )
    if _DIED.search(said):
        return WorkerDied(
            f"a Python worker died in the Spark query of pipeline {pipeline.name}: {said}",
            advice="A function of the query may have ended its process or used too much memory.",
        )
    if _BROADCAST.search(said):
        return TableTooLarge(
            f"a static table of pipeline {pipeline.name} has grown too large to be broadcast: {spark_says(problem)}",
            advice="Remove the BROADCAST hint, let the query read a view with fewer rows and columns, give the driver "
            "more memory, or raise spark.sql.broadcastTimeout. Then start the pipeline again.",
            said=said,
        )
    if _MEMORY.search(said):
        return OutOfMemory(
            f"the Spark query of pipeline {pipeline.name} needs more memory than Spark has: {spark_says(problem)}",
            advice="Make shorter values (repeat, collect_list, ...), or give the driver more memory "
            "(spark.driver.memory). Then start the pipeline again.",
            said=said,
        )
    if isinstance(problem, PySparkException) or type(problem).__module__.startswith(("pyspark", "py4j")):
        return EvaluationFailed(
            f"an expression failed {_SOME_ROW}: {spark_says(problem)}{_place(str(problem))}",
            advice="Filter such rows out, or guard the expression (try_cast, try_divide, CASE). "
            "Then CREATE OR REPLACE the pipeline.",
            said=said,
        )
    return coded(problem)


def on_row(failure: EvaluationFailed, row: str) -> EvaluationFailed:
    """The failure with the values of the row on which the query fails."""
    message = failure.message.replace(_SOME_ROW, f"on the row where {row}", 1)
    return EvaluationFailed(message, advice=failure.advice, said=failure.params.get("said", ""), row=row)


def condition_of(problem: Exception) -> str:
    """Spark's own name of an error, such as UNRESOLVED_COLUMN.WITH_SUGGESTION; empty if it has none."""
    try:
        found = problem.getCondition() if isinstance(problem, PySparkException) else None
    except Exception:  # the JVM may be gone
        found = None
    return found or ""


def spark_says(problem: Exception) -> str:
    """Spark's message without its stack traces and plans, on one line."""
    if isinstance(problem, AnalysisException | ParseException):
        text = str(problem).split("\n== SQL", 1)[0].split(";\n", 1)[0]
    else:
        text = cause_of(problem)
    text = _STATE.sub("", text).strip()
    fragment = _fragment(problem)
    joined = " ".join(text.split())[:_SHOWN] + (f" (in {fragment})" if fragment else "")
    return joined


def _fragment(problem: Exception) -> str:
    """The part of the SQL that failed, if Spark knows it."""
    try:
        contexts = problem.getQueryContext() if isinstance(problem, PySparkException) else []
        found = [" ".join(c.fragment().split()) for c in contexts]
    except Exception:  # some contexts are of DataFrame calls and have no fragment
        return ""
    return found[0][:120] if found else ""


def _place(text: str) -> str:
    """The line of the user's function that raised: the last frame that is not Spark's."""
    frames = [f for f in _UDF.findall(text) if "/pyspark/" not in f[0]]
    if not frames:
        return ""
    file, line, name = frames[-1]
    return f" (in the function {name}, {file}, line {line})"
