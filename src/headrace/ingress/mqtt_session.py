"""MQTT in the gateway: subscribes to a broker and puts its messages into the journal of a stream.

The broker gets an acknowledgement when the journal has the message (synced, with fsync = 'always'): PUBACK with QoS 1,
PUBREC with QoS 2. So the broker keeps every message until then, and sends it again to the next connection. The session
at the broker is persistent: it has a client id, and the broker keeps its messages while the stream does not run.

**QoS 2.** The numbers of messages that are in the journal and that the broker has not released yet are kept here over
reconnects. Such a message that comes again is acknowledged again and not journaled again. They are not kept when this
process dies: messages whose acknowledgement did not reach the broker then come once more, as with QoS 1.

An acknowledgement goes only to the connection that brought the message. A later connection may use the number for
another message."""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from headrace.brokers import mqtt_packets as mqtt
from headrace.brokers.mqtt_connection import MqttConnection, connection_of, random_client_id
from headrace.errors import HeadraceError, StateDamaged
from headrace.ingress.frames import frame
from headrace.ingress.peers import Origin
from headrace.ingress.pending_acks import SendAck
from headrace.ingress.settings import MqttSettings
from headrace.ingress.stream_ingress import StreamIngress
from headrace.ingress.tcp import keep_alive
from headrace.model.stored import store_text, stored_text

RECONNECT_FIRST, RECONNECT_MOST = 0.1, 30.0  # seconds
LOGIN_SECONDS = 10.0
CLOSE_SECONDS = 5.0  # when the stream closes: for the journal to take what was received, then for the broker to hang up
MAX_UNREAD = 1 << 20  # bytes of acknowledgements that the broker has not read


@dataclass(slots=True, eq=False)
class _Held:
    """A message of QoS 2 that the broker has not released. `link` is the connection that brought it last."""

    link: MqttLink
    journaled: bool = False


