"""What a lane remembers between epochs, and the small store it remembers it in.

A lane's state is a *header* (small, read and written every epoch) and *blobs* of partials, each under a key of its
own, so that an epoch rewrites only what it touches (DESIGN section 6). The store is Spark's state store in production
(`headrace.spark.state_host`) and a dictionary in tests and in `MemoryStore`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import pyarrow as pa

from headrace.errors import StateDamaged

STATE_VERSION = 1


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

    def put(self, key: BlobKey, data: bytes) -> None:
        """A key that exists was read or removed before, in the same epoch."""
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

    def put(self, key: BlobKey, data: bytes) -> None:
        self.blobs[key] = data
        self.writes += 1

    def remove(self, key: BlobKey) -> None:
        self.blobs.pop(key, None)

    def clear(self) -> None:
        self.head = None
        self.blobs.clear()


@dataclass(slots=True)
class Segment:
    """A blob of a window's log: its number, how often it was merged, its rows."""

    part: int
    level: int
    rows: int


@dataclass(slots=True)
class LogEntry:
    """An open window kept as a log of segments."""

    next: int = 0
    segments: list[Segment] = field(default_factory=list)


@dataclass(slots=True)
class TableEntry:
    """A window (or all time) kept as a hash table of `len(rows)` chunks: rows per chunk, and for sessions the earliest
    end in each chunk."""

    rows: list[int]
    ends: list[int | None]

    @property
    def groups(self) -> int:
        return sum(self.rows)


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
            [start, end, log.next, [[s.part, s.level, s.rows] for s in log.segments]]
            for (start, end), log in self.logs.items()
        ]
        tables = [[start, end, table.rows, table.ends] for (start, end), table in self.tables.items()]
        return json.dumps([STATE_VERSION, self.watermark, self.floor, logs, tables], separators=(",", ":")).encode()

    @staticmethod
    def decode(data: bytes | None) -> Header:
        if data is None:
            return Header()
        version, watermark, floor, logs, tables = json.loads(data)
        if version != STATE_VERSION:
            raise StateDamaged(f"a lane's state has version {version}, this is {STATE_VERSION}", version=version)
        return Header(
            watermark,
            floor,
            {(s, e): LogEntry(n, [Segment(*segment) for segment in segments]) for s, e, n, segments in logs},
            {(s, e): TableEntry(rows, ends) for s, e, rows, ends in tables},
        )

    @property
    def rows(self) -> int:
        """Partials held: groups, counted once per segment that mentions them."""
        in_logs = sum(s.rows for log in self.logs.values() for s in log.segments)
        return in_logs + sum(t.groups for t in self.tables.values())


@dataclass(frozen=True, slots=True)
class Step:
    """One epoch for one lane: partials in task order, then the watermark, then perhaps the end.

    `flush` closes every window now; `drop` forgets the lane afterwards; `reset` forgets it before.
    """

    events: tuple[pa.Table, ...]
    watermark: int | None
    flush: bool = False
    drop: bool = False
    reset: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a lane has to say after an epoch. `output` is None when there are no rows; `late` counts input rows that
    belonged only to windows an end of input had closed."""

    output: pa.Table | None
    late: int
    windows: int
    rows: int
