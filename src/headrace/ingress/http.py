"""HTTP ingest: `POST /ingest/{stream}` with records as the body. httptools (llhttp) does the parsing.

A request is journaled whole or not at all: the answer 204 means that it is in the journal (synced, with fsync =
'always'), and any other that nothing of it is. The end of the body ends its last record. Bodies are bounded one by
one and in sum; headers are bounded; a request that does not come to its end in time is answered 408."""

from __future__ import annotations

import asyncio
import hmac
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import cast
from urllib.parse import unquote

import httptools

from headrace.errors import DamagedStream
from headrace.formats.codecs import CODECS, TooLong, decompress
from headrace.ingress.peers import Origin
from headrace.ingress.stream import StreamIngress
from headrace.ingress.tcp import keep_alive

MAX_HEADER_BYTES = 16 << 10
MAX_PIPELINED = 32  # requests of one connection that wait for their answer
MAX_BODIES = 256 << 20  # bytes of unfinished bodies, all connections together
_PREFIX = b"/ingest/"
_CODECS = {codec.encode(): codec for codec in CODECS} | {b"": "", b"identity": ""}  # by Content-Encoding


@dataclass(frozen=True, slots=True)
class Route:
    """Where the requests for one stream go. `token` may be empty; times are in seconds."""

    ingress: StreamIngress
    token: str
    max_request_bytes: int
    request_timeout: float
    idle_timeout: float


class Site:
    """One address and the streams it serves. Connections as such have the limits and counters of its first stream."""

    def __init__(self, name: str, route: Route) -> None:
        self.routes = {name: route}
        self.peers: set[HttpPeer] = set()
        self.body_bytes = 0

    @property
    def fallback(self) -> Route:
        return next(iter(self.routes.values()))

    def remove(self, name: str) -> None:
        """A stream is closed: its connections are now those of the others."""
        route = self.routes.pop(name)
        for peer in self.peers if self.routes else ():
            peer.leave(route)

    def connect(self) -> HttpPeer:
        return HttpPeer(self)


