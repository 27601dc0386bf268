"""Who sent the units of a block, and when: the end of a ready record, for streams with such metadata columns.

Records of streams without these columns, and records that an earlier version wrote, do not have it. Earlier versions
read it as padding."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

_MAGIC = b"PEER"
_HEAD = struct.Struct("<4sIq")  # magic, number of origins, arrival in microseconds since 1970
_ORIGIN = struct.Struct("<qH")  # origin, bytes of its name, which follow


class PeerFacts(NamedTuple):
    """The arrival of the units of a record, and the peers by origin."""

    arrival: int
    peers: Mapping[int, str]


def encode_facts(arrival: int, origins: Iterable[int], peers: Mapping[int, str]) -> bytes:
    known = [(origin, peers[origin].encode()) for origin in origins if origin in peers]
    parts = [_HEAD.pack(_MAGIC, len(known), arrival)]
    for origin, name in known:
        parts += [_ORIGIN.pack(origin, len(name)), name]
    return b"".join(parts)


def parse_facts(data: bytes | memoryview) -> PeerFacts | None:
    """The facts at the beginning of `data`; None if there are none. The checksum of the record covers them."""
    if len(data) < _HEAD.size or bytes(data[:4]) != _MAGIC:
        return None
    _, count, arrival = _HEAD.unpack_from(data, 0)
    at, peers = _HEAD.size, {}
    for _ in range(count):
        origin, size = _ORIGIN.unpack_from(data, at)
        at += _ORIGIN.size + size
        peers[origin] = bytes(data[at - size : at]).decode()
    return PeerFacts(arrival, peers)
