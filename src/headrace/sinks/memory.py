"""The memory sink: the newest rows of a pipeline as an Arrow table in the hub's process.

Unit of commit: the epoch. Guarantee: exactly once while the process lives; nothing outlives it.
"""

from __future__ import annotations

from collections import deque
from threading import Lock

import pyarrow as pa

from headrace.base.options import Option, integer, size
from headrace.model.program import SinkDef
from headrace.model.schema import Schema
from headrace.sinks.base import SinkKey, SinkKind, Staged
from headrace.sinks.in_process import InProcessSink, joined, newest_within, pack, unpack

_OPTIONS = (
    Option(
        "max_rows",
        integer(1, 10_000_000),
        default=100_000,
        help="rows that are kept, and that a task sends at most; the oldest are dropped and counted",
    ),
    Option(
        "max_bytes",
        size,
        default=256 * 1024 * 1024,
        help="bytes of rows that are kept, a task sends at most 64 MiB; the oldest rows are dropped and counted",
    ),
)
_GUARANTEE = "exactly once while the process lives; kept in memory only"


class MemoryTask:
    """Sends a task's rows to the driver: at most `max_rows` of them and SENT_BYTES, the newest."""

    def __init__(self, sink: SinkDef) -> None:
        self._max_rows: int = MEMORY.values(sink.options)["max_rows"]

    def stage(self, table: pa.Table, key: SinkKey) -> Staged:
        return Staged(table.num_rows, data=pack(_newest(table, self._max_rows)))


def _newest(table: pa.Table, rows: int) -> pa.Table:
    return newest_within(table.slice(max(0, table.num_rows - rows)))


def _condense(sink: SinkDef, staged: list[Staged]) -> list[Staged]:
    """One receipt with the newest rows of all that a task may send."""
    most: int = MEMORY.values(sink.options)["max_rows"]
    return joined(staged, lambda rows: _newest(rows, most))


class MemorySink(InProcessSink):
    """Holds the newest rows, as many as `max_rows` and `max_bytes` allow. `read` may be called from any thread;
    `commit` from the stream's thread."""

    guarantee = _GUARANTEE

    def __init__(self, sink: SinkDef, output: Schema) -> None:
        super().__init__()
        options = MEMORY.values(sink.options)
        self._max_rows, self._max_bytes = int(options["max_rows"]), int(options["max_bytes"])
        self._schema = output.arrow
        self._tables: deque[pa.Table] = deque()
        self._held = self._bytes = 0
        self._lock = Lock()
        self.dropped = 0

    def commit(self, key: SinkKey, staged: list[Staged]) -> int:
        repeated = self._seen.repeated(key)
        if repeated is not None:
            return repeated
        tables = [unpack(s.data) for s in staged]
        with self._lock:
            for receipt, table in zip(staged, tables, strict=True):
                self.dropped += receipt.rows - table.num_rows
                if table.num_rows:
                    self._held += table.num_rows
                    self._bytes += table.nbytes
                    self._tables.append(table)
            self._drop_oldest()
            return self._seen.add(key, staged)

    def _drop_oldest(self) -> None:
        while (excess := self._held - self._max_rows) > 0:
            gone = min(excess, self._tables[0].num_rows)
            self._cut_oldest(self._tables[0].slice(gone))
        while self._bytes > self._max_bytes:
            oldest = self._tables[0]
            room = self._max_bytes - (self._bytes - oldest.nbytes)
            kept = newest_within(oldest, room)
            if kept.nbytes > room and len(self._tables) > 1:  # a single row that is too large
                kept = kept.slice(1)
            self._cut_oldest(kept)
            if kept.nbytes > room:  # the newest row stays, however large
                return

    def _cut_oldest(self, kept: pa.Table) -> None:
        """Keep only this of the oldest table."""
        oldest = self._tables.popleft()
        if kept.num_rows:
            self._tables.appendleft(kept)
        self._held -= oldest.num_rows - kept.num_rows
        self._bytes -= oldest.nbytes - kept.nbytes
        self.dropped += oldest.num_rows - kept.num_rows

    def read(self) -> pa.Table:
        """All rows that are held, in the order in which their epochs were committed."""
        with self._lock:
            tables = list(self._tables)
        return pa.concat_tables([self._schema.empty_table(), *(t.cast(self._schema) for t in tables)])

    def close(self) -> None:
        """Nothing to release: the rows stay readable until the sink object goes."""


MEMORY = SinkKind(
    name="memory",
    help="keeps the newest rows in the hub's process, for Python and notebooks",
    guarantee=_GUARANTEE,
    options=_OPTIONS,
    task=MemoryTask,
    driver=MemorySink,
    condense=_condense,
)
