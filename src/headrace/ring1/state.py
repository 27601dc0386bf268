"""What a lane remembers between epochs, and the small store it remembers it in.

A lane's state is a *header* (small, read and written every epoch) and *blobs* of partials, each under a key of its
own, so that an epoch rewrites only what it touches. The store is Spark's state store in production
(`headrace.spark.state_host`) and a dictionary in tests and in `MemoryStore`.
See docs/design/2026-11-16-state-operator.md.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import StateDamaged, TooManyGroups

STATE_VERSION = 3
NO_END = 2**63 - 1


class BlobKey(NamedTuple):
    """Names a blob: the window it belongs to ((0, 0) for no window) and its number there."""

    start: int
    end: int
    part: int


class Store(Protocol):
    """Where one lane's state lives. One caller at a time; what it writes is committed with the epoch or not at all."""

    def header(self) -> bytes | None: ...

    def set_header(self, data: bytes) -> None:
        """Called last, once per epoch."""
        ...

    def get(self, key: BlobKey) -> bytes | None: ...

    def get_many(self, keys: Sequence[BlobKey]) -> list[bytes | None]:
        """What `get` says of each key; cheaper than one by one."""
        ...

    def put(self, key: BlobKey, data: bytes) -> None:
        """A key that exists was read or removed before, in the same epoch."""
        ...

    def put_many(self, blobs: Sequence[tuple[BlobKey, bytes]]) -> None:
        """`put` for each; cheaper than one by one."""
        ...

    def remove(self, key: BlobKey) -> None: ...

    def clear(self) -> None:
        """Forget the lane."""
        ...


