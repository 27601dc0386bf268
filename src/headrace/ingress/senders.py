"""The connections that send to one stream, which pause and resume together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headrace.ingress.peers import Peer

SWEEP_SECONDS = 1.0  # how often idle connections are looked for


class Senders:
    """See the module. Runs in the event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.peers: set[Peer] = set()
        self.paused = False
        self._sweeping = Periodic(loop, SWEEP_SECONDS, self._sweep)

    def add(self, peer: Peer) -> None:
        """Add a connection. It is paused if the others are."""
        self.peers.add(peer)
        if self.paused:
            # uvloop starts reading after this call, even if it is paused now.
            self._loop.call_soon(self._pause_new, peer)

    def _pause_new(self, peer: Peer) -> None:
        if self.paused:
            peer.pause()

    def pause(self) -> None:
        """Stop reading from all connections."""
        if not self.paused:
            self.paused = True
            for peer in self.peers:
                peer.pause()

    def resume(self) -> None:
        """Read from all connections again."""
        if self.paused:
            self.paused = False
            for peer in list(self.peers):
                peer.resume()

    def _sweep(self) -> None:
        now = self._loop.time()
        for peer in [] if self.paused else list(self.peers):
            peer.expire(now)

    def close(self) -> None:
        """Stop looking for idle connections."""
        self._sweeping.cancel()


class Periodic:
    """Calls a function again and again, until it is cancelled. A function that raises is called again, too."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, act: Callable[[], None]) -> None:
        self._loop, self._seconds, self._act = loop, seconds, act
        self._timer = loop.call_later(seconds, self._turn)

    def _turn(self) -> None:
        self._timer = self._loop.call_later(self._seconds, self._turn)
        self._act()

    def cancel(self) -> None:
        """Call it no more."""
        self._timer.cancel()
