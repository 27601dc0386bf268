"""The writer of a stream's journal: collects buffers and writes them to disk in blocks.

Sockets read directly into an *arena*. `flush` writes the arena to the segment as one block, asks the shredder which
units the block completes, and writes these to the ready log. After `flush` the data survives the end of this process;
after `sync` it also survives a crash of the machine. `headrace.ingress.recovery` opens the files of an earlier process,
and `headrace.ingress.journal_sync` syncs them.

Origins end with the process, because their connections do. So the shredder starts empty, and unfinished records are
discarded.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import sys
import time
from pathlib import Path

import numpy as np
import xxhash

from headrace.base.arrays import Ints
from headrace.base.durable import fsync, private_directory
from headrace.errors import JournalCut, JournalDamaged
from headrace.ingress import entries as disk
from headrace.ingress.counters import Counters
from headrace.ingress.journal_files import copy_over, locked, write_at
from headrace.ingress.journal_reserve import JournalReserve
from headrace.ingress.journal_sync import Sync
from headrace.ingress.kernels.layout import U_BYTES, U_ORIGIN
from headrace.ingress.losses import add_loss, read_losses
from headrace.ingress.mark import JournalPosition, MarkFile, boot, read_consumer
from headrace.ingress.peer_facts import encode_facts
from headrace.ingress.recovery import LogFacts, recover, scan
from headrace.ingress.shredder import SequenceShredder

ARENA = 1 << 20  # the largest block, unless one buffer is larger; small blocks spread well over tasks
LARGEST_READ = 64 << 10
# A journal that may have lost its end continues this many addresses later: more than any disk has in its cache.
JUMP = 1 << 40
MARK_SECONDS = 1.0
IDLE_SECONDS, IDLE_BYTES = (
    1.0,
    1 << 20,
)  # a segment of this size is freed when it was read completely and no data came for this long
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_ARRIVAL = struct.Struct("<7q")


class Journal:
    """The writer; see the module. For one thread. `held` counts bytes that were taken, and that some consumer has not
    read yet. `lost` counts bytes that were on disk and are gone. Raises JournalDamaged if the files are damaged."""

    def __init__(self, directory: Path, segment_bytes: int) -> None:
        private_directory(directory / "consumers")
        self.directory, self.segment_bytes = directory, segment_bytes
        self.shredder = SequenceShredder()
        self._logs: dict[int, LogFacts] = {}  # all but the newest
        self._lowest = 0  # the lowest segment that the newest log refers to
        self._consumed = JournalPosition()  # every consumer is past it
        self._arena = bytearray(ARENA)
        self._at = 0
        self._arrivals = bytearray(_ARRIVAL.size * 4096)
        self._count = 0
        self._block = xxhash.xxh3_64()  # checksum of the bytes written to the segment since the last record
        self._block_begin = 0
        self._unwritten = b""  # a ready record that the full disk refused
        self._dirty = False
        self._full: list[tuple[Path, int]] = []  # finished files that are not synced yet
        self._suspect: list[Path] = []  # files whose sync failed
        self._listed = True  # true if the directory entries of the newest files are synced
        self._unwritable = self._unsyncable = ""
        self.damage: JournalDamaged | None = None  # why no flush can succeed, if files were removed
        self._reserve = JournalReserve(directory)
        self._marked = self._written = 0.0  # when
        self.lost = self._lost_by_consumers = 0
        # The peers of origins, for streams with metadata columns about them. None: such facts are not stored.
        self.peers: dict[int, str] | None = None
        self._lock = locked(directory)
        try:
            self._recover()
        except BaseException:
            os.close(self._lock)
            raise

    # --- opening ----------------------------------------------------------------------------------

    def _recover(self) -> None:
        """Truncate the newest file after its last intact record, and continue in files with a new number."""
        self._mark = MarkFile(self.directory)
        self._consumed = self._mark.value.consumed
        self._read_consumers()
        found = recover(self.directory, self._consumed, self._mark.found)
        if found.lost:
            add_loss(self.directory, JournalCut.code, found.lost)
            print(_cut(self.directory, found.lost).render(), file=sys.stderr, flush=True)
        self.lost = read_losses(self.directory)
        self.counters = Counters(found.counters)
        self._logs = found.logs
        newest = found.logs[max(found.logs)] if found.logs else None
        self.address = max(newest.address_end if newest else 0, self._consumed.address)
        if not found.clean or (newest is not None and newest.address_end < self._consumed.address):
            self.address += JUMP
        self._mark.open()
        try:
            gone = disk.LogHead(address_end=self._consumed.address)  # without any log, all data was read
            self._open(found.newest + 1, newest.head_of_next() if newest else gone)
            self._list()
            for handle in (self._segment, self._ready):
                os.fdatasync(handle)
            self._mark.write(synced=self._end, boot=boot(), closed=False)
            with contextlib.suppress(OSError):  # the first flush reports it
                self._reserve.keep()
        except BaseException:
            self._mark.close()
            raise
        self.held = self._taken - self._taken_at(self._consumed)
        self._delete()

    def _open(self, number: int, before: disk.LogHead) -> None:
        """Continue in files with a new number. If they cannot be created, nothing changes."""
        first = disk.encode_record(
            begin=0,
            block=disk.Block(),
            address=self.address,
            found=disk.NOTHING,
            counters=self.counters.to_array(),
            head=before,
        )
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        path = disk.ready_path(self.directory, number)
        hidden = path.with_name(
            f".{path.name}"
        )  # hidden until it has its head: readers leave a log as soon as they see the next one
        handles: list[int] = []
        try:
            for name in (disk.segment_path(self.directory, number), hidden):
                handles.append(os.open(name, flags, 0o600))
            write_at(handles[1], memoryview(first), 0)
            os.rename(hidden, path)
        except OSError:
            for handle in handles:
                os.close(handle)
            raise
        self.number, (self._segment, self._ready) = number, handles
        self._segment_end, self._ready_end = 0, len(first)
        self._block, self._block_begin = xxhash.xxh3_64(), 0
        self._lowest, self._first, self._taken_before = number, self.address, before.taken
        self._listed = False

    def _list(self) -> None:
        """Fsync the directory, so that the newest files survive a crash of the machine."""
        if not self._listed:
            fsync(self.directory)
            self._listed = True

    @property
    def _taken(self) -> int:
        """The bytes of all units."""
        return self._taken_before + self.address - self._first

    def _facts(self) -> LogFacts:
        """The newest log."""
        return LogFacts(
            number=self.number,
            address=self._first,
            address_end=self.address,
            ready_end=self._ready_end,
            segment_end=self._segment_end,
            taken=self._taken_before,
            lowest=self._lowest,
        )

    def _taken_at(self, place: JournalPosition) -> int:
        """The bytes of all units before a position."""
        facts = self._facts() if place.file == self.number else self._logs.get(place.file)
        if facts is not None:
            return facts.taken + max(0, min(place.address, facts.address_end) - facts.address)
        later = [log.taken for number, log in self._logs.items() if number > place.file]
        return min([*later, self._taken_before] if place.file < self.number else [self._taken])

    # --- buffers ----------------------------------------------------------------------------------

    def room(self, size: int = LARGEST_READ) -> memoryview:
        """Memory for the next buffer, at least `size` bytes, valid until the next call of any method. If arena and disk
        are both full, the arena grows and `problem` says why: the caller must then stop reading."""
        if self._at + disk.ENTRY.size + size > len(self._arena):
            self.flush()
            need = self._at + disk.ENTRY.size + size
            if need > len(self._arena):
                self._arena = self._arena[: self._at] + bytes(need - self._at)
        start = self._at + disk.ENTRY.size
        return memoryview(self._arena)[start : max(start + size, min(len(self._arena), start + LARGEST_READ))]

    @property
    def incoming(self) -> tuple[bytearray, int]:
        """The arena, and the offset of the next buffer in it."""
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
        """As `room` and `append`, for bytes that are not in the arena."""
        self.room(len(data))[: len(data)] = data
        self.append(origin=origin, sequence=sequence, length=len(data), first=first, last=last, ends=ends)

    def close_origin(self, origin: int) -> int:
        """End an origin whose bytes are flushed. Returns the size of its unfinished record, which is discarded."""
        lost = self.shredder.close(origin)
        self.held -= lost
        if self.peers is not None:
            self.peers.pop(origin, None)
        return lost

    # --- blocks -----------------------------------------------------------------------------------

    @property
    def problem(self) -> str:
        """Why the journal cannot be written. Empty if it can."""
        return self._unwritable or self._unsyncable

    def flush(self) -> bool:
        """Write the appended buffers and the units that they complete. Returns True if everything is written. If the
        disk fails, nothing is lost: `problem` says why, and the next flush tries again."""
        try:
            try:
                self._flush()
            except OSError as problem:
                if problem.errno not in _NO_ROOM:
                    raise
                self._reserve.spend()
                if self._unwritten:
                    self._write_ready()  # so that readers can finish these files, which can then be deleted
                if not self._all_read():
                    raise
                self._roll()  # the old segment can be deleted then
                self._flush()
            self._require_files()
        except OSError as problem:
            self._unwritable = f"the journal cannot be written: {problem.strerror or problem}"
            return False
        except JournalDamaged as problem:
            self.damage, self._unwritable = problem, f"{problem.code}: {problem.message}"
            return False
        self.damage, self._unwritable = None, ""
        return True

    def _flush(self) -> None:
        if self._suspect:
            raise OSError(self._unsyncable)
        self._reserve.keep()  # new data must not use it up
        self._list()  # before a reader can plan an epoch with these files
        if self._unwritten:
            self._write_ready()
        if self._count:
            self._write_block()
        # Only now, because buffers in the arena refer to the segment that they are written to.
        if self._segment_end and max(self._segment_end, self._ready_end) >= self.segment_bytes:
            self._roll()

    def _require_files(self) -> None:
        """Raise JournalDamaged unless the files that were written are still in the directory."""
        for path, handle in self._current():
            try:
                there = os.path.samestat(os.stat(path), os.fstat(handle))
            except FileNotFoundError:
                there = False
            if not there:
                raise disk.damaged(path, 0, "was removed while it was written")

    def _write_block(self) -> None:
        with memoryview(self._arena)[: self._at] as block:
            write_at(self._segment, block, self._segment_end)
            arrivals = np.frombuffer(self._arrivals, np.int64, 7 * self._count).reshape(-1, 7).copy()
            found = self.shredder.arrive(arrivals)
            self._block.update(block)
        self._segment_end += self._at
        self._at = self._count = 0
        if len(self._arena) > ARENA:
            self._arena = bytearray(ARENA)
        block_of = disk.Block(self._block_begin, self._segment_end, self._block.intdigest())
        self._unwritten = disk.encode_record(
            begin=self._ready_end,
            block=block_of,
            address=self.address,
            found=found,
            counters=self.counters.to_array(),
            rest=self._facts_of(found.units),
        )
        self._block, self._block_begin = xxhash.xxh3_64(), self._segment_end
        self.address += int(found.units[:, U_BYTES].sum())
        if len(found.fragments):
            self._lowest = min(self._lowest, disk.place_of(int(found.fragments[:, 0].min()))[0])
        self._write_ready()

    def _facts_of(self, units: Ints) -> bytes:
        if self.peers is None or not len(units):
            return b""
        return encode_facts(time.time_ns() // 1000, np.unique(units[:, U_ORIGIN]).tolist(), self.peers)

    def _write_ready(self) -> None:
        write_at(self._ready, memoryview(self._unwritten), self._ready_end)
        self._ready_end += len(self._unwritten)
        self._unwritten = b""
        self._dirty = True
        self._written = time.monotonic()

    def _roll(self) -> None:
        """Continue in files with the next number."""
        facts, full = self._facts(), self._current()
        meant = disk.reference(self.number, self._segment_end)
        self._open(self.number + 1, facts.head_of_next())
        self._logs[facts.number] = facts
        self._full += full
        self._dirty = True  # the new log has its head
        try:
            self._list()
            self._tidy()
        finally:
            if self._count:  # correct the references of buffers in the arena to the new segment
                arrivals = np.frombuffer(self._arrivals, np.int64, 7 * self._count).reshape(-1, 7)
                arrivals[:, 2] += disk.reference(self.number, self._segment_end) - meant

    def _current(self) -> list[tuple[Path, int]]:
        names = disk.segment_path(self.directory, self.number), disk.ready_path(self.directory, self.number)
        return list(zip(names, (self._segment, self._ready), strict=True))

    # --- a full disk ------------------------------------------------------------------------------

    def _all_read(self) -> bool:
        """True if every consumer has read all units, so that the files are only needed for unfinished records."""
        self._read_consumers()
        return self._segment_end > 0 and not self._unwritten and self._consumed.address >= self.address

    # --- syncing ----------------------------------------------------------------------------------

    def unsynced(self) -> Sync | None:
        """The files that were flushed but not synced, or None. Another thread may run the result; pass it to `synced`
        afterwards. Raises OSError, without effect, if the process has no file handles left."""
        self._unsyncable = self._unsyncable if self._suspect else ""
        if self._suspect or not (self._dirty or self._full):
            return None
        sync = Sync(self._end, self._mark)
        copies: list[tuple[Path, int]] = []
        try:
            for path, handle in self._current():
                copies.append((path, os.dup(handle)))
        except OSError:
            for _, handle in copies:
                os.close(handle)
            raise
        sync.files, self._full, self._dirty = self._full + copies, [], False
        return sync

    @property
    def _end(self) -> JournalPosition:
        return JournalPosition(self.number, self._ready_end, self.address)

    def synced(self, sync: Sync) -> None:
        """Take back a sync that has run. If it failed, `problem` says why, and nothing more is written until `rewrite`
        has copied the files."""
        if sync.problem is not None:
            self._suspect = [path for path, _ in sync.files]
            self._unsyncable = f"the journal cannot be synced: {sync.problem.strerror or sync.problem}"

    def not_synced(self, problem: OSError) -> None:
        """Record that a sync could not start. The next `unsynced` covers the same files."""
        self._unsyncable = f"the journal cannot be synced: {problem.strerror or problem}"

    def rewrite(self) -> None:
        """Copy the files whose sync failed to new files with the same names. Raises OSError if the disk still fails;
        `problem` then stays. Another thread may call it, as long as only `append`, `flush` and `poll` run meanwhile."""
        if not self._suspect:
            return
        for path in dict.fromkeys(self._suspect):
            if path.exists():
                self._verify(path)
                copy_over(path)
        fsync(self.directory)
        handles = [os.open(path, os.O_RDWR | os.O_CLOEXEC) for path, _ in self._current()]
        for handle in (self._segment, self._ready):
            os.close(handle)
        self._segment, self._ready = handles
        self._suspect, self._unsyncable = [], ""

    def _verify(self, path: Path) -> None:
        """Raise OSError unless the system still has the bytes of a file: it may have dropped them after a failed
        sync."""
        number = int(path.stem.rpartition("-")[2])
        wanted = self._facts() if number == self.number else self._logs.get(number)
        found = scan(self.directory, number, self._consumed)
        if found.problem is not None or (wanted and (not found.facts or found.facts.ready_end != wanted.ready_end)):
            raise OSError(errno.EIO, f"{path.name} could not be synced and has lost data")

    @property
    def suspect(self) -> bool:
        """True if `rewrite` has files to copy."""
        return bool(self._suspect)

    def mark_is_due(self) -> bool:
        """True if the mark was not moved for a while. The caller moves it now."""
        now = time.monotonic()
        due = now - self._marked >= MARK_SECONDS
        self._marked = now if due else self._marked
        return due

    def sync(self) -> None:
        """Fsync everything that was flushed. Raises OSError if the disk fails."""
        self.rewrite()
        sync = self.unsynced()
        if sync is None:
            return
        sync.run(mark=self.mark_is_due())
        self.synced(sync)
        if sync.problem is not None:
            raise sync.problem

    def close(self) -> None:
        """Flush, sync, and unlock the directory. Raises OSError if the disk fails."""
        try:
            if not self.flush():
                raise OSError(self.problem)
            self.sync()
            self._mark.write(synced=self._end, closed=True)
        finally:
            self._mark.close()
            for handle in (*(handle for _, handle in self._full), self._segment, self._ready, self._lock):
                os.close(handle)

    # --- consumers --------------------------------------------------------------------------------

    def poll(self) -> bool:
        """Read the positions of the consumers, and delete files that all are past. Returns True if they moved."""
        before = self._consumed
        self._read_consumers()
        moved = self._consumed != before
        if moved:
            self.held -= self._taken_at(self._consumed) - self._taken_at(before)
            with contextlib.suppress(OSError):
                self._delete()  # needs no disk space, and frees some
            if self.flush():
                self._tidy()
        if not self.problem and not self._count:
            self._when_idle()
        return moved

    def _when_idle(self) -> None:
        """Free a segment that was read completely, although no new data fills it."""
        idle = time.monotonic() - self._written > IDLE_SECONDS
        if idle and self._segment_end >= IDLE_BYTES and self._all_read():
            with contextlib.suppress(OSError):  # retried at the next poll
                self._roll()

    def _read_consumers(self) -> None:
        found = [read_consumer(path) for path in (self.directory / "consumers").glob("*.json")]
        known = [one for one in found if one is not None]
        if known and len(known) == len(found):
            least = min((place for place, _ in known), key=lambda place: place.address)
            if least.address > self._consumed.address:
                self._consumed = least
            self._lost_by_consumers = max(lost for _, lost in known)

    @property
    def lost_bytes(self) -> int:
        """Bytes that were taken and are gone before a consumer read them."""
        return self.lost + self._lost_by_consumers

    def _needed(self) -> int:
        """The lowest log with units that a consumer has not read."""
        past = self._consumed
        return min([n for n, facts in self._logs.items() if facts.address_end > past.address], default=self.number)

    def _delete(self) -> None:
        """Delete the files that no consumer, no unread record and no unfinished record needs."""
        at = self._needed()
        gone = [n for n in disk.numbers(self.directory) if n < at]
        lowest = self.shredder.lowest()
        kept = [facts.lowest for number, facts in self._logs.items() if number >= at]
        needed = min(at, self._lowest, *kept, at if lowest is None else disk.place_of(lowest)[0])
        segments = [p for p in self.directory.glob("segment-????????.raw") if int(p.name[8:16]) < needed]
        if not gone and not segments:
            return
        if self._suspect:
            raise OSError(self._unsyncable)  # `rewrite` is copying them
        if self._mark.value.consumed != self._consumed:
            self._mark.write(
                consumed=self._consumed
            )  # before the deletion: otherwise recovery would report them as missing
        for number in gone:
            disk.ready_path(self.directory, number).unlink(missing_ok=True)
            self._logs.pop(number, None)
        for path in segments:
            path.unlink(missing_ok=True)

    def _tidy(self) -> None:
        """Copy unfinished records out of old segments, then delete files. Only after a flush, because the copies go
        where the arena would. If the disk fails, the files stay until the next call."""
        with contextlib.suppress(OSError):
            self._carry()
            self._delete()

    def _carry(self) -> None:
        """Copy unfinished records out of segments that are not needed otherwise: a client that sends one byte per hour
        must not keep a segment of 64 MB."""
        waiting = self.shredder.waiting_below(disk.reference(self._needed(), 0))
        if not len(waiting):
            return
        moved = []
        for origin, ref, begin, end in waiting.tolist():
            segment, place = disk.place_of(ref)
            with open(disk.segment_path(self.directory, segment), "rb") as file:
                data = os.pread(file.fileno(), end - begin, place + begin)
            block = disk.entry_header(origin, 0, data) + data
            write_at(self._segment, memoryview(block), self._segment_end)
            self._block.update(block)
            moved.append(disk.reference(self.number, self._segment_end + disk.ENTRY.size))
            self._segment_end += len(block)
        self.shredder.move(waiting[:, 1], np.array(moved, np.int64), waiting[:, 2])

    @property
    def disk_bytes(self) -> int:
        """The size of the journal on disk. 0 if its directory was removed."""
        try:
            return sum(p.stat().st_size for p in self.directory.iterdir() if p.is_file())
        except FileNotFoundError:
            return 0


def _cut(directory: Path, lost: int) -> JournalCut:
    return JournalCut(
        f"the newest file of the journal {directory} has lost {lost} synced bytes",
        advice="The disk lost data that it had confirmed. Send the data again.",
        path=str(directory),
        bytes=lost,
    )
