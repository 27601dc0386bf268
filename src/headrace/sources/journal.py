"""A stream's journal as a source: what the gateway has written is read by the tasks, in ranges of the ready log.

What an epoch is planned to read is synced first: else a power loss could take it from the journal, and sinks that had
not committed the epoch yet would differ from those that had. With fsync `never` that, too, is left to the system.

unit of parallelism: a block of the journal; delivery: exactly once into an epoch, replayable until it is committed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.formats.base import Format
from headrace.ingress.entries import damaged, numbers
from headrace.ingress.mark import MARK, Place, commit, consumer_path, read_consumer
from headrace.ingress.ready import ReadyLog, Stretch, UnitReader, sync_files
from headrace.program import StreamDef
from headrace.sources.base import Clock, Offset, RawChunk, Split
from headrace.sources.reading import CHUNK

JOURNAL = "journal"  # the directory of the journal in the source's state directory
CONSUMER = "stream"
SMALLEST_SPLIT = 256 << 10  # less is not worth a task


def place_of(offset: Any) -> Place:
    """The place that an offset of this source names; the beginning for that of another source."""
    return Place(**offset) if isinstance(offset, dict) and offset.keys() == asdict(Place()).keys() else Place()


def require_journal(directory: Path, read_to: Place) -> None:
    """Raise JournalDamaged when epochs have read up to `read_to` and nothing is left of the journal. A new one would
    begin with address 0, and no epoch would ever read what it takes."""
    left = numbers(directory) or (directory / MARK).exists() or consumer_path(directory, CONSUMER).exists()
    if read_to.file and not left:
        raise damaged(directory, 0, "is missing")


@dataclass(frozen=True, slots=True)
class JournalSplit:
    """The records of some stretches of a ready log. Addresses count the bytes of all records since the beginning."""

    directory: str
    origin: str
    stretches: tuple[Stretch, ...]

    def read(self, fmt: Format) -> Iterator[RawChunk]:
        reader = UnitReader(Path(self.directory))
        for stretch in self.stretches:
            for run in reader.runs(stretch, CHUNK):
                yield RawChunk(self.origin, run.address, run.data)


class JournalSource:
    """Plans the epochs of a pushed stream. See `headrace.sources.base.Source` for the promises."""

    def __init__(self, stream: StreamDef, values: Mapping[str, Any], state_dir: Path, clock: Clock) -> None:
        self.directory = state_dir / JOURNAL
        self.origin = f"{stream.source}:{stream.name}"
        self.log = ReadyLog(self.directory)
        self._keep: bool = values["fsync"] != "never"
        known = read_consumer(consumer_path(self.directory, CONSUMER))
        self._lost = known[1] if known is not None else 0  # by the planning processes before this one
        self._committed = Place()

    def initial(self) -> Offset:
        return asdict(Place())

    def latest(self, start: Offset, max_bytes: int | None) -> Offset:
        place = Place(**start)
        self._release(place)
        self.log.follow(place)
        found = self.log.advance(place, max_bytes)
        if found == place:
            return start
        if self._keep:
            sync_files(self.directory, place.file, found.file)
        return asdict(found)

    def splits(self, start: Offset, end: Offset, parallelism: int) -> list[Split]:
        begin, stop = Place(**start), Place(**end)
        self.log.follow(begin)
        count = max(1, min(parallelism, -(-(stop.address - begin.address) // SMALLEST_SPLIT)))
        groups = self.log.stretches(begin, stop, count)
        return [JournalSplit(str(self.directory), self.origin, tuple(group)) for group in groups]

    def exhausted(self, at: Offset) -> bool:
        return False  # somebody may connect at any time

    def backlog(self, at: Offset) -> int:
        return self.log.backlog(Place(**at))

    def commit(self, end: Offset) -> None:
        self._release(Place(**end))

    def _release(self, place: Place) -> None:
        """Everything before `place` is in a committed epoch. Spark says so with the epoch after it, which never comes
        when a full journal has paused all senders; but it asks for what follows `place` only after that commit. On a
        full disk the position is written the next time: it only says what may be deleted."""
        if place.address > self._committed.address:
            with contextlib.suppress(OSError):
                commit(self.directory, CONSUMER, place, self._lost + self.log.lost)
                self._committed = place
