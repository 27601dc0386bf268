"""Opens a journal that another process has written: finds the intact records, where to continue, and what was lost.

Only the newest log and segment may be truncated, at their end, where a write was interrupted. Every other log must end
where the head of the next one says. If it does not, that is JOURNAL_DAMAGED, and no file is changed. Older files are
not read here: their checksums are verified when they are read. So opening takes only as long as reading the newest
file.

`lost` reports bytes that are missing *before* the synced mark, because the disk had promised to keep them. After a
reboot (another boot id), files beyond the mark may be torn anywhere."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import xxhash

from headrace.base.arrays import Ints
from headrace.base.durable import fsync
from headrace.errors import JournalDamaged
from headrace.ingress import entries as disk
from headrace.ingress.mark import JournalPosition, Mark, boot


@dataclass(frozen=True, slots=True)
class LogFacts:
    """One ready log with the units [address, address_end). `taken` counts the bytes of units in earlier logs. `lowest`
    is the lowest segment that it refers to."""

    number: int
    address: int
    address_end: int
    ready_end: int
    segment_end: int
    taken: int
    lowest: int

    def head_of_next(self) -> disk.LogHead:
        taken = self.taken + self.address_end - self.address
        return disk.LogHead(
            number=self.number,
            ready_end=self.ready_end,
            segment_end=self.segment_end,
            address_end=self.address_end,
            taken=taken,
            lowest=self.lowest,
        )


@dataclass(slots=True)
class Recovered:
    """The result of a recovery. `logs` are the remaining logs, oldest first. `newest` is the highest number ever used.
    `clean` is true if nothing can have been lost. `lost` counts synced bytes that are gone."""

    logs: dict[int, LogFacts] = field(default_factory=dict)
    newest: int = 0
    counters: Ints | None = None
    lost: int = 0
    clean: bool = True


@dataclass(slots=True)
class LogScan:
    """A log up to its last intact record. `problem` is the file that ends the scan: it is too short (`short`) or has
    other bytes there."""

    facts: LogFacts | None
    counters: Ints | None
    problem: Path | None = None
    short: bool = False


def recover(directory: Path, consumed: JournalPosition, mark: Mark | None) -> Recovered:
    """Find the intact records, and truncate the newest file after them. Idempotent. Raises JournalDamaged for any other
    damage, before it changes a file."""
    known = mark or Mark()
    consumed = max(consumed, known.consumed, key=lambda place: (place.address, place.file, place.pos))
    numbers = [n for n in disk.numbers(directory) if n >= consumed.file]
    found = Recovered(newest=max([*numbers, consumed.file, known.synced.file]))
    _refuse_older(directory, numbers, consumed)
    _refuse_missing(directory, numbers, consumed, known)
    torn = len(numbers) - 1  # from here on, files may be torn
    if mark is not None and (not mark.boot or mark.boot != boot()):
        torn = min([torn, *(i for i, n in enumerate(numbers) if n >= mark.synced.file)])
    heads = _heads(directory, numbers[: max(torn, 0)])
    for i, number in enumerate(numbers):
        last = number == numbers[-1]
        if i < torn:
            follower = heads[i + 1] if i + 1 < torn else _head_or_none(directory, numbers[i + 1])
            if follower is not None and follower.head is not None:
                _check_closed(directory, number, follower.head, consumed)
                found.logs[number] = _closed_facts(heads[i], follower.head)
                continue
            # The newest log has no head yet, so this one is scanned instead.
        seen = scan(directory, number, consumed)
        _judge(directory=directory, number=number, seen=seen, mark=known, marked=mark is not None)
        if seen.facts is not None:
            found.logs[number] = seen.facts
            found.counters = seen.counters
        whole = seen.problem is None and seen.facts is not None and (last or _reaches(directory, seen, numbers[i + 1]))
        if not whole or last:
            _cut(directory=directory, numbers=numbers[i:], seen=seen, found=found, mark=known, consumed=consumed)
            break
    new = mark is None and not numbers and consumed == JournalPosition()
    found.clean = new or (found.clean and _ends_at(found.logs, mark))
    return found


def _ends_at(logs: dict[int, LogFacts], mark: Mark | None) -> bool:
    """True if the journal was closed in order, and the logs end where it was closed."""
    if mark is None or not mark.closed or not logs:
        return False
    return _end(logs) == (mark.synced.file, mark.synced.pos)


def _reaches(directory: Path, seen: LogScan, following: int) -> bool:
    """True if a log ends where the head of the next one says, or if the next one has no head yet."""
    after = _head_or_none(directory, following)
    return (
        after is None or after.head is None or (seen.facts is not None and seen.facts.ready_end >= after.head.ready_end)
    )


def _end(logs: dict[int, LogFacts]) -> tuple[int, int]:
    newest = logs[max(logs)]
    return newest.number, newest.ready_end


def _refuse_older(directory: Path, numbers: list[int], consumed: JournalPosition) -> None:
    """Raise JournalDamaged if an earlier version left unread records. This version does not know their format, and must
    not take them for a torn end."""
    for number in numbers:
        path, past = disk.ready_path(directory, number), consumed.pos if number == consumed.file else 0
        with open(path, "rb") as log:
            if log.read(len(disk.OLDER_RECORD)) == disk.OLDER_RECORD and path.stat().st_size > past:
                raise JournalDamaged(
                    f"{path} has unread records of an earlier version of headrace",
                    advice="Nothing was changed. Run the stream with the version that wrote it until it has read "
                    "everything, then with this one. `headrace repair STREAM` discards the unread records.",
                    path=str(path),
                    place=past,
                )


def lacks_newest(numbers: list[int], consumed: JournalPosition, mark: Mark) -> bool:
    """True if the log that the mark names is missing, and may have had records that no consumer has read. Unless the
    writer ended cleanly, it may have had more than was synced."""
    if mark.synced.file < consumed.file:
        return False
    unread = mark.synced.address > consumed.address or (mark.synced.pos > 0 and not mark.closed)
    return unread and mark.synced.file > (numbers[-1] if numbers else 0)


def _refuse_missing(directory: Path, numbers: list[int], consumed: JournalPosition, mark: Mark) -> None:
    """Raise JournalDamaged if a log is missing before the first or after the last."""
    if lacks_newest(numbers, consumed, mark):
        raise disk.damaged(disk.ready_path(directory, mark.synced.file), 0, "is missing")
    for path in directory.glob("segment-????????.raw"):
        number = int(path.name[8:16])
        if number > max([consumed.file, *numbers[-1:]]):
            if path.stat().st_size:
                raise disk.damaged(disk.ready_path(directory, number), 0, "is missing")
            path.unlink()  # the writer died before it began the log
    if len(numbers) > 1 or (numbers and disk.ready_path(directory, numbers[0]).stat().st_size):
        first = _head_or_none(directory, numbers[0])
        before = first.head if first is not None else None
        if before is not None and before.number and before.address_end > consumed.address:
            raise disk.damaged(disk.ready_path(directory, before.number), 0, "is missing")


def _heads(directory: Path, numbers: list[int]) -> list[disk.ReadyRecord]:
    return [disk.read_head(directory, number) for number in numbers]


def _head_or_none(directory: Path, number: int) -> disk.ReadyRecord | None:
    try:
        return disk.read_head(directory, number)
    except JournalDamaged:
        return None


def _check_closed(directory: Path, number: int, after: disk.LogHead, consumed: JournalPosition) -> None:
    """Raise JournalDamaged unless a log and its segment have the length that the next log's head stores."""
    if after.address_end <= consumed.address:
        return  # every consumer is past it
    if after.number != number:
        raise disk.damaged(disk.ready_path(directory, after.number), 0, "is missing")
    ready, segment = disk.ready_path(directory, number), disk.segment_path(directory, number)
    if ready.stat().st_size != after.ready_end:
        raise disk.damaged(ready, ready.stat().st_size, f"does not have the {after.ready_end} bytes that were written")
    if not segment.exists():
        raise disk.damaged(segment, 0, "is missing")
    if segment.stat().st_size < after.segment_end:
        raise disk.damaged(
            segment, segment.stat().st_size, f"does not have the {after.segment_end} bytes that were written"
        )


