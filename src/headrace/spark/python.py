"""The Python that Spark starts for planning and for tasks: the current one, without pyspark's zip in its path, and as a
fork of a process that has loaded everything (`headrace.spark.worker_server`).

Spark puts its own copy of pyspark, a zip of sources, first in the path of every Python process that it starts. Python
does not cache the bytecode of modules in a zip, so each of the six processes between a query and its first row compiles
pyspark again: about 1.4 instead of 0.4 s of CPU each. The installed pyspark is the same one.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
if [ -S "${{{server}:-}}" ]; then
  IFS=$(printf '\037')
  export {arguments}="$*"
  exec {python} -I -S {client}
fi
exec {python} "$@"
"""
# The path of the socket of the worker server, if there is one; and the arguments of the client. They are not on its
# command line, so that lists of processes show each process of Spark only once.
SERVER, ARGUMENTS = "HEADRACE_WORKER_SERVER", "HEADRACE_FORKED_ARGUMENTS"
STOP_SECONDS = 10.0
ROOM = "." * 200  # on the server's command line, for those of the processes that are forked from it


def worker_python() -> str:
    """A command for PYSPARK_PYTHON on this machine. If the script cannot be written, it is the interpreter itself,
    which only starts more slowly."""
    if os.name != "posix":
        return sys.executable
    client = Path(__file__).with_name("forked_python.py")
    own = hashlib.sha256(f"{sys.executable}\0{client}".encode()).hexdigest()[:16]  # other versions may run meanwhile
    script = cache_directory() / f"python-{own}"
    try:
        install_script(
            script,
            _SCRIPT.format(
                python=shlex.quote(sys.executable),
                server=SERVER,
                arguments=ARGUMENTS,
                client=shlex.quote(str(client)),
            ),
        )
    except OSError:
        return sys.executable
    return str(script)


# Variables that Spark sets for its workers, and that Python reads only when it starts. NumPy reads the number of
# threads when it is loaded; a process that is to have more of them is not forked.
_STARTED_WITH = {"PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "YES", "OMP_NUM_THREADS": "1"}


class PreloadedPython:
    """A worker server in a process of its own. Spark's Python processes are forked from it while it runs.

    It belongs to this process: its standard input is a pipe that closes when this process ends.
    """

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="headrace-python-"))
        path = str(self._directory / "s")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)  # from now on requests wait until the server has loaded everything
            listener.listen(64)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "headrace.spark.worker_server", str(listener.fileno()), ROOM],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                env=os.environ | _STARTED_WITH,
                pass_fds=[listener.fileno()],
                process_group=0,  # Ctrl-C in a terminal is for the driver, also before the server can ignore it
            )
        self.path = path

    def settings(self) -> dict[str, str]:
        """Settings with which Spark talks to its Python processes over sockets in the directory of the server.

        Over TCP, an epoch with few rows waits for 40 ms twice: a small message is held back until the one before it is
        acknowledged, and the kernel delays that acknowledgement (docs/design/2026-11-19-small-epochs.md). The path of a
        socket has a limit of 107 bytes, and Spark's names have 42.
        """
        if len(os.fsencode(self._directory)) > 107 - 42:
            return {}
        return {
            "spark.python.unix.domain.socket.enabled": "true",
            "spark.python.unix.domain.socket.dir": str(self._directory),
        }

    @contextmanager
    def in_environment(self) -> Iterator[None]:
        """Name the server to a JVM that is started in here, and to no other process that this one starts later."""
        before = os.environ.get(SERVER)
        os.environ[SERVER] = self.path
        try:
            yield
        finally:
            del os.environ[SERVER]
            if before is not None:
                os.environ[SERVER] = before

    def stop(self) -> None:
        """End the server when Spark's processes have ended. Processes that take longer are terminated."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        for end in (self._process.terminate, self._process.kill):
            try:
                self._process.wait(timeout=STOP_SECONDS)
                break
            except subprocess.TimeoutExpired:
                end()
        self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)


def preloaded_python(master: str) -> PreloadedPython | None:
    """Start a worker server for sessions on this machine. Elsewhere, and where processes cannot be forked safely,
    Spark starts its own."""
    if sys.platform != "linux" or not master.startswith("local") or master.startswith("local-cluster"):
        return None
    try:
        return PreloadedPython()
    except OSError:
        return None
