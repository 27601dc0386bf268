"""The memory sink: keeps the newest rows of a pipeline as an Arrow table in the hub's process.

Unit of commit: the epoch. Guarantee: exactly once while the process lives. Nothing outlives it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from threading import Lock

import pyarrow as pa

from headrace.base.options import integer, option, size
from headrace.model.definitions import SinkDef
from headrace.model.schema import Schema
from headrace.sinks.in_process import InProcessSink, joined, newest_within, pack, unpack
from headrace.sinks.sink_kind import SinkKey, SinkKind, SinkSettings, Staged

_GUARANTEE = "exactly once while the process lives; kept in memory only"


@dataclass(frozen=True, slots=True)
class MemorySettings(SinkSettings):
    """The options of `type = 'memory'`."""

    max_rows: int = option(
        integer(1, 10_000_000),
        default=100_000,
        help="rows the sink keeps, and the most that one task sends; the oldest rows are dropped",
    )
    max_bytes: int = option(
        size,
        default=256 * 1024 * 1024,
        help="bytes of rows the sink keeps (one task sends at most 64 MiB); the oldest rows are dropped",
    )


class MemoryTask:
    """Sends the newest rows of a task to the driver: at most `max_rows` rows and SENT_BYTES bytes."""

    def __init__(self, sink: SinkDef, settings: MemorySettings) -> None:
        self._max_rows = settings.max_rows

    def stage(self, table: pa.Table, key: SinkKey) -> Staged:
        return Staged(table.num_rows, data=pack(_newest(table, self._max_rows)))


def _newest(table: pa.Table, rows: int) -> pa.Table:
    return newest_within(table.slice(max(0, table.num_rows - rows)))


def _merge_receipts(settings: MemorySettings, staged: list[Staged]) -> list[Staged]:
    """One receipt with as many of the newest rows as a task may send."""
    return joined(staged, lambda rows: _newest(rows, settings.max_rows))


class MemorySink(InProcessSink):
    """Keeps the newest rows, as many as `max_rows` and `max_bytes` allow. Any thread may call `read`; only the stream's
    thread calls `commit`."""

    guarantee = _GUARANTEE

    def __init__(self, sink: SinkDef, settings: MemorySettings, output: Schema) -> None:
        super().__init__()
        self._max_rows, self._max_bytes = settings.max_rows, settings.max_bytes
        self._schema = output.arrow
        self._tables: deque[tuple[pa.Table, int]] = deque()  # with their bytes, which Arrow takes long to count
        self._held = self._bytes = 0
        self._lock = Lock()

    def commit(self, key: SinkKey, staged: list[Staged]) -> int:
        repeated = self._seen.repeated(key)
        if repeated is not None:
            return repeated
        tables = [unpack(s.data) for s in staged]
        with self._lock:
            for table in tables:
                if table.num_rows:
                    size = table.nbytes
                    self._held += table.num_rows
                    self._bytes += size
                    self._tables.append((table, size))
            self._drop_oldest()
            return self._seen.add(key, staged)

    def _drop_oldest(self) -> None:
        while (excess := self._held - self._max_rows) > 0:
            oldest, _ = self._tables[0]
            self._cut_oldest(oldest.slice(min(excess, oldest.num_rows)))
        while self._bytes > self._max_bytes:
            oldest, size = self._tables[0]
            room = self._max_bytes - (self._bytes - size)
            kept = newest_within(oldest, room)
            if kept.nbytes > room and len(self._tables) > 1:  # the last row of the oldest table does not fit
                kept = kept.slice(1)
            self._cut_oldest(kept)
            if kept.nbytes > room:  # the newest row stays, however large it is
                return

    def _cut_oldest(self, kept: pa.Table) -> None:
        """Replace the oldest table with `kept`, its newest rows."""
        oldest, size = self._tables.popleft()
        left = kept.nbytes if kept.num_rows else 0
        if kept.num_rows:
            self._tables.appendleft((kept, left))
        self._held -= oldest.num_rows - kept.num_rows
        self._bytes -= size - left

    def read(self) -> pa.Table:
        """All rows that the sink keeps, in the order in which their epochs were committed."""
        with self._lock:
            tables = [table for table, _ in self._tables]
        return pa.concat_tables([self._schema.empty_table(), *(t.cast(self._schema) for t in tables)])

    def close(self) -> None:
        """Nothing to release. The rows stay readable while the sink object exists."""


MEMORY = SinkKind(
    name="memory",
    help="keeps the newest rows in the hub's process, for Python and notebooks",
    guarantee=_GUARANTEE,
    settings=MemorySettings,
    make_task=MemoryTask,
    make_driver=MemorySink,
    merge_receipts=_merge_receipts,
)
