"""An HTTP address and the streams that share it.

Every stream has its own token, limits, timeouts and counters. A connection belongs to every stream that accepted a
request of it. A connection without any stream, or a request for an unknown stream, gets the longest timeouts of the
streams at the address and is counted for the address."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import unquote

from headrace.ingress.counters import NAMES
from headrace.ingress.peers import Origin
from headrace.ingress.stream_ingress import StreamIngress

# Bytes of unfinished bodies per stream. A single body may be larger if the options of the stream allow it.
MAX_BODIES = 256 << 20
SWEEP_SECONDS = 0.5
_PREFIX = b"/ingest/"


class Connection(Protocol):
    """The part of a connection that its address uses."""

    def expire(self, now: float) -> None:
        """Close if a timeout is over."""
        ...

    def leave(self, route: Route) -> None:
        """End the connection's part in a stream that closes."""
        ...

    def abort(self) -> None:
        """Close, because the gateway stops."""
        ...


@dataclass(eq=False, slots=True)
class Route:
    """The requests for one stream. `token` may be empty. Times are in seconds. `connections` belong to the stream, and
    their unfinished bodies take `body_bytes`."""

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
        """True if no further connection may send to the stream."""
        return len(self.connections) >= self.ingress.max_connections

    def has_room(self) -> bool:
        """True if the unfinished bodies are within their common limit."""
        return self.body_bytes <= max(MAX_BODIES, self.max_request_bytes)

    def join(self, connection: Connection, name: str) -> Origin:
        """Add a connection to the stream. `name` is the address of its other side."""
        self.connections.add(connection)
        self.counters["opened"] += 1
        return self.ingress.begin_origin("http", name)

    def part(self, connection: Connection) -> None:
        """Remove a connection from the stream."""
        if connection in self.connections:
            self.connections.remove(connection)
            self.counters["closed"] += 1


class Site:
    """The address; see the module."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.routes: dict[str, Route] = {}
        self.connections: set[Connection] = set()
        self.counters = dict.fromkeys(NAMES, 0)
        self._timer = loop.call_later(SWEEP_SECONDS, self._sweep)

    def add(self, name: str, route: Route) -> None:
        self.routes[name] = route

    def remove(self, name: str) -> None:
        """Remove a stream. Its connections stay, because they may send to the others."""
        route = self.routes.pop(name)
        for connection in list(route.connections):
            connection.leave(route)

    def close(self) -> None:
        """Close the address after its last stream."""
        self._timer.cancel()
        for connection in list(self.connections):
            connection.abort()

    def find(self, target: bytes) -> Route | None:
        """The route for the target of a request: a path, or a full URL as sent to proxies."""
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
        return sum(route.ingress.max_connections for route in self.routes.values())

    @property
    def request_timeout(self) -> float:
        return max((route.request_timeout for route in self.routes.values()), default=0.0)

    @property
    def idle_timeout(self) -> float:
        return max((route.idle_timeout for route in self.routes.values()), default=0.0)

    def metrics(self) -> dict[str, Any]:
        """The counters of the address since it was opened."""
        return {"open": self.counters["opened"] - self.counters["closed"], **self.counters}

    def _sweep(self) -> None:
        self._timer = self.loop.call_later(SWEEP_SECONDS, self._sweep)
        now = self.loop.time()
        for connection in list(self.connections):
            connection.expire(now)
