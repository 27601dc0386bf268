"""Packets of MQTT 3.1.1 and 5, as bytes. Pure: no sockets, no clock.

headrace has its own client because no library lets the caller decide when a PUBREC is sent. With QoS 2 that packet is
the acknowledgement: the broker deletes the message when it gets it. So it must not be sent before the message is in the
journal.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 1, 2, 3, 4, 5, 6, 7
SUBSCRIBE, SUBACK, PINGREQ, PINGRESP, DISCONNECT = 8, 9, 12, 13, 14
V311, V5 = 4, 5  # protocol levels

_SESSION_EXPIRY, _SERVER_KEEP_ALIVE, _RECEIVE_MAXIMUM = 0x11, 0x13, 0x21  # properties of version 5
# Bytes of the values of properties in a CONNACK. All others begin with their length.
_VALUE_BYTES: Final = {0x11: 4, 0x13: 2, 0x21: 2, 0x22: 2, 0x24: 1, 0x25: 1, 0x27: 4, 0x28: 1, 0x29: 1, 0x2A: 1}
_USER_PROPERTY = 0x26  # a name and a value
RECEIVE_MAXIMUM = 1000  # messages that may wait for their acknowledgement

# Refused connections. Version 3.1.1 numbers them from 1, version 5 from 128.
_REFUSALS: Final = {
    1: "the broker does not speak this version", 2: "the broker rejects the client id",
    3: "the broker is not available", 4: "wrong user or password", 5: "this user may not connect",
    0x80: "the broker gives no reason", 0x81: "the broker cannot read the packet",
    0x84: "the broker does not speak this version", 0x85: "the broker rejects the client id",
    0x86: "wrong user or password", 0x87: "this user is not authorized", 0x88: "the broker is not available",
    0x89: "the broker is busy", 0x8A: "this client is banned", 0x8B: "the broker shuts down",
    0x8C: "the broker wants another login", 0x8E: "another client took the session over", 0x8F: "bad topic filter",
    0x90: "bad topic name", 0x95: "the packet is too large", 0x97: "the quota is used up",
    0x99: "the payload has another format", 0x9C: "the broker asks to use another server",
    0x9E: "shared subscriptions are not supported", 0xA2: "wildcards are not supported",
}  # fmt: skip
DENIED: Final = frozenset({4, 5, 0x86, 0x87, 0x8A, 0x8C})  # the user must correct something
REJECTED: Final = frozenset({1, 2, 0x84, 0x85})


def reason(code: int) -> str:
    """What a refusal code means."""
    return _REFUSALS.get(code, f"reason code {code}")


class BadPacket(ValueError):
    """Bytes that no MQTT broker sends."""


class Packet(NamedTuple):
    """A packet: its type, the flags of its first byte, and the bytes after the header."""

    kind: int
    flags: int
    body: bytes


class Publish(NamedTuple):
    """A message. `mid` is 0 with QoS 0."""

    topic: bytes
    payload: bytes
    qos: int
    retain: bool
    mid: int


@dataclass(frozen=True, slots=True)
class Login:
    """What a client says when it connects. `expiry` is how many seconds the broker keeps the session without it; 0 asks
    for a new session that ends with the connection."""

    client_id: str
    version: int = V5
    user: str | None = None
    password: str | None = None
    keep_alive: int = 60
    expiry: int = 0


class PacketReader:
    """Cuts the bytes of a connection into packets."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._need = 2  # bytes without which nothing can be cut off

    def feed(self, data: bytes) -> list[Packet]:
        """The packets that are complete now. Raises BadPacket."""
        self._parts.append(data)
        self._size += len(data)
        if self._size < self._need:
            return []
        data = data if len(self._parts) == 1 else b"".join(self._parts)
        found, at, size = [], 0, len(data)
        while (body := _header(data, at)) is not None:
            begin, end = body
            if end > size:
                break
            found.append(Packet(data[at] >> 4, data[at] & 15, data[begin:end]))
            at = end
        rest = data[at:]
        self._parts, self._size = ([rest] if rest else []), len(rest)
        self._need = 2 if body is None else body[1] - at
        return found


def _header(data: bytes, at: int) -> tuple[int, int] | None:
    """Where the body of the packet at `at` begins and ends; None if the header is not complete."""
    length = shift = 0
    for place in range(at + 1, min(len(data), at + 5)):
        byte = data[place]
        length |= (byte & 127) << shift
        if byte < 128:
            return place + 1, place + 1 + length
        shift += 7
    if len(data) >= at + 5:
        raise BadPacket("a packet without a length")
    return None


def _varint(value: int) -> bytes:
    out = bytearray()
    while True:
        value, byte = value >> 7, value & 127
        out.append(byte | (128 if value else 0))
        if not value:
            return bytes(out)


