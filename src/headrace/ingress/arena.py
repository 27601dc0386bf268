"""The memory that sockets read into: buffers that are not written to the journal yet.

Buffers follow each other as they will in the segment, each after its header. Next to them is an array of what arrived,
for the shredder.
"""

from __future__ import annotations

import struct

import numpy as np

from headrace.base.arrays import Ints
from headrace.ingress import entries as disk
from headrace.ingress.kernels.array_columns import A_REF, ARRIVAL_COLUMNS

ARENA = 1 << 20  # the largest block, unless one buffer is larger; small blocks spread well over tasks
LARGEST_READ = 64 << 10
_ARRIVAL = struct.Struct(f"<{ARRIVAL_COLUMNS}q")


class Arena:
    """See the module. For one thread."""

    def __init__(self) -> None:
        self._memory = bytearray(ARENA)
        self._at = 0
        self._arrivals = bytearray(_ARRIVAL.size * 4096)
        self.count = 0  # buffers

    def fits(self, size: int) -> bool:
        """True if a buffer of `size` bytes fits without growing."""
        return self._at + disk.ENTRY.size + size <= len(self._memory)

    def grow(self, size: int) -> None:
        """Make room for a buffer of `size` bytes."""
        need = self._at + disk.ENTRY.size + size
        if need > len(self._memory):
            self._memory = self._memory[: self._at] + bytes(need - self._at)

    def room(self, size: int) -> memoryview:
        """Memory for the next buffer, which must fit."""
        start = self._at + disk.ENTRY.size
        return memoryview(self._memory)[start : max(start + size, min(len(self._memory), start + LARGEST_READ))]

    @property
    def incoming(self) -> tuple[bytearray, int]:
        """The memory, and the offset of the next buffer in it."""
        return self._memory, self._at + disk.ENTRY.size

    def append(
        self, *, origin: int, sequence: int, length: int, first: int, last: int, ends: bool, block: tuple[int, int]
    ) -> None:
        """The first `length` bytes in `room` are a buffer. `block` is where the arena will be written: the number of a
        segment, and an offset in it."""
        start = self._at + disk.ENTRY.size
        with memoryview(self._memory)[start : start + length] as data:
            header = disk.entry_header(origin, sequence, data)
        self._memory[self._at : start] = header
        offset = self.count * _ARRIVAL.size
        if offset == len(self._arrivals):
            self._arrivals += bytes(len(self._arrivals))
        ref = disk.reference(block[0], block[1] + start)
        _ARRIVAL.pack_into(self._arrivals, offset, origin, sequence, ref, first, last, length, ends)
        self.count += 1
        self._at = start + length

    def block(self) -> memoryview:
        """The buffers with their headers. Release it before the next call."""
        return memoryview(self._memory)[: self._at]

    def arrivals(self) -> Ints:
        """What arrived, for the shredder. A view."""
        return np.frombuffer(self._arrivals, np.int64, ARRIVAL_COLUMNS * self.count).reshape(-1, ARRIVAL_COLUMNS)

    def move(self, distance: int) -> None:
        """The buffers are written to another place: correct their references."""
        if self.count:
            self.arrivals()[:, A_REF] += distance

    def clear(self) -> None:
        """Forget the buffers, which are written."""
        self._at = self.count = 0
        if len(self._memory) > ARENA:
            self._memory = bytearray(ARENA)
