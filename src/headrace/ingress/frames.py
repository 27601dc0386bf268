"""Messages in a journal. A message of a broker is a record by its own boundary, so it has a frame instead of a
delimiter: length, arrival time, flags, topic, payload.

Every buffer holds complete frames and ends with one. So every unit of the shredder does, and so does every run of
bytes that a task reads."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from headrace.errors import JournalDamaged

# Bytes of the whole frame, arrival in microseconds since 1970, bytes of the topic, QoS, retained.
_HEAD = struct.Struct("<IqHBB")
HEAD_BYTES = _HEAD.size


def frame(topic: bytes, payload: bytes, arrival: int, qos: int = 0, retained: bool = False) -> bytes:
    """One message. `topic` has at most 65,535 bytes."""
    size = _HEAD.size + len(topic) + len(payload)
    return b"".join((_HEAD.pack(size, arrival, len(topic), qos, retained), topic, payload))


@dataclass(slots=True)
class Messages:
    """Some messages, column by column. `places` are the positions of their frames."""

    places: list[int] = field(default_factory=list)
    topics: list[bytes] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    arrivals: list[int] = field(default_factory=list)
    flags: list[tuple[int, bool]] = field(default_factory=list)  # QoS, retained


def parse_frames(data: bytes, base: int = 0) -> Messages:
    """The messages of complete frames. `base` is added to their positions. Raises JournalDamaged."""
    found, at, size = Messages(), 0, len(data)
    while at < size:
        length, arrival, topic, qos, retained = _HEAD.unpack_from(data, at) if at + _HEAD.size <= size else (0,) * 5
        begin = at + _HEAD.size
        if length < _HEAD.size + topic or at + length > size:
            raise JournalDamaged(
                f"the journal has no message at address {base + at}",
                advice="Files of the journal were replaced. Restore them, or drop the stream.",
                place=base + at,
            )
        found.places.append(base + at)
        found.topics.append(data[begin : begin + topic])
        found.values.append(data[begin + topic : at + length])
        found.arrivals.append(arrival)
        found.flags.append((qos, bool(retained)))
        at += length
    return found
