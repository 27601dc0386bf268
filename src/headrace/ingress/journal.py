"""The writer of a stream's journal: collects buffers and writes them to disk in blocks.

Sockets read directly into an *arena* (`headrace.ingress.arena`). `flush` writes the arena to the segment as one block,
asks the shredder which units the block completes, and writes these to the ready log (`headrace.ingress.open_log`).
After `flush` the data survives the end of this process; after `sync` it also survives a crash of the machine
(`headrace.ingress.journal_sync`). `headrace.ingress.recovery` opens the files of an earlier process, and
`headrace.ingress.retention` deletes those that all consumers have read.

Origins end with the process, because their connections do. So the shredder starts empty, and unfinished records are
discarded.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from pathlib import Path

import numpy as np

from headrace.base.arrays import Ints
from headrace.base.durable import fsync, private_directory
from headrace.errors import JournalCut, JournalDamaged
from headrace.ingress import entries as disk
from headrace.ingress.arena import LARGEST_READ, Arena
from headrace.ingress.counters import Counters
from headrace.ingress.journal_files import copy_over, locked
from headrace.ingress.journal_reserve import JournalReserve
from headrace.ingress.journal_sync import FileSyncs, Sync
from headrace.ingress.kernels.array_columns import U_ORIGIN
from headrace.ingress.losses import add_loss, read_losses
from headrace.ingress.mark import JournalPosition, MarkFile, boot
from headrace.ingress.open_log import OpenLog
from headrace.ingress.peer_facts import encode_facts
from headrace.ingress.recovery import recover, scan
from headrace.ingress.retention import Retention
from headrace.ingress.shredder import SequenceShredder

# A segment of this size is freed when it was read completely and no data came for this long.
IDLE_SECONDS, IDLE_BYTES = 1.0, 1 << 20
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class Journal:
    """The writer; see the module. For one thread. `held` counts bytes that were taken, and that some consumer has not
    read yet. `lost` counts bytes that were on disk and are gone. Raises JournalDamaged if the files are damaged."""

    def __init__(self, directory: Path, segment_bytes: int) -> None:
        private_directory(directory / "consumers")
        self.directory, self.segment_bytes = directory, segment_bytes
        self.shredder = SequenceShredder()
        self._arena = Arena()
        self._unwritable = ""
        self.damage: JournalDamaged | None = None  # why no flush can succeed, if files were removed
        self._reserve = JournalReserve(directory)
        self._written = 0.0  # when
        self.lost = 0
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
        self._syncs = FileSyncs(self._mark)
        self._kept = Retention(self.directory, self._mark, self.shredder, self._syncs)
        consumed = self._kept.consumed
        found = recover(self.directory, consumed, self._mark.found)
        if found.lost:
            add_loss(self.directory, JournalCut.code, found.lost)
            print(_cut(self.directory, found.lost).render(), file=sys.stderr, flush=True)
        self.lost = read_losses(self.directory)
        self.counters = Counters(found.counters)
        self._kept.finished = found.logs
        newest = found.logs[max(found.logs)] if found.logs else None
        end = newest.address_end if newest else 0
        # Not after `end` alone: a file that is gone may have begun after a jump, and an epoch may be planned with it.
        address = max(end, consumed.address, self._mark.value.synced.address)
        if not found.clean or (newest is not None and end < address):
            address += disk.JUMP
        self._mark.open()
        try:
            gone = disk.LogHead(address_end=consumed.address)  # without any log, all data was read
            before = newest.head_of_next() if newest else gone
            self._log = OpenLog(
                directory=self.directory,
                number=found.newest + 1,
                address=address,
                before=before,
                counters=self.counters,
            )
            self._log.list_files()
            for _, handle in self._log.files():
                os.fdatasync(handle)
            self._mark.write(synced=self.end, boot=boot(), closed=False)
            with contextlib.suppress(OSError):  # the first flush reports it
                self._reserve.keep()
        except BaseException:
            self._mark.close()
            raise
        self.held = self._log.taken - self._kept.taken_at(consumed, self._log)
        self._kept.delete(self._log)

    @property
    def number(self) -> int:
        """The number of the files that are written now."""
        return self._log.number

    @property
    def address(self) -> int:
        """The address of the next unit."""
        return self._log.address

    @property
    def end(self) -> JournalPosition:
        """The position after the last unit."""
        return self._log.end

    # --- buffers ----------------------------------------------------------------------------------

    def room(self, size: int = LARGEST_READ) -> memoryview:
        """Memory for the next buffer, at least `size` bytes, valid until the next call of any method. If arena and disk
        are both full, the arena grows and `problem` says why: the caller must then stop reading."""
        if not self._arena.fits(size):
            self.flush()
            self._arena.grow(size)
        return self._arena.room(size)

    @property
    def incoming(self) -> tuple[bytearray, int]:
        """The arena's memory, and the offset of the next buffer in it."""
        return self._arena.incoming

    def append(self, origin: int, sequence: int, length: int, first: int, last: int, ends: bool = False) -> None:
        """The bytes in `room` are a buffer of `length` bytes, with delimiters that end at `first` and `last`."""
        self._arena.append(
            origin=origin,
            sequence=sequence,
            length=length,
            first=first,
            last=last,
            ends=ends,
            block=self._log.place,
        )
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
        return self._unwritable or self._syncs.problem

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
                if self._log.unwritten:
                    self._write_ready()  # so that readers can finish these files, which can then be deleted
                if not self._all_read():
                    raise
                self._roll()  # the old segment can be deleted then
                self._flush()
            self._log.require_files()
        except OSError as problem:
            self._unwritable = f"the journal cannot be written: {problem.strerror or problem}"
            return False
        except JournalDamaged as problem:
            self.damage, self._unwritable = problem, f"{problem.code}: {problem.message}"
            return False
        self.damage, self._unwritable = None, ""
        return True

    def _flush(self) -> None:
        self._syncs.require_none_failed()
        self._reserve.keep()  # new data must not use it up
        self._log.list_files()  # before a reader can plan an epoch with these files
        if self._log.unwritten:
            self._write_ready()
        if self._arena.count:
            self._write_block()
        # Only now, because buffers in the arena refer to the segment that they are written to.
        if self._log.segment_end and self._log.size >= self.segment_bytes:
            self._roll()

    def _write_block(self) -> None:
        with self._arena.block() as block:
            self._log.write(block)
            found = self.shredder.arrive(self._arena.arrivals().copy())
            self._log.extend(block)
        self._arena.clear()
        self._log.record(found, self.counters, self._facts_of(found.units))
        self._write_ready()

    def _facts_of(self, units: Ints) -> bytes:
        if self.peers is None or not len(units):
            return b""
        return encode_facts(time.time_ns() // 1000, np.unique(units[:, U_ORIGIN]).tolist(), self.peers)

    def _write_ready(self) -> None:
        self._log.write_ready()
        self._syncs.dirty = True
        self._written = time.monotonic()

    def _roll(self) -> None:
        """Continue in files with the next number."""
        old, facts = self._log, self._log.facts
        self._log = OpenLog(
            directory=self.directory,
            number=old.number + 1,
            address=old.address,
            before=facts.head_of_next(),
            counters=self.counters,
        )
        self._kept.finished[old.number] = facts
        self._syncs.full += old.files()
        self._syncs.dirty = True  # the new log has its head
        try:
            self._log.list_files()
            self._tidy()
        finally:  # the buffers in the arena go to the new segment
            self._arena.move(disk.reference(*self._log.place) - disk.reference(*old.place))

    def _all_read(self) -> bool:
        """True if every consumer has read all units, so that the files are only needed for unfinished records."""
        self._kept.read_consumers()
        log = self._log
        return log.segment_end > 0 and not log.unwritten and self._kept.consumed.address >= log.address

    # --- syncing ----------------------------------------------------------------------------------

    def unsynced(self) -> Sync | None:
        """The files that were flushed but not synced, or None. Another thread may run the result; pass it to `synced`
        afterwards. Raises OSError, without effect, if the process has no file handles left."""
        return self._syncs.prepare(self._log.files(), self.end)

    def synced(self, sync: Sync) -> None:
        """Take back a sync that has run. If it failed, `problem` says why, and nothing more is written until `rewrite`
        has copied the files."""
        self._syncs.take_back(sync)

    def not_synced(self, problem: OSError) -> None:
        """Record that a sync could not start. The next `unsynced` covers the same files."""
        self._syncs.not_possible(problem)

    def rewrite(self) -> None:
        """Copy the files whose sync failed to new files with the same names. Raises OSError if the disk still fails;
        `problem` then stays. Another thread may call it, as long as only `append`, `flush` and `poll` run meanwhile."""
        if not self._syncs.failed:
            return
        for path in dict.fromkeys(self._syncs.failed):
            if path.exists():
                self._verify(path)
                copy_over(path)
        fsync(self.directory)
        self._log.reopen()
        self._syncs.copied()

    def _verify(self, path: Path) -> None:
        """Raise OSError unless the system still has the bytes of a file: it may have dropped them after a failed
        sync."""
        number = int(path.stem.rpartition("-")[2])
        wanted = self._kept.facts(number, self._log)
        found = scan(self.directory, number, self._kept.consumed)
        if found.problem is not None or (wanted and (not found.facts or found.facts.ready_end != wanted.ready_end)):
            raise OSError(errno.EIO, f"{path.name} could not be synced and has lost data")

    @property
    def suspect(self) -> bool:
        """True if `rewrite` has files to copy."""
        return bool(self._syncs.failed)

    def mark_is_due(self) -> bool:
        """True if the mark was not moved for a while. The caller moves it now."""
        return self._syncs.mark_is_due()

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
            self._mark.write(synced=self.end, closed=True)
        finally:
            self._mark.close()
            self._syncs.close()
            self._log.close()
            os.close(self._lock)

    # --- consumers --------------------------------------------------------------------------------

    def poll(self) -> bool:
        """Read the positions of the consumers, and delete files that all are past. Returns True if they moved."""
        before = self._kept.consumed
        self._kept.read_consumers()
        moved = self._kept.consumed != before
        if moved:
            self.held -= self._kept.taken_at(self._kept.consumed, self._log) - self._kept.taken_at(before, self._log)
            with contextlib.suppress(OSError):
                self._kept.delete(self._log)  # needs no disk space, and frees some
            if self.flush():
                self._tidy()
        if not self.problem and not self._arena.count:
            self._when_idle()
        return moved

    def _when_idle(self) -> None:
        """Free a segment that was read completely, although no new data fills it."""
        idle = time.monotonic() - self._written > IDLE_SECONDS
        if idle and self._log.segment_end >= IDLE_BYTES and self._all_read():
            with contextlib.suppress(OSError):  # retried at the next poll
                self._roll()

    @property
    def lost_bytes(self) -> int:
        """Bytes that were taken and are gone before a consumer read them."""
        return self.lost + self._kept.lost_by_consumers

    def _tidy(self) -> None:
        """Copy unfinished records out of old segments, then delete files. Only after a flush, because the copies go
        where the arena would. If the disk fails, the files stay until the next call."""
        with contextlib.suppress(OSError):
            self._kept.carry(self._log)
            self._kept.delete(self._log)

    @property
    def disk_bytes(self) -> int:
        """The size of the journal on disk. 0 if its directory was removed."""
        try:
            return sum(p.stat().st_size for p in self.directory.iterdir() if p.is_file())
        except FileNotFoundError:
            return 0


def _cut(directory: Path, lost: int) -> JournalCut:
    return JournalCut(
        f"the journal {directory} has lost its newest {lost} bytes",
        advice="A power loss may remove what was not synced yet (option fsync); what was synced only a broken disk "
        "loses. Send the data again.",
        path=str(directory),
        bytes=lost,
    )
