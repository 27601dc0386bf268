"""The two files of a journal that are written now: a segment, and the ready log with the same number.

A block of bytes goes to the end of the segment. Then a record in the ready log says which units the block completes.
Readers see a block only through its record.
"""

from __future__ import annotations

import os
from pathlib import Path

import xxhash

from headrace.base.durable import fsync
from headrace.ingress import entries as disk
from headrace.ingress.counters import Counters
from headrace.ingress.journal_files import write_at
from headrace.ingress.kernels.array_columns import U_BYTES
from headrace.ingress.mark import JournalPosition
from headrace.ingress.recovery import LogFacts
from headrace.ingress.shredder import Shredded


class OpenLog:
    """See the module. `address` is the address of the next unit. For one thread. If the files cannot be created, the
    constructor raises OSError and readers see nothing of them."""

    def __init__(self, directory: Path, number: int, address: int, before: disk.LogHead, counters: Counters) -> None:
        first = disk.encode_record(
            begin=0,
            block=disk.Block(),
            address=address,
            found=disk.NOTHING,
            counters=counters.to_array(),
            head=before,
        )
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        path = disk.ready_path(directory, number)
        # Hidden until it has its head: readers leave a log as soon as they see the next one.
        hidden = path.with_name(f".{path.name}")
        handles: list[int] = []
        try:
            for name in (disk.segment_path(directory, number), hidden):
                handles.append(os.open(name, flags, 0o600))
            write_at(handles[1], memoryview(first), 0)
            os.rename(hidden, path)
        except OSError:
            for handle in handles:
                os.close(handle)
            raise
        self.directory, self.number, (self.segment, self.ready) = directory, number, handles
        self.segment_end, self._ready_end = 0, len(first)
        self._block = xxhash.xxh3_64()  # checksum of the bytes written to the segment since the last record
        self._block_begin = 0
        self.unwritten = b""  # a ready record that the full disk refused
        self.lowest = number  # the lowest segment that it refers to
        self.address = self._first = address
        self._taken_before = before.taken
        self._listed = False  # true if the directory entries of the files are synced

    def list_files(self) -> None:
        """Fsync the directory, so that the files survive a crash of the machine."""
        if not self._listed:
            fsync(self.directory)
            self._listed = True

    @property
    def taken(self) -> int:
        """The bytes of all units, in this log and in those before."""
        return self._taken_before + self.address - self._first

    @property
    def taken_before(self) -> int:
        """The bytes of the units in the logs before."""
        return self._taken_before

    @property
    def facts(self) -> LogFacts:
        """This log as recovery would find it."""
        return LogFacts(
            number=self.number,
            address=self._first,
            address_end=self.address,
            ready_end=self._ready_end,
            segment_end=self.segment_end,
            taken=self._taken_before,
            lowest=self.lowest,
        )

    @property
    def end(self) -> JournalPosition:
        """The position after the last unit."""
        return JournalPosition(self.number, self._ready_end, self.address)

    @property
    def place(self) -> tuple[int, int]:
        """Where the next block goes: the number of the segment, and the offset in it."""
        return self.number, self.segment_end

    @property
    def size(self) -> int:
        """The size of the larger file."""
        return max(self.segment_end, self._ready_end)

    def files(self) -> list[tuple[Path, int]]:
        """The names and the handles of segment and log."""
        names = disk.segment_path(self.directory, self.number), disk.ready_path(self.directory, self.number)
        return list(zip(names, (self.segment, self.ready), strict=True))

    def require_files(self) -> None:
        """Raise JournalDamaged unless both files are still in the directory."""
        for path, handle in self.files():
            try:
                there = os.path.samestat(os.stat(path), os.fstat(handle))
            except FileNotFoundError:
                there = False
            if not there:
                raise disk.damaged(path, 0, "was removed while it was written")

    # --- writing ----------------------------------------------------------------------------------

    def write(self, block: memoryview) -> None:
        """Write a block after the end of the segment. It becomes part of the segment with `extend`: until then, the
        next one overwrites it."""
        write_at(self.segment, block, self.segment_end)

    def extend(self, block: memoryview) -> None:
        """Make the block that was written a part of the segment."""
        self._block.update(block)
        self.segment_end += len(block)

    def record(self, found: Shredded, counters: Counters, rest: bytes) -> None:
        """Prepare the record of the bytes since the last one. `write_ready` writes it."""
        self.unwritten = disk.encode_record(
            begin=self._ready_end,
            block=disk.Block(self._block_begin, self.segment_end, self._block.intdigest()),
            address=self.address,
            found=found,
            counters=counters.to_array(),
            rest=rest,
        )
        self._block, self._block_begin = xxhash.xxh3_64(), self.segment_end
        self.address += int(found.units[:, U_BYTES].sum())
        if len(found.fragments):
            self.lowest = min(self.lowest, disk.place_of(int(found.fragments[:, 0].min()))[0])

    def write_ready(self) -> None:
        """Write the record that was prepared."""
        write_at(self.ready, memoryview(self.unwritten), self._ready_end)
        self._ready_end += len(self.unwritten)
        self.unwritten = b""

    def reopen(self) -> None:
        """Open the files by name again, after they were copied over."""
        handles = [os.open(path, os.O_RDWR | os.O_CLOEXEC) for path, _ in self.files()]
        self.close()
        self.segment, self.ready = handles

    def close(self) -> None:
        """Close the handles."""
        for handle in (self.segment, self.ready):
            os.close(handle)
