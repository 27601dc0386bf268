"""Java's archive of Spark's loaded classes: with it a session is up in half the time.

A JVM that starts Spark reads, checks and links some ten thousand classes. Java can keep the result in a file and map it
on the next start (class data sharing). The set-up records one run into the environment that headrace is installed in; a
session uses the file when it is there. Java compares it with its own version and the jars, and goes on without it when
something does not match, so a stale archive costs time and nothing else.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pyspark

# Remarks about an archive that does not fit would go to standard output, which is the user's.
_QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")


def location(java_home: Path, prefix: Path | None = None) -> Path:
    """Where the archive for this Java and this Spark is kept: in the Python environment, and removed with it."""
    key = hashlib.sha256(f"{java_home}\n{pyspark.__version__}".encode()).hexdigest()[:16]
    return (prefix or Path(sys.prefix)) / "share" / "headrace" / f"spark-{key}.jsa"


def using(java_home: Path, prefix: Path | None = None) -> list[str]:
    """The JVM options that use the archive; none when it was never recorded."""
    path = location(java_home, prefix)
    return [f"-XX:SharedArchiveFile={path}", *_QUIET] if path.is_file() else []


def recording(path: Path) -> list[str]:
    """The JVM options that write the archive to `path` when the JVM ends."""
    return [f"-XX:ArchiveClassesAtExit={path}", *_QUIET]
