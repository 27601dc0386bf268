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
from headrace.sinks.in_process import InProcessSink, joined, newest_within, pack, packed_rows, unpack
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
    excess = table.num_rows - rows
    return newest_within(table.slice(excess) if excess > 0 else table)


def _merge_receipts(settings: MemorySettings, staged: list[Staged]) -> list[Staged]:
    """One receipt with as many of the newest rows as a task may send."""
    return joined(staged, lambda rows: _newest(rows, settings.max_rows))


# The newest rows of a receipt: its bytes, how many rows of it are kept, the bytes that they take, and whether that is
# exact or a bound. A plain tuple of such values is not walked by Python's garbage collector, and a sink keeps many.
PackedRows = tuple[bytes, int, int, bool]


def _unpacked(data: bytes, rows: int) -> pa.Table:
    whole = unpack(data)
    return whole.slice(whole.num_rows - rows)


class MemorySink(InProcessSink):
    """Keeps the newest rows, as many as `max_rows` and `max_bytes` allow. Any thread may call `read`; only the stream's
    thread calls `commit`.

    Rows are decoded when someone reads them. Most are dropped before that, and decoding and measuring the output of 300
    pipelines took a fifth of the commit's CPU time. Packed rows take more bytes than Arrow counts for them, so they are
    measured only when their packed size is above the limit.
    """

    guarantee = _GUARANTEE

    def __init__(self, sink: SinkDef, settings: MemorySettings, output: Schema) -> None:
        super().__init__()
        self._max_rows, self._max_bytes = settings.max_rows, settings.max_bytes
        self._schema = output.arrow
        self._kept: deque[PackedRows] = deque()
        self._held = self._bytes = 0
        self._lock = Lock()

    def commit(self, key: SinkKey, staged: list[Staged]) -> int:
        repeated = self._seen.repeated(key)
        if repeated is not None:
            return repeated
        with self._lock:
            for data in [s.data for s in staged]:
                rows = packed_rows(data)
                if rows:
                    self._held += rows
                    self._bytes += len(data)
                    self._kept.append((data, rows, len(data), False))
            while self._held > self._max_rows:
                self._drop_oldest(self._held - self._max_rows)
            if self._bytes > self._max_bytes:
                self._measure()
                self._fit_bytes()
            return self._seen.add(key, staged)

    def _drop_oldest(self, excess: int) -> None:
        """Drop at most `excess` rows, all of the oldest receipt."""
        data, rows, size, _ = self._kept.popleft()
        if rows <= excess:
            self._held -= rows
            self._bytes -= size
        else:
            self._held -= excess
            self._kept.appendleft((data, rows - excess, size, False))

    def _measure(self) -> None:
        """Replace bounds by sizes. Only the oldest receipt, of which rows were dropped, and the newest have bounds."""
        for places in (range(len(self._kept)), range(-1, -len(self._kept) - 1, -1)):
            for i in places:
                data, rows, bound, exact = self._kept[i]
                if exact:
                    break
                size = _unpacked(data, rows).nbytes
                self._bytes += size - bound
                self._kept[i] = (data, rows, size, True)

    def _fit_bytes(self) -> None:
        """Drop the oldest rows until the others fit. All sizes are exact."""
        while self._bytes > self._max_bytes:
            data, rows, size, _ = self._kept.popleft()
            room = self._max_bytes - (self._bytes - size)
            kept = newest_within(_unpacked(data, rows), room)
            if kept.nbytes > room and self._kept:  # the last row of the oldest receipt does not fit
                kept = kept.slice(1)
            left = kept.nbytes if kept.num_rows else 0
            self._held -= rows - kept.num_rows
            self._bytes -= size - left
            if kept.num_rows:
                self._kept.appendleft((data, kept.num_rows, left, True))
                if left > room:  # the newest row stays, however large it is
                    return

    def read(self) -> pa.Table:
        """All rows that the sink keeps, in the order in which their epochs were committed."""
        with self._lock:
            kept = list(self._kept)
        tables = [_unpacked(data, rows).cast(self._schema) for data, rows, _, _ in kept]
        return pa.concat_tables([self._schema.empty_table(), *tables])

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
