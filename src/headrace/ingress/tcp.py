"""TCP in both directions: clients that connect to us, and servers that we connect to. Bytes go from the socket
straight into the journal's arena.

With `acks`, the gateway answers with lines. `N` says that the first N bytes of the connection are in the journal. When
overload drops records, `dropped BEGIN END RECORDS` names the bytes of each stretch that is not there, always before a
line that goes past it; and from then on that line is `N RECORDS`, with all records dropped so far. So a line that is
one number never covers a dropped record."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import cast

from headrace.ingress.peers import Origin
from headrace.ingress.stream import StreamIngress

MAX_STRETCHES = 1000  # dropped stretches that wait until the other side reads its acknowledgements
LINGER_SECONDS = 5.0  # for the other side to take its last acknowledgement
RECONNECT_FIRST, RECONNECT_MOST = 0.1, 5.0  # seconds


class TcpPeer(asyncio.BufferedProtocol):
    """One connection. `idle` is after how many silent seconds it is closed, 0 for never."""

    origin: Origin

    def __init__(self, ingress: StreamIngress, kind: str, idle: float, acks: bool) -> None:
        self.ingress, self.kind, self.idle, self.acks = ingress, kind, idle, acks
        self.closed: asyncio.Future[None] = ingress.loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._heard = ingress.loop.time()
        self._admitted = self._ended = self._expired = self._deaf = False
        self._told = (0, 0)
        self._asked = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=0)  # so that `resume_writing` is called when all is written
        keep_alive(transport)
        self._admitted = self.ingress.admit(self, self.kind)
        if not self._admitted:
            self._transport.abort()
        elif self.acks:
            self.origin.stretches = []

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.ingress.journal.room()

    def buffer_updated(self, nbytes: int) -> None:
        if not self._admitted:
            return
        self._heard = self.ingress.loop.time()
        self.ingress.received(self.origin, nbytes)
        if self.ingress.paused:  # it may be new, or there was more to read at once
            self.pause()
        elif len(self.origin.stretches or ()) > MAX_STRETCHES:  # it does not read what was dropped
            self._deaf = True
            self.pause()
        self._ask()

    def _ask(self) -> None:
        """Acknowledge after the next flush."""
        if self.acks and not self._asked:
            self._asked = True
            self.ingress.when_flushed(self.flushed)

    def eof_received(self) -> bool:
        """The other side has sent everything. We close when it is in the journal."""
        self._ended = True
        if self._admitted:
            self.ingress.leave(self, clean=True)
            self.ingress.when_flushed(self._finish)
        return True

    def resume_writing(self) -> None:
        """The other side has read its acknowledgements. What came since the last flush is not in the journal yet, and
        on a full disk it may never be: the next line has to wait for a flush too."""
        self._ask()

    def _finish(self) -> None:
        self.flushed(last=True)
        self.abort()

    def flushed(self, last: bool = False) -> None:
        """Everything that came is in the journal, or dropped: say so."""
        self._asked = False
        transport, origin = self._transport, self.origin
        if not self.acks or transport is None or transport.is_closing():
            return
        if transport.get_write_buffer_size() and not last:
            return  # it does not read its acknowledgements; the next one says the same
        told, self._told = self._told, (origin.settled, origin.dropped)
        if self._told != told:
            lines = [b"dropped %d %d %d\n" % tuple(stretch) for stretch in origin.stretches or ()]
            origin.stretches = []
            lines.append(b"%d %d\n" % self._told if origin.dropped else b"%d\n" % origin.settled)
            transport.write(b"".join(lines))
        if self._deaf and not self.ingress.paused and not transport.get_write_buffer_size():
            self._deaf = False
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
            self._heard = self.ingress.loop.time()
            self._transport.resume_reading()

    def expire(self, now: float) -> None:
        if self.idle and now - self._heard > self.idle and self._transport is not None:
            self._expired = True
            self.origin.counters["timeouts"] += 1
            self._transport.abort()

    def abort(self) -> None:
        """Close: the gateway stops, or the other side has sent everything. It has some seconds to take what it was
        told; a transport that only closes would wait for that for ever."""
        if self._transport is not None:
            self._transport.close()
            self.ingress.loop.call_later(LINGER_SECONDS, self._transport.abort)


def keep_alive(transport: asyncio.BaseTransport) -> None:
    """Notice within minutes that the other machine is gone."""
    sock = transport.get_extra_info("socket")
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15)


async def stay_connected(ingress: StreamIngress, host: str, port: int, idle: float) -> None:
    """Connect, read until the other side ends, connect again; until cancelled."""
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
