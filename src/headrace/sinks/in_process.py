"""What the memory and console sinks share: rows that travel to the driver, a bounded number of them, once per epoch.

A task sends at most `max_rows` rows and `SENT_BYTES` bytes, however many pieces its output was staged in; so does a
lane of Ring 1. These are
the only sinks whose rows pass through the driver.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from headrace.errors import EpochMismatch
from headrace.sinks.base import SinkKey, Staged

# Bytes of rows that one task sends at most, whatever `max_rows` says; one row always travels.
SENT_BYTES = 64 * 1024 * 1024


def newest_within(table: pa.Table, most: int = SENT_BYTES) -> pa.Table:
    """The newest rows of `table` that take at most `most` bytes, and at least one."""
    return _within(table, most, lambda rows: table.slice(table.num_rows - rows))


def oldest_within(table: pa.Table, most: int = SENT_BYTES) -> pa.Table:
    """The oldest rows of `table` that take at most `most` bytes, and at least one."""
    return _within(table, most, lambda rows: table.slice(0, rows))


def _within(table: pa.Table, most: int, take: Callable[[int], pa.Table]) -> pa.Table:
    if table.nbytes <= most:
        return table
    low, high = 1, table.num_rows  # `low` rows are taken in any case, `high` are too many
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if take(middle).nbytes <= most else (low, middle)
    return take(low)


def pack(table: pa.Table) -> bytes:
    """`table` as Arrow IPC stream bytes."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue().to_pybytes()


def unpack(data: bytes) -> pa.Table:
    """The table that `pack` packed."""
    return pa.ipc.open_stream(data).read_all()


def joined(staged: list[Staged], cut: Callable[[pa.Table], pa.Table]) -> list[Staged]:
    """One receipt for several of one task: all their rows count, those that `cut` leaves travel."""
    if len(staged) < 2:
        return staged
    rows = cut(pa.concat_tables([unpack(receipt.data) for receipt in staged]))
    return [Staged(sum(receipt.rows for receipt in staged), data=pack(rows))]


class InProcessSink:
    """The half of a driver side that all sinks share whose rows are in the driver already: nothing can fail between a
    promise and its commit, and nothing is staged elsewhere."""

    def __init__(self) -> None:
        self._seen = NewestEpoch()

    def promise(self, key: SinkKey, staged: list[Staged]) -> None:
        """Holds by itself: the rows are here."""

    def committed(self, key: SinkKey) -> bool:
        return self._seen.repeated(key) is not None

    def verify(self, key: SinkKey) -> None:
        self._seen.repeated(key)

    def discard(self, key: SinkKey) -> None:
        """Nothing is staged outside of the receipts."""

    def ahead(self, key: SinkKey) -> int:
        """Nothing outlives the process."""
        return 0

    def rewind(self, key: SinkKey) -> None:
        """Nothing outlives the process."""

    def forget(self, key: SinkKey) -> None:
        """Nothing is kept beside the rows."""


class NewestEpoch:
    """Remembers the newest epoch of each (checkpoint, instance), so that a repeated commit is seen as one.

    Epochs of one instance only grow and Spark repeats only the newest, so one entry per instance is enough.
    """

    def __init__(self) -> None:
        self._newest: dict[tuple[str, int], tuple[int, int, str]] = {}

    def repeated(self, key: SinkKey) -> int | None:
        """The rows that this epoch has brought already, or None if it is new. Raises EpochMismatch when the epoch, or a
        later one, was another one then."""
        epoch, rows, digest = self._newest.get((key.checkpoint, key.instance), (-1, 0, ""))
        if key.epoch > epoch:
            return None
        if key.digest and (key.epoch < epoch or digest not in ("", key.digest)):
            raise EpochMismatch(
                f"epoch {key.epoch} was planned with other input than the one whose rows the sink has",
                advice="Restore a savepoint, or drop the stream and create it again.",
                epoch=key.epoch,
            )
        return rows if key.epoch == epoch else 0

    def add(self, key: SinkKey, staged: list[Staged]) -> int:
        """Record a new epoch and return its rows."""
        rows = sum(s.rows for s in staged)
        self._newest[key.checkpoint, key.instance] = (key.epoch, rows, key.digest)
        return rows
