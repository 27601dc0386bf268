"""Feeds: durable logs of the rows that one pipeline instance hands to other queries, epoch by epoch.

A feed lies between the query of a stream, which writes it (`headrace.sinks.feed_sink`), and any number of consumers,
which read it: streams that are made of the pipeline's output, queries on the dedicated host, and Spark readers
(`headrace.spark.reader_source`).

    <feed>/epochs/<position>.json             one `FeedEpoch`: its segments, and the stream's watermark after it
    <feed>/segments/<writer>-<epoch>/<uuid>   Arrow IPC files with rows; one per piece that a task staged
    <feed>/consumers/<name>.json              the position up to which a consumer needs nothing any more
    <feed>/count                              how many epochs there have been: detects that the newest is missing
    <feed>/promise-<instance>.json            an epoch of an instance that is promised and not committed yet
    <feed>/ended-<instance>                   an instance that writes no more (`headrace.sinks.feed_retention`)
    <feed>/feed.lock                          held while the consumer is chosen (`headrace.sinks.feed_lock`)

**What a reader can rely on**

- *Positions*. Epochs have the positions 0, 1, 2, ... without gaps. A position never changes its content, and what
  follows the newest position is not visible. So a range of positions is a replayable offset for Spark.
- *Exactly once*. The rows of one (checkpoint, instance, epoch) are at one position or at none, however often the epoch
  is run. An epoch without rows is written only if the watermark moved or the input ended.
- *Punctuation*. `FeedEpoch.watermark` is the watermark of the *stream* after the epoch, counted before any filter of
  the pipeline, in microseconds. It never goes back. `ending` means that a finite source has ended, so all windows may
  close.
- *Loss*. Rows that the strategy `drop` dropped are counted in the epoch that they belong to. Nothing else is left out.
- *Retention*. Epochs from the smallest position of all consumers on are kept. Without a consumer everything is kept.
  Register before the first row that you need is written. The newest manifest of each writer stays, too: it shows what
  a re-run of that epoch must not write again. So there may be gaps, but only before what the consumers need.
- *Damage*. A manifest or a segment that is missing, torn or changed is StateDamaged with the path of the file. No row
  of a damaged segment is returned.

Who may call: one thread writes for each pipeline (the commit of its epochs), all in one process. Any process may read.
Only one thread at a time registers, advances and trims for each consumer name. Consumers that unregister each other, as
Spark readers do, hold the lock of the feed while they do so.

The directory of a stream that is made of a feed has the file `fed_from`: the number of the first pipeline instance that
feeds it. An epoch of a dropped pipeline may end after a stream of the same name was declared. Its instance has a lower
number, so its rows are left out.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from headrace.base.durable import fsync, private_directory, state_errors
from headrace.errors import HeadraceError, InternalError, StateDamaged
from headrace.model.stored import store, store_text, stored, stored_text
from headrace.sinks import feed_retention

FEEDS = "feeds"  # the directory of all feeds in the directory of their stream
CONSUMERS = "consumers"
_FED_FROM, _COUNT = "fed_from", "count"
_EPOCH = re.compile(r"(\d{12})\.json")
_NAME = re.compile(r"[\w.-]{1,100}")


def make_fed_stream(directory: Path, first: int) -> None:
    """Make the directory of a stream that is fed by this instance and later ones, unless it is there."""
    if directory.is_dir():
        return
    new = directory.with_name(f".{directory.name}.new")  # renamed when it is complete
    shutil.rmtree(new, ignore_errors=True)
    private_directory(new)
    store_text(new / _FED_FROM, str(first))
    new.rename(directory)
    fsync(directory.parent)


def may_feed(directory: Path, instance: int) -> bool:
    """False if this is not the directory of the stream that the instance feeds: it is gone, or belongs to a stream of
    the same name that was declared later. Raises StateDamaged."""
    first = stored_text(directory / _FED_FROM, str.isdigit)
    return directory.is_dir() if first is None else instance >= int(first)


@dataclass(frozen=True, slots=True)
class FeedSegment:
    """An Arrow IPC file of an epoch: its path below `segments`, its size, and the checksum of its bytes."""

    file: str
    rows: int
    bytes: int
    crc: int


@dataclass(frozen=True, slots=True)
class FeedEpoch:
    """One committed epoch of the stream in the feed. (checkpoint, instance, epoch) is the key of the epoch's output,
    and `digest` identifies its input. `dropped` counts the rows of the epoch for which the feed had no room, and
    `dropped_so_far` those of all epochs up to it."""

    position: int
    checkpoint: str
    instance: int
    epoch: int
    digest: str
    watermark: int | None
    segments: tuple[FeedSegment, ...] = ()
    ending: bool = False
    dropped: int = 0
    dropped_so_far: int = 0
    version: int = 1

    @property
    def rows(self) -> int:
        return sum(s.rows for s in self.segments)

    @property
    def bytes(self) -> int:
        return sum(s.bytes for s in self.segments)

    @property
    def identity(self) -> str:
        """Differs for epochs that a restored stream planned again: the digest covers the clock at which it did."""
        return f"{self.checkpoint}-{self.instance}-{self.epoch}-{self.digest}"


@dataclass(frozen=True, slots=True)
class FeedBacklog:
    """What a feed holds for its slowest consumer."""

    epochs: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class _Position:
    position: int


def feed_directory(stream_directory: Path, instance: int) -> Path:
    """The feed of an instance of a stream."""
    return stream_directory / FEEDS / str(instance)


def stream_feed(stream_directory: Path) -> Path:
    """The feed whose rows a stream is made of. It belongs to the stream that reads it, not to the one that is read by
    the pipeline: pipelines may be replaced."""
    return stream_directory / "input"


def copy_order(name: str) -> int:
    """Sorts the names in the directory of a feed for a copy that is made while a consumer advances. A consumer notes
    its position before it deletes what is before that position. So the positions are copied last: whatever the copy
    misses is before them."""
    return {"segments": 0, "epochs": 1, CONSUMERS: 3}.get(name, 2)


class FeedLog:
    """Reads a feed and keeps the positions of its consumers. See the module. Cheap to make: touches no disk.

    One object remembers the epochs that it has parsed, so a poll parses only new ones. Not thread-safe.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._known: dict[int, FeedEpoch] = {}

    @property
    def manifests(self) -> Path:
        return self.directory / "epochs"

    @property
    def segments(self) -> Path:
        return self.directory / "segments"

    def path(self, position: int) -> Path:
        """The manifest of a position."""
        return self.manifests / f"{position:012}.json"

    def promise(self, instance: int) -> Path:
        """The promise of an instance. Two instances write to a feed in the epoch in which one replaces the other."""
        return self.directory / f"promise-{instance}.json"

    @property
    def earlier_promise(self) -> Path:
        """The promise of a version that had one file for all instances."""
        return self.directory / "promise.json"

    # --- reading ----------------------------------------------------------------------------------

    def positions(self) -> list[int]:
        """The positions that are kept, in order. Empty before the first epoch."""
        with state_errors(self.manifests):
            try:
                names = os.listdir(self.manifests)
            except FileNotFoundError:
                return []
        found = sorted(int(m[1]) for m in map(_EPOCH.fullmatch, names) if m is not None)
        self._known = {p: self._known[p] for p in found if p in self._known}
        return found

    def end(self) -> int:
        """The position after the newest epoch: where the next one will be. Raises StateDamaged if there were more."""
        count = self._count()  # first: it is written after a manifest
        found = self.positions()
        end = found[-1] + 1 if found else 0
        if count > end:
            raise _damaged(self.path(count - 1), "is missing")
        return end

    def _count(self) -> int:
        """How many epochs were written, as far as known. If the file is damaged, only this check is lost."""
        with contextlib.suppress(HeadraceError):
            return int(stored_text(self.directory / _COUNT, lambda text: False) or 0)
        return 0

    def count(self, epochs: int, durable: bool = False) -> None:
        """Note how many epochs there are. Nothing but a check depends on it, so a larger number need not be durable. If
        a smaller one were lost, the check would fail."""
        store_text(self.directory / _COUNT, str(epochs), durable)

    def epoch(self, position: int) -> FeedEpoch:
        """The epoch at a position. Raises StateDamaged if it is not there or cannot be read."""
        known = self._known.get(position)
        if known is None:
            known = stored(FeedEpoch, self.path(position))
            if known is None:
                raise _damaged(self.path(position), "is missing")
            if known.position != position:
                raise _damaged(self.path(position), f"holds position {known.position}")
            self._known[position] = known
        return known

    def epochs(self, start: int, end: int | None = None) -> list[FeedEpoch]:
        """The epochs at the positions from `start` up to, and without, `end` or the newest. Raises StateDamaged if one
        of them is missing."""
        until = self.end() if end is None else end
        return [self.epoch(position) for position in range(start, until)]

    def newest(self) -> FeedEpoch | None:
        """The newest epoch. None before the first one."""
        end = self.end()
        return self.epoch(end - 1) if end else None

    def dropped(self) -> int:
        """The rows that found no room, since the feed began."""
        newest = self.newest()
        return 0 if newest is None else newest.dropped_so_far

    def backlog(self, position: int | None = None) -> FeedBacklog:
        """The unread epochs from `position` on, or of the slowest consumer. Without a consumer: all that are kept."""
        kept = self.positions()
        at = self.needed_from() if position is None else position
        waiting = [e for p in kept if at is None or p >= at if (e := self.kept_epoch(p)) is not None]
        return FeedBacklog(len(waiting), sum(e.rows for e in waiting), sum(e.bytes for e in waiting))

    def kept_epoch(self, position: int) -> FeedEpoch | None:
        """The epoch at a position. None if a consumer has advanced and deleted it since the positions were listed."""
        try:
            return self.epoch(position)
        except StateDamaged:
            if self.path(position).exists():
                raise
            return None

    # --- consumers --------------------------------------------------------------------------------

    def register(self, consumer: str, position: int = 0) -> int:
        """Add a consumer that needs everything from `position` on, or from the first epoch whose rows are kept.
        Returns its position. A consumer that is known already keeps its own."""
        known = self.position_of(consumer)
        if known is not None:
            return known
        at = begin = max(position, self.needed_from() or 0)
        for found in range(begin, self.end()):
            if not self._has_rows(found):
                at = found + 1
            elif self.epoch(found).segments:  # one without rows may be kept for its writer alone, before a gap
                break
        self._write(consumer, at)
        return at

    def _has_rows(self, position: int) -> bool:
        """True if the epoch at a position is kept with all of its rows."""
        if not self.path(position).exists():
            return False
        return all((self.segments / s.file).exists() for s in self.epoch(position).segments)

    def advance(self, consumer: str, position: int) -> None:
        """The consumer needs nothing before `position` any more, not even after a crash. It never goes back."""
        known = self.position_of(consumer)
        if known is None:
            raise _damaged(self._consumer(consumer), "is missing")
        if position > known:
            self._write(consumer, position)
            self.trim()

    def unregister(self, consumer: str) -> None:
        """Forget a consumer. Epochs that only it needed may be deleted."""
        with state_errors(self.directory):
            self._consumer(consumer).unlink(missing_ok=True)

    def position_of(self, consumer: str) -> int | None:
        """The position of a consumer. None if it is not registered."""
        found = stored(_Position, self._consumer(consumer))
        return None if found is None else found.position

    def consumers(self) -> dict[str, int]:
        """The positions of all consumers, by name."""
        with state_errors(self.directory):
            try:
                names = sorted(os.listdir(self.directory / CONSUMERS))
            except FileNotFoundError:
                return {}
        found = {name.removesuffix(".json"): None for name in names if not name.startswith(".")}
        positions = {name: self.position_of(name) for name in found}
        return {name: position for name, position in positions.items() if position is not None}

    def needed_from(self) -> int | None:
        """The smallest position that a consumer needs. None without consumers."""
        return min(self.consumers().values(), default=None)

    def trim(self) -> None:
        """Delete the epochs that no consumer needs, and no writer (`headrace.sinks.feed_retention`)."""
        feed_retention.trim(self)

    def _consumer(self, name: str) -> Path:
        if _NAME.fullmatch(name) is None:
            raise InternalError(f"{name!r} cannot name a consumer of a feed")
        return self.directory / CONSUMERS / f"{name}.json"

    def _write(self, consumer: str, position: int) -> None:
        path = self._consumer(consumer)
        with state_errors(path):
            private_directory(path.parent)
        store(path, _Position(position))


