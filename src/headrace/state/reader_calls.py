"""Calls from the data source `headrace` to the hub, over the loopback interface.

Spark loads a data source in processes of its own: one that asks for the schema, and one that plans batches. Both ask
the hub, because only the hub can declare the pipeline whose rows the user's query reads. One connection carries one
call.
"""

from __future__ import annotations

import json
import logging
import secrets
import socket
import socketserver
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from headrace.errors import HeadraceError, HubClosed, InternalError, kind_of

_log = logging.getLogger(__name__)
# Raised when a field changes its meaning.
CALL_VERSION = 1
# The hub may have to start the stream first.
ANSWER_SECONDS = 300.0
_LONGEST = 1 << 20


@dataclass(frozen=True, slots=True)
class ReaderCall:
    """What `readStream.format("headrace")` asks for: its options. With `opening` the query starts, so the pipeline is
    declared unless it is there; else only the columns are wanted."""

    options: dict[str, str]
    opening: bool


@dataclass(frozen=True, slots=True)
class ReaderPlace:
    """The pipeline that a query reads: its feed, and its columns as a DDL."""

    pipeline: str
    instance: int
    directory: str
    ddl: str


def call_hub(port: int, token: str, call: ReaderCall) -> ReaderPlace:
    """The hub's answer. Raises the hub's error, and HubClosed if there is no hub."""
    message = {"token": token, "version": CALL_VERSION, **asdict(call)}
    try:
        with socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS) as connection:
            connection.sendall(json.dumps(message).encode() + b"\n")
            with connection.makefile("rb") as answers:
                answer = answers.readline()
    except OSError as problem:
        raise _no_hub(str(problem)) from None
    if not answer:
        raise _no_hub("the connection was closed")
    found: dict[str, Any] = json.loads(answer)
    if "place" in found:
        return ReaderPlace(**found["place"])
    kind = kind_of(f"[{found['code']}]") or InternalError
    raise kind(found["message"], advice=found["advice"])


def _no_hub(why: str) -> HubClosed:
    return HubClosed(
        f"the hub of this data source does not answer ({why})",
        advice="Open the hub again, and build the query with hub.spark.readStream of the new one.",
    )


class ReaderCalls:
    """The hub's side: answers calls with `answer`, each in a thread of its own."""

    def __init__(self, answer: Callable[[ReaderCall], ReaderPlace]) -> None:
        self.token = secrets.token_hex(16)  # other local processes can reach the port, but do not know this
        calls, token = self, self.token

        class Handler(socketserver.StreamRequestHandler):
            timeout = 10.0  # a caller sends its line at once

            def handle(self) -> None:
                message = _parsed(self.rfile.readline(_LONGEST), token)
                if message is not None:
                    self.wfile.write(json.dumps(calls._answer(message)).encode() + b"\n")

        self._ask = answer
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="headrace-readers", daemon=True).start()

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"place": asdict(self._ask(ReaderCall(message["options"], message["opening"])))}
        except HeadraceError as problem:
            return {"code": problem.code, "message": problem.message, "advice": problem.advice}
        except Exception as problem:
            _log.exception("a reader's call failed")
            return {"code": InternalError.code, "message": f"{type(problem).__name__}: {problem}", "advice": ""}

    def close(self) -> None:
        """Answer no more calls, and free the port."""
        self._server.shutdown()
        self._server.server_close()


def _parsed(line: bytes, token: str) -> dict[str, Any] | None:
    """The call in a line, or None. Any local process can connect, so nothing here may raise."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("token") != token or found.get("version") != CALL_VERSION:
        return None
    return found if isinstance(found.get("options"), dict) and isinstance(found.get("opening"), bool) else None
