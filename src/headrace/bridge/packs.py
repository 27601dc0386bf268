"""The events of many lanes in one message to their pool.

With hundreds of pipelines an epoch has hundreds of small tables of partial aggregates for each bucket. As messages of
their own they would cost more than their rows. A pack is the number of entries, the facts of each, and then their
payloads, one after the other.

Windows that emit on close keep their state in the form of these payloads. Ring 0 cuts their rows by window, so that
Ring 1 can store a payload without reading it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headrace.errors import InternalError

# Beyond this many bytes of payloads a task sends several packs to a pool.
PACK_BYTES = 8 * 1024 * 1024
_COUNT = struct.Struct("<II")
_ENTRY = struct.Struct("<qqqII")
_MAGIC = int.from_bytes(b"HRP1", "little")


class PackEntry(NamedTuple):
    """The `rows` rows of one lane in a payload, as `headrace.bridge.rows` encodes them. All are of the window from
    `start` to `end`, or both are 0: then they may be of any."""

    lane: int
    start: int
    end: int
    rows: int
    payload: bytes


def packs(entries: Sequence[PackEntry]) -> Iterator[bytes]:
    """The entries in messages of about PACK_BYTES."""
    begin, size = 0, 0
    for i, entry in enumerate(entries):
        if size and size + len(entry.payload) > PACK_BYTES:
            yield _pack(entries[begin:i])
            begin, size = i, 0
        size += len(entry.payload)
    if begin < len(entries):
        yield _pack(entries[begin:])


def _pack(entries: Sequence[PackEntry]) -> bytes:
    table = b"".join([_ENTRY.pack(*entry[:4], len(entry.payload)) for entry in entries])
    return b"".join((_COUNT.pack(_MAGIC, len(entries)), table, *(entry.payload for entry in entries)))


def unpack(message: bytes) -> Iterator[PackEntry]:
    """The entries of one message. Raises InternalError if it is none."""
    magic, count = _COUNT.unpack_from(message)
    at = _COUNT.size + count * _ENTRY.size
    if magic != _MAGIC or at > len(message):
        raise InternalError(f"{len(message)} bytes are not a pack of events")
    for lane, start, end, rows, size in _ENTRY.iter_unpack(message[_COUNT.size : at]):
        yield PackEntry._make((lane, start, end, rows, message[at : at + size]))
        at += size
    if at != len(message):
        raise InternalError(f"a pack of events has {len(message)} bytes instead of {at}")
