"""Runs `python -m module arguments` as a fork of the worker server (`headrace.spark.worker_server`).

A script of `headrace.spark.python` runs this file by its path, with nothing but the standard library in its path. If
there is no server, or if the command is not `-m`, Python runs in this process as usual.
"""

import array
import json
import os
import socket
import struct
import sys


def ask(server: str, arguments: list[str]) -> "socket.socket | None":
    """The connection to a server that has forked. None if there is no server, or if it ended before."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    request = {"arguments": arguments, "environment": dict(os.environ), "directory": os.getcwd()}
    text = json.dumps(request).encode()
    files = array.array("i", (0, 1, 2))
    try:
        client.connect(server)
        client.sendmsg([struct.pack("<I", len(text))], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
        client.sendall(text)
        return client if client.recv(1) else None
    except OSError:
        return None


def main() -> None:
    server, arguments = os.environ["HEADRACE_WORKER_SERVER"], os.environ.pop("HEADRACE_FORKED_ARGUMENTS").split("\x1f")
    # Strings must have the same hashes in all workers. The server has the seed that Spark sets, and one thread.
    other = os.environ.get("PYTHONHASHSEED") != "0" or os.environ.get("OMP_NUM_THREADS", "1") != "1"
    usual = arguments[:1] != ["-m"] or other
    client = None if usual else ask(server, arguments[1:])
    if client is None:
        os.execv(sys.executable, [sys.executable, *arguments])
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):  # the other end must see when the process closes them
        os.dup2(nothing, number)
    answer = b""
    while len(answer) < 4:
        more = client.recv(4 - len(answer))
        if not more:
            sys.exit(1)
        answer += more
    code = struct.unpack("<i", answer)[0]
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
