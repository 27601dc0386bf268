"""The journal on disk: what a segment and a ready log look like, byte by byte.

    segment-00000007.raw    buffers: header (magic, length, origin, sequence, checksum), then the bytes
    ready-00000007.log      records, one for each block of buffers that was written: what became complete with it

A ready record follows its buffers, so everything it names is in the segments. Both kinds end where a crash cut them;
what is whole is told by the checksums. A reference to a buffer is (segment << 40) + the place of its bytes in the
segment."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash

from headrace.errors import JournalDamaged
from headrace.ingress.kernels.layout import UNIT_COLUMNS
from headrace.ingress.shredder import Ints, Shredded

ENTRY = struct.Struct("<IIqqQ")
ENTRY_MAGIC = 0x31524248
RECORD = struct.Struct("<IIQ")
RECORD_MAGIC = 0x31524C48
# segment end, address before, bytes of the units, units, fragments, lowest segment referred to, counters
FIXED = struct.Struct("<7q")
_SHIFT = 40
_MASK = (1 << 64) - 1


def segment_path(directory: Path, number: int) -> Path:
    return directory / f"segment-{number:08d}.raw"


def ready_path(directory: Path, number: int) -> Path:
    return directory / f"ready-{number:08d}.log"


def numbers(directory: Path) -> list[int]:
    """The ready logs that exist, oldest first."""
    return sorted(int(p.name[6:14]) for p in directory.glob("ready-????????.log"))


def reference(segment: int, place: int) -> int:
    return segment << _SHIFT | place


def place_of(ref: int) -> tuple[int, int]:
    """(segment, place of the bytes in it)."""
    return ref >> _SHIFT, ref & (1 << _SHIFT) - 1


def checksum(origin: int, sequence: int, data: bytes | bytearray | memoryview) -> int:
    """Of a buffer: its bytes, and whose they are."""
    return xxhash.xxh3_64_intdigest(data, seed=(origin * 0x9E3779B97F4A7C15 ^ sequence << 32 ^ len(data)) & _MASK)


def entry_header(origin: int, sequence: int, data: bytes | bytearray | memoryview) -> bytes:
    return ENTRY.pack(ENTRY_MAGIC, len(data), origin, sequence, checksum(origin, sequence, data))


@dataclass(frozen=True, slots=True)
class Entry:
    """A buffer in a segment; its bytes are [begin, end)."""

    origin: int
    sequence: int
    begin: int
    end: int


def entry_at(data: memoryview, begin: int) -> Entry | None:
    """The buffer whose *header* is at `begin`, if it is whole."""
    if begin + ENTRY.size > len(data):
        return None
    magic, length, origin, sequence, digest = ENTRY.unpack_from(data, begin)
    start = begin + ENTRY.size
    if magic != ENTRY_MAGIC or start + length > len(data):
        return None
    if checksum(origin, sequence, data[start : start + length]) != digest:
        return None
    return Entry(origin, sequence, start, start + length)


def entries(data: memoryview) -> Iterator[Entry]:
    """The whole buffers at the beginning of a segment."""
    at = 0
    while (found := entry_at(data, at)) is not None:
        yield found
        at = found.end


@dataclass(frozen=True, slots=True)
class ReadyRecord:
    """One block. [begin, end) is its place in the ready log `number`; `address` counts the bytes of all units before it
    since the journal began. `segment_end` is how long the segment of the same number is with this block."""

    number: int
    begin: int
    end: int
    segment_end: int
    address: int
    size: int
    lowest: int
    counters: Ints
    units: Ints
    fragments: Ints

    @property
    def address_end(self) -> int:
        return self.address + self.size


def encode_record(begin: int, segment: int, segment_end: int, address: int, found: Shredded, counters: Ints) -> bytes:
    """A record to be written at `begin` of its ready log."""
    size = int(found.units[:, 4].sum())
    lowest = int(found.fragments[:, 0].min()) >> _SHIFT if len(found.fragments) else segment
    fixed = FIXED.pack(segment_end, address, size, len(found.units), len(found.fragments), lowest, len(counters))
    payload = b"".join((fixed, counters.tobytes(), found.units.tobytes(), found.fragments.tobytes()))
    return RECORD.pack(RECORD_MAGIC, len(payload), xxhash.xxh3_64_intdigest(payload, seed=begin)) + payload


def record_at(data: bytes | memoryview, at: int, number: int, base: int = 0) -> ReadyRecord | None:
    """The record at `at` of `data`, which begins at byte `base` of the ready log `number`; None if it is not whole."""
    if at + RECORD.size + FIXED.size > len(data):
        return None
    magic, length, digest = RECORD.unpack_from(data, at)
    begin, end = at + RECORD.size, at + RECORD.size + length
    if magic != RECORD_MAGIC or end > len(data):
        return None
    if xxhash.xxh3_64_intdigest(memoryview(data)[begin:end], seed=base + at) != digest:
        return None
    segment_end, address, size, units, fragments, lowest, counters = FIXED.unpack_from(data, begin)
    values = np.frombuffer(data, np.int64, counters + UNIT_COLUMNS * units + 3 * fragments, begin + FIXED.size)
    rest = values[counters:]
    return ReadyRecord(
        number, base + at, base + end, segment_end, address, size, lowest, values[:counters],
        rest[: UNIT_COLUMNS * units].reshape(-1, UNIT_COLUMNS), rest[UNIT_COLUMNS * units :].reshape(-1, 3),
    )  # fmt: skip


def records(data: bytes | memoryview, number: int, base: int = 0) -> Iterator[ReadyRecord]:
    """The whole records at the beginning of `data`."""
    at = 0
    while (found := record_at(data, at, number, base)) is not None:
        yield found
        at = found.end - base


def damaged(path: Path, place: int) -> JournalDamaged:
    """The error for a place that is not what was written."""
    return JournalDamaged(
        f"{path}, byte {place}, is not what was written",
        advice="The disk or another program changed it. Restore the file, or drop the stream and declare it again.",
        path=str(path),
        place=place,
    )
