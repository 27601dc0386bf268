"""Reads a journal: the planner follows the ready log, and tasks turn its records into bytes. Nothing here writes to it.
The checksum of every record and every buffer is verified before use."""

from __future__ import annotations

import mmap
import os
import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from headrace.errors import JournalUnwritable
from headrace.ingress import entries as disk
from headrace.ingress.kernels.array_columns import GONE, U_BYTES, U_FLAGS, U_FRAGMENTS, U_ORIGIN, UNTERMINATED
from headrace.ingress.mark import JournalPosition, require_journal
from headrace.ingress.peer_facts import parse_facts

_READ = 4 << 20


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes [begin, end) of one ready log. Its units begin at `address`."""

    file: int
    begin: int
    end: int
    address: int


class Known(NamedTuple):
    """A record with units. `before` counts the bytes of the known units before it."""

    place: JournalPosition
    end: JournalPosition
    before: int


class ReadyLog:
    """Follows the ready log of a journal while another process writes it. For one thread. Raises JournalDamaged for an
    unreadable record; it never skips one.

    A journal that lost its end continues at a later address when it is reopened. `lost` counts the bytes in such gaps
    that this reader had seen or starts after: units that were planned and are gone."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._gaps: dict[tuple[int, int], int] = {}  # skipped addresses -> lost bytes
        self._known: list[Known] = []
        self._total = 0  # bytes of the units of all records that were read
        self._end = JournalPosition()

    def follow(self, start: JournalPosition) -> None:
        """Read the new records, and forget those before `start`."""
        if self._end == JournalPosition() or self._end.address < start.address:
            self._end, self._known = start, []
        self._known = self._known[self._index(start.address) :]
        for gap, size in self._gaps.items():
            if gap[0] < start.address < gap[1]:
                self._gaps[gap] = max(size, disk.bytes_between(gap[0], start.address))
        while True:
            at = self._end
            # List the logs before reading: if there is a later log, `at.file` is final.
            later = [n for n in disk.numbers(self.directory) if n > at.file]
            fresh = self._read(at, final=bool(later))
            for record in fresh:
                if record.size:
                    begin = JournalPosition(record.number, record.begin, record.address)
                    end = JournalPosition(record.number, record.end, record.address_end)
                    self._known.append(Known(begin, end, self._total))
                    self._total += record.size
            if fresh:
                self._end = JournalPosition(fresh[-1].number, fresh[-1].end, max(at.address, fresh[-1].address_end))
            elif later:
                self._go_on(at, later[0])
            elif self._is_missing(at):
                raise disk.damaged(disk.ready_path(self.directory, at.file), 0, "is missing")
            else:
                return

    def _is_missing(self, at: JournalPosition) -> bool:
        """True if the newest log was removed: a writer deletes a log only when there is a later one."""
        if not at.file:
            require_journal(self.directory)
            return False
        return not disk.ready_path(self.directory, at.file).exists() and not any(
            n > at.file for n in disk.numbers(self.directory)
        )

    def _go_on(self, at: JournalPosition, number: int) -> None:
        """Continue in the next log. Its head stores where the previous one ended."""
        record = disk.read_head(self.directory, number)
        before = record.head or disk.LogHead()
        if before.address_end > at.address:
            missing = disk.ready_path(self.directory, before.number)
            raise disk.damaged(missing, at.pos) if missing.exists() else disk.damaged(missing, 0, "is missing")
        if before.address_end < record.address:
            gap = before.address_end, record.address
            self._gaps[gap] = disk.bytes_between(before.address_end, at.address)
            first = self._index(before.address_end)
            self._total, self._known = self._before(first), self._known[:first]
        self._end = JournalPosition(number, 0, record.address)

    def _read(self, at: JournalPosition, final: bool) -> list[disk.ReadyRecord]:
        """The intact records at a position. An unfinished record at the end is being written; anything else is
        damage."""
        path = disk.ready_path(self.directory, at.file)
        for turn in range(3):
            try:
                with open(path, "rb") as file:
                    file.seek(at.pos)
                    data = file.read(_READ)
                    found = list(disk.records(data, at.file, at.pos))
                    if not found and len(data) == _READ:  # one record of a huge block
                        data += file.read()
                        found = list(disk.records(data, at.file, at.pos))
            except FileNotFoundError:
                return []
            if found or final or disk.may_be_unfinished(data, 0):
                return found
            time.sleep(0.01 * turn)  # a writer on a full disk may have removed half a record again
        raise disk.damaged(path, at.pos)

    def _index(self, address: int) -> int:
        return bisect_left(self._known, address, key=lambda known: known.place.address)

    def _before(self, index: int) -> int:
        return self._known[index].before if index < len(self._known) else self._total

    @property
    def lost(self) -> int:
        """See the class."""
        return sum(self._gaps.values())

    def backlog(self, at: JournalPosition) -> int:
        """The bytes of all known units after a position."""
        return self._total - self._before(self._index(at.address))

    def advance(self, start: JournalPosition, limit: int | None) -> JournalPosition:
        """The position about `limit` bytes after `start`, at least one record further. `start` itself if nothing
        follows."""
        first = self._index(start.address)
        if first == len(self._known):
            return start
        last = len(self._known)
        if limit is not None:
            beyond = self._known[first].before + limit
            last = max(first + 1, bisect_left(self._known, beyond, key=lambda known: known.before))
        return self._known[last - 1].end

    def stretches(self, start: JournalPosition, end: JournalPosition, count: int) -> list[list[Stretch]]:
        """The records between two positions, in at most `count` groups of about equal size."""
        low, high = self._index(start.address), self._index(end.address)
        begin, total = self._before(low), max(1, self._before(high) - self._before(low))
        groups: list[list[Stretch]] = [[] for _ in range(count)]
        for place, stop, before in self._known[low:high]:
            group = groups[min(count - 1, (before - begin) * count // total)]
            if group and group[-1].file == place.file and group[-1].end == place.pos:
                group[-1] = Stretch(place.file, group[-1].begin, stop.pos, group[-1].address)
            else:
                group.append(Stretch(place.file, place.pos, stop.pos, place.address))
        return [group for group in groups if group]


def sync_files(directory: Path, first: int, last: int) -> None:
    """Fsync the current content of the logs and segments with these numbers. Raises JournalUnwritable."""
    paths = [path(directory, n) for n in range(first, last + 1) for path in (disk.segment_path, disk.ready_path)]
    for path in paths:
        try:
            with open(path, "rb") as file:
                os.fdatasync(file.fileno())
        except FileNotFoundError:
            continue
        except OSError as problem:
            raise JournalUnwritable(
                f"{path} cannot be synced: {problem.strerror or problem}",
                advice="Check the disk of the state directory, for example with dmesg.",
                path=str(path),
            ) from None


class UnitMark(NamedTuple):
    """Where a unit begins, when it arrived (microseconds since 1970) and who sent it. None if that is not known."""

    address: int
    arrival: int | None
    peer: str | None


@dataclass(frozen=True, slots=True)
class Run:
    """Bytes of complete records, from `address` on. `last` is true if the final record lacks its delimiter. `marks` are
    the facts about its units, if they were asked for."""

    address: int
    data: bytes
    last: bool
    marks: tuple[UnitMark, ...] = ()


class UnitReader:
    """Turns stretches into bytes. Verifies the checksum of a buffer when it is first needed. Segments stay mapped while
    the reader exists."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._maps: dict[int, memoryview] = {}
        self._checked: set[int] = set()

    def runs(self, stretch: Stretch, chunk: int, facts: bool = False) -> Iterator[Run]:
        """The units of a stretch, joined into runs of about `chunk` bytes. With `facts` the runs have marks."""
        path = disk.ready_path(self.directory, stretch.file)
        with open(path, "rb") as file:
            data = os.pread(file.fileno(), stretch.end - stretch.begin, stretch.begin)
        parts: list[memoryview] = []
        marks: list[UnitMark] = []
        size, begin, at = 0, stretch.address, stretch.begin
        for record in disk.records(data, stretch.file, stretch.begin):
            at, address = record.end, record.address
            fragments = record.fragments.tolist()
            known = parse_facts(record.rest) if facts else None
            taken = 0
            for unit in record.units.tolist():
                count, flags = unit[U_FRAGMENTS], unit[U_FLAGS]
                if size and (flags & GONE or address != begin + size):  # a repair took units out
                    yield Run(begin, b"".join(parts), False, tuple(marks))
                    parts, marks, size = [], [], 0
                begin = begin if size else address
                address += unit[U_BYTES]
                taken += count
                if flags & GONE:
                    continue
                if facts:
                    peer = known.peers.get(unit[U_ORIGIN]) if known else None
                    marks.append(UnitMark(address - unit[U_BYTES], known.arrival if known else None, peer))
                parts += [self.bytes_of(*fragment) for fragment in fragments[taken - count : taken]]
                size += unit[U_BYTES]
                last = bool(flags & UNTERMINATED)
                if size and (last or size >= chunk):
                    yield Run(begin, b"".join(parts), last, tuple(marks))
                    parts, marks, begin, size = [], [], begin + size, 0
        if at != stretch.end:
            raise disk.damaged(path, at)
        if size:
            yield Run(begin, b"".join(parts), False, tuple(marks))

    def bytes_of(self, ref: int, begin: int, end: int) -> memoryview:
        """Bytes [begin, end) of a buffer. Raises JournalDamaged if the buffer is damaged."""
        segment, place = disk.place_of(ref)
        view = self._maps.get(segment)
        if view is None or place + end > len(view):
            view = self._map(segment)
        if ref not in self._checked:
            if disk.entry_at(view, place - disk.ENTRY.size) is None:
                raise disk.damaged(disk.segment_path(self.directory, segment), place)
            self._checked.add(ref)
        return view[place + begin : place + end]

    def _map(self, segment: int) -> memoryview:
        path = disk.segment_path(self.directory, segment)
        try:
            with open(path, "rb") as file:
                view = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
        except (FileNotFoundError, ValueError):  # gone, or empty
            raise disk.damaged(path, 0) from None
        self._maps[segment] = view
        return view