class MemoryStore:
    """A store in a dictionary. `writes` counts the blobs written, to show what an epoch touches."""

    def __init__(self) -> None:
        self.head: bytes | None = None
        self.blobs: dict[BlobKey, bytes] = {}
        self.writes = 0

    def header(self) -> bytes | None:
        return self.head

    def set_header(self, data: bytes) -> None:
        self.head = data

    def get(self, key: BlobKey) -> bytes | None:
        return self.blobs.get(key)

    def get_many(self, keys: Sequence[BlobKey]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def put(self, key: BlobKey, data: bytes) -> None:
        self.blobs[key] = data
        self.writes += 1

    def put_many(self, blobs: Sequence[tuple[BlobKey, bytes]]) -> None:
        for key, data in blobs:
            self.put(key, data)

    def remove(self, key: BlobKey) -> None:
        self.blobs.pop(key, None)

    def clear(self) -> None:
        self.head = None
        self.blobs.clear()


@dataclass(slots=True)
class Segment:
    """A blob of a window's log: its number, how often it was merged, its rows and bytes."""

    part: int
    level: int
    rows: int
    bytes: int


@dataclass(slots=True)
class LogEntry:
    """An open window kept as a log of segments."""

    next: int = 0
    segments: list[Segment] = field(default_factory=list)


class TableEntry:
    """A window (or all time) kept as a hash table of `len(rows)` chunks: rows per chunk, for sessions the earliest end
    in each chunk (`NO_END` for none), the bytes of all of them, and how many groups an epoch touches about."""

    __slots__ = ("bytes", "ends", "rows", "touched")

    def __init__(
        self, rows: npt.NDArray[np.int32], ends: npt.NDArray[np.int64], size: int = 0, touched: float = 1.0
    ) -> None:
        self.rows, self.ends, self.bytes, self.touched = rows, ends, size, touched

    @staticmethod
    def empty(session: bool) -> TableEntry:
        """A table without groups, in one chunk."""
        return TableEntry(np.zeros(1, np.int32), _no_ends(1, session))

    @property
    def groups(self) -> int:
        return int(self.rows.sum())

    def cut(self, count: int, session: bool) -> None:
        """Make it `count` chunks, all empty for now."""
        self.rows, self.ends = np.zeros(count, np.int32), _no_ends(count, session)

    def note_touched(self, groups: int) -> None:
        """An epoch touched this many groups: the mean moves half of the way there, by order of magnitude. It begins at
        one, so that a table is not taken for a busy one because it was filled at a stroke."""
        self.touched = math.sqrt(self.touched * groups)


def _no_ends(count: int, session: bool) -> npt.NDArray[np.int64]:
    return np.full(count if session else 0, NO_END, np.int64)


@dataclass(slots=True)
class Header:
    """The small part of a lane's state. `floor`: windows that end at or before it were closed by an end of input."""

    watermark: int | None = None
    floor: int | None = None
    logs: dict[tuple[int, int], LogEntry] = field(default_factory=dict)
    tables: dict[tuple[int, int], TableEntry] = field(default_factory=dict)

    def raise_floor(self, end: int) -> None:
        """An end of input closed a window that ends at `end`."""
        self.floor = end if self.floor is None else max(self.floor, end)

    def encode(self) -> bytes:
        logs = [
            [start, end, log.next, [[s.part, s.level, s.rows, s.bytes] for s in log.segments]]
            for (start, end), log in self.logs.items()
        ]
        tables = [
            [start, end, len(t.rows), len(t.ends), t.bytes, round(t.touched, 3)]
            for (start, end), t in self.tables.items()
        ]
        facts = json.dumps([STATE_VERSION, self.watermark, self.floor, logs, tables], separators=(",", ":")).encode()
        arrays = [array.tobytes() for t in self.tables.values() for array in (t.rows, t.ends)]
        return b"\0".join((facts, b"".join(arrays)))  # a large table has thousands of chunks: no text for each

    @staticmethod
    def decode(data: bytes | None) -> Header:
        if data is None:
            return Header()
        facts, _, arrays = data.partition(b"\0")
        version, watermark, floor, logs, tables = json.loads(facts)
        if version != STATE_VERSION:
            raise StateDamaged(f"a lane's state has version {version}, this is {STATE_VERSION}", version=version)
        entries, at = {}, 0
        for start, end, chunks, ends, size, touched in tables:
            rows = np.frombuffer(arrays, np.int32, chunks, at).copy()
            at += rows.nbytes
            entries[start, end] = TableEntry(rows, np.frombuffer(arrays, np.int64, ends, at).copy(), size, touched)
            at += 8 * ends
        logged = {(s, e): LogEntry(n, [Segment(*segment) for segment in segments]) for s, e, n, segments in logs}
        return Header(watermark, floor, logged, entries)

    @property
    def rows(self) -> int:
        """Partials held: groups, counted once per segment that mentions them."""
        in_logs = sum(s.rows for log in self.logs.values() for s in log.segments)
        return in_logs + sum(t.groups for t in self.tables.values())

    @property
    def groups(self) -> int:
        """Groups held: exactly for tables and for logs of one segment, else at least."""
        in_logs = sum(max(s.rows for s in log.segments) for log in self.logs.values())
        return in_logs + sum(t.groups for t in self.tables.values())

    @property
    def bytes(self) -> int:
        """What the partials take in the store."""
        in_logs = sum(s.bytes for log in self.logs.values() for s in log.segments)
        return in_logs + sum(t.bytes for t in self.tables.values())


@dataclass(frozen=True, slots=True)
class Step:
    """One epoch for one lane: partials in task order, then the watermark, then perhaps the end.

    `flush` closes every window now; `drop` forgets the lane afterwards; `reset` forgets it before. More than
    `max_groups` open groups are an error; None is no limit. Beyond `share`, this lane's part of that, groups are
    counted exactly.
    """

    events: pa.Table
    watermark: int | None
    flush: bool = False
    drop: bool = False
    reset: bool = False
    max_groups: int | None = None
    share: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a lane has to say after an epoch. `output` is None when there are no rows; `late` counts input rows that
    belonged only to windows an end of input had closed; `closed` counts the windows and sessions that ended now.
    `windows`, `rows` (partials) and `bytes` are the state that is left, `groups` the groups in it: exactly, or at
    least."""

    output: pa.Table | None
    late: int
    closed: int
    windows: int = 0
    rows: int = 0
    bytes: int = 0
    groups: int = 0


def outcome(output: pa.Table | None, late: int, closed: int, header: Header) -> Outcome:
    """The outcome of an epoch that left `header`."""
    rows = output if output is not None and output.num_rows else None
    return Outcome(rows, late, closed, len(header.logs) + len(header.tables), header.rows, header.bytes, header.groups)


def require_room(groups: int, limit: int | None) -> None:
    """Raise TooManyGroups when a pipeline keeps more groups than it may."""
    if limit is not None and groups > limit:
        raise TooManyGroups(
            f"the pipeline keeps {groups} groups, and may keep {limit}",
            advice="Group by something with fewer values, use a shorter window or delay, or raise max_groups, "
            "then start it again: it begins anew.",
            groups=groups,
            limit=limit,
        )
