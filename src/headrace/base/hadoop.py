"""Paths of this machine as Hadoop reads them."""

from __future__ import annotations

from pathlib import Path


def hadoop_text(path: Path) -> str:
    """`path` as a text that Spark may make a Hadoop Path of.

    A Hadoop Path escapes special characters itself. A URI, such as `as_uri` returns, would be escaped twice and name
    another path. Without the scheme, the path would be wherever fs.defaultFS points. Two leading slashes would be read
    as a host name.

    >>> hadoop_text(Path("/data/my files/50%"))
    'file:/data/my files/50%'
    """
    return "file:/" + str(path.absolute()).lstrip("/")
