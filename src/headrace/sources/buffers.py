"""The source `buffers`: raw buffers with (origin, sequence) in their names, as files in a directory, in any order.

A file `<origin>.<sequence>.buf` is one buffer of an origin's bytes; `<origin>.<sequence>.end` is its last one. A record
may begin in one buffer and end in another. The sequence shredder joins them as the buffers arrive, so the rows are
those of the bytes in order, whatever the order of the files. It is for replays, tests, and receivers that share a
directory.

Listed buffers are logged, with the positions of their delimiters, before they are used. After a restart the shredder
gets the same buffers in the same order, so it finds the same units under the same numbers. The source forgets an origin
when it has ended, all of it is committed, and its files are gone.

Unit of parallelism: a record, or the whole records of a buffer. Delivery: exactly once into an epoch, replayable as
long as the files stay.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from headrace.base.options import choice, option, text
from headrace.errors import FileChanged, MissingFile, StateDamaged, UnreadableDirectory
from headrace.formats import FORMATS
from headrace.formats.format_kind import Format
from headrace.ingress.delimiting import Delimiting, finder_of
from headrace.ingress.kernels.array_columns import U_BYTES, U_FLAGS, U_FRAGMENTS, U_ORIGIN, UNTERMINATED
from headrace.ingress.shredder import SequenceShredder, Shredded, bad_sequence
from headrace.model.definitions import StreamDef
from headrace.sources.bufferlog import BufferLog, Forgotten, LoggedBuffer
from headrace.sources.extent import look_at
from headrace.sources.listing import Listing
from headrace.sources.push import verify_delimited
from headrace.sources.reading import CHUNK
from headrace.sources.source_kind import InputSplit, RawChunk, SourceKind, SourceOffset, WallClock

NAME = re.compile(r"(?P<origin>.+)\.(?P<sequence>\d+)\.(?P<kind>buf|end)")
POLL = 0.1  # minimum seconds between two checks of the directory
LIST = 5.0  # seconds after which the directory is listed even if its modification time has not changed
SMALLEST_SPLIT = 256 << 10  # less is not worth a task
FORGET_AT = 256  # lines that the log must have before it is shortened
_ENDS = 1


@dataclass(frozen=True, slots=True)
class Fragment:
    """Bytes [begin, end) of a buffer, which has `size` bytes."""

    path: str
    size: int
    begin: int
    end: int

    def read(self) -> bytes:
        try:
            with open(self.path, "rb") as file:
                if os.fstat(file.fileno()).st_size != self.size:
                    raise FileChanged(
                        f"{self.path} changed its size after it was listed",
                        advice="Restore its old content: buffers must not change until they are read.",
                        path=self.path,
                    )
                return os.pread(file.fileno(), self.end - self.begin, self.begin)
        except FileNotFoundError:
            raise MissingFile(
                f"{self.path} disappeared before it was read",
                advice="Restore it: buffers must stay until they are read.",
                path=self.path,
            ) from None


@dataclass(frozen=True, slots=True)
class Unit:
    """Whole records. `last` is true if the last of them lacks its delimiter."""

    fragments: tuple[Fragment, ...]
    last: bool


@dataclass(frozen=True, slots=True)
class BufferSplit:
    """Consecutive units. They begin at `address`, which counts the bytes of all units of the stream."""

    origin: str
    address: int
    units: tuple[Unit, ...]

    def read(self, fmt: Format) -> Iterator[RawChunk]:
        parts: list[bytes] = []
        begin, size = self.address, 0
        for unit in self.units:
            parts += [fragment.read() for fragment in unit.fragments]
            size = sum(map(len, parts))
            if size and (unit.last or size >= CHUNK):
                yield RawChunk(self.origin, begin, b"".join(parts))
                parts, begin, size = [], begin + size, 0
        if size:
            yield RawChunk(self.origin, begin, b"".join(parts))


@dataclass(frozen=True, slots=True)
class BufferSettings:
    """The options of `source = 'buffers'`."""

    path: str = option(text, required=True, help="a directory of files ORIGIN.SEQUENCE.buf, the last one .end")
    last_record: Literal["drop", "keep"] = option(
        choice("drop", "keep"),
        default="drop",
        help="what happens to a record without a delimiter at the end of a .end buffer",
    )


class Buffers:
    """Plans the epochs of a stream of buffers. `headrace.sources.source_kind.StreamSource` states the promises."""

    def __init__(self, stream: StreamDef, settings: BufferSettings, state_dir: Path, clock: WallClock) -> None:
        fmt = FORMATS[stream.format].make(stream.record_schema, stream.options)
        finder = finder_of(fmt)
        assert finder is not None, "CREATE STREAM rejects such formats"
        self.finder: Delimiting = finder
        self.origin = f"buffers:{stream.name}"
        self.path = Path(settings.path)
        self.keep_last = settings.last_record == "keep"
        self.clock = clock
        self.shredder = SequenceShredder(finder.states)
        self._log = BufferLog(state_dir / "buffers.log")
        self._forget_at = FORGET_AT
        self._buffers: dict[int, tuple[str, int]] = {}  # reference -> path, size
        self._known: dict[str, int] = {}  # path -> reference
        self._next_buffer = self._next_origin = 0
        self._origins: dict[str, int] = {}
        self._ended: set[int] = set()  # origins whose last buffer has arrived
        self._complete: set[int] = set()  # ... and all buffers before it
        self._first = self._begin = 0  # number and address of the first uncommitted unit
        self._units: list[Unit] = []
        self._owners: list[int] = []  # the origin of each unit
        self._ends: list[int] = []  # the address after each unit
        self._committed: Counter[int] = Counter()  # units by origin
        self._listing = Listing(settings.path)
        self._polled = self._listed = float("-inf")
        self._unsettled = False  # true if a file was still being written
        head, kept = self._log.read()
        if kept:
            self._take(kept, self.shredder.arrive(*self._arrivals(kept)))
        moved = head.address - self._address(head.skip)
        self._drop(head.skip)
        self._first, self._begin = head.unit, head.address
        self._ends = [end + moved for end in self._ends]

    def initial(self) -> SourceOffset:
        return {"unit": 0}

    def latest(self, start: SourceOffset, max_bytes: int | None) -> SourceOffset:
        self._poll()
        at: int = start["unit"]
        if at > self._end:
            raise StateDamaged(
                f"{self._log.path} was truncated or lost: an epoch has read {at} units, but it has only {self._end}",
                advice="Restore it from a backup, restore a savepoint, or drop the stream and create it again.",
                path=str(self._log.path),
            )
        if at == self._end:
            return start
        end = self._end
        if max_bytes is not None:
            end = min(end, max(at + 1, self._unit_at(self._address(at) + max_bytes + 1)))
        return {"unit": end}

    def splits(self, start: SourceOffset, end: SourceOffset, parallelism: int) -> list[InputSplit]:
        low, high = start["unit"], end["unit"]
        begin, total = self._address(low), self._address(high) - self._address(low)
        count = max(1, min(parallelism, -(-total // SMALLEST_SPLIT)))
        cuts = [low, *(self._unit_at(begin + total * i // count) for i in range(1, count)), high]
        first = self._first
        return [
            BufferSplit(self.origin, self._address(a), tuple(self._units[a - first : b - first]))
            for a, b in pairwise(cuts)
            if b > a
        ]

    def exhausted(self, at: SourceOffset) -> bool:
        self._poll(force=True)
        return int(at["unit"]) >= self._end and not self._unsettled

    def backlog(self, at: SourceOffset) -> int:
        return self._address(self._end) - self._address(at["unit"])

    def commit(self, end: SourceOffset) -> None:
        count = end["unit"] - self._first
        if count > 0:
            self._begin = self._address(end["unit"])
            self._drop(count)
            self._first = end["unit"]
        if self._log.lines >= self._forget_at:
            self._forget()
            self._forget_at = max(FORGET_AT, 2 * self._log.lines)

    def _drop(self, count: int) -> None:
        """Remove the first `count` units: they are committed."""
        self._committed.update(self._owners[:count])
        del self._units[:count], self._owners[:count], self._ends[:count]

    def _forget(self) -> None:
        """Forget the origins that are complete, committed and gone from the directory. If such a name comes back, it is
        a new origin."""
        try:
            present = set(map(_origin, os.listdir(self.path)))
        except OSError:  # the next poll reports it
            return
        pending = set(self._owners)
        gone = {
            name: number
            for name, number in self._origins.items()
            if number in self._complete and number not in pending and name not in present
        }
        if not gone:
            return
        skip = self._committed.total() - sum(self._committed[number] for number in gone.values())
        self._log.forget(Forgotten(self._first, self._begin, skip), set(gone))
        for name, number in gone.items():
            del self._origins[name], self._committed[number]
            self._complete.discard(number)
        for path in [path for path in self._known if _origin(path) in gone]:
            del self._buffers[self._known.pop(path)]

    @property
    def _end(self) -> int:
        """The number after the last unit."""
        return self._first + len(self._units)

    def _address(self, unit: int) -> int:
        return self._ends[unit - self._first - 1] if unit > self._first else self._begin

    def _unit_at(self, address: int) -> int:
        return self._first + bisect_left(self._ends, address)

    def _poll(self, force: bool = False) -> None:
        now = self.clock()
        if self._polled <= now < self._polled + POLL and not force:
            return
        self._polled = now
        if self._listed <= now < self._listed + LIST and not self._unsettled and self._listing.unchanged():
            return
        self._listed = now
        found = []
        for path in self._listing.paths():
            if path not in self._known and NAME.fullmatch(os.path.basename(path)):
                stamp = look_at(path)
                if stamp is not None:
                    found.append((stamp.mtime_ns, path, stamp.size))
        looked = [self._look(path, size) for _, path, size in sorted(found)]
        whole = [one for one in looked if one is not None]
        self._unsettled = len(whole) < len(looked)
        if whole:
            self._add(whole)

    def _look(self, path: str, size: int) -> LoggedBuffer | None:
        """The log entry of a buffer; None if it is still being written, or gone."""
        try:
            data = Path(path).read_bytes()
        except FileNotFoundError:
            return None
        if len(data) != size:
            return None
        outcomes = self.finder.outcomes(data)
        ends = path.endswith(".end") and self.keep_last
        if ends:
            first = np.where(outcomes[:, 0] < 0, size, outcomes[:, 0])
            outcomes = np.stack([first, np.full_like(first, size), np.zeros_like(first)], axis=1)
        name = NAME.fullmatch(os.path.basename(path))
        assert name is not None
        return LoggedBuffer(
            path, size, sequence=int(name["sequence"]), origin=name["origin"], ends=ends, outcomes=outcomes.tolist()
        )

    def _add(self, fresh: list[LoggedBuffer]) -> None:
        """Pass buffers to the shredder, and log those that it accepts. Raises BadSequence for the first that it
        rejects."""
        arrivals, outcomes = self._arrivals(fresh)
        # The shredder has forgotten complete origins, and would accept their sequence numbers again.
        late = np.flatnonzero(np.isin(arrivals[:, 0], list(self._complete)))
        at, end, refused = 0, int(late[0]) if len(late) else len(fresh), ""
        while at < end and refused in ("", "out_of_range"):
            found = self.shredder.offer(arrivals[:end], outcomes[:end], at)
            if found.accepted > at:
                self._log.append(fresh[at : found.accepted])
                self._take(fresh[at : found.accepted], found)
            at, refused = found.accepted, found.refused
        if at < len(fresh):
            problem = bad_sequence(arrivals[at], refused if at < end else "its_origin_has_ended")
            problem.message = f"{fresh[at].path}: {problem.message}"
            problem.params["path"] = fresh[at].path
            raise problem

    def _arrivals(self, fresh: list[LoggedBuffer]) -> tuple[Any, Any]:
        rows = []
        for i, one in enumerate(fresh):
            origin = self._origins.setdefault(one.origin, self._next_origin)
            self._next_origin += origin == self._next_origin
            first, last, _ = one.outcomes[0]
            flags = _ENDS if one.ends else 0
            # A number beyond 63 bits is outside any ring; the shredder rejects it.
            sequence = min(one.sequence, 2**62 + 1)
            rows.append([origin, sequence, self._next_buffer + i, first, last, one.size, flags])
        return np.array(rows, np.int64), np.array([one.outcomes for one in fresh], np.int32)

    def _take(self, accepted: list[LoggedBuffer], found: Shredded) -> None:
        for one in accepted:
            self._buffers[self._next_buffer] = (one.path, one.size)
            self._known[one.path] = self._next_buffer
            self._next_buffer += 1
            if one.path.endswith(".end"):
                self._ended.add(self._origins[one.origin])
        places = ((self._buffers[ref], begin, end) for ref, begin, end in found.fragments.tolist())
        fragments = [Fragment(path, size, begin, end) for (path, size), begin, end in places]
        at = 0
        for unit in found.units.tolist():
            count = unit[U_FRAGMENTS]
            if unit[U_BYTES]:
                self._units.append(Unit(tuple(fragments[at : at + count]), bool(unit[U_FLAGS] & UNTERMINATED)))
                self._owners.append(unit[U_ORIGIN])
                self._ends.append(self._address(self._end - 1) + unit[U_BYTES])
            at += count
        done = {origin for origin in self._ended if self.shredder.close_if_complete(origin) is not None}
        self._ended -= done
        self._complete |= done


def _origin(path: str) -> str:
    name = NAME.fullmatch(os.path.basename(path))
    return name["origin"] if name else ""


def _check(stream: StreamDef, settings: BufferSettings) -> None:
    verify_delimited(stream)
    if not Path(settings.path).is_dir():
        raise UnreadableDirectory(
            f"{settings.path} is not a directory", advice="Create it, or correct path.", path=settings.path
        )


BUFFERS = SourceKind(
    name="buffers",
    help="raw buffers with origin and sequence number, as files in a directory",
    settings=BufferSettings,
    build=Buffers,
    check_settings=_check,
    guarantee="exactly once into an epoch; the files must stay until they are read",
)
