"""The state of a lane between epochs, and the interface of the store that keeps it.

A lane's state is a *header*, which is small and read and written in every epoch, and *blobs* of partial aggregates,
each under its own key, so that an epoch rewrites only the blobs it touches. In production the store is Spark's state
store (`headrace.spark.state_host`). Why a header and blobs: docs/design/2026-11-16-state-operator.md.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import StateDamaged, TooManyGroups

STATE_VERSION = 3
_LOGS = b"HRL1"  # begins a header without tables, with its version; one with tables is JSON
_LOGS_FIXED = len(_LOGS) + 4 * 8
# Headers that this process has written, by their bytes: the next epoch reads them again. 300 pipelines have 600 lanes,
# and many lanes of one family have equal headers.
RECENT = 2048


class _RecentHeaders:
    """At most `RECENT` headers, the oldest bytes go first. Equal headers are interchangeable."""

    def __init__(self) -> None:
        self._by_bytes: dict[bytes, list[LaneHeader]] = {}
        self._count = 0

    def add(self, data: bytes, header: LaneHeader) -> None:
        while self._count >= RECENT:
            self._count -= len(self._by_bytes.pop(next(iter(self._by_bytes))))
        self._by_bytes.setdefault(data, []).append(header)
        self._count += 1

    def take(self, data: bytes) -> LaneHeader | None:
        """A header with these bytes. It is not kept any more."""
        found = self._by_bytes.get(data)
        if found is None:
            return None
        self._count -= 1
        header = found.pop()
        if not found:
            del self._by_bytes[data]
        return header


_recent = _RecentHeaders()
NO_END = 2**63 - 1


class BlobKey(NamedTuple):
    """Names a blob: the window it belongs to ((0, 0) for no window) and its number there."""

    start: int
    end: int
    part: int


class Store(Protocol):
    """Keeps one lane's state. One caller at a time. Writes are committed with the epoch, or not at all."""

    def header(self) -> bytes | None: ...

    def set_header(self, data: bytes) -> None:
        """Called last, once per epoch."""
        ...

    def get(self, key: BlobKey) -> bytes | None: ...

    def get_many(self, keys: Sequence[BlobKey]) -> list[bytes | None]:
        """`get` for each key, in fewer round trips."""
        ...

    def put(self, key: BlobKey, data: bytes) -> None:
        """A key that exists must have been read or removed before, in the same epoch."""
        ...

    def put_many(self, blobs: Sequence[tuple[BlobKey, bytes]]) -> None:
        """`put` for each, in fewer round trips."""
        ...

    def remove(self, key: BlobKey) -> None: ...

    def clear(self) -> None:
        """Delete the lane's state."""
        ...


class Segment(NamedTuple):
    """A blob of a window's log: its number, how often its rows were merged, its rows and bytes."""

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
    """The groups of a window, or of a pipeline without windows, kept as a hash table of `len(rows)` chunks.

    `rows` are the groups of each chunk, `ends` the earliest end of a session in each chunk (`NO_END` for none; empty
    without sessions). `bytes` is the size of all chunks, `touched` the typical number of groups that an epoch touches.
    """

    __slots__ = ("bytes", "ends", "rows", "touched")

    def __init__(
        self, rows: npt.NDArray[np.int32], ends: npt.NDArray[np.int64], size: int = 0, touched: float = 1.0
    ) -> None:
        self.rows, self.ends, self.bytes, self.touched = rows, ends, size, touched

    @staticmethod
    def empty(session: bool) -> TableEntry:
        """A table without groups: one empty chunk."""
        return TableEntry(np.zeros(1, np.int32), _no_ends(1, session))

    @property
    def groups(self) -> int:
        return int(self.rows.sum())

    def cut(self, count: int, session: bool) -> None:
        """Replace the chunks by `count` empty ones."""
        self.rows, self.ends = np.zeros(count, np.int32), _no_ends(count, session)

    def note_touched(self, groups: int) -> None:
        """An epoch has touched this many groups. The typical number moves halfway towards it, on a logarithmic scale.
        It begins at one, so that a table that one large epoch has filled does not count as busy."""
        self.touched = math.sqrt(self.touched * groups)