def read_segments(segments_directory: Path, segments: Sequence[FeedSegment]) -> Iterator[pa.RecordBatch]:
    """The rows of segments, in order. Each file is read whole and compared with its checksum before its first row is
    returned. Raises StateDamaged with the path of a file that is missing or changed."""
    for segment in segments:
        path = segments_directory / segment.file
        with state_errors(path):
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                raise _damaged(path, "is missing") from None
        if len(data) != segment.bytes or zlib.crc32(data) != segment.crc:
            raise _damaged(path, f"does not match its checksum ({len(data)} of {segment.bytes} bytes)")
        yield from pa.ipc.open_stream(data)


def write_segment(directory: Path, name: str, table: pa.Table) -> FeedSegment:
    """Write a durable segment below `directory`, the feed's `segments`."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    data = out.getvalue()
    path = directory / name
    private_directory(path.parent)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return FeedSegment(name, table.num_rows, data.size, zlib.crc32(data))


def sync_names(directory: Path) -> None:
    """Make the names in a directory durable, if it exists."""
    if directory.is_dir():
        fsync(directory)


def _damaged(path: Path, how: str) -> StateDamaged:
    return StateDamaged(
        f"{path} {how}",
        advice="It is part of a feed, the rows between two queries. Restore the file from a backup, restore a "
        "savepoint, or drop the pipeline and create it again.",
        path=str(path),
    )
