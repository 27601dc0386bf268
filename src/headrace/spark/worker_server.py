"""Forks the Python processes that Spark starts on this machine, from a process with all packages already loaded.

Spark starts a chain of Python processes before the first row: to create the data source, to plan its offsets and its
read, for the state of the operator, and then the workers. Each would load pyspark, Arrow, DuckDB and
our packages, one after the other. `headrace.spark.session` starts this server before the JVM, so it loads them once,
while the JVM starts. `headrace.spark.python` makes Spark run a script that asks the server for a fork
(`headrace.spark.forked_python`).

One thread, one request per connection: the client sends its command line, environment, directory and three standard
files. It gets an answer when the process runs, and its exit code when it has ended. If the client goes away, the
process is ended. The server ends when its standard input is closed and no process is left; on SIGTERM it first ends all
processes. It removes the directory of its socket when it ends, even if the process that started it was killed.
"""

from __future__ import annotations

import array
import ctypes
import gc
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import struct
import sys
import time
import traceback
from contextlib import suppress
from typing import Any

LENGTH = struct.Struct("<I")
FORKED = b"+"  # the first answer; the second is the exit code
EXIT_CODE = struct.Struct("<i")
FILES = 3
# A process whose client has gone gets SIGTERM, and SIGKILL after this many seconds.
KILL_SECONDS = 5.0


def preload() -> None:
    """Import what the processes need, and load the compiled kernels. Starts no thread. What is loaded is frozen: it
    never becomes garbage, and forked processes need not walk it when they collect garbage."""
    import pandas  # noqa: F401
    import pyspark.sql.streaming
    import pyspark.worker  # noqa: F401

    import headrace.spark.source
    import headrace.spark.state_host  # noqa: F401
    from headrace.bridge import merging, rows
    from headrace.formats import warm

    warm.load()
    rows.warm()
    merging.warm()
    gc.freeze()


class WorkerServer:
    """Serves on a listening socket. Not thread-safe."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._clients: dict[int, socket.socket] = {}  # by the process that was forked for it
        self._kill_at: dict[int, float] = {}
        self._closing = False
        self._woken, self._wake = os.pipe()
        for end in (self._woken, self._wake):
            os.set_blocking(end, False)

    def serve(self) -> None:
        """Fork until standard input is closed and all processes have ended."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the driver
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._end_all)
        signal.set_wakeup_fd(self._wake)
        for source in (self._listener, self._woken, 0):
            self._selector.register(source, selectors.EVENT_READ)
        while not self._closing or self._clients:
            for key, _ in self._selector.select(1.0):
                self._handle(key.fileobj)
            self._reap()
            for pid, when in list(self._kill_at.items()):
                if time.monotonic() > when:
                    self._signal(pid, signal.SIGKILL)

    def _end_all(self, *_: object) -> None:
        self._closing = True
        for client in list(self._clients.values()):
            self._client_gone(client)

    def _handle(self, source: Any) -> None:
        if source is self._listener:
            try:
                client, _ = self._listener.accept()
            except OSError:  # the client has gone, or too many files are open
                return
            try:
                self._fork(client)
            except (OSError, ValueError):  # the client has gone, or is not one of ours
                client.close()
        elif source == self._woken:
            with suppress(BlockingIOError):
                os.read(self._woken, 4096)
        elif source == 0:
            if not os.read(0, 4096):
                self._selector.unregister(0)
                self._closing = True
        else:
            self._client_gone(source)

    def _fork(self, client: socket.socket) -> None:
        client.settimeout(10.0)
        request, files = receive(client)
        client.settimeout(None)
        try:
            pid = os.fork()
            if pid == 0:
                # Another client must see the end of its connection although this process lives.
                others = [c.fileno() for c in (client, *self._clients.values(), self._listener)]
                self._selector.close()
                run(request, files, [*others, self._woken, self._wake])
        finally:
            for file in files:
                os.close(file)
        self._clients[pid] = client
        self._selector.register(client, selectors.EVENT_READ)
        with suppress(OSError):  # the client has gone
            client.sendall(FORKED)

    def _client_gone(self, client: socket.socket) -> None:
        with suppress(KeyError, ValueError):  # SIGTERM came after the client had gone
            self._selector.unregister(client)
        for pid, known in self._clients.items():
            if known is client:
                self._signal(pid, signal.SIGTERM)
                self._kill_at[pid] = time.monotonic() + KILL_SECONDS

    def _signal(self, pid: int, number: signal.Signals) -> None:
        if pid in self._clients:  # not reaped yet, so its process id cannot belong to another process
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _reap(self) -> None:
        while self._clients:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            client = self._clients.pop(pid, None)
            self._kill_at.pop(pid, None)
            if client is not None:
                with suppress(KeyError, ValueError):
                    self._selector.unregister(client)
                with suppress(OSError):  # the client has gone
                    client.sendall(EXIT_CODE.pack(os.waitstatus_to_exitcode(status)))
                client.close()


def receive(client: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """A request, and the files that came with it. Raises OSError or ValueError."""
    files = array.array("i")
    first, ancillary, _, _ = client.recvmsg(LENGTH.size, socket.CMSG_SPACE(FILES * files.itemsize))
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            files.frombytes(data[: len(data) - len(data) % files.itemsize])
    text = b""
    if len(first) == LENGTH.size and len(files) == FILES:
        (size,) = LENGTH.unpack(first)
        while len(text) < size:
            more = client.recv(size - len(text))
            if not more:
                break
            text += more
        if len(text) == size:
            return json.loads(text), files.tolist()
    for file in files:
        os.close(file)
    raise ValueError("a request is not complete")


def run(request: dict[str, Any], files: list[int], unused: list[int]) -> None:
    """Become the process that a request asks for: `python -m module arguments`. Does not return."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        for standard, file in enumerate(files):
            os.dup2(file, standard)
        for file in (*files, *unused):
            os.close(file)
        os.chdir(request["directory"])
        os.environ.clear()
        os.environ.update(request["environment"])
        given = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
        sys.path[1:1] = [entry for entry in given if entry not in sys.path]
        module, *arguments = request["arguments"]
        with suppress(OSError, IndexError, ValueError):  # it is only for lists of processes
            set_command_line([sys.executable, "-m", module, *arguments])
        sys.argv = [module, *arguments]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def set_command_line(words: list[str]) -> None:
    """Show this command line in lists of processes. Linux reads it from the memory of the process. What is longer than
    the server's own is cut off."""
    with open("/proc/self/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])
    text = "\0".join(words).encode()[: max(0, end - begin - 1)]
    if begin:
        ctypes.memmove(begin, text.ljust(end - begin, b"\0"), end - begin)


def main() -> None:
    """Serve on the listening socket whose number is the argument. Clients that come while packages are loaded wait."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    directory = os.path.dirname(listener.getsockname())
    preload()
    WorkerServer(listener).serve()
    # Only now: a server that fails leaves the directory to its owner, because Spark has its sockets there, too.
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