class MqttLink(asyncio.Protocol):
    """One connection to the broker."""

    origin: Origin

    def __init__(self, session: MqttSession) -> None:
        self._session, self._ingress, self._loop = session, session.ingress, session.ingress.loop
        self._version = session.connection.version
        self._reader = mqtt.PacketReader()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._last_packet = self._loop.time()
        self._keep_alive = session.login.keep_alive
        self._quiet = False  # pausing: the broker's answers are not read
        self._admitted = self._leaving = False
        self._deaf = False  # after DISCONNECT: ignores messages, which the broker sends again later
        self.problem: Exception | None = None
        self.ready: asyncio.Future[None] = self._loop.create_future()  # subscribed
        self.closed: asyncio.Future[None] = self._loop.create_future()

    # --- the connection ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=MAX_UNREAD)
        keep_alive(transport)
        self._transport.write(mqtt.connect(self._session.login))
        self._timer = self._loop.call_later(LOGIN_SECONDS, self._too_slow)

    def _too_slow(self) -> None:
        self._fail(TimeoutError("no answer to the login"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        self.problem = self.problem or exc or ConnectionError("the broker closed the connection")
        if self._admitted:
            self.origin.counters["errors"] += not self._leaving
            self._ingress.leave(self, clean=True)
        for waiting in (self.ready, self.closed):
            if not waiting.done():
                waiting.set_result(None)

    def _fail(self, problem: Exception) -> None:
        self.problem = self.problem or problem
        if self._transport is not None:
            self._transport.abort()

    def write(self, data: bytes) -> None:
        """Send, unless the connection is gone."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def pause_writing(self) -> None:
        """The broker does not read our acknowledgements."""
        self.pause()

    def resume_writing(self) -> None:
        if not self._ingress.paused:
            self.resume()

    # --- what the stream asks for -----------------------------------------------------------------

    def pause(self) -> None:
        self._quiet = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        self._quiet = False
        self._last_packet = self._loop.time()
        if self._transport is not None and not self._transport.is_closing() and not self._leaving:
            self._transport.resume_reading()

    def expire(self, now: float) -> None:
        """Nothing: the timer of this class tests the connection."""

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _tick(self) -> None:
        """Ping the broker, and give up on a broker that sends nothing. While paused nothing is read, so no packet is
        expected."""
        interval = self._keep_alive
        silent = self._loop.time() - self._last_packet
        if not self._quiet and silent > 1.5 * interval:
            self._fail(TimeoutError(f"no packet from the broker for {silent:.0f} s"))
            return
        self.write(mqtt.PING)
        self._timer = self._loop.call_later(interval / 2, self._tick)

    async def leave(self) -> None:
        """Take no more, wait until the journal has everything, acknowledge it, and say goodbye."""
        self._leaving = True
        self.pause()
        if self._transport is not None and self._admitted:
            settled = self._loop.create_future()
            self._ingress.flusher.acknowledge(lambda: lambda: None if settled.done() else settled.set_result(None))
            await asyncio.wait([settled], timeout=CLOSE_SECONDS)
            self.write(mqtt.GOODBYE)
            # The broker closes when it has read everything. To close a socket with unread bytes resets the connection,
            # and then the broker may lose acknowledgements that it has not read yet.
            self._deaf = True
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()
            await asyncio.wait([self.closed], timeout=CLOSE_SECONDS)
        self.abort()
        await asyncio.wait([self.closed], timeout=1.0)

    # --- packets ----------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._last_packet = self._loop.time()
        if self._deaf:
            return
        try:
            packets = self._reader.feed(data)
            if self._admitted:
                self._take(packets)
            else:
                self._log_in(packets)
        except (mqtt.BadPacket, HeadraceError) as problem:
            self._fail(problem)

    def _log_in(self, packets: list[mqtt.Packet]) -> None:
        for place, packet in enumerate(packets):
            if packet.kind == mqtt.CONNACK:
                code, kept = mqtt.connack(packet)
                if code:
                    raise self._session.connection.refused(code)
                wanted = mqtt.limits(packet, self._version).keep_alive
                self._keep_alive = min(self._keep_alive, wanted or self._keep_alive)
                self._session.begin(kept)
                self._admitted = self._ingress.admit(self, "mqtt")
                self.write(mqtt.subscribe(1, self._session.topics, self._session.qos, self._version))
                # Messages of a kept session may follow at once.
                return self._take(packets[place + 1 :])
            raise mqtt.BadPacket("no answer to the login")

    def _take(self, packets: list[mqtt.Packet]) -> None:
        frames, acks, held, answers = [], [], [], []
        now, session = time.time_ns() // 1000, self._session
        for packet in packets:
            if packet.kind == mqtt.PUBLISH:
                found = mqtt.published(packet, self._version)
                if found.qos == 2:
                    known = session.held.get(found.mid)
                    if known is not None:
                        known.link = self
                        if known.journaled:
                            answers.append(mqtt.acknowledge(mqtt.PUBREC, found.mid))
                        continue
                    session.held[found.mid] = known = _Held(self)
                    held.append((found.mid, known))
                elif found.qos == 1:
                    acks.append(mqtt.acknowledge(mqtt.PUBACK, found.mid))
                frames.append(
                    frame(topic=found.topic, payload=found.payload, arrival=now, qos=found.qos, retained=found.retain)
                )
            elif packet.kind == mqtt.PUBREL:
                mid, _ = mqtt.acknowledged(packet)
                session.held.pop(mid, None)
                answers.append(mqtt.acknowledge(mqtt.PUBCOMP, mid))
            elif packet.kind == mqtt.SUBACK:
                self._subscribed(mqtt.suback(packet, self._version))
            elif packet.kind == mqtt.DISCONNECT:
                raise session.connection.refused(mqtt.goodbye_reason(packet), "stay connected")
        if answers:
            self.write(b"".join(answers))
        if frames:
            self._ingress.take_messages(self.origin, b"".join(frames), len(frames), self._settle(acks, held))
            if self._ingress.paused:
                self.pause()

    def _settle(self, acks: list[bytes], held: list[tuple[int, _Held]]) -> Callable[[], SendAck]:
        def send() -> None:
            if acks:
                self.write(b"".join(acks))
            for mid, message in held:
                message.journaled = True
                message.link.write(mqtt.acknowledge(mqtt.PUBREC, mid))

        return lambda: send

    def _subscribed(self, codes: list[int]) -> None:
        for name, code in zip(self._session.topics, codes, strict=False):
            if code >= 0x80:
                raise self._session.connection.refused(0x87 if code == 0x80 else code, f"subscribe to {name}")
        if not self.ready.done():
            self.ready.set_result(None)
            if self._timer is not None:
                self._timer.cancel()
            self._tick()


class MqttSession:
    """The session of a stream at a broker, over all its connections. `problem` says why there is none now."""

    def __init__(
        self, ingress: StreamIngress, connection: MqttConnection, login: mqtt.Login, topics: tuple[str, ...], qos: int
    ) -> None:
        self.ingress, self.connection, self.login, self.topics, self.qos = ingress, connection, login, topics, qos
        self.held: dict[int, _Held] = {}
        self.problem = "not connected yet"
        self._link: MqttLink | None = None

    def begin(self, kept: bool) -> None:
        """A connection begins. If the broker did not keep the session, it gives the old numbers to other messages."""
        if not kept:
            self.held.clear()

    async def stay_connected(self) -> None:
        """Connect, read until the connection ends, and connect again, until cancelled. Then leave with everything
        received acknowledged."""
        wait = RECONNECT_FIRST
        try:
            while True:
                worked = await self._connect()
                wait = RECONNECT_FIRST if worked else min(RECONNECT_MOST, 2 * wait)
                await asyncio.sleep(wait)
        finally:
            if self._link is not None:
                await self._link.leave()

    async def _connect(self) -> bool:
        """One connection, from its beginning to its end. True if it worked."""
        link = MqttLink(self)
        try:
            context = self.connection.tls()
            await self.ingress.loop.create_connection(
                lambda: link, self.connection.host, self.connection.port, ssl=context
            )
        except (OSError, ssl.SSLError, HeadraceError) as problem:
            self._failed(problem)
            self.ingress.counters.of("mqtt")["errors"] += 1
            return False
        self._link = link
        await link.ready
        worked = link.problem is None
        if worked:
            self.problem = ""
        await link.closed
        self._link = None
        self._failed(link.problem or ConnectionError("the connection ended"))
        return worked

    def _failed(self, problem: Exception) -> None:
        coded = problem if isinstance(problem, HeadraceError) else self.connection.unreachable(problem)
        self.problem = f"{coded.code}: {coded.message}"


def session_of(ingress: StreamIngress, settings: MqttSettings, directory: Path) -> MqttSession:
    """The session of a stream. If the user named no client id, one is made up and kept in `directory`."""
    connection = connection_of(settings)
    seconds = [min(most, -(-micros // 10**6)) for micros, most in _limited(settings)]
    used = ingress.counters.of("mqtt")["bytes"] > 0
    client_id = settings.client_id or _kept_client_id(directory / "client_id", used)
    login = connection.login(client_id, keep_alive=max(1, seconds[0]), expiry=seconds[1])
    return MqttSession(ingress=ingress, connection=connection, login=login, topics=settings.topics, qos=settings.qos)


def _limited(settings: MqttSettings) -> tuple[tuple[int, int], tuple[int, int]]:
    return (settings.keep_alive, 65_535), (settings.session_expiry, 2**32 - 1)


def _kept_client_id(path: Path, used: bool) -> str:
    """The id that was made up for the stream. With another one, messages that the broker keeps for the session would
    never arrive. `used` says that messages have arrived, so there was an id. Raises StateDamaged."""
    known = stored_text(path, lambda text: re.fullmatch(r"headrace[0-9a-f]{12}", text) is not None)
    if known is None and used:
        raise StateDamaged(
            f"{path} is missing: it has the name of the stream's session at the broker",
            advice="Restore it from a backup, or name the session: CREATE OR REPLACE STREAM with the option client_id. "
            "A new session does not get the messages that the broker keeps for the old one.",
            path=str(path),
        )
    if known is None:
        known = random_client_id()
        store_text(path, known)
    return known