def _another_version(version: object) -> StateDamaged:
    return StateDamaged(
        f"a lane's state has version {version}, but this release reads version {STATE_VERSION}", version=version
    )


def _no_ends(count: int, session: bool) -> npt.NDArray[np.int64]:
    return np.full(count if session else 0, NO_END, np.int64)


class StateSize(NamedTuple):
    """The size of a lane's state: its partial aggregates, its groups, and its bytes in the store. A group has a partial
    aggregate in each segment that contains it, so `groups` is a lower bound for logs of several segments."""

    rows: int
    groups: int
    bytes: int


@dataclass(slots=True)
class LaneHeader:
    """The small part of a lane's state. An end of input has closed all windows that end at or before `floor`."""

    watermark: int | None = None
    floor: int | None = None
    logs: dict[tuple[int, int], LogEntry] = field(default_factory=dict)
    tables: dict[tuple[int, int], TableEntry] = field(default_factory=dict)

    def raise_floor(self, end: int) -> None:
        """Record that an end of input has closed a window that ends at `end`."""
        self.floor = end if self.floor is None else max(self.floor, end)

    def encode(self) -> bytes:
        """The header as bytes: JSON if there are tables, otherwise a row of whole numbers, which takes a tenth of the
        time. The headers of all lanes are written in every epoch."""
        if not self.tables:
            return self._encode_logs()
        logs = [
            [start, end, log.next, log.segments]  # a segment is a tuple, which JSON has as a list
            for (start, end), log in self.logs.items()
        ]
        tables = [
            [start, end, len(t.rows), len(t.ends), t.bytes, round(t.touched, 3)]
            for (start, end), t in self.tables.items()
        ]
        facts = json.dumps([STATE_VERSION, self.watermark, self.floor, logs, tables], separators=(",", ":")).encode()
        arrays = [array.tobytes() for t in self.tables.values() for array in (t.rows, t.ends)]
        return b"\0".join((facts, b"".join(arrays)))  # binary, because a large table has thousands of chunks

    def _encode_logs(self) -> bytes:
        known = (self.watermark is not None) | (self.floor is not None) << 1
        flat = [known, self.watermark or 0, self.floor or 0, len(self.logs)]
        for (start, end), log in self.logs.items():
            flat += (start, end, log.next, len(log.segments))
            flat += chain.from_iterable(log.segments)
        return _LOGS + struct.pack(f"<{len(flat)}q", *flat)

    @staticmethod
    def _decode_logs(data: bytes) -> LaneHeader:
        if len(data) < _LOGS_FIXED or (len(data) - len(_LOGS)) % 8:
            raise StateDamaged(f"a lane's header was truncated to {len(data)} bytes")
        known, watermark, floor, windows, *flat = struct.unpack(
            f"<{(len(data) - len(_LOGS)) // 8}q", data[len(_LOGS) :]
        )
        logs, at = dict[tuple[int, int], LogEntry](), 0
        while at + 4 <= len(flat):
            start, end, following, count = flat[at : at + 4]
            first, at = at + 4, at + 4 + 4 * count
            if count < 0 or at > len(flat):
                break
            logs[start, end] = LogEntry(following, [Segment(*flat[i : i + 4]) for i in range(first, at, 4)])
        if at != len(flat) or len(logs) != windows:
            raise StateDamaged("a lane's header does not end where its last window does")
        return LaneHeader(watermark if known & 1 else None, floor if known & 2 else None, logs)

    @staticmethod
    def decode(data: bytes | None) -> LaneHeader:
        if data is None:
            return LaneHeader()
        if data.startswith(_LOGS[:-1]):
            if not data.startswith(_LOGS):
                raise _another_version(data[len(_LOGS) - 1 : len(_LOGS)].decode(errors="replace"))
            return LaneHeader._decode_logs(data)
        facts, _, arrays = data.partition(b"\0")
        version, watermark, floor, logs, tables = json.loads(facts.decode())
        if version != STATE_VERSION:
            raise _another_version(version)
        entries, at = {}, 0
        for start, end, chunks, ends, size, touched in tables:
            rows = np.frombuffer(arrays, np.int32, chunks, at).copy()
            at += rows.nbytes
            entries[start, end] = TableEntry(rows, np.frombuffer(arrays, np.int64, ends, at).copy(), size, touched)
            at += 8 * ends
        logged = {(s, e): LogEntry(n, [*map(Segment._make, segments)]) for s, e, n, segments in logs}
        return LaneHeader(watermark, floor, logged, entries)

    @staticmethod
    def recall(data: bytes | None) -> LaneHeader:
        """As `decode`, faster if this process has written the header. The caller may change it."""
        found = None if data is None else _recent.take(data)
        return LaneHeader.decode(data) if found is None else found

    def remember(self, data: bytes) -> None:
        """Keep this header for `recall`. `data` is what `encode` has returned. The caller must not change it any
        more."""
        _recent.add(data, self)

    def blobs(self) -> Iterator[BlobKey]:
        """The keys of all blobs of the lane."""
        for bounds, log in self.logs.items():
            yield from (BlobKey(*bounds, segment.part) for segment in log.segments)
        for bounds, table in self.tables.items():
            yield from (BlobKey(*bounds, chunk) for chunk in np.flatnonzero(table.rows).tolist())

    @property
    def size(self) -> StateSize:
        """How large the lane's state is."""
        rows = groups = size = 0
        for log in self.logs.values():
            most = 0
            for _, _, count, length in log.segments:
                rows += count
                size += length
                if count > most:
                    most = count
            groups += most
        for table in self.tables.values():
            rows += table.groups
            groups += table.groups
            size += table.bytes
        return StateSize(rows, groups, size)


