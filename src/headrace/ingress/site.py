"""One address that serves HTTP, and the streams that share it.

Every stream has its own token, limits, timeouts and counters. A connection belongs to each stream that it has sent an
accepted request to. What belongs to no stream (a connection before its first request, a request that names none) has
the most generous timeouts of the streams at the address, and is counted for the address."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import unquote

from headrace.ingress.counters import NAMES
from headrace.ingress.peers import Origin
from headrace.ingress.stream import StreamIngress

# Bytes of unfinished bodies, for each stream; a single body may be larger if the stream's options allow that.
MAX_BODIES = 256 << 20
SWEEP_SECONDS = 0.5
_PREFIX = b"/ingest/"


class Connection(Protocol):
    """A connection, as its address sees it."""

    def expire(self, now: float) -> None:
        """Close if it is overdue."""
        ...

    def leave(self, route: Route) -> None:
        """A stream is closed."""
        ...

    def abort(self) -> None:
        """Close: the gateway stops."""
        ...


@dataclass(eq=False, slots=True)
class Route:
    """Where the requests for one stream go. `token` may be empty; times are in seconds. `connections` are those that
    belong to the stream, `body_bytes` what their unfinished bodies take."""

    ingress: StreamIngress
    token: str = field(repr=False)
    max_request_bytes: int
    request_timeout: float
    idle_timeout: float
    connections: set[Connection] = field(default_factory=set, repr=False)
    body_bytes: int = 0

    @property
    def counters(self) -> dict[str, int]:
        return self.ingress.counters.of("http")

    @property
    def full(self) -> bool:
        """Whether no more connections may send to the stream."""
        return len(self.connections) >= self.ingress.settings.max_connections

    def has_room(self) -> bool:
        """Whether the bodies that are here do not exceed what all of them together may take."""
        return self.body_bytes <= max(MAX_BODIES, self.max_request_bytes)

    def join(self, connection: Connection) -> Origin:
        """The connection sends to the stream from now on."""
        self.connections.add(connection)
        self.counters["opened"] += 1
        return self.ingress.begin_origin("http")

    def part(self, connection: Connection) -> None:
        """It does not any more."""
        if connection in self.connections:
            self.connections.remove(connection)
            self.counters["closed"] += 1


class Site:
    """See the module."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.routes: dict[str, Route] = {}
        self.connections: set[Connection] = set()
        self.counters = dict.fromkeys(NAMES, 0)
        self._timer = loop.call_later(SWEEP_SECONDS, self._sweep)

    def add(self, name: str, route: Route) -> None:
        self.routes[name] = route

    def remove(self, name: str) -> None:
        """A stream is closed. Its connections stay: they may send to the others."""
        route = self.routes.pop(name)
        for connection in list(route.connections):
            connection.leave(route)

    def close(self) -> None:
        """The last stream is gone."""
        self._timer.cancel()
        for connection in list(self.connections):
            connection.abort()

    def find(self, target: bytes) -> Route | None:
        """The stream that a request's target names: a path, or a whole URL as proxies get it."""
        if not target.startswith(b"/"):
            scheme, separator, rest = target.partition(b"://")
            if not separator or scheme.lower() not in (b"http", b"https"):
                return None
            target = b"/" + rest.partition(b"/")[2]
        path = target.partition(b"?")[0]
        if not path.startswith(_PREFIX):
            return None
        return self.routes.get(unquote(path[len(_PREFIX) :].decode("ascii", "replace")).lower())

    @property
    def max_connections(self) -> int:
        return sum(route.ingress.settings.max_connections for route in self.routes.values())

    @property
    def request_timeout(self) -> float:
        return max((route.request_timeout for route in self.routes.values()), default=0.0)

    @property
    def idle_timeout(self) -> float:
        return max((route.idle_timeout for route in self.routes.values()), default=0.0)

    def metrics(self) -> dict[str, Any]:
        """What the address counts since it is served."""
        return {"open": self.counters["opened"] - self.counters["closed"], **self.counters}

    def _sweep(self) -> None:
        self._timer = self.loop.call_later(SWEEP_SECONDS, self._sweep)
        now = self.loop.time()
        for connection in list(self.connections):
            connection.expire(now)
