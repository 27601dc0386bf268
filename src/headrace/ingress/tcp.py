"""TCP in both directions: clients that connect to the gateway, and servers that the gateway connects to. The socket
reads directly into the journal's arena.

With `acks`, the gateway sends lines. `N` means that the first N bytes of the connection are in the journal. When
overload drops records, `dropped BEGIN END RECORDS` names each dropped range of bytes, before any line with a larger N.
From then on an acknowledgement is `N RECORDS`, with the number of records dropped so far. So a line with a single
number never covers a dropped record."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from functools import partial
from typing import cast

from headrace.ingress.peers import Origin
from headrace.ingress.pending_acks import SendAck
from headrace.ingress.stream_ingress import StreamIngress

MAX_STRETCHES = 1000  # dropped ranges that wait until the peer reads its acknowledgements
LINGER_SECONDS = 5.0  # for the peer to read its last acknowledgement
RECONNECT_FIRST, RECONNECT_MOST = 0.1, 5.0  # seconds


class TcpPeer(asyncio.BufferedProtocol):
    """One connection. It is closed after `idle` seconds without data; 0 is never."""

    origin: Origin

    def __init__(self, ingress: StreamIngress, kind: str, idle: float, acks: bool) -> None:
        self.ingress, self.kind, self.idle, self.acks = ingress, kind, idle, acks
        self.closed: asyncio.Future[None] = ingress.loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._last_data = ingress.loop.time()
        self._admitted = self._ended = self._expired = self._peer_blocked = False
        self._acknowledged = (0, 0)
        self._unreported: list[list[int]] = []  # dropped stretches, until the peer reads
        self._asked = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=0)  # so that `resume_writing` is called when everything is written
        keep_alive(transport)
        self._admitted = self.ingress.admit(self, self.kind, peer_name(transport))
        if not self._admitted:
            self._transport.abort()
        elif self.acks:
            self.origin.stretches = []

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.ingress.journal.room()

    def buffer_updated(self, nbytes: int) -> None:
        if not self._admitted:
            return
        self._last_data = self.ingress.loop.time()
        self.ingress.received(self.origin, nbytes)
        if self.ingress.paused:  # a new connection, or one whose socket had more data
            self.pause()
        elif (
            len(self._unreported) + len(self.origin.stretches or ()) > MAX_STRETCHES
        ):  # the peer does not read the reports of dropped records
            self._peer_blocked = True
            self.pause()
        self._ask()

    def _ask(self) -> None:
        """Request an acknowledgement after the next flush."""
        if self.acks and not self._asked:
            self._asked = True
            self.ingress.flusher.acknowledge(self._settle)

    def eof_received(self) -> bool:
        """The peer has sent everything. The connection closes when its bytes are in the journal."""
        self._ended = True
        if self._admitted:
            self.ingress.leave(self, clean=True)
            self.ingress.flusher.acknowledge(self._settle_last)
        return True

    def resume_writing(self) -> None:
        """The peer has read its acknowledgements. The next line must wait for another flush, because newer bytes may
        never reach the journal of a full disk."""
        self._ask()

    def _settle(self, last: bool = False) -> SendAck:
        """Everything received is in the journal or dropped. Bytes that arrive from now on need another
        acknowledgement."""
        self._asked = False
        origin, dropped = self.origin, self.origin.stretches or []
        if self.acks:
            origin.stretches = []
        return partial(self._acknowledge, (origin.settled, origin.dropped), dropped, last)

    def _settle_last(self) -> SendAck:
        acknowledge = self._settle(last=True)

        def finish() -> None:
            acknowledge()
            self.abort()

        return finish

    def _acknowledge(self, settled: tuple[int, int], dropped: list[list[int]], last: bool) -> None:
        """Send the acknowledgement of `settled` (bytes, dropped records), after the ranges that were dropped."""
        self._unreported += dropped
        transport = self._transport
        if not self.acks or transport is None or transport.is_closing():
            return
        if transport.get_write_buffer_size() and not last:
            return  # the peer does not read; a later line covers this one
        if settled != self._acknowledged:
            self._acknowledged = settled
            lines = [b"dropped %d %d %d\n" % tuple(stretch) for stretch in self._unreported]
            self._unreported = []
            lines.append(b"%d %d\n" % settled if settled[1] else b"%d\n" % settled[0])
            transport.write(b"".join(lines))
        if self._peer_blocked and not self.ingress.paused and not transport.get_write_buffer_size():
            self._peer_blocked = False
            self.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._admitted and not self._ended:
            self.origin.counters["errors"] += exc is not None and not self._expired
            self.ingress.leave(self, clean=False)
        if not self.closed.done():
            self.closed.set_result(None)

    def pause(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._last_data = self.ingress.loop.time()
            self._transport.resume_reading()

    def expire(self, now: float) -> None:
        if self.idle and now - self._last_data > self.idle and self._transport is not None:
            self._expired = True
            self.origin.counters["timeouts"] += 1
            self._transport.abort()

    def abort(self) -> None:
        """Close, because the gateway stops or the peer has sent everything. The peer has some seconds to read its
        acknowledgements; a plain close would wait forever."""
        if self._transport is not None:
            self._transport.close()
            self.ingress.loop.call_later(LINGER_SECONDS, self._transport.abort)


def peer_name(transport: asyncio.BaseTransport) -> str:
    """The address of the other side, as host:port; empty if it is gone already."""
    found = transport.get_extra_info("peername")
    if not found:
        return ""
    host = f"[{found[0]}]" if ":" in found[0] else found[0]
    return f"{host}:{found[1]}"


def keep_alive(transport: asyncio.BaseTransport) -> None:
    """Detect within minutes that the peer's machine is gone."""
    sock = transport.get_extra_info("socket")
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15)


async def stay_connected(ingress: StreamIngress, host: str, port: int, idle: float) -> None:
    """Connect, read until the peer closes, and connect again, until cancelled."""
    wait = RECONNECT_FIRST
    counters = ingress.counters.of("tcp_client")
    while True:
        peer = TcpPeer(ingress, "tcp_client", idle, acks=False)
        try:
            await ingress.loop.create_connection(lambda p=peer: p, host, port)  # type: ignore[misc]
        except OSError:
            counters["errors"] += 1
            wait = min(RECONNECT_MOST, 2 * wait)
        else:
            before = peer.origin.total if hasattr(peer, "origin") else 0
            await peer.closed
            got = hasattr(peer, "origin") and peer.origin.total > before
            wait = RECONNECT_FIRST if got else min(RECONNECT_MOST, 2 * wait)
        await asyncio.sleep(wait)
