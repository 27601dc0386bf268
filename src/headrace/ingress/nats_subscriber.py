"""Core NATS in the gateway: subscribes to subjects and puts the messages into the journal of a stream.

Core NATS keeps nothing: messages that are published while the gateway is not connected are gone, and so are those that
a full journal has no room for. From the journal on a message is in exactly one epoch."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from headrace.brokers.nats_connection import NatsConnection
from headrace.errors import HeadraceError
from headrace.ingress.frames import frame
from headrace.ingress.peers import Origin
from headrace.ingress.settings import NatsCoreSettings
from headrace.ingress.stream_ingress import StreamIngress

RECONNECT_FIRST, RECONNECT_MOST = 0.1, 5.0  # seconds
PENDING_MESSAGES, PENDING_BYTES = 100_000, 64 << 20  # that wait while the journal is full; then messages are dropped


class NatsSubscriber:
    """The subscriptions of a stream. `problem` says why there are none now. A peer of the stream."""

    origin: Origin

    def __init__(self, ingress: StreamIngress, settings: NatsCoreSettings) -> None:
        self.ingress, self._settings = ingress, settings
        self.problem = "not connected yet"
        self._counters = ingress.counters.of("nats_core")
        self._room = asyncio.Event()
        self._room.set()
        self._waiting: list[bytes] = []
        self._soon = False

    async def stay_connected(self) -> None:
        """Connect and take messages, until cancelled. The client reconnects by itself."""
        client = await self._connect()
        try:
            self.ingress.admit(self, "nats_core")
            for subject in self._settings.subjects:
                await client.subscribe(
                    subject, queue=self._settings.queue or "", cb=self._take,
                    pending_msgs_limit=PENDING_MESSAGES, pending_bytes_limit=PENDING_BYTES,
                )  # fmt: skip
            await client.flush()
            self.problem = ""
            await asyncio.Event().wait()
        finally:
            self._flush()
            await asyncio.wait([asyncio.ensure_future(client.close())], timeout=2)
            self.ingress.leave(self, clean=True)

    async def _connect(self) -> Any:
        """A client that is connected. Tries until it succeeds."""
        wait = RECONNECT_FIRST
        while True:
            try:
                return await NatsConnection.of(self._settings).connect(
                    error_cb=self._failed, disconnected_cb=self._disconnected, reconnected_cb=self._reconnected
                )
            except HeadraceError as problem:
                self.problem = f"{problem.code}: {problem.message}"
                self._counters["errors"] += 1
            await asyncio.sleep(wait)
            wait = min(RECONNECT_MOST, 2 * wait)

    async def _failed(self, problem: Exception) -> None:
        self._counters["errors"] += 1
        if type(problem).__name__ == "SlowConsumerError":
            self._counters["dropped_records"] += 1

    async def _disconnected(self) -> None:
        self.problem = f"the connection to {self._settings.url} is lost"

    async def _reconnected(self) -> None:
        self.problem = ""

    async def _take(self, message: Any) -> None:
        await self._room.wait()
        self._waiting.append(frame(message.subject.encode(), message.data, time.time_ns() // 1000))
        if not self._soon:  # the client calls this for each message that it has: take them together
            self._soon = True
            self.ingress.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._soon = False
        frames, self._waiting = self._waiting, []
        if frames:
            self.ingress.take_messages(self.origin, b"".join(frames), len(frames), lambda: lambda: None)

    # --- what the stream asks for -----------------------------------------------------------------

    def pause(self) -> None:
        self._room.clear()

    def resume(self) -> None:
        self._room.set()

    def expire(self, now: float) -> None:
        """Nothing: the client tests its connection."""

    def abort(self) -> None:
        """Nothing: `stay_connected` closes the client when it is cancelled."""
