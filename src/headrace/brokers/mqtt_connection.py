"""How to reach an MQTT broker, and a client that waits for every answer: for the sink, and for checking options.

The source has its own client in the gateway (`headrace.ingress.mqtt_session`). Both speak
`headrace.brokers.mqtt_packets`.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import ssl
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from headrace.base.options import choice, option, text
from headrace.brokers import mqtt_packets as mqtt
from headrace.errors import BadOption, BrokerDenied, BrokerFailed, BrokerUnreachable, HeadraceError

ANSWER_SECONDS = 10.0
WINDOW = 1000  # messages that may wait for their acknowledgement, unless the broker allows fewer
_SEND_BYTES = 256 << 10  # bytes that are collected for one call of the system
_PORTS = {"mqtt": 1883, "mqtts": 8883}


def mqtt_url(value: str) -> str:
    """`mqtt://host:1883`, or `mqtts://` for TLS."""
    try:
        parts = urlsplit(value.strip())
        good = parts.scheme in _PORTS and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        good = False
    if not good or parts.username or parts.password or parts.path.strip("/") or parts.query:
        raise ValueError("an address such as mqtt://localhost:1883, or mqtts://broker.example for TLS, without a user")
    return value.strip()


@dataclass(frozen=True, slots=True)
class MqttConnection:
    """Where a broker is and how to log in."""

    url: str
    version: int = mqtt.V5
    user: str | None = None
    password: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or _PORTS[urlsplit(self.url).scheme]

    @property
    def secure(self) -> bool:
        return urlsplit(self.url).scheme == "mqtts"

    def tls(self) -> ssl.SSLContext | None:
        """The TLS settings; None without TLS. Raises BadOption for files that cannot be used."""
        if not self.secure:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file:
                context.load_cert_chain(self.cert_file, self.key_file)
        except (OSError, ssl.SSLError) as problem:
            raise BadOption(
                f"the TLS files for {self.url} cannot be used: {problem}",
                advice="ca_file, cert_file and key_file are PEM files that headrace can read.",
                option="ca_file",
            ) from None
        return context

    def login(self, client_id: str, keep_alive: int = 60, expiry: int = 0) -> mqtt.Login:
        return mqtt.Login(
            client_id=client_id,
            version=self.version,
            user=self.user,
            password=self.password,
            keep_alive=keep_alive,
            expiry=expiry,
        )

    def refused(self, code: int, what: str = "connect") -> HeadraceError:
        """The coded error for a refusal of the broker."""
        message = f"cannot {what} at {self.url}: {mqtt.reason(code)}"
        if code in mqtt.DENIED:
            return BrokerDenied(
                message,
                advice="Check user and password, and the permissions of this user.",
                servers=self.url,
                reason=code,
            )
        if code in mqtt.REJECTED:
            return BrokerDenied(message, advice="Check version and client_id.", servers=self.url, reason=code)
        return BrokerFailed(message, advice="A running stream tries again by itself.", servers=self.url, reason=code)

    def unreachable(self, problem: Exception) -> HeadraceError:
        """The coded error for a connection that fails."""
        if isinstance(problem, ssl.SSLCertVerificationError):
            return BrokerDenied(
                f"the certificate of {self.url} is not trusted: {problem.verify_message}",
                advice="Set ca_file to the certificate of the authority, and use the name that the certificate has.",
                servers=self.url,
                reason="certificate",
            )
        return BrokerUnreachable(
            f"cannot connect to {self.url}: {problem or type(problem).__name__}",
            advice="Check that the broker runs, url and the network. A running stream tries again by itself.",
            servers=self.url,
        )


@dataclass(frozen=True)  # without slots: settings inherit it beside other options
class MqttOptions:
    """Options of everything that connects to an MQTT broker."""

    url: str = option(mqtt_url, required=True, help="the broker, as mqtt://host:1883, or mqtts://host:8883 with TLS")
    version: Literal["3.1.1", "5"] = option(choice("3.1.1", "5"), default="5", help="the version of MQTT: 3.1.1 or 5")
    user: str | None = option(text, help="the user")
    password: str | None = option(text, help="the password; stored apart and never shown", secret=True)
    ca_file: str | None = option(text, help="with mqtts: a PEM file with the authority; the system's if absent")
    cert_file: str | None = option(text, help="with mqtts: a PEM file with the client's certificate")
    key_file: str | None = option(text, help="with mqtts: a PEM file with the client's key")


def connection_of(settings: Any) -> MqttConnection:
    """The connection that `MqttOptions` describe."""
    level = mqtt.V5 if settings.version == "5" else mqtt.V311
    files = settings.ca_file, settings.cert_file, settings.key_file
    return MqttConnection(settings.url, level, settings.user, settings.password, *files)


def random_client_id() -> str:
    """A client id for a session that ends with its connection. Brokers of 3.1.1 need not take more than 23 letters."""
    return f"headrace{secrets.token_hex(6)}"


class MqttClient:
    """A blocking client for one thread. Raises coded errors; after one, make a new client."""

    def __init__(self, connection: MqttConnection) -> None:
        self._connection, self._reader = connection, mqtt.PacketReader()
        self._waiting: deque[mqtt.Packet] = deque()
        self._mid = 0
        context = connection.tls()
        try:
            raw = socket.create_connection((connection.host, connection.port), ANSWER_SECONDS)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = raw if context is None else context.wrap_socket(raw, server_hostname=connection.host)
        except OSError as problem:
            raise connection.unreachable(problem) from None
        try:
            self._send(mqtt.connect(connection.login(random_client_id(), keep_alive=0)))
            with self._reading():
                answer = self._next()
                code, _ = mqtt.connack(answer)
                if code:
                    raise connection.refused(code)
                self._window = min(WINDOW, mqtt.limits(answer, connection.version).unacknowledged)
                # With a small window (Mosquitto allows 20) each answer lets the next message out. With a large one,
                # many messages go out in one call.
                self._refill = self._window - 1 if self._window <= 100 else self._window // 2
        except BaseException:
            self._socket.close()
            raise

    def check_filters(self, filters: tuple[str, ...]) -> None:
        """Raise a coded error unless this user may subscribe to all of them."""
        self._send(mqtt.subscribe(1, filters, 0, self._connection.version))
        while (packet := self._next()).kind != mqtt.SUBACK:
            pass
        with self._reading():
            codes = mqtt.suback(packet, self._connection.version)
        for name, code in zip(filters, codes, strict=False):
            if code >= 0x80:
                raise self._connection.refused(0x87 if code == 0x80 else code, f"subscribe to {name}")

    def publish(self, messages: Iterable[tuple[bytes, bytes]], qos: int, retain: bool) -> None:
        """Send messages (topic, payload), and return when the broker has acknowledged all of them. With QoS 0 the
        answer to a ping follows the last: the broker has read everything before it."""
        pending: dict[int, int] = {}  # number -> the answer that is missing
        batch, size = [], 0
        for topic, payload in messages:
            if qos:
                self._mid = self._mid % 65_535 + 1
                pending[self._mid] = mqtt.PUBACK if qos == 1 else mqtt.PUBREC
            data = mqtt.publish(topic, payload, qos=qos, retain=retain, mid=self._mid, version=self._connection.version)
            batch.append(data)
            size += len(data)
            if size >= _SEND_BYTES or len(pending) >= self._window:
                self._send(b"".join(batch))
                batch, size = [], 0
                while len(pending) > self._refill:
                    self._settle(pending)
                while self._waiting and pending:
                    self._settle(pending)
        self._send(b"".join(batch))
        while pending:
            self._settle(pending)
        if not qos:
            self._send(mqtt.PING)
            while self._next().kind != mqtt.PINGRESP:
                pass

    def _settle(self, pending: dict[int, int]) -> None:
        """Take one answer."""
        packet = self._next()
        if packet.kind not in (mqtt.PUBACK, mqtt.PUBREC, mqtt.PUBCOMP):
            return
        with self._reading():
            mid, code = mqtt.acknowledged(packet)
        if code >= 0x80:
            raise self._connection.refused(code, "publish")
        if pending.get(mid) != packet.kind:
            return
        if packet.kind == mqtt.PUBREC:
            pending[mid] = mqtt.PUBCOMP
            self._send(mqtt.acknowledge(mqtt.PUBREL, mid))
        else:
            del pending[mid]

    def close(self) -> None:
        try:
            self._socket.sendall(mqtt.GOODBYE)
        except OSError:
            pass
        finally:
            self._socket.close()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Treat an answer that is not valid MQTT like a failed connection."""
        try:
            yield
        except mqtt.BadPacket as problem:
            raise self._connection.unreachable(problem) from None

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as problem:
            raise self._connection.unreachable(problem) from None

    def _next(self) -> mqtt.Packet:
        """The next packet. Raises BrokerUnreachable if none comes."""
        until = time.monotonic() + ANSWER_SECONDS
        while not self._waiting:
            try:
                data = self._socket.recv(256 << 10)
                if not data or time.monotonic() > until:
                    raise ConnectionError("the broker closed the connection" if not data else "no answer")
                self._waiting += self._reader.feed(data)
            except (OSError, mqtt.BadPacket) as problem:
                raise self._connection.unreachable(problem) from None
        packet = self._waiting.popleft()
        if packet.kind == mqtt.DISCONNECT:
            raise self._connection.refused(mqtt.goodbye_reason(packet), "stay connected")
        return packet