def _closed_facts(head: disk.ReadyRecord, after: disk.LogHead) -> LogFacts:
    before = head.head or disk.LogHead()
    return LogFacts(
        number=head.number,
        address=head.address,
        address_end=max(head.address, after.address_end),
        ready_end=after.ready_end,
        segment_end=after.segment_end,
        taken=before.taken,
        lowest=min(head.number, after.lowest or head.number),
    )


def scan(directory: Path, number: int, consumed: JournalPosition) -> LogScan:
    """Read a log and the blocks that its records name. Records that every consumer is past may be damaged."""
    path, segment = disk.ready_path(directory, number), disk.segment_path(directory, number)
    data = path.read_bytes()
    past = consumed.pos if number == consumed.file else 0
    seen = LogScan(None, None)
    first = last = None
    lowest, at = number, 0
    with _mapped(segment) as blocks:
        while at < len(data):
            record = disk.record_at(data, at, number)
            if record is None:
                if at < past <= len(data):
                    at = past
                    continue
                seen.problem = path
                # A damaged length may also point beyond the end. But nothing is ever written after a torn record.
                seen.short = disk.may_be_unfinished(data, at) and not disk.any_record(data, at + 1, number)
                break
            if record.end > past and not _block_is_whole(blocks, record):
                seen.problem = segment
                seen.short = blocks is not None and len(blocks) < record.block_end
                break
            first, last, at = first or record, record, record.end
            if record.counts[3]:
                lowest = min(lowest, record.lowest())
    if first is not None and last is not None:
        seen.counters = last.counters
        taken = first.head.taken if first.head else 0
        end = max(last.address_end, consumed.address) if at == past else last.address_end
        seen.facts = LogFacts(
            number=number,
            address=first.address,
            address_end=end,
            ready_end=at,
            segment_end=last.block_end,
            taken=taken,
            lowest=lowest,
        )
    return seen


