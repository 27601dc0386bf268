"""The journal of one stream, as its one writer sees it: buffers in, blocks of them and what they complete on the disk.

Buffers are collected in an *arena*, which sockets read into directly; `flush` writes it to the segment as one block,
lets the shredder say what the block completes, and writes that to the ready log. What `flush` has returned for
survives the end of this process; with `sync` also that of the machine. After a crash the journal is cut back to its
last whole record.

Origins do not outlive the process (their connections do not), so the shredder begins anew; an open record is given up.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import struct
import time
from pathlib import Path

import numpy as np

from headrace.durable import fsync
from headrace.errors import StateInUse
from headrace.ingress import entries as disk
from headrace.ingress.counters import Counters
from headrace.ingress.kernels.layout import U_BYTES, UNIT_COLUMNS
from headrace.ingress.shredder import SequenceShredder, Shredded

ARENA = 1 << 20  # a block is at most this, a larger buffer aside; small blocks spread well over tasks
LARGEST_READ = 64 << 10
LOCK_SECONDS = 10.0
_ARRIVAL = struct.Struct("<7q")
_NOTHING = Shredded(np.empty((0, UNIT_COLUMNS), np.int64), np.empty((0, 3), np.int64), 0)


class Journal:
    """See the module. One thread. `held` is how many bytes were taken and neither read by every consumer nor given
    up."""

    def __init__(self, directory: Path, segment_bytes: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "consumers").mkdir(exist_ok=True)
        self.directory, self.segment_bytes = directory, segment_bytes
        self._lock = _locked(directory)
        self.shredder = SequenceShredder()
        self.counters = Counters()
        self._lowest: dict[int, int] = {}  # ready log -> lowest segment that it refers to
        self._consumed = (0, 0)  # (address, ready log) that every consumer is past
        self._arena = bytearray(ARENA)
        self._at = 0
        self._arrivals = bytearray(_ARRIVAL.size * 4096)
        self._count = 0
        self._unwritten = b""  # a ready record that did not fit on the disk
        self._dirty = False
        self._full: list[int] = []  # handles of files that are not synced and that nothing is written to
        self._listed = True  # whether the names of the newest files are synced
        self._unwritable = self._unsyncable = ""
        self._recover()
        self.held = self.address - self._consumed[0]

    # --- opening ----------------------------------------------------------------------------------

    def _recover(self) -> None:
        """Find the last whole record, cut what follows it, and go on after it in files of a new number."""
        self.address, newest, whole = 0, 0, True
        for number in disk.numbers(self.directory):
            newest = number
            ready, segment = disk.ready_path(self.directory, number), disk.segment_path(self.directory, number)
            if not whole:  # a machine that died may have kept later files and lost earlier bytes
                ready.unlink()
                segment.unlink(missing_ok=True)
                continue
            found = list(disk.records(ready.read_bytes(), number))
            good = _good_bytes(segment)
            kept = [r for r in found if r.segment_end <= good]
            whole = len(kept) == len(found) and bool(found) and found[-1].end == ready.stat().st_size
            if not kept:
                ready.unlink()
                segment.unlink(missing_ok=True)
                continue
            os.truncate(ready, kept[-1].end)
            if segment.exists():
                os.truncate(segment, kept[-1].segment_end)
            for record in kept:
                self._note(number, record.lowest)
                self.address, self.counters = record.address_end, Counters(record.counters)
        self._read_consumers()
        # A machine that died may have lost what a consumer had read: addresses never go back.
        self.address = max(self.address, self._consumed[0])
        self._open(max(newest, self._consumed[1]) + 1)
        self._list()
        self._delete()

    def _open(self, number: int) -> None:
        """Go on in files of a new number; if they cannot be had, nothing has happened."""
        # Every ready log begins with a record, so that counters and address survive the files before it.
        first = disk.encode_record(0, number, 0, self.address, _NOTHING, self.counters.to_array())
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        path = disk.ready_path(self.directory, number)
        hidden = path.with_name(f".{path.name}")  # readers leave the log before as soon as they see the next one
        handles: list[int] = []
        try:
            for name in (disk.segment_path(self.directory, number), hidden):
                handles.append(os.open(name, flags, 0o644))
            _write(handles[1], memoryview(first), 0)
            os.rename(hidden, path)
        except OSError:
            for handle in handles:
                os.close(handle)
            raise
        self.number, (self._segment, self._ready) = number, handles
        self._segment_end, self._ready_end = 0, len(first)
        self._lowest[number] = number
        self._listed = False

    def _list(self) -> None:
        """Make the names of the newest files survive the machine."""
        if not self._listed:
            fsync(self.directory)
            self._listed = True

    def _note(self, number: int, lowest: int) -> None:
        self._lowest[number] = min(lowest, self._lowest.get(number, number))

    # --- buffers ----------------------------------------------------------------------------------

    def room(self, size: int = LARGEST_READ) -> memoryview:
        """A place for the bytes of the next buffer, at least `size` long. Valid until the next call of anything. When
        the arena is full and so is the disk, the arena grows and `problem` says why: stop sending then."""
        if self._at + disk.ENTRY.size + size > len(self._arena):
            self.flush()
            need = self._at + disk.ENTRY.size + size
            if need > len(self._arena):
                self._arena = self._arena[: self._at] + bytes(need - self._at)
        start = self._at + disk.ENTRY.size
        return memoryview(self._arena)[start : max(start + size, min(len(self._arena), start + LARGEST_READ))]

    @property
    def incoming(self) -> tuple[bytearray, int]:
        """The arena, and where in it the bytes of the next buffer are."""
        return self._arena, self._at + disk.ENTRY.size

    def append(self, origin: int, sequence: int, length: int, first: int, last: int, ends: bool = False) -> None:
        """The bytes in `room` are a buffer of `length` bytes, with delimiters that end at `first` and `last`."""
        start = self._at + disk.ENTRY.size
        with memoryview(self._arena)[start : start + length] as data:
            header = disk.entry_header(origin, sequence, data)
        self._arena[self._at : start] = header
        offset = self._count * _ARRIVAL.size
        if offset == len(self._arrivals):
            self._arrivals += bytes(len(self._arrivals))
        ref = disk.reference(self.number, self._segment_end + start)
        _ARRIVAL.pack_into(self._arrivals, offset, origin, sequence, ref, first, last, length, ends)
        self._count += 1
        self._at = start + length
        self.held += length

    def put(
        self, origin: int, sequence: int, data: bytes | bytearray, first: int, last: int, ends: bool = False
    ) -> None:
        """As `room` and `append`, for bytes that are elsewhere."""
        self.room(len(data))[: len(data)] = data
        self.append(origin, sequence, len(data), first, last, ends)

    def close_origin(self, origin: int) -> int:
        """No more of an origin will come, and what came is flushed; the bytes of its open record, which are given
        up."""
        lost = self.shredder.close(origin)
        self.held -= lost
        return lost

    # --- blocks -----------------------------------------------------------------------------------

    @property
    def problem(self) -> str:
        """Why the disk does not take what came; empty when it does."""
        return self._unwritable or self._unsyncable

    def flush(self) -> bool:
        """Write what was appended, and what it completes. If the disk does not take it, nothing is lost: `problem` says
        why, and the next flush tries again. Whether everything is written."""
        try:
            self._flush()
        except OSError as problem:
            self._unwritable = f"the journal cannot be written: {problem.strerror or problem}"
            return False
        self._unwritable = ""
        return True

    def _flush(self) -> None:
        if self._unwritten:
            self._write_ready()
        if self._count:
            self._write_block()
        self._list()
        # Only now: buffers in the arena refer to the segment that they will be written to.
        if self._segment_end >= self.segment_bytes:
            self._roll()

    def _write_block(self) -> None:
        with memoryview(self._arena)[: self._at] as block:
            _write(self._segment, block, self._segment_end)
        arrivals = np.frombuffer(self._arrivals, np.int64, 7 * self._count).reshape(-1, 7).copy()
        found = self.shredder.arrive(arrivals)
        self._segment_end += self._at
        self._at = self._count = 0
        if len(self._arena) > ARENA:
            self._arena = bytearray(ARENA)
        self._unwritten = disk.encode_record(
            self._ready_end, self.number, self._segment_end, self.address, found, self.counters.to_array()
        )
        self.address += int(found.units[:, U_BYTES].sum())
        if len(found.fragments):
            self._note(self.number, disk.place_of(int(found.fragments[:, 0].min()))[0])
        self._write_ready()

    def _write_ready(self) -> None:
        _write(self._ready, memoryview(self._unwritten), self._ready_end)
        self._ready_end += len(self._unwritten)
        self._unwritten = b""
        self._dirty = True

    def _roll(self) -> None:
        full = [self._segment, self._ready]
        self._open(self.number + 1)
        self._full += full
        self._dirty = True  # the new log has its first record
        self._list()
        self._tidy()

    # --- syncing ----------------------------------------------------------------------------------

    def unsynced(self) -> list[int]:
        """Handles of all that was flushed and not synced: for `sync_all`, which another thread may call; `synced` must
        be told what came of it. Raises OSError, without effect, when there are no handles left."""
        current = [self._segment, self._ready] if self._dirty else []
        copies: list[int] = []
        try:
            copies += map(os.dup, current)
        except OSError:
            sync_all(copies, really=False)
            raise
        handles, self._full, self._dirty = self._full + copies, [], False
        return handles

    def synced(self, left: list[int], problem: OSError | None) -> None:
        """Syncing ended, with these handles left: they are tried again, and until then `problem` says why."""
        self._full = left + self._full
        self._unsyncable = f"the journal cannot be synced: {problem.strerror or problem}" if problem else ""

    def sync(self) -> None:
        """Make everything that was flushed survive the machine. Raises OSError when the disk does not."""
        handles: list[int] = []
        try:
            handles = self.unsynced()
            sync_all(handles)
        except OSError as problem:
            self.synced(handles, problem)
            raise
        self.synced([], None)

    def close(self) -> None:
        """Flush, sync, and let go of the directory. Raises OSError when the disk does not take it."""
        try:
            if not self.flush():
                raise OSError(self.problem)
            self.sync()
        finally:
            for handle in (*self._full, self._segment, self._ready, self._lock):
                os.close(handle)

    # --- consumers --------------------------------------------------------------------------------

    def poll(self) -> bool:
        """Look how far the consumers are; delete what all are past. Whether they moved."""
        before = self._consumed
        self._read_consumers()
        if self._consumed == before:
            return False
        self.held -= self._consumed[0] - before[0]
        with contextlib.suppress(OSError):
            self._delete()  # needs no room, and a full disk gets some
        if self.flush():
            self._tidy()
        return True

    def _read_consumers(self) -> None:
        found = []
        for path in (self.directory / "consumers").glob("*.json"):
            with contextlib.suppress(OSError, ValueError):
                at = json.loads(path.read_bytes())
                found.append((int(at["address"]), int(at["file"])))
        if found:
            self._consumed = max(self._consumed, min(found))

    def _delete(self) -> None:
        """Remove the files that no consumer, no record to be read and no open record needs."""
        at = min(self._consumed[1], self.number)
        for number in [n for n in self._lowest if n < at]:
            disk.ready_path(self.directory, number).unlink(missing_ok=True)
            del self._lowest[number]
        lowest = self.shredder.lowest()
        needed = min(at, *self._lowest.values(), at if lowest is None else disk.place_of(lowest)[0])
        for path in self.directory.glob("segment-????????.raw"):
            if int(path.name[8:16]) < needed:
                path.unlink(missing_ok=True)

    def _tidy(self) -> None:
        """Delete, and carry what keeps segments from being deleted. Only after a flush: what is carried goes where the
        arena would. If the disk refuses, files stay until the next time."""
        with contextlib.suppress(OSError):
            self._carry()
            self._delete()

    def _carry(self) -> None:
        """Copy the beginnings of open records out of segments that nobody else needs: a client that sends a byte an
        hour must not keep a segment of 64 MB."""
        waiting = self.shredder.waiting_below(disk.reference(min(self._consumed[1], self.number), 0))
        if not len(waiting):
            return
        moved = []
        for origin, ref, begin, end in waiting.tolist():
            segment, place = disk.place_of(ref)
            with open(disk.segment_path(self.directory, segment), "rb") as file:
                data = os.pread(file.fileno(), end - begin, place + begin)
            block = disk.entry_header(origin, 0, data) + data
            _write(self._segment, memoryview(block), self._segment_end)
            moved.append(disk.reference(self.number, self._segment_end + disk.ENTRY.size))
            self._segment_end += len(block)
        self.shredder.move(waiting[:, 1], np.array(moved, np.int64), waiting[:, 2])

    @property
    def disk_bytes(self) -> int:
        """What the journal takes on the disk."""
        return sum(p.stat().st_size for p in self.directory.iterdir() if p.is_file())


def sync_all(handles: list[int], really: bool = True) -> None:
    """Sync and close. If that raises OSError, the handles that are left are neither."""
    while handles:
        if really:
            os.fdatasync(handles[0])
        os.close(handles.pop(0))


def _good_bytes(segment: Path) -> int:
    """How much of a segment is whole; any number if it is gone because every consumer is past it."""
    if not segment.exists():
        return 1 << 62
    good = 0
    with open(segment, "rb") as file:
        if os.fstat(file.fileno()).st_size:
            with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped, memoryview(mapped) as view:
                for entry in disk.entries(view):
                    good = entry.end
    return good


def _write(handle: int, data: memoryview, at: int) -> None:
    """Write all of it at a place; if that fails, leave the file as it was."""
    done = 0
    try:
        while done < len(data):
            done += os.pwrite(handle, data[done:], at + done)
    except OSError:
        os.ftruncate(handle, at)
        raise


def _locked(directory: Path) -> int:
    """The lock of the one writer. The gateway of a hub that was killed lives some moments longer: it is waited for."""
    handle = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    end = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except OSError:
            if time.monotonic() > end:
                os.close(handle)
                raise StateInUse(f"the journal {directory} is in use", path=str(directory)) from None
            time.sleep(0.05)
