"""The sources `tcp` and `http`: others send, the gateway keeps what they sent in a journal, and tasks read that.

unit of parallelism: a block of the journal; delivery: what was acknowledged is exactly once in an epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.base.options import Option, boolean, choice, duration, integer, size, text
from headrace.errors import BadOption
from headrace.formats import FORMATS
from headrace.ingress.delimiting import finder_of
from headrace.model.program import StreamDef
from headrace.sources.base import SourceKind
from headrace.sources.journal_reader import JournalSource

Address = tuple[str, int]
_EXPECTED = "an address such as 127.0.0.1:7000 or [::1]:7000"


def address(value: str) -> Address:
    """`host:port`; a host of several colons stands in brackets."""
    host, colon, port = value.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(_EXPECTED)
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(_EXPECTED)
    return host, int(port)


def addresses(value: str) -> tuple[Address, ...]:
    """Addresses with commas between."""
    return tuple(address(part) for part in value.split(","))


def _positive(value: str) -> int:
    found = size(value)
    if found < 1 << 20:
        raise ValueError("a size of at least 1MiB")
    return found


_JOURNAL = (
    Option(
        "backpressure",
        choice("pause", "drop", "spill"),
        default="pause",
        help="when pipelines are behind: pause the senders, drop the newest records, or spill to disk and then drop",
    ),
    Option("max_journal_bytes", _positive, default=1 << 30, help="how much may wait for the pipelines before that"),
    Option("max_spill_bytes", size, default=10 << 30, help="with spill: how much more may wait, then drop"),
    Option(
        "fsync",
        choice("always", "second", "never"),
        default="second",
        help="when the journal is forced to disk: before every acknowledgement, every second, or by the system",
    ),
    Option("max_connections", integer(1, 1_000_000), default=10_000, help="more are turned away"),
)


def verify_delimited(stream: StreamDef) -> None:
    """Raise BadOption unless the ends of records can be seen in any piece of the stream's bytes."""
    fmt = FORMATS[stream.format].make(stream.schema, stream.options)
    if finder_of(fmt) is None:
        raise BadOption(
            f"source '{stream.source}' cannot tell where a record of format '{stream.format}' ends",
            advice="Use a format whose records end with a delimiter: json, csv or text. CSV with multiline = 'true' "
            "needs a delimiter of one byte and records that end with a newline.",
            option="format",
            value=stream.format,
        )
    if getattr(getattr(fmt, "dialect", None), "header", False):
        raise BadOption(
            f"source '{stream.source}' has no header lines", advice="Leave header out.", option="header", value="true"
        )


def _verify(stream: StreamDef, values: Mapping[str, Any]) -> None:
    verify_delimited(stream)


def _verify_tcp(stream: StreamDef, values: Mapping[str, Any]) -> None:
    verify_delimited(stream)
    if not values["listen"] and not values["connect"]:
        raise BadOption(
            "source 'tcp' needs 'listen' or 'connect'",
            advice="listen = '127.0.0.1:7000' waits for clients; connect = 'host:7000' reads from a server.",
            option="listen",
        )


TCP = SourceKind(
    "tcp",
    "bytes from TCP connections, in either direction",
    (
        Option("listen", address, help="where clients connect to, as host:port; port 0 takes a free one"),
        Option("connect", addresses, help="servers to read from, as host:port with commas between"),
        Option("acks", boolean, default=False, help="tell clients which of their bytes are in the journal"),
        Option(
            "last_record",
            choice("drop", "keep"),
            default="drop",
            help="what becomes of a record without delimiter when the other side ends the connection",
        ),
        Option(
            "idle_timeout",
            duration,
            default=3600 * 10**6,
            help="a silent connection is closed after that; 0s for never",
        ),
        *_JOURNAL,
    ),
    JournalSource,
    _verify_tcp,
    pushed=True,
)

HTTP = SourceKind(
    "http",
    "records in the bodies of HTTP requests",
    (
        Option("listen", address, required=True, help="the address to serve, as host:port; port 0 takes a free one"),
        Option(
            "token",
            text,
            default="",
            help="requests must have the header Authorization: Bearer TOKEN",
            secret=True,
        ),
        Option("max_request_bytes", size, default=8 << 20, help="a larger body is refused (413)"),
        Option("request_timeout", duration, default=60 * 10**6, help="a request that takes longer is given up (408)"),
        Option(
            "idle_timeout", duration, default=75 * 10**6, help="a connection without a request is closed after that"
        ),
        *_JOURNAL,
    ),
    JournalSource,
    _verify,
    pushed=True,
)
