"""Reads a pushed stream: tasks read ranges of the journal that the gateway writes.

Before an epoch is planned, its part of the journal is synced to disk. Otherwise a power loss could remove it, and sinks
that had committed the epoch would differ from those that had not. With fsync `never` the system decides when to sync.

Unit of parallelism: a block of the journal. Delivery: exactly once into an epoch, replayable until it is committed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.formats.format_kind import Format
from headrace.ingress.mark import JournalPosition, commit, consumer_path, read_consumer
from headrace.ingress.ready import ReadyLog, Stretch, UnitReader, sync_files
from headrace.ingress.settings import JournalSettings
from headrace.model.definitions import StreamDef
from headrace.sources.pushed_facts import PushedFacts
from headrace.sources.reading import CHUNK
from headrace.sources.source_kind import InputSplit, RawChunk, SourceOffset, WallClock

JOURNAL = "journal"  # the directory of the journal in the source's state directory
CONSUMER = "stream"
SMALLEST_SPLIT = 256 << 10  # less is not worth a task


def place_of(offset: Any) -> JournalPosition:
    """The place of an offset of this source; the beginning for an offset of another source."""
    ours = isinstance(offset, dict) and offset.keys() == asdict(JournalPosition()).keys()
    return JournalPosition(**offset) if ours else JournalPosition()


@dataclass(frozen=True, slots=True)
class JournalSplit:
    """The records of some stretches of a ready log. Addresses count the bytes of all records of the stream."""

    directory: str
    origin: str
    stretches: tuple[Stretch, ...]
    facts: bool = False  # the stream has metadata columns

    def read(self, fmt: Format) -> Iterator[RawChunk]:
        reader = UnitReader(Path(self.directory))
        for stretch in self.stretches:
            for run in reader.runs(stretch, CHUNK, self.facts):
                known = PushedFacts(run.marks) if self.facts else None
                yield RawChunk(self.origin, run.address, run.data, facts=known)


class JournalSource:
    """Plans the epochs of a pushed stream. `headrace.sources.source_kind.StreamSource` states the promises."""

    def __init__(self, stream: StreamDef, settings: JournalSettings, state_dir: Path, clock: WallClock) -> None:
        self.directory = state_dir / JOURNAL
        self.origin = f"{stream.source}:{stream.name}"
        self._facts = bool(stream.metadata)
        self.log = ReadyLog(self.directory)
        self._keep = settings.fsync != "never"
        known = read_consumer(consumer_path(self.directory, CONSUMER))
        self._lost = known[1] if known is not None else 0  # bytes lost before this planning process started
        self._committed = JournalPosition()

    def initial(self) -> SourceOffset:
        return asdict(JournalPosition())

    def latest(self, start: SourceOffset, max_bytes: int | None) -> SourceOffset:
        place = JournalPosition(**start)
        self._release(place)
        self.log.follow(place)
        found = self.log.advance(place, max_bytes)
        if found == place:
            return start
        if self._keep:
            sync_files(self.directory, place.file, found.file)
        return asdict(found)

    def splits(self, start: SourceOffset, end: SourceOffset, parallelism: int) -> list[InputSplit]:
        groups = self.groups(start, end, parallelism)
        return [JournalSplit(str(self.directory), self.origin, group, self._facts) for group in groups]

    def groups(self, start: SourceOffset, end: SourceOffset, parallelism: int) -> list[tuple[Stretch, ...]]:
        """The entries between two offsets, divided among at most `parallelism` tasks."""
        begin, stop = JournalPosition(**start), JournalPosition(**end)
        self.log.follow(begin)
        count = max(1, min(parallelism, -(-(stop.address - begin.address) // SMALLEST_SPLIT)))
        return [tuple(group) for group in self.log.stretches(begin, stop, count)]

    def exhausted(self, at: SourceOffset) -> bool:
        return False  # a client may connect at any time

    def backlog(self, at: SourceOffset) -> int:
        return self.log.backlog(JournalPosition(**at))

    def commit(self, end: SourceOffset) -> None:
        self._release(JournalPosition(**end))

    def _release(self, place: JournalPosition) -> None:
        """Let the journal delete everything before `place`, which is in a committed epoch. `commit` alone is not
        enough: Spark calls it only with the next epoch, which never comes if a full journal has paused all senders. But
        Spark asks for the offset after `place` only when that epoch is committed. On a full disk the position is
        written the next time: it only says what may be deleted."""
        if place.address > self._committed.address:
            with contextlib.suppress(OSError):
                commit(self.directory, CONSUMER, place, self._lost + self.log.lost)
                self._committed = place
