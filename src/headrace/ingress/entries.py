"""The file formats of the journal: segments and ready logs, byte by byte.

    segment-00000007.raw    buffers: header (magic, length, origin, sequence, checksum), then the bytes
    ready-00000007.log      records, one for each block of buffers that was written: which units the block completed

A ready record is written after its block, so the segments contain everything that it names. It has a checksum of itself
and one of the bytes of its block. The first record of a log is its *head*: it has no block, but stores where the
previous log ends. So the end of every log but the newest is known, and a truncated or missing log is detected.

An address numbers the bytes of all units. It only grows, and it jumps when a journal is opened that may have lost its
end. A reference to a buffer is (segment << 40) + the offset of its bytes in the segment."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xxhash

from headrace.base.arrays import Ints
from headrace.errors import JournalDamaged
from headrace.ingress.kernels.array_columns import U_BYTES, UNIT_COLUMNS
from headrace.ingress.shredder import Shredded

ENTRY = struct.Struct("<IIqqQ")
ENTRY_MAGIC = 0x31524248
RECORD = struct.Struct("<IIQ")
RECORD_MAGIC = 0x32524C48
OLDER_RECORD = b"HLR1"  # the first bytes of a record of earlier versions
# Begin and end of the block in the segment, its checksum, address before, bytes of the units, then the counts of
# counters, head values, units and fragments. These follow in this order, 64 bits each, then facts about the units if
# the stream needs them (headrace.ingress.peer_facts), then padding.
FIXED = struct.Struct("<qqQqqiiii")
HEAD_BYTES = FIXED.size + 8 * 4096  # a head is at most this
# A journal that may have lost its end continues this many addresses later: more than any disk has in its cache.
JUMP = 1 << 40
_SHIFT = 40
_MASK = (1 << 64) - 1


def bytes_between(address: int, later: int) -> int:
    """The bytes of units between two addresses, without the jumps between them."""
    return max(0, later - address) % JUMP


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
    """(segment, offset of the bytes in it)."""
    return ref >> _SHIFT, ref & (1 << _SHIFT) - 1


def checksum(origin: int, sequence: int, data: bytes | bytearray | memoryview) -> int:
    """The checksum of a buffer. Covers its bytes, its origin and its sequence number."""
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
    """The buffer whose *header* is at `begin`, if it is intact."""
    if begin + ENTRY.size > len(data):
        return None
    magic, length, origin, sequence, digest = ENTRY.unpack_from(data, begin)
    start = begin + ENTRY.size
    if magic != ENTRY_MAGIC or start + length > len(data):
        return None
    if checksum(origin, sequence, data[start : start + length]) != digest:
        return None
    return Entry(origin, sequence, start, start + length)


class LogHead(NamedTuple):
    """The head of a log: where the previous log ends. `number` is 0 if there is none. `taken` counts the bytes of all
    units before this log, because addresses may have jumped. `lowest` is the lowest segment that the previous log
    refers to."""

    number: int = 0
    ready_end: int = 0
    segment_end: int = 0
    address_end: int = 0
    taken: int = 0
    lowest: int = 0


class ReadyRecord(NamedTuple):
    """A record of the ready log `number`, at bytes [begin, end). Its block is at [block_begin, block_end) of the
    segment with the same number. `address` is that of the first byte of its units. `size` counts the bytes of its
    units, including those that a repair removed."""

    number: int
    begin: int
    end: int
    block_begin: int
    block_end: int
    digest: int
    address: int
    size: int
    counts: tuple[int, int, int, int]
    data: bytes | memoryview
    place: int  # of the values in `data`

    @property
    def address_end(self) -> int:
        return self.address + self.size

    def _values(self, part: int, columns: int = 1) -> Ints:
        before = (
            self.counts[0] + (self.counts[1] if part > 1 else 0) + (UNIT_COLUMNS * self.counts[2] if part > 2 else 0)
        )
        begin = self.place + 8 * (before if part else 0)
        return np.frombuffer(self.data, np.int64, columns * self.counts[part], begin)

    @property
    def counters(self) -> Ints:
        return self._values(0)

    @property
    def head(self) -> LogHead | None:
        """The head of the log. None for any other record."""
        return LogHead(*self._values(1).tolist()) if self.counts[1] else None

    @property
    def units(self) -> Ints:
        return self._values(2, UNIT_COLUMNS).reshape(-1, UNIT_COLUMNS)

    @property
    def fragments(self) -> Ints:
        return self._values(3, 3).reshape(-1, 3)

    @property
    def rest(self) -> bytes:
        """What follows the values: facts about the units (`headrace.ingress.peer_facts`), then padding."""
        values = self.counts[0] + self.counts[1] + UNIT_COLUMNS * self.counts[2] + 3 * self.counts[3]
        length = self.end - self.begin - RECORD.size - FIXED.size
        return bytes(self.data[self.place + 8 * values : self.place + length])

    def lowest(self) -> int:
        """The lowest segment that the record refers to."""
        fragments = self.fragments
        return place_of(int(fragments[:, 0].min()))[0] if len(fragments) else self.number


class Block(NamedTuple):
    """The range of a block in its segment, and the checksum of its bytes."""

    begin: int = 0
    end: int = 0
    digest: int = 0


_NO_UNITS, _NO_FRAGMENTS = np.empty((0, UNIT_COLUMNS), np.int64), np.empty((0, 3), np.int64)
NOTHING = Shredded(_NO_UNITS, _NO_FRAGMENTS, 0)


def encode_record(
    begin: int,
    block: Block,
    address: int,
    found: Shredded,
    counters: Ints,
    head: LogHead | None = None,
    *,
    rest: bytes = b"",
    size: int | None = None,
    length: int = 0,
) -> bytes:
    """The bytes of a record for offset `begin` of its ready log. `rest` follows its values. A repair passes `size`, to
    count removed units, and pads the record to `length`."""
    size = int(found.units[:, U_BYTES].sum()) if size is None else size
    heads = np.array(head or (), np.int64)
    fixed = FIXED.pack(*block, address, size, len(counters), len(heads), len(found.units), len(found.fragments))
    values = (counters, heads, found.units, found.fragments)
    payload = b"".join((fixed, *(v.tobytes() for v in values), rest))
    payload += bytes(max(0, length - RECORD.size - len(payload)))
    return RECORD.pack(RECORD_MAGIC, len(payload), xxhash.xxh3_64_intdigest(payload, seed=begin)) + payload


def record_at(data: bytes | memoryview, at: int, number: int, base: int = 0) -> ReadyRecord | None:
    """The record at `at` of `data`, or None if it is not intact. `data` begins at byte `base` of the ready log
    `number`."""
    begin = at + RECORD.size
    if begin + FIXED.size > len(data):
        return None
    magic, length, digest = RECORD.unpack_from(data, at)
    end = begin + length
    if magic != RECORD_MAGIC or length < FIXED.size or end > len(data):
        return None
    if xxhash.xxh3_64_intdigest(memoryview(data)[begin:end], seed=base + at) != digest:
        return None
    block_begin, block_end, block, address, size, *counts = FIXED.unpack_from(data, begin)
    return ReadyRecord(
        number=number,
        begin=base + at,
        end=base + end,
        block_begin=block_begin,
        block_end=block_end,
        digest=block,
        address=address,
        size=size,
        counts=tuple(counts),
        data=data,
        place=begin + FIXED.size,
    )


def records(data: bytes | memoryview, number: int, base: int = 0) -> Iterator[ReadyRecord]:
    """The intact records at the beginning of `data`."""
    at = 0
    while (found := record_at(data, at, number, base)) is not None:
        yield found
        at = found.end - base


def any_record(data: bytes, at: int, number: int) -> bool:
    """True if an intact record begins anywhere after `at` of a ready log."""
    magic = RECORD_MAGIC.to_bytes(4, "little")
    while (at := data.find(magic, at)) >= 0:
        if record_at(data, at, number) is not None:
            return True
        at += 1
    return False


def may_be_unfinished(data: bytes | memoryview, at: int) -> bool:
    """True if the bytes at `at`, after the intact records, may be a record that is still being written. Writes extend
    the file from the front, so a record whose bytes are all there must be intact."""
    if len(data) - at < RECORD.size + FIXED.size:
        return True
    magic, length, _ = RECORD.unpack_from(data, at)
    return bool(magic == RECORD_MAGIC and at + RECORD.size + length > len(data))


def read_head(directory: Path, number: int) -> ReadyRecord:
    """The head of a log. Raises JournalDamaged if it is damaged or missing."""
    path = ready_path(directory, number)
    try:
        with open(path, "rb") as file:
            found = record_at(file.read(RECORD.size + HEAD_BYTES), 0, number)
    except FileNotFoundError:
        raise damaged(path, 0, "is missing") from None
    if found is None or found.head is None:
        raise damaged(path, 0)
    return found


def damaged(path: Path, place: int, what: str = "") -> JournalDamaged:
    """The error for a damaged position of a file."""
    return JournalDamaged(
        f"{path} {what}" if what else f"{path} is damaged at byte {place}",
        advice="The disk or another program changed it; nothing was deleted. Restore the file, or stop the hub and run "
        "`headrace repair STREAM --state-dir DIRECTORY`: it removes the unreadable parts and reports their size.",
        path=str(path),
        place=place,
    )
