"""Reading a journal: the planner follows the ready log, tasks turn its records into bytes. Nothing here writes to it,
but for the consumer's own position."""

from __future__ import annotations

import json
import mmap
import os
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headrace.durable import write_atomic
from headrace.ingress import entries as disk
from headrace.ingress.kernels.layout import U_BYTES, U_FLAGS, U_FRAGMENTS, UNTERMINATED

_READ = 4 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """A place between two records: byte `pos` of the ready log `file`, after `address` bytes of units."""

    file: int = 0
    pos: int = 0
    address: int = 0


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes [begin, end) of one ready log; the units in it begin at `address`."""

    file: int
    begin: int
    end: int
    address: int


class ReadyLog:
    """Follows the ready log of a journal that another process writes. One thread."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._known: list[tuple[Place, int]] = []  # (where a record with units begins, where it ends), in order
        self._end = Place()

    def follow(self, start: Place) -> None:
        """Read what is new; forget what is before `start`."""
        if self._end == Place() or self._end.address < start.address:
            self._end, self._known = start, []
        self._known = self._known[self._index(start.address) :]
        while True:
            at = self._end
            later = [
                n for n in disk.numbers(self.directory) if n > at.file
            ]  # looked for first: then `at.file` is final
            fresh = self._read(at)
            for record in fresh:
                if record.size:
                    self._known.append((Place(record.number, record.begin, record.address), record.end))
            if fresh:
                self._end = Place(fresh[-1].number, fresh[-1].end, fresh[-1].address_end)
            elif later:
                self._end = Place(later[0], 0, at.address)
            else:
                return

    def _read(self, at: Place) -> list[disk.ReadyRecord]:
        try:
            with open(disk.ready_path(self.directory, at.file), "rb") as file:
                file.seek(at.pos)
                data = file.read(_READ)
                found = list(disk.records(data, at.file, at.pos))
                if not found and len(data) == _READ:  # one record of a huge block
                    found = list(disk.records(data + file.read(), at.file, at.pos))
                return found
        except FileNotFoundError:
            return []

    def _index(self, address: int) -> int:
        return bisect_left(self._known, address, key=lambda known: known[0].address)

    @property
    def address(self) -> int:
        """All bytes that are ready."""
        return self._end.address

    def advance(self, start: Place, limit: int | None) -> Place:
        """At most about `limit` bytes beyond `start`, at least one record; `start` itself if there is nothing."""
        first = self._index(start.address)
        if first == len(self._known):
            return start
        last = len(self._known)
        if limit is not None:
            last = min(last, max(first + 1, self._index(start.address + limit)))
        place, end = self._known[last - 1]
        address = self._known[last][0].address if last < len(self._known) else self._end.address
        return Place(place.file, end, address)

    def stretches(self, start: Place, end: Place, count: int) -> list[list[Stretch]]:
        """The records between two places, in at most `count` groups of about the same size."""
        known = self._known[self._index(start.address) : self._index(end.address)]
        groups: list[list[Stretch]] = [[] for _ in range(count)]
        total = max(1, end.address - start.address)
        for place, stop in known:
            group = groups[min(count - 1, (place.address - start.address) * count // total)]
            if group and group[-1].file == place.file and group[-1].end == place.pos:
                group[-1] = Stretch(place.file, group[-1].begin, stop, group[-1].address)
            else:
                group.append(Stretch(place.file, place.pos, stop, place.address))
        return [group for group in groups if group]


def commit(directory: Path, consumer: str, place: Place) -> None:
    """A consumer is past `place` and will never ask for anything before it."""
    text = json.dumps({"file": place.file, "pos": place.pos, "address": place.address})
    write_atomic(directory / "consumers" / f"{consumer}.json", text.encode())


@dataclass(frozen=True, slots=True)
class Run:
    """Bytes of whole records that begin at `address`; `last` says that the record at the end lacks its delimiter."""

    address: int
    data: bytes
    last: bool


class UnitReader:
    """Turns stretches into bytes. The checksum of every buffer is checked when it is first needed. Segments stay
    mapped as long as the reader lives."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._maps: dict[int, memoryview] = {}
        self._checked: set[int] = set()

    def runs(self, stretch: Stretch, chunk: int) -> Iterator[Run]:
        """The units of a stretch, joined to runs of about `chunk` bytes."""
        path = disk.ready_path(self.directory, stretch.file)
        with open(path, "rb") as file:
            data = os.pread(file.fileno(), stretch.end - stretch.begin, stretch.begin)
        parts: list[memoryview] = []
        size, begin, at = 0, stretch.address, stretch.begin
        for record in disk.records(data, stretch.file, stretch.begin):
            at = record.end
            fragments = record.fragments.tolist()
            taken = 0
            for unit in record.units.tolist():
                count = unit[U_FRAGMENTS]
                parts += [self._bytes(*fragment) for fragment in fragments[taken : taken + count]]
                taken += count
                size += unit[U_BYTES]
                last = bool(unit[U_FLAGS] & UNTERMINATED)
                if size and (last or size >= chunk):
                    yield Run(begin, b"".join(parts), last)
                    parts, begin, size = [], begin + size, 0
        if at != stretch.end:
            raise disk.damaged(path, at)
        if size:
            yield Run(begin, b"".join(parts), False)

    def _bytes(self, ref: int, begin: int, end: int) -> memoryview:
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
