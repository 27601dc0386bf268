"""Java's archive of Spark's loaded classes, which halves the start time of a session.

A JVM that starts Spark loads, verifies and links about ten thousand classes. Java can keep the result in a file and map
it on the next start (class data sharing). `make setup` records one run into the Python environment of headrace, and
sessions use the file if it exists. Java compares the archive with its own version and the jars. If they do not match,
Java starts without it, so a stale archive only costs time.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pyspark

# Java prints warnings about an archive that does not match to standard output, which belongs to the user.
_QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")


def location(java_home: Path, prefix: Path | None = None) -> Path:
    """The path of the archive for this Java and this Spark. It is in the Python environment, and removed with it."""
    key = hashlib.sha256(f"{java_home}\n{pyspark.__version__}".encode()).hexdigest()[:16]
    return (prefix or Path(sys.prefix)) / "share" / "headrace" / f"spark-{key}.jsa"


def using(java_home: Path, prefix: Path | None = None) -> list[str]:
    """The JVM options that use the archive. None if it was never recorded."""
    path = location(java_home, prefix)
    return [f"-XX:SharedArchiveFile={path}", *_QUIET] if path.is_file() else []


def recording(path: Path) -> list[str]:
    """The JVM options that write the archive to `path` when the JVM exits."""
    return [f"-XX:ArchiveClassesAtExit={path}", *_QUIET]
