"""Which files of a journal are still needed, and how far its consumers have read.

A file is deleted when every consumer is past it and no unfinished record has bytes in it. Unfinished records are copied
out of old segments, so that a slow client does not keep them.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from headrace.base.durable import fsync
from headrace.ingress import entries as disk
from headrace.ingress.journal_sync import FileSyncs
from headrace.ingress.mark import JournalPosition, MarkFile, read_consumer
from headrace.ingress.open_log import OpenLog
from headrace.ingress.recovery import LogFacts
from headrace.ingress.shredder import SequenceShredder


class Retention:
    """See the module. `consumed` is a position that every consumer is past; `finished` are all logs but the newest. For
    one thread."""

    def __init__(self, directory: Path, mark: MarkFile, shredder: SequenceShredder, syncs: FileSyncs) -> None:
        self._directory, self._mark, self._shredder, self._syncs = directory, mark, shredder, syncs
        self.consumed = mark.value.consumed
        self.finished: dict[int, LogFacts] = {}
        self.lost_by_consumers = 0
        self.read_consumers()

    def read_consumers(self) -> None:
        """Read the positions of the consumers."""
        found = [read_consumer(path) for path in (self._directory / "consumers").glob("*.json")]
        known = [one for one in found if one is not None]
        if known and len(known) == len(found):
            least = min((place for place, _ in known), key=lambda place: place.address)
            if least.address > self.consumed.address:
                self.consumed = least
            self.lost_by_consumers = max(lost for _, lost in known)

    def facts(self, number: int, newest: OpenLog) -> LogFacts | None:
        """The log with this number, if it is still there."""
        return newest.facts if number == newest.number else self.finished.get(number)

    def taken_at(self, place: JournalPosition, newest: OpenLog) -> int:
        """The bytes of all units before a position."""
        facts = self.facts(place.file, newest)
        if facts is not None:
            return facts.taken + max(0, min(place.address, facts.address_end) - facts.address)
        later = [log.taken for number, log in self.finished.items() if number > place.file]
        return min([*later, newest.taken_before] if place.file < newest.number else [newest.taken])

    def _needed(self, newest: OpenLog) -> int:
        """The lowest log with units that a consumer has not read."""
        past = self.consumed
        return min([n for n, log in self.finished.items() if log.address_end > past.address], default=newest.number)

    def delete(self, newest: OpenLog) -> None:
        """Delete the files that no consumer, no unread record and no unfinished record needs."""
        at = self._needed(newest)
        gone = [n for n in disk.numbers(self._directory) if n < at]
        lowest = self._shredder.lowest()
        kept = [facts.lowest for number, facts in self.finished.items() if number >= at]
        needed = min(at, newest.lowest, *kept, at if lowest is None else disk.place_of(lowest)[0])
        segments = [p for p in self._directory.glob("segment-????????.raw") if int(p.name[8:16]) < needed]
        if not gone and not segments:
            return
        self._syncs.require_none_failed()  # otherwise they are being copied
        # No unit is between the consumers and the first log that is kept. The mark names that log, because otherwise
        # recovery would report the deleted files as missing.
        past = self.consumed if self.consumed.file >= at else JournalPosition(at, 0, self.consumed.address)
        if self._mark.value.consumed != past:
            self._mark.write(consumed=past)
        for number in gone:
            disk.ready_path(self._directory, number).unlink(missing_ok=True)
            self.finished.pop(number, None)
        if gone and segments:
            fsync(self._directory)  # after a power loss no log may be without its segment
        for path in segments:
            path.unlink(missing_ok=True)

    def carry(self, newest: OpenLog) -> None:
        """Copy unfinished records out of segments that are not needed otherwise: a client that sends one byte per hour
        must not keep a segment of 64 MB."""
        waiting = self._shredder.waiting_below(disk.reference(self._needed(newest), 0))
        if not len(waiting):
            return
        moved = []
        for origin, ref, begin, end in waiting.tolist():
            segment, place = disk.place_of(ref)
            with open(disk.segment_path(self._directory, segment), "rb") as file:
                data = os.pread(file.fileno(), end - begin, place + begin)
            moved.append(disk.reference(newest.number, newest.segment_end + disk.ENTRY.size))
            block = memoryview(disk.entry_header(origin, 0, data) + data)
            newest.write(block)
            newest.extend(block)
        self._shredder.move(waiting[:, 1], np.array(moved, np.int64), waiting[:, 2])
