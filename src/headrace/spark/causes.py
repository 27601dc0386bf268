"""Finds the cause of a failed query in the JVM's report: an outer error, pages of stack traces, and the cause."""

from __future__ import annotations

import re

from headrace.errors import DiskFull, StateDamaged

_CODED = re.compile(r"^(?:Caused by: )?(?:.*?: )?headrace\.errors\.\w+: (\[[A-Z_]+\] (?:.+\n?)+)", re.MULTILINE)
_DIED = re.compile(r"^.*(?:Python worker exited unexpectedly|ExecutorLostFailure).*$", re.MULTILINE)
_FULL = re.compile(r"No space left on device|Disk quota exceeded")
_CHECKSUM = re.compile(r"ChecksumException: Checksum error: file:(.+?/checkpoint/\S+)")
_RAISED = re.compile(r"^(?!Caused by)[A-Za-z_][\w.]*(?:Error|Exception|Failed|Interrupt|Exit): .+$", re.MULTILINE)
# Py4J puts the error of a call on its second line, after a colon.
_CALLED = re.compile(r"^: ([\w.$]+(?:Error|Exception): .+)$", re.MULTILINE)
_CAUSED = re.compile(r"^Caused by: (.+)$", re.MULTILINE)
_STATE = re.compile(r"\s*SQLSTATE: \w+\s*$")
# Errors that Spark raises for damaged files of its state and metadata.
_STATE_FILE = re.compile(
    r"CANNOT_LOAD_STATE_STORE|hadoop\.fs\.\w+Exception|NullPointerException|java\.io\.EOFException"
    r"|FileNotFoundException: File file:.+?/checkpoint/"
)
_FRAME = re.compile(r"^\s*(?:at [\w.$/]+\(|\.\.\. \d+ more)")
# A broken pipe or socket, and the first frame that is not Java's own: where Spark used it.
_BROKEN = re.compile(
    r"^(?:Caused by: )?(java\.(?:net\.SocketException|io\.EOFException|nio\.channels\.ClosedChannelException"
    r"|io\.IOException: (?:Stream closed|Broken pipe|Connection reset))\b.*)\n"
    r"(?:\s*at (?:java|jdk|sun)\..+\n)*\s*at org\.apache\.spark\.api\.python\.([\w.$]+)\(",
    re.MULTILINE,
)
# The frames in which Spark talks to the process that forks workers.
_TO_FORKS = re.compile(r"PythonWorkerFactory\.(?:\$anonfun\$)?(?:stopWorker|createThroughDaemon)\b")
# The process that forks workers died while it started.
_NO_PORT = re.compile(
    r"(?<=SparkException: )EOFException occurred while reading the port number from .+$", re.MULTILINE
)
# The process that forks workers was killed. If idle workers died, too, Spark meets each dead one in a job of its own,
# and fails to tell that process. No query is to blame.
NO_FORKS = "Spark's process that forks Python workers was killed"
WORKER_GONE = "Python worker exited unexpectedly (its connection broke)"


def cause_of(failure: Exception) -> str:
    """The cause of a query's failure, in one or a few lines."""
    trace = getattr(failure, "_stackTrace", None)  # str(failure) has only the outermost message
    return in_short(f"{failure}\n{trace}" if trace else str(failure))


def from_state(failure: Exception) -> bool:
    """True if the query may have failed because of a file of its checkpoint."""
    text = f"{failure}{getattr(failure, '_stackTrace', None) or ''}"
    # A dead worker ends its stream early, too.
    return _STATE_FILE.search(text) is not None and not _DIED.search(text) and _BROKEN.search(text) is None


def in_short(text: str) -> str:
    """The cause in a failure text of Spark, which is mostly stack traces.

    The first of these that is there: an error of headrace with a code, the death of a worker, a full disk, the death of
    the process that forks workers, a broken connection to a worker, a damaged checkpoint file, the last line of a
    Python traceback, the innermost cause of the JVM, the error of a call, the first line.
    """
    coded = [_without_frames(found) for found in _CODED.findall(text)]
    if coded:
        return coded[-1]
    if died := _DIED.search(text):
        return died[0].strip()
    if full := _FULL.search(text):
        return DiskFull(
            f"Spark cannot write: {full[0]}",
            advice="Free space on the disks of the state directory and of /tmp.",
        ).render()
    if unborn := _NO_PORT.search(text):
        return f"{NO_FORKS}: {_STATE.sub('', unborn[0])}"
    if broken := _BROKEN.search(text):
        lost = NO_FORKS if _TO_FORKS.match(broken[2]) else WORKER_GONE
        return f"{lost}: {_STATE.sub('', broken[1])}"
    if damaged := _CHECKSUM.search(text):
        return StateDamaged(
            f"{damaged[1]} does not match the checksum that Spark wrote for it",
            advice="Restore the file from a backup, restore a savepoint, or drop the stream and its pipelines.",
        ).render()
    if "Traceback (most recent call last)" in text:
        raised = _RAISED.findall(text[text.rindex("Traceback (most recent call last)") :])
        if raised and not raised[0].startswith("py4j.protocol.Py4JJavaError"):  # that only names a call
            return str(raised[0])
    if caused := _CAUSED.findall(text):
        return str(caused[-1]).strip()
    if called := _CALLED.search(text):
        return _STATE.sub("", called[1]).strip()
    raised = _RAISED.findall(text)
    return str(raised[-1]) if raised else text.strip().split("\n", 1)[0]


def _without_frames(found: str) -> str:
    lines = found.strip().split("\n")
    stop = next((i for i, line in enumerate(lines) if _FRAME.match(line)), len(lines))
    return _STATE.sub("", "\n".join(lines[:stop])).strip()  # Spark adds a state to messages that it passes on
