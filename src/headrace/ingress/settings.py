"""The options of the sources that the gateway serves, as it gets them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.base.options import boolean, choice, duration, integer, option, size, text
from headrace.brokers.mqtt_connection import MqttOptions
from headrace.brokers.nats_connection import NatsOptions

Address = tuple[str, int]
_EXPECTED = "an address such as 127.0.0.1:7000 or [::1]:7000"


def address(value: str) -> Address:
    """`host:port`; an IPv6 host is in brackets."""
    host, colon, port = value.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(_EXPECTED)
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(_EXPECTED)
    return host, int(port)


def addresses(value: str) -> tuple[Address, ...]:
    """Addresses separated by commas."""
    return tuple(address(part) for part in value.split(","))


def _journal_size(value: str) -> int:
    found = size(value)
    if found < 1 << 20:
        raise ValueError("a size of at least 1MiB")
    return found


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """Options of every pushed source: how its journal works. Durations are microseconds, sizes are bytes."""

    backpressure: Literal["pause", "drop", "spill"] = option(
        choice("pause", "drop", "spill"),
        default="pause",
        help="when pipelines fall behind: pause the senders, drop the newest records, or spill to disk and then drop",
    )
    max_journal_bytes: int = option(
        _journal_size, default=1 << 30, help="how many bytes may wait for the pipelines before backpressure acts"
    )
    max_spill_bytes: int = option(
        size, default=10 << 30, help="with spill: how many more bytes may wait before records are dropped"
    )
    fsync: Literal["always", "second", "never"] = option(
        choice("always", "second", "never"),
        default="second",
        help="when the journal is synced to disk: before every acknowledgement, every second, or when the system does",
    )

    @property
    def spill_bytes(self) -> int:
        """How many bytes may be spilled: none unless `backpressure` is spill."""
        return self.max_spill_bytes if self.backpressure == "spill" else 0

    @property
    def keep_last(self) -> bool:
        """True if a last record without a delimiter is a record."""
        return False


@dataclass(frozen=True, slots=True)
class PushSettings(JournalSettings):
    """Options of sources that clients connect to."""

    max_connections: int = option(
        integer(1, 1_000_000), default=10_000, help="connections beyond this number are refused"
    )


@dataclass(frozen=True, slots=True)
class TcpSettings(PushSettings):
    """The options of `source = 'tcp'`."""

    listen: tuple[str, int] | None = option(
        address, help="the address that clients connect to, as host:port; port 0 picks a free port"
    )
    connect: tuple[tuple[str, int], ...] | None = option(
        addresses, help="servers to read from, as host:port, separated by commas"
    )
    acks: bool = option(boolean, default=False, help="acknowledge to clients which of their bytes are in the journal")
    last_record: Literal["drop", "keep"] = option(
        choice("drop", "keep"),
        default="drop",
        help="what happens to a record without a delimiter when the other side closes the connection",
    )
    idle_timeout: int = option(
        duration, default=3600 * 10**6, help="a silent connection is closed after this time; 0s for never"
    )

    @property
    def keep_last(self) -> bool:
        """True if a last record without a delimiter is a record."""
        return self.last_record == "keep"


@dataclass(frozen=True, slots=True)
class HttpSettings(PushSettings):
    """The options of `source = 'http'`."""

    listen: tuple[str, int] = option(
        address, required=True, help="the address to serve, as host:port; port 0 picks a free port"
    )
    token: str = option(text, default="", help="requests must have the header Authorization: Bearer TOKEN", secret=True)
    max_request_bytes: int = option(size, default=8 << 20, help="a larger body is rejected (413)")
    request_timeout: int = option(duration, default=60 * 10**6, help="a request that takes longer is aborted (408)")
    idle_timeout: int = option(
        duration, default=75 * 10**6, help="a connection without a request is closed after this time"
    )


def _filters(value: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in value.split(",")))
    if not all(names):
        raise ValueError("topic filters such as plant/+/temp or plant/#, separated by commas")
    for name in names:
        levels = name.split("/")
        wild = [level for level in levels if ("+" in level and level != "+") or ("#" in level and level != "#")]
        if wild or "#" in levels[:-1]:
            raise ValueError("topic filters in which + is a whole level and # is the last one")
    return names


@dataclass(frozen=True)
class MqttSettings(JournalSettings, MqttOptions):
    """The options of `source = 'mqtt'`."""

    topics: tuple[str, ...] = option(
        _filters, required=True, help="topic filters such as plant/+/temp, separated by commas"
    )
    qos: int = option(
        integer(0, 2), default=1, help="how the broker delivers: 0 at most once, 1 at least once, 2 exactly once"
    )
    client_id: str | None = option(
        text, help="the name of the session at the broker; one that is made up once and kept with the stream if absent"
    )
    session_expiry: int = option(
        duration,
        default=7 * 24 * 3600 * 10**6,
        help="how long the broker keeps messages while the stream does not run (with version 5; default 168h)",
    )
    keep_alive: int = option(
        duration, default=60 * 10**6, help="a connection without any packet for this long is tested, then closed"
    )


def _subjects(value: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in value.split(",")))
    if not all(name and all(name.split(".")) and not set(name) & set(" \t\r\n") for name in names):
        raise ValueError("subjects such as plant.*.temp or plant.>, separated by commas")
    return names


@dataclass(frozen=True)
class NatsCoreSettings(JournalSettings, NatsOptions):
    """The options of `source = 'nats_core'`."""

    subjects: tuple[str, ...] = option(
        _subjects, required=True, help="subjects such as plant.*.temp or plant.>, separated by commas"
    )
    queue: str | None = option(text, help="the queue group: each message goes to one of its members")


GatewaySettings = TcpSettings | HttpSettings | MqttSettings | NatsCoreSettings
# By the name of the source.
GATEWAY_SETTINGS: dict[str, type[GatewaySettings]] = {
    "tcp": TcpSettings,
    "http": HttpSettings,
    "mqtt": MqttSettings,
    "nats_core": NatsCoreSettings,
}
