"""Notices from a stream's planning process to the hub, over a datagram socket on the loopback interface.

Spark plans the epochs of a source in a separate process. That process sends the hub a notice whenever it plans an
epoch, plans a probe, finds nothing to read, holds, or waits for room in a feed. Notices may be lost: the planner
repeats the last three at every poll, and `headrace.state.progress` keeps on disk whatever must survive.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import secrets
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_log = logging.getLogger(__name__)
# Raised when a field changes its meaning. The two processes may load different releases while one is being upgraded.
NOTICE_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What every notice says: the stream, and the id of its planning process."""

    stream: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochPlanned(Notice):
    """An epoch was planned with this plan version. `backlog` is the number of bytes that wait after it, and
    `planning_ms` is how long planning took."""

    plan: int
    epoch: int
    backlog: int
    planning_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePlanned(Notice):
    """An epoch was planned that only looks for the pipeline which kills workers. Nothing of it is committed."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceIdle(Notice):
    """There is nothing to read under this plan version. `exhausted` means that a finite source has ended."""

    plan: int
    exhausted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningHeld(Notice):
    """The planner plans no epoch, because the hub asked it to hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningPaused(Notice):
    """The planner reads nothing under this plan version, because feeds have no room. `pipelines` are those that write
    them, one on each line."""

    plan: int
    pipelines: str


KINDS: dict[str, type[Notice]] = {
    "planned": EpochPlanned,
    "probing": ProbePlanned,
    "idle": SourceIdle,
    "held": PlanningHeld,
    "paused": PlanningPaused,
}
_KIND_OF = {made: kind for kind, made in KINDS.items()}
_TYPES = {"str": str, "int": int, "bool": bool, "float": float}


def send_notice(port: int, token: str, notice: Notice) -> None:
    """Send a notice to the hub. Never blocks, and does not fail when the hub is gone."""
    envelope = {"token": token, "version": NOTICE_VERSION, "kind": _KIND_OF[type(notice)]}
    message = json.dumps(envelope | dataclasses.asdict(notice)).encode()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.sendto(message, ("127.0.0.1", port))


def _parse(message: bytes, token: str) -> Notice | None:
    """The notice in a message, or None. Any local process can send to the port, so nothing here may raise."""
    try:
        data = json.loads(message)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or data.get("token") != token or data.get("version") != NOTICE_VERSION:
        return None
    kind = data.get("kind")
    return _build(KINDS[kind], data) if isinstance(kind, str) and kind in KINDS else None


def _build(kind: type[Notice], data: dict[str, Any]) -> Notice | None:
    values = {field.name: data.get(field.name) for field in dataclasses.fields(kind)}
    whole = all(type(values[field.name]) is _TYPES[str(field.type)] for field in dataclasses.fields(kind))
    return kind(**values) if whole else None  # type: ignore[arg-type]


class NoticeBoard:
    """The hub's side: a thread that passes each notice to `handler`, in the order of arrival."""

    def __init__(self, handler: Callable[[Notice], None]) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.token = secrets.token_hex(16)  # other local processes can reach the port, but do not know this
        self._handler = handler
        self._closing = False
        self._thread = threading.Thread(target=self._listen, name="headrace-notices", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while True:
            message = self._socket.recv(65536)
            if self._closing:
                return
            notice = _parse(message, self.token)
            if notice is not None:
                self._handler(notice)
            elif not self._closing:
                _log.debug("ignored a message of %d bytes that is not a notice for this hub", len(message))

    def close(self) -> None:
        """Stop the thread and free the port."""
        self._closing = True
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            out.sendto(b"{}", ("127.0.0.1", self.port))  # wakes the thread
        self._thread.join(timeout=5)
        self._socket.close()
