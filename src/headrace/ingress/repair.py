"""Repairs a damaged journal: removes the unreadable parts and reports their size.

Ready logs are rewritten in place, so all positions and addresses stay the same. An unreadable range of a log becomes a
record without units. A unit with unreadable bytes gets the flag GONE. Readers skip both. Segments are only extended to
their former length. The original logs are kept in the directory `damaged`."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import xxhash

from headrace.base.arrays import Ints
from headrace.base.durable import fsync, private_directory, write_atomic
from headrace.errors import JournalDamaged
from headrace.ingress import entries as disk
from headrace.ingress.counters import Counters
from headrace.ingress.journal_files import locked
from headrace.ingress.kernels.array_columns import GONE, U_BYTES, U_FLAGS, U_FRAGMENTS
from headrace.ingress.losses import add_loss
from headrace.ingress.mark import JournalPosition, Mark, MarkFile, consumer_path, is_gone, read_consumer
from headrace.ingress.ready import UnitReader
from headrace.ingress.recovery import lacks_newest
from headrace.ingress.shredder import Shredded

KEPT = "damaged"
SKIPPED_LOGS = 10_000  # more than a journal can have between two commits
_SMALLEST = disk.RECORD.size + disk.FIXED.size


@dataclass(frozen=True, slots=True)
class Loss:
    """The unreadable bytes of a file."""

    path: Path
    size: int


def repair(directory: Path, read_to: JournalPosition = JournalPosition(), consumer: str = "stream") -> list[Loss]:  # noqa: B008
    """Repair a journal that no process has open. Returns the losses. Idempotent. Skips data that the consumer has read.
    Committed epochs have read up to `read_to`: a journal that is completely gone continues there. Raises StateInUse if
    a process has the journal open."""
    lock = locked(directory)
    try:
        gone = is_gone(directory, read_to)
        mark = _mark(directory)
        known = read_consumer(consumer_path(directory, consumer))
        read = known[0] if known else JournalPosition()
        consumed = max(read, mark.consumed, key=lambda place: (place.address, place.file, place.pos))
        losses: list[Loss] = []
        before = disk.LogHead(address_end=consumed.address)
        numbers = _wanted(directory, consumed, mark)
        if gone:
            _begin_after(directory, max(read_to, consumed, key=lambda place: place.address))
            losses.append(Loss(directory, 0))
        for number, following in pairwise([*numbers, 0]):
            after = _head(directory, following) if following else None
            if after is None and not disk.ready_path(directory, number).exists():  # the newest, known from the mark
                after = disk.LogHead(number, mark.synced.pos, 0, mark.synced.address)
            same = after if after and after.number == number else None
            log = _Log(directory=directory, number=number, consumed=consumed, before=before, after=same)
            log.repair()
            losses += log.losses
            before = log.end()
        losses += _put_aside(directory, max([consumed.file, *numbers]))
        if lost := sum(loss.size for loss in losses):
            add_loss(directory, JournalDamaged.code, lost)
        fsync(directory)
        return losses
    finally:
        os.close(lock)


def _begin_after(directory: Path, place: JournalPosition) -> None:
    """Write a mark. The next writer continues after its number and address. An epoch may have been planned with later
    logs of the lost journal and will be run again: no new log may have the number of one of those."""
    mark = MarkFile(directory)
    mark.open()
    try:
        mark.write(consumed=place, synced=JournalPosition(place.file + SKIPPED_LOGS, 0, place.address))
    finally:
        mark.close()


def _put_aside(directory: Path, newest: int) -> list[Loss]:
    """Move segments without a log to the directory `damaged`."""
    found = [p for p in directory.glob("segment-????????.raw") if int(p.name[8:16]) > newest]
    for path in found:
        private_directory(directory / KEPT)
        path.rename(directory / KEPT / path.name)
    return [Loss(path, 0) for path in found]


def _mark(directory: Path) -> Mark:
    """The mark. Deletes a damaged one."""
    try:
        return MarkFile(directory).value
    except JournalDamaged as problem:
        Path(str(problem.params["path"])).unlink()
        return Mark()


def _head(directory: Path, number: int) -> disk.LogHead | None:
    try:
        return disk.read_head(directory, number).head
    except JournalDamaged:
        return None


def _wanted(directory: Path, consumed: JournalPosition, mark: Mark) -> list[int]:
    """The logs that must exist: those on disk, and those that the mark and the heads of other logs name."""
    present = [n for n in disk.numbers(directory) if n >= consumed.file]
    heads = (_head(directory, number) for number in present)
    named = {head.number for head in heads if head is not None and head.address_end > consumed.address}
    if mark.synced.address > consumed.address or lacks_newest(present, consumed, mark):
        named.add(mark.synced.file)
    return sorted(named.union(present) - {0})


@dataclass(slots=True)
class _Log:
    """The repair of one log. `before` is the end of the previous log. `after` is the end of this log according to the
    next one; None for the newest."""

    directory: Path
    number: int
    consumed: JournalPosition
    before: disk.LogHead
    after: disk.LogHead | None
    losses: list[Loss] = field(default_factory=list)
    _parts: list[bytes] = field(default_factory=list)
    _counters: Ints = field(default_factory=lambda: Counters().to_array())
    _begin: int | None = None  # the first address
    _address: int = 0
    _block: int = 0  # the end of the last block
    _lowest: int = 0
    _taken: int = 0

    def repair(self) -> None:
        path = disk.ready_path(self.directory, self.number)
        data = path.read_bytes() if path.exists() else b""
        end = self.after.ready_end if self.after is not None else len(data)
        self._lowest, self._taken, self._address = self.number, self.before.taken, self.before.address_end
        self._lengthen(data)
        reader, at = UnitReader(self.directory), 0
        while at < end:
            record = disk.record_at(data, at, self.number)
            if record is not None:
                self._take(record, reader)
                at = record.end
                continue
            following = next((r for p in range(at + 8, end, 8) if (r := disk.record_at(data, p, self.number))), None)
            if following is None and self.after is None:  # the newest log may be truncated
                self.losses.append(Loss(path, 0))
                break
            self._skip(at, end if following is None else following.begin, following)
            at = end if following is None else following.begin
        content = b"".join(self._parts)
        if content != data:
            self._replace(path, content)

    def _lengthen(self, data: bytes) -> None:
        """Extend a truncated segment with zeros, which are not valid buffers."""
        path = disk.segment_path(self.directory, self.number)
        ends = (
            [r.block_end for r in disk.records(data, self.number)]
            if self.after is not None or not path.exists()
            else []
        )
        size = max([*ends, self.after.segment_end if self.after is not None else 0])
        if not path.exists() or path.stat().st_size < size:
            path.touch(0o600)
            os.truncate(path, max(size, path.stat().st_size))

    def _take(self, record: disk.ReadyRecord, reader: UnitReader) -> None:
        """Keep an intact record. Flags its units with unreadable bytes as GONE."""
        if self._begin is None:
            self._begin = record.address
            self._taken = record.head.taken if record.head is not None else self._taken
        units, fragments = record.units.copy(), record.fragments
        past = record.end <= self.consumed.pos and self.number == self.consumed.file
        past = past or (self.after is None and record.block_end > self._segment_size())  # recovery truncates it
        at = 0
        for unit in units if not past else ():
            rows = fragments[at : at + int(unit[U_FRAGMENTS])].tolist()
            at += int(unit[U_FRAGMENTS])
            try:
                if not unit[U_FLAGS] & GONE:
                    [reader.bytes_of(*row) for row in rows]
            except JournalDamaged as problem:
                unit[U_FLAGS] |= GONE
                self.losses.append(Loss(Path(str(problem.params["path"])), int(unit[U_BYTES])))
        block = disk.Block(record.block_begin, record.block_end, record.digest if past else self._digest(record))
        self._parts.append(
            disk.encode_record(
                begin=record.begin,
                block=block,
                address=record.address,
                found=Shredded(units, fragments, 0),
                counters=record.counters,
                head=record.head,
                rest=record.rest,
                size=record.size,
                length=record.end - record.begin,
            )
        )
        self._counters, self._address, self._block = record.counters, record.address_end, record.block_end
        self._lowest = min(self._lowest, record.lowest())

    def _segment_size(self) -> int:
        return disk.segment_path(self.directory, self.number).stat().st_size

    def _digest(self, record: disk.ReadyRecord) -> int:
        """The checksum of a block as it is now. Its buffers have their own checksums."""
        if record.block_begin == record.block_end:
            return record.digest
        with open(disk.segment_path(self.directory, self.number), "rb") as file:
            block = os.pread(file.fileno(), record.block_end - record.block_begin, record.block_begin)
        return xxhash.xxh3_64_intdigest(block)

    def _skip(self, at: int, end: int, following: disk.ReadyRecord | None) -> None:
        """Fill an unreadable range with records without units."""
        assert following is not None or self.after is not None
        if following is not None:
            address, block = following.address, following.block_begin
        else:
            assert self.after is not None
            address, block = self.after.address_end, self.after.segment_end
        lost = max(0, address - self._address)
        if lost >= disk.JUMP // 2:  # the head is gone, and with it the first address of the log
            lost = max(0, block - self._block)
        self._address = address - lost
        if at == 0:
            self._begin = self._address
            head = self._filling(0, 0, 0, self.before)
            if end - len(head) < _SMALLEST:
                head = self._filling(0, end, lost, self.before)
            self._parts.append(head)
            at = len(head)
        if at < end:
            self._parts.append(self._filling(at, end - at, lost))
        self._address, self._block = address, block
        self.losses.append(Loss(disk.ready_path(self.directory, self.number), lost))

    def _filling(self, at: int, length: int, lost: int, head: disk.LogHead | None = None) -> bytes:
        block = disk.Block(self._block, self._block, 0)
        fits = head is not None or length >= _SMALLEST + self._counters.nbytes
        counters = self._counters if fits else self._counters[:0]
        return disk.encode_record(
            begin=at,
            block=block,
            address=self._address,
            found=disk.NOTHING,
            counters=counters,
            head=head,
            size=lost,
            length=length,
        )

    def _replace(self, path: Path, content: bytes) -> None:
        if path.exists():
            private_directory(self.directory / KEPT)
            kept = self.directory / KEPT / path.name
            if not kept.exists():
                shutil.copy2(path, kept)
        write_atomic(path, content)

    def end(self) -> disk.LogHead:
        """The end of this log, for the head of the next one."""
        taken = self._taken + self._address - (self._begin or 0)
        return disk.LogHead(
            number=self.number,
            ready_end=sum(map(len, self._parts)),
            segment_end=self._block,
            address_end=self._address,
            taken=taken,
            lowest=self._lowest,
        )