class HttpPeer(asyncio.Protocol):
    """One connection. It is an origin of every stream that it sends to."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._belong(site.fallback)
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._origins: dict[str, tuple[StreamIngress, Origin]] = {}
        self._answers: deque[list[bytes | None]] = deque()
        self._loop = site.fallback.ingress.loop
        self._deadline = self._loop.time() + self._limits.request_timeout
        self._closing = self._busy = self._eof = False
        self._timer = self._loop.call_later(1.0, self._watch)
        self._reset()

    def _belong(self, route: Route) -> None:
        self._limits, self._counters = route, route.ingress.counters.of("http")

    def leave(self, route: Route) -> None:
        """A stream is closed. When it is opened again, it knows nothing of our origin."""
        self._origins = {name: known for name, known in self._origins.items() if known[0] is not route.ingress}
        if self._limits is route:
            self._counters["closed"] += 1
            self._belong(self._site.fallback)
            self._counters["opened"] += 1

    def _reset(self) -> None:
        self._url, self._header_bytes, self._headers_done = b"", 0, False
        self._length: int | None = None
        self._authorization, self._encoding = b"", b""
        self._expects = False
        self._route: Route | None = None
        self._origin: Origin | None = None
        self._refusal: HTTPStatus | None = None
        self._parts: list[bytes] = []
        self._size = 0

    # --- the connection ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        keep_alive(transport)
        self._counters["opened"] += 1
        self._site.peers.add(self)
        if len(self._site.peers) > self._limits.ingress.settings.max_connections:
            self._counters["refused"] += 1
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._site.peers.discard(self)
        self._counters["closed"] += 1
        self._counters["errors"] += exc is not None
        if self._size:
            self._counters["cut_records"] += 1
            self._counters["cut_bytes"] += self._size
        self._forget_body()
        self._timer.cancel()
        self._transport = None
        for ingress, origin in self._origins.values():
            ingress.end_origin(origin)

    def eof_received(self) -> bool:
        """The other side sends no more; it still gets its answers."""
        self._eof = True
        return bool(self._answers)

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        if not self._busy:
            self._busy = True
            self._deadline = self._loop.time() + self._limits.request_timeout
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._give_up(HTTPStatus.BAD_REQUEST)
        if self._busy and not self._headers_done:
            self._header_bytes += len(data)
            if self._header_bytes > MAX_HEADER_BYTES:
                self._give_up(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def _watch(self) -> None:
        """Once a second: is the request, or the next one, overdue?"""
        self._timer = self._loop.call_later(1.0, self._watch)
        if self._loop.time() > self._deadline and not self._answers:
            self._counters["timeouts"] += 1
            if self._busy:
                self._give_up(HTTPStatus.REQUEST_TIMEOUT)
            elif self._transport is not None:
                self._transport.close()

    # --- what the parser finds --------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._reset()
        self._busy = True

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        lowered = name.lower()
        if lowered == b"authorization":
            self._authorization = value
        elif lowered == b"content-encoding":
            self._encoding = value.strip().lower()
        elif lowered == b"expect":
            self._expects = value.lower() == b"100-continue"
        elif lowered == b"content-length" and value.isdigit() and len(value) < 19:
            self._length = int(value)

    def on_headers_complete(self) -> None:
        self._headers_done = True
        self._refusal = self._judge()
        if self._expects and self._refusal is None and self._transport is not None:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _judge(self) -> HTTPStatus | None:
        """Why the request cannot be taken, as far as its headers tell."""
        path = self._url.partition(b"?")[0]
        if not path.startswith(_PREFIX):
            return HTTPStatus.NOT_FOUND
        name = unquote(path[len(_PREFIX) :].decode("ascii", "replace")).lower()
        self._route = route = self._site.routes.get(name)
        if route is None:
            return HTTPStatus.NOT_FOUND
        if self._parser.get_method() != b"POST":
            return HTTPStatus.METHOD_NOT_ALLOWED
        if route.token and not hmac.compare_digest(self._authorization, b"Bearer " + route.token.encode()):
            return HTTPStatus.UNAUTHORIZED
        if self._encoding not in _CODECS:
            return HTTPStatus.UNSUPPORTED_MEDIA_TYPE
        if self._length is not None and self._length > route.max_request_bytes:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        if name not in self._origins:
            self._origins[name] = (route.ingress, route.ingress.begin_origin("http"))
        self._origin = self._origins[name][1]
        return None if route.ingress.open else HTTPStatus.TOO_MANY_REQUESTS

    def on_body(self, body: bytes) -> None:
        if self._refusal is not None or self._route is None:
            return
        self._size += len(body)
        self._site.body_bytes += len(body)
        if self._size > self._route.max_request_bytes:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        elif self._site.body_bytes > MAX_BODIES:
            self._refuse(HTTPStatus.TOO_MANY_REQUESTS)
        else:
            self._parts.append(body)

    def _refuse(self, status: HTTPStatus) -> None:
        self._refusal = status
        self._forget_body()

    def _forget_body(self) -> None:
        self._site.body_bytes -= self._size
        self._parts, self._size = [], 0

    def on_message_complete(self) -> None:
        if self._closing:
            return
        place: list[bytes | None] = [None]
        self._answers.append(place)
        self._busy = False
        last = not self._parser.should_keep_alive()
        route, origin = self._route, self._origin
        body = self._body()
        status = self._refusal
        if status is None and route is not None and origin is not None:
            done = self._answer_later(place, origin, last)
            if not body:
                done()
            elif not route.ingress.take_body(origin, body, done):
                status = HTTPStatus.TOO_MANY_REQUESTS
        if status is not None:
            self._counters["refused"] += 1
            self._answer(place, status, last)
        if len(self._answers) > MAX_PIPELINED and self._transport is not None:
            self._transport.pause_reading()

    def _body(self) -> bytes:
        """The body of a request that is not refused, decompressed; what it becomes is bounded like what was sent."""
        body = b"".join(self._parts)
        self._forget_body()
        codec = _CODECS.get(self._encoding, "")
        if not codec or not body or self._refusal is not None or self._route is None:
            return body
        try:
            return decompress(body, codec, "the body", self._route.max_request_bytes)
        except TooLong:
            self._refusal = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        except DamagedStream:
            self._refusal = HTTPStatus.BAD_REQUEST
        return b""

    # --- answers ----------------------------------------------------------------------------------

    def _answer_later(self, place: list[bytes | None], origin: Origin, last: bool) -> Callable[[], None]:
        def done() -> None:
            origin.counters["requests"] += 1
            self._answer(place, HTTPStatus.NO_CONTENT, last)

        return done

    def _answer(self, place: list[bytes | None], status: HTTPStatus, last: bool) -> None:
        place[0] = response(status, last)
        full = len(self._answers) > MAX_PIPELINED
        while self._answers and self._answers[0][0] is not None:
            text = self._answers.popleft()[0]
            if self._transport is not None and text is not None:
                self._transport.write(text)
        if self._transport is None:
            return
        if (last or self._eof) and not self._answers:
            self._closing = True
            self._transport.close()
        elif full and len(self._answers) <= MAX_PIPELINED:
            self._transport.resume_reading()
        self._deadline = self._loop.time() + self._limits.idle_timeout

    def _give_up(self, status: HTTPStatus) -> None:
        """Answer and close: what follows cannot be understood or will not come."""
        if self._closing:
            return
        place: list[bytes | None] = [None]
        self._answers.append(place)
        self._counters["refused"] += 1
        self._forget_body()
        self._answer(place, status, last=True)
        self._closing = True

    def abort(self) -> None:
        """Close: the gateway stops."""
        if self._transport is not None:
            self._transport.close()


def response(status: HTTPStatus, last: bool) -> bytes:
    """A whole answer, without a body."""
    lines = [f"HTTP/1.1 {status.value} {status.phrase}"]
    if status is not HTTPStatus.NO_CONTENT:
        lines.append("Content-Length: 0")
    if status is HTTPStatus.TOO_MANY_REQUESTS:
        lines.append("Retry-After: 1")
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: POST")
    if status is HTTPStatus.UNAUTHORIZED:
        lines.append("WWW-Authenticate: Bearer")
    if last:
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
