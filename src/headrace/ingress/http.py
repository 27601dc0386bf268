"""HTTP ingest: one connection that sends `POST /ingest/{stream}` with records as the body. `headrace.ingress.requests`
parses its bytes, and `headrace.ingress.site` finds the stream.

A request is journaled completely or not at all. The response 204 means that it is in the journal (synced, with fsync =
'always'). Any other response means that nothing of it is. The end of the body ends its last record.

Limits that hold for any input: a connection keeps one body and one read in memory. Its unread responses are bounded,
because nothing is read from it while they wait. One turn in the event loop takes milliseconds, because many small
chunks or requests yield to other connections, and decompression has its own threads. No connection outlives its
timeouts."""

from __future__ import annotations

import asyncio
import hmac
import traceback
from collections import deque
from typing import cast

from headrace.ingress import refusals
from headrace.ingress.bodies import DECOMPRESSORS, ENCODINGS, unpack
from headrace.ingress.peers import Origin
from headrace.ingress.refusals import Refusal
from headrace.ingress.requests import BodyStep, Refused, RequestHead, RequestReader
from headrace.ingress.site import Route, Site
from headrace.ingress.tcp import keep_alive, peer_name

MAX_PIPELINED = 32  # requests of one connection that wait for their responses
REQUESTS_PER_TURN = 32  # then other connections get a turn
MAX_UNREAD = 64 << 10  # bytes of answers
DRAINED = 256 << 10  # bytes of a refused body that are skipped to keep the connection
LINGER_SECONDS = 5.0  # for the other side to take its last answer