@dataclass(frozen=True, slots=True)
class LaneStep:
    """The input of one lane in one epoch: partial aggregates in task order, the watermark, and maybe an end.

    `flush` closes every window now. `drop` deletes the lane's state after that, `reset` before the epoch. More than
    `max_groups` open groups are an error, and so are more than `max_values` values in a list of a group; None is no
    limit. `share` is this lane's part of the groups. Only beyond it are groups counted exactly, because that has to
    merge segments.
    """

    events: pa.Table
    watermark: int | None
    flush: bool = False
    drop: bool = False
    reset: bool = False
    max_groups: int | None = None
    share: int | None = None
    max_values: int | None = None


class Outcome(NamedTuple):
    """The result of a lane's epoch. `output` is None when there are no rows. `late` counts input rows that belonged
    only to windows that an end of input had closed, `closed` the windows and sessions that closed now. `rows` (partial
    aggregates) and `bytes` are the size of the state after the epoch, and `groups` the groups in it: exact, or a lower
    bound."""

    output: pa.Table | None
    late: int
    closed: int
    rows: int = 0
    bytes: int = 0
    groups: int = 0

    @property
    def counts(self) -> tuple[int, int, int, int, int]:
        """All but the output."""
        return self[1:]


NOTHING = Outcome(None, 0, 0)


def outcome(
    output: pa.Table | None, late: int, closed: int, header: LaneHeader, size: StateSize | None = None
) -> Outcome:
    """The outcome of an epoch after which the lane has `header`, whose `size` the caller may know."""
    found, size = output if output is not None and output.num_rows else None, size or header.size
    return Outcome._make((found, late, closed, size.rows, size.bytes, size.groups))


def require_group_limit(groups: int, limit: int | None) -> None:
    """Raise TooManyGroups when a pipeline keeps more groups than its limit."""
    if limit is not None and groups > limit:
        raise TooManyGroups(
            f"the pipeline keeps {groups} groups, but its max_groups is {limit}",
            advice="Group by something with fewer values, use a shorter window or delay, or raise max_groups. "
            "Then start the pipeline again. It starts with empty state.",
            groups=groups,
            limit=limit,
        )