def _text(value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return len(data).to_bytes(2, "big") + data


def _packet(kind: int, flags: int, body: bytes) -> bytes:
    return bytes([kind << 4 | flags]) + _varint(len(body)) + body


def connect(login: Login) -> bytes:
    """The first packet of a client."""
    flags = (0 if login.expiry else 2) | (0x80 if login.user is not None else 0)
    flags |= 0x40 if login.password is not None else 0
    body = _text("MQTT") + bytes([login.version, flags]) + login.keep_alive.to_bytes(2, "big")
    if login.version == V5:
        properties = struct.pack(">BIBH", _SESSION_EXPIRY, login.expiry, _RECEIVE_MAXIMUM, RECEIVE_MAXIMUM)
        body += _varint(len(properties)) + properties
    body += _text(login.client_id)
    for secret in (login.user, login.password):
        body += b"" if secret is None else _text(secret)
    return _packet(CONNECT, 0, body)


def connack(packet: Packet) -> tuple[int, bool]:
    """(reason code, 0 for success; whether the broker still had the session)."""
    if packet.kind != CONNACK or len(packet.body) < 2:
        raise BadPacket("no answer to the login")
    return packet.body[1], bool(packet.body[0] & 1)


class BrokerLimits(NamedTuple):
    """What the broker asks of a client: how many messages it may publish without an acknowledgement, and after how many
    seconds without a packet the broker gives it up (0: as the client said)."""

    unacknowledged: int = 65_535
    keep_alive: int = 0


def limits(packet: Packet, version: int) -> BrokerLimits:
    """The limits in an answer to the login. Version 3.1.1 has none. Raises BadPacket."""
    body, found = packet.body, BrokerLimits()
    if version != V5 or len(body) < 3:
        return found
    at, end = _properties(body, 2)
    while at < end:
        kind, at = body[at], at + 1
        for _ in range(2 if kind == _USER_PROPERTY else 1):
            if kind not in _VALUE_BYTES:
                begin, at = at + 2, at + 2 + int.from_bytes(body[at : at + 2], "big")
            else:
                begin, at = at, at + _VALUE_BYTES[kind]
            if at > end:
                raise BadPacket("cut properties")
        value = int.from_bytes(body[begin:at], "big")
        if kind == _RECEIVE_MAXIMUM:
            found = found._replace(unacknowledged=max(1, value))
        elif kind == _SERVER_KEEP_ALIVE:
            found = found._replace(keep_alive=value)
    return found


def subscribe(mid: int, filters: tuple[str, ...], qos: int, version: int) -> bytes:
    body = mid.to_bytes(2, "big") + (b"\0" if version == V5 else b"")
    return _packet(SUBSCRIBE, 2, body + b"".join(_text(name) + bytes([qos]) for name in filters))


def suback(packet: Packet, version: int) -> list[int]:
    """The code for each filter: the granted QoS, or 128 and more for a refusal."""
    begin = 2
    if version == V5:
        begin = _after_properties(packet.body, begin)
    return list(packet.body[begin:])


def _properties(body: bytes, at: int) -> tuple[int, int]:
    """Where the properties begin and end whose length is at `at`."""
    found = _header(body, at - 1)  # a length as in the header of a packet
    if found is None or found[1] > len(body):
        raise BadPacket("cut properties")
    return found


def _after_properties(body: bytes, at: int) -> int:
    return _properties(body, at)[1]


def publish(topic: bytes, payload: bytes, qos: int, retain: bool, mid: int, version: int, dup: bool = False) -> bytes:
    middle = (mid.to_bytes(2, "big") if qos else b"") + (b"\0" if version == V5 else b"")
    size = 2 + len(topic) + len(middle) + len(payload)
    first = bytes([PUBLISH << 4 | qos << 1 | retain | (8 if dup else 0)])
    return b"".join((first, _varint(size), len(topic).to_bytes(2, "big"), topic, middle, payload))


def published(packet: Packet, version: int) -> Publish:
    """The message of a PUBLISH packet. Raises BadPacket."""
    body, qos = packet.body, packet.flags >> 1 & 3
    at = 2 + int.from_bytes(body[:2], "big")
    topic, mid = body[2:at], 0
    if qos:
        mid, at = int.from_bytes(body[at : at + 2], "big"), at + 2
    if qos == 3 or at > len(body) or (qos and not mid):
        raise BadPacket("a message without a topic or number")
    if version == V5:
        at = _after_properties(body, at)
    return Publish(topic=topic, payload=body[at:], qos=qos, retain=bool(packet.flags & 1), mid=mid)


def acknowledge(kind: int, mid: int) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP, for success."""
    return bytes([kind << 4 | (2 if kind == PUBREL else 0), 2, mid >> 8, mid & 255])


def acknowledged(packet: Packet) -> tuple[int, int]:
    """(number of the message, reason code; below 128 is success)."""
    if len(packet.body) < 2:
        raise BadPacket("an acknowledgement without a number")
    return int.from_bytes(packet.body[:2], "big"), packet.body[2] if len(packet.body) > 2 else 0


PING = _packet(PINGREQ, 0, b"")
GOODBYE = _packet(DISCONNECT, 0, b"")


def goodbye_reason(packet: Packet) -> int:
    """Why the broker disconnects (version 5)."""
    return packet.body[0] if packet.body else 0x80
