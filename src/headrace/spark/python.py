"""The Python that Spark starts for planning and for tasks: the current one, without pyspark's zip in its path.

Spark puts its own copy of pyspark, a zip of sources, first in the path of every Python process that it starts. Python
does not cache the bytecode of modules in a zip, so each of the six processes between a query and its first row compiles
pyspark again: about 1.4 instead of 0.4 s of CPU each. The installed pyspark is the same one.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import sys

from headrace.base.cache import cache_directory, install_script

_SCRIPT = """#!/bin/sh
# Runs Python without the zipped copies of installed packages in its path.
set -f
IFS=:
kept=
for entry in $PYTHONPATH; do
  case $entry in
    "$SPARK_HOME"/python/lib/*.zip) ;;
    *) kept=${{kept:+$kept:}}$entry ;;
  esac
done
export PYTHONPATH="$kept"
exec {python} "$@"
"""


def worker_python() -> str:
    """A command for PYSPARK_PYTHON on this machine. If the script cannot be written, it is the interpreter itself,
    which only starts more slowly."""
    if os.name != "posix":
        return sys.executable
    script = cache_directory() / f"python-{hashlib.sha256(sys.executable.encode()).hexdigest()[:16]}"
    try:
        install_script(script, _SCRIPT.format(python=shlex.quote(sys.executable)))
    except OSError:
        return sys.executable
    return str(script)