class HttpConnection(asyncio.Protocol):
    """One connection. It has an origin in every stream that it sends to."""

    def __init__(self, site: Site) -> None:
        self._site, self._loop = site, site.loop
        self._reader = RequestReader()
        self._transport: asyncio.Transport | None = None
        self._peer = ""
        self._origins: dict[Route, Origin] = {}
        self._recent: Route | None = None  # the stream of the last accepted request
        self._answers: deque[list[bytes | None]] = (
            deque()
        )  # in the order of the requests; None until the response is known
        self._since = self._loop.time()  # when the current wait began
        self._reading = True  # whether the transport is reading
        self._eof = False  # the peer sends no more
        self._unread = False  # the peer does not read its responses
        self._working = False  # a body is being decompressed
        self._turning = False  # waiting for its next turn in the loop
        self._advancing = False  # `_advance` is running
        self._last = self._rude = False  # no more requests are read; the peer may still be sending
        self._over = False  # all responses are sent
        self._forget()

    def _forget(self) -> None:
        """Reset the state of the current request."""
        self._head: RequestHead | None = None
        self._route: Route | None = None
        self._refusal: Refusal | None = None
        self._body = bytearray()
        self._counted = 0  # bytes of the body in the count of the stream

    # --- the connection ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=MAX_UNREAD)
        keep_alive(transport)
        self._peer = peer_name(transport)
        self._site.counters["opened"] += 1
        self._site.connections.add(self)
        if len(self._site.connections) > self._site.max_connections:
            self._site.counters["refused"] += 1
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._site.connections.discard(self)
        self._site.counters["closed"] += 1
        self._counters(self._route or self._recent)["errors"] += exc is not None and not self._over
        if self._route is not None and self._counted:
            self._route.counters["cut_records"] += 1
            self._route.counters["cut_bytes"] += self._counted
            self._drop_body()
        for route, origin in self._origins.items():
            route.ingress.end_origin(origin)
            route.part(self)
        self._origins.clear()

    def leave(self, route: Route) -> None:
        """End the origin in a stream that closes. When the stream is reopened, it does not know this origin."""
        self._origins.pop(route, None)
        route.part(self)
        if self._recent is route:
            self._recent = None
        if self._route is route and self._refusal is None:
            self._refuse(refusals.OVERLOADED)
        if self._answers:  # if the journal could not be written, some responses never come
            self._loop.call_later(LINGER_SECONDS, self._abandon, self._answers[0])

    def _abandon(self, place: list[bytes | None]) -> None:
        if self._transport is not None and self._answers and self._answers[0] is place:
            self._transport.abort()

    def abort(self) -> None:
        """Close, because the gateway stops. The peer has some seconds to read its responses."""
        if self._transport is not None:
            self._transport.close()
            self._loop.call_later(LINGER_SECONDS, self._transport.abort)

    def _counters(self, route: Route | None) -> dict[str, int]:
        return self._site.counters if route is None else route.counters

    def data_received(self, data: bytes) -> None:
        if self._last:
            return  # skip the bytes
        if not self._reader.begun:
            self._since = self._loop.time()
        self._reader.feed(data)
        self._advance()

    def eof_received(self) -> bool:
        """The peer sends no more. It still gets its responses."""
        self._eof = True
        self._settle()
        return True

    def pause_writing(self) -> None:
        """The peer does not read its responses: stop reading from it."""
        self._unread = True
        self._since = self._loop.time()
        self._regulate()

    def resume_writing(self) -> None:
        self._unread = False
        self._since = self._loop.time()
        self._go_on()

    def expire(self, now: float) -> None:
        """Close if the current request, the next request, or the peer's reading takes too long."""
        transport, waited = self._transport, now - self._since
        if transport is None:
            return
        if self._over:
            if waited > LINGER_SECONDS:
                transport.abort()
        elif self._unread:
            if waited > (self._recent or self._site).request_timeout:
                self._counters(self._recent)["timeouts"] += 1
                transport.abort()
        elif self._answers or self._working:
            pass  # the peer waits for the gateway
        elif self._reader.begun:
            if waited > (self._route or self._site).request_timeout:
                self._counters(self._route)["timeouts"] += 1
                self._give_up(refusals.REQUEST_TIMEOUT)
        elif waited > (self._recent or self._site).idle_timeout:
            self._counters(self._recent)["timeouts"] += 1
            self._last = True
            self._settle()

    # --- when to read -----------------------------------------------------------------------------

    @property
    def _held(self) -> bool:
        """True if the connection must not be read now."""
        return self._unread or self._working or self._turning or len(self._answers) >= MAX_PIPELINED

    def _go_on(self) -> None:
        """Resume if nothing holds the connection any more."""
        if not (self._advancing or self._held or self._last or self._transport is None):
            self._advance()
        self._regulate()
        self._settle()

    def _regulate(self) -> None:
        """Start or stop reading from the socket."""
        wanted = self._last or not self._held
        if self._transport is None or self._transport.is_closing() or self._eof or wanted == self._reading:
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _settle(self) -> None:
        """Close if all responses are sent and no request will follow."""
        if self._transport is None or self._answers or self._working or self._advancing:
            return
        if self._over:
            if self._eof:
                self._transport.close()
        elif self._last or (self._eof and not self._held):
            self._over = True
            self._since = self._loop.time()
            if self._rude and not self._eof:
                # A close with unread bytes resets the connection, and the response may be lost.
                self._transport.write_eof()
            else:
                self._transport.close()

    def _give_way(self) -> None:
        """Yield to other connections, then continue."""

        def turn() -> None:
            self._turning = False
            self._go_on()

        self._turning = True
        self._loop.call_soon(turn)

    # --- requests ---------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Process the received bytes until more are needed."""
        self._advancing = True
        try:
            for _ in range(REQUESTS_PER_TURN):
                if self._last or self._held or not self._read():
                    break
            else:
                self._give_way()
        except Refused as found:
            self._give_up(found.refusal)
        except Exception:
            self._fail()
        finally:
            self._advancing = False
        self._regulate()
        self._settle()

    def _fail(self) -> None:
        """Close the connection after a bug in this class."""
        traceback.print_exc()
        if self._transport is not None:
            self._transport.abort()

    def _read(self) -> bool:
        """Read the received part of a request. True if it is complete."""
        head = self._head
        if head is None:
            self._head = head = self._reader.head()
            if head is None:
                return False
            self._refusal = self._judge(head)
            if self._refusal is None and head.expectations:
                self._answer(self._place(), refusals.CONTINUE)
            elif self._refusal is not None and head.length and (head.expectations or head.length > DRAINED):
                self._give_up(self._refusal)  # before the body
                return False
        step = self._reader.body(None if self._refusal else self._body)
        self._count_body()
        if step is BodyStep.END:
            self._complete(head)
            return True
        if self._refusal is not None and self._reader.moved > DRAINED:
            self._give_up(self._refusal)
        elif step is BodyStep.BUSY:
            self._give_way()
        return False

    def _judge(self, head: RequestHead) -> Refusal | None:
        """The reason to refuse a request by its head, or None."""
        self._route = route = self._site.find(head.target)
        if route is None:
            return refusals.UNKNOWN_STREAM
        if route.token and not _authorized(head, route.token):
            return refusals.UNAUTHORIZED
        if head.method != b"POST":
            return refusals.METHOD_NOT_ALLOWED
        if head.expectations not in ([], [b"100-continue"]):
            return refusals.EXPECTATION_FAILED
        if head.length is None:
            return refusals.LENGTH_REQUIRED
        if len(head.encodings) > 1 or any(name not in ENCODINGS for name in head.encodings):
            return refusals.UNSUPPORTED_ENCODING
        if head.length > route.max_request_bytes:
            return refusals.BODY_TOO_LARGE
        if not route.ingress.open:
            return refusals.OVERLOADED
        if route not in self._origins:
            if route.full:
                return refusals.TOO_MANY_CONNECTIONS
            self._origins[route] = route.join(self, self._peer)
        self._recent = route
        return None

    def _count_body(self) -> None:
        """Count the body, and refuse it if it exceeds a limit."""
        if self._route is None or self._refusal is not None:
            return
        self._route.body_bytes += len(self._body) - self._counted
        self._counted = len(self._body)
        if self._counted > self._route.max_request_bytes:
            self._refuse(refusals.BODY_TOO_LARGE)
        elif not self._route.has_room():
            self._refuse(refusals.OVERLOADED)

    def _refuse(self, refusal: Refusal) -> None:
        self._refusal = refusal
        self._drop_body()

    def _drop_body(self) -> None:
        if self._route is not None:
            self._route.body_bytes -= self._counted
        self._body, self._counted = bytearray(), 0

    def _complete(self, head: RequestHead) -> None:
        """Handle a complete request."""
        place = self._place()
        self._last = not head.keep_alive
        if self._route is not None and self._body and head.encodings:
            self._working = True
            codec, most = ENCODINGS[head.encodings[0]], self._route.max_request_bytes
            work = self._loop.run_in_executor(DECOMPRESSORS, unpack, self._body, codec, most)
            work.add_done_callback(lambda done: self._unpacked(head, place, done.result()))
        else:
            self._take(head, place, self._body)

    def _unpacked(self, head: RequestHead, place: list[bytes | None], found: bytes | Refusal) -> None:
        self._working = False
        if self._transport is None:
            return  # the peer is gone: the request is discarded and was counted as cut
        try:
            if isinstance(found, Refusal):
                self._refusal = self._refusal or found
            self._take(head, place, b"" if isinstance(found, Refusal) else found)
        except Exception:
            self._fail()
        self._go_on()

    def _take(self, head: RequestHead, place: list[bytes | None], body: bytes | bytearray) -> None:
        """Journal the body and respond, or respond with the refusal."""
        route, refusal = self._route, self._refusal
        self._drop_body()
        self._forget()
        if refusal is None and route is not None:
            counters = route.counters

            def done() -> None:
                counters["requests"] += 1
                self._answer(place, refusals.NO_CONTENT if head.keep_alive else refusals.NO_CONTENT_LAST)

            if not body:
                done()
            elif not route.ingress.take_body(self._origins[route], body, done):
                refusal = refusals.OVERLOADED
        if refusal is not None:
            self._counters(route)["refused"] += 1
            self._answer(place, refusal.answer(not head.keep_alive, head.method == b"HEAD"))

    # --- answers ----------------------------------------------------------------------------------

    def _place(self) -> list[bytes | None]:
        """A slot for the response to the next request."""
        place: list[bytes | None] = [None]
        self._answers.append(place)
        return place

    def _answer(self, place: list[bytes | None], text: bytes) -> None:
        """Fill the slot of a response, and send the responses that are due."""
        place[0] = text
        due = []
        while self._answers and self._answers[0][0] is not None:
            due.append(self._answers.popleft()[0])
        if due and self._transport is not None and not self._transport.is_closing():
            self._since = self._loop.time()
            self._transport.write(b"".join(cast(list[bytes], due)))
        self._go_on()

    def _give_up(self, refusal: Refusal) -> None:
        """Respond and close, because the next bytes are invalid, late or unwanted."""
        bodiless = self._head is not None and self._head.method == b"HEAD"
        self._counters(self._route)["refused"] += 1
        self._drop_body()
        self._forget()
        self._last = self._rude = True
        self._answer(self._place(), refusal.answer(last=True, bodiless=bodiless))


def _authorized(head: RequestHead, token: str) -> bool:
    """True if the request has the token. Compares in constant time."""
    if len(head.authorization) != 1:
        return False
    scheme, _, given = head.authorization[0].partition(b" ")
    return hmac.compare_digest(given.strip(b" "), token.encode()) and scheme.lower() == b"bearer"