def _block_is_whole(blocks: memoryview | None, record: disk.ReadyRecord) -> bool:
    if record.block_begin == record.block_end:
        return True
    if blocks is None:
        return False
    with blocks[record.block_begin : record.block_end] as block:
        return xxhash.xxh3_64_intdigest(block) == record.digest


@contextmanager
def _mapped(segment: Path) -> Iterator[memoryview | None]:
    """The bytes of a segment, or None if it is missing."""
    try:
        with open(segment, "rb") as file:
            if not os.fstat(file.fileno()).st_size:
                yield memoryview(b"")
                return
            with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped, memoryview(mapped) as view:
                yield view
    except FileNotFoundError:
        yield None


def _judge(directory: Path, number: int, seen: LogScan, mark: Mark, marked: bool) -> None:
    """Raise JournalDamaged if the end of a scan cannot come from an interrupted write."""
    if seen.problem is None:
        return
    at = seen.facts.ready_end if seen.facts else 0
    if not seen.problem.exists():
        raise disk.damaged(seen.problem, 0, "is missing")
    if seen.short and not _has_what_was_synced(number, at, seen.problem, mark):
        return
    if not marked or (mark.boot and mark.boot == boot()) or (number, at) < (mark.synced.file, mark.synced.pos):
        raise disk.damaged(seen.problem, at if seen.problem.suffix == ".log" else 0)


def _has_what_was_synced(number: int, at: int, path: Path, mark: Mark) -> bool:
    """True if a log has all its synced bytes, but is damaged from `at` on."""
    here = (number, at) < (mark.synced.file, mark.synced.pos)
    return here and path.suffix == ".log" and (mark.synced.file, mark.synced.pos) <= (number, path.stat().st_size)


def _cut(
    directory: Path, numbers: list[int], seen: LogScan, found: Recovered, mark: Mark, consumed: JournalPosition
) -> None:
    """Truncate log `numbers[0]` after its last intact record, and delete the later logs, which were never synced."""
    end = seen.facts.address_end if seen.facts else max([0, *(facts.address_end for facts in found.logs.values())])
    end = max(end, consumed.address)
    for number in numbers[1:]:
        head = _head_or_none(directory, number)
        if head is not None and head.head is not None:
            found.lost = max(found.lost, disk.bytes_between(end, head.head.address_end))
    if (numbers[0], seen.facts.ready_end if seen.facts else 0) < (mark.synced.file, mark.synced.pos):
        found.lost = max(found.lost, disk.bytes_between(end, mark.synced.address))
    gone = numbers[1:] if seen.facts is not None else numbers
    # Emptied first: if this is interrupted, a segment with bytes and without a log would be damage.
    for segment in filter(Path.exists, (disk.segment_path(directory, number) for number in gone)):
        os.truncate(segment, 0)
        fsync(segment)
    for number in gone:
        disk.ready_path(directory, number).unlink()
        disk.segment_path(directory, number).unlink(missing_ok=True)
    if seen.facts is not None:
        ready, segment = disk.ready_path(directory, numbers[0]), disk.segment_path(directory, numbers[0])
        for path, size in ((ready, seen.facts.ready_end), (segment, seen.facts.segment_end)):
            if path.exists() and path.stat().st_size > size:
                os.truncate(path, size)
                found.clean = False
            if path.exists():
                fsync(path)
    found.clean = found.clean and not gone and not found.lost
    fsync(directory)
