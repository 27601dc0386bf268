"""Short notices from the planning process to the hub, over a loopback datagram socket.

Spark plans the epochs of a source in a process of its own. That process notifies the hub when an epoch was planned,
when one is only probed, when the source has no more input, and when the source is held. A notice only wakes the hub.
The facts are in files (`headrace.state.progress`) or in the notice itself. Every idle poll repeats the notice, so a
lost one does no harm.
"""

from __future__ import annotations

import json
import secrets
import socket
import threading
from collections.abc import Callable
from typing import Any, Literal

NoticeKind = Literal["planned", "probing", "idle", "held"]
Handler = Callable[[dict[str, Any]], None]


def send_notice(port: int, token: str, stream: str, kind: NoticeKind, **facts: Any) -> None:
    """Send a notice to the hub. Never blocks and never fails, even if the hub is gone."""
    message = json.dumps({"token": token, "stream": stream, "kind": kind, **facts}).encode()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.sendto(message, ("127.0.0.1", port))


def _parse(message: bytes) -> dict[str, Any]:
    """The notice, or an empty one. Any local process can send to the port, and its data must not stop the thread."""
    try:
        notice = json.loads(message)
    except (ValueError, RecursionError):
        return {}
    return notice if isinstance(notice, dict) else {}


class NoticeBoard:
    """The hub's side: a thread that hands each notice to `handler`, in the order of arrival."""

    def __init__(self, handler: Handler) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.token = secrets.token_hex(16)  # so that no other local process can send notices
        self._handler = handler
        self._closing = False
        self._thread = threading.Thread(target=self._listen, name="headrace-notices", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while True:
            message = self._socket.recv(65536)
            if self._closing:
                return
            notice = _parse(message)
            if notice.get("token") == self.token:
                self._handler(notice)

    def close(self) -> None:
        """Stop the thread and free the port."""
        self._closing = True
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            out.sendto(b"{}", ("127.0.0.1", self.port))
        self._thread.join(timeout=5)
        self._socket.close()
