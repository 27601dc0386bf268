"""The common part of the memory and console sinks, which keep or print rows in the driver's process.

They are the only sinks whose rows travel to the driver. A task, or a lane of Ring 1, sends at most `max_rows` rows and
`SENT_BYTES` bytes per epoch, in however many pieces it staged its output.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import pyarrow as pa

from headrace.errors import EpochMismatch
from headrace.sinks.sink_kind import SinkKey, Staged

# The most bytes of rows that one task sends, whatever `max_rows` is. One row is always sent.
SENT_BYTES = 64 * 1024 * 1024
_ROWS = struct.Struct("<q")


def newest_within(table: pa.Table, most: int = SENT_BYTES) -> pa.Table:
    """The newest rows of `table` with at most `most` bytes, but at least one row."""
    return _within(table, most, lambda rows: table.slice(table.num_rows - rows))


def oldest_within(table: pa.Table, most: int = SENT_BYTES) -> pa.Table:
    """The oldest rows of `table` with at most `most` bytes, but at least one row."""
    return _within(table, most, lambda rows: table.slice(0, rows))


def _within(table: pa.Table, most: int, take: Callable[[int], pa.Table]) -> pa.Table:
    # The size of the whole buffers is a bound, and takes a fraction of the time.
    if table.get_total_buffer_size() <= most or table.nbytes <= most:
        return table
    low, high = 1, table.num_rows  # `low` rows fit (or are the minimum), `high` rows are too many
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if take(middle).nbytes <= most else (low, middle)
    return take(low)


def pack(table: pa.Table) -> bytes:
    """Serialize `table`: the number of its rows, then an Arrow IPC stream.

    A stream is the message of its schema and a message per batch. Joining them takes about 6 µs for a small table,
    Arrow's writer 9.5 µs, and an epoch packs the output of hundreds of lanes. Only the writer knows dictionaries.
    """
    rows, schema = _ROWS.pack(table.num_rows), table.schema
    if not any(kind.num_fields or pa.types.is_dictionary(kind) for kind in schema.types):
        return b"".join([rows, schema.serialize(), *[batch.serialize() for batch in table.to_batches()]])
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, schema) as writer:
        writer.write_table(table)
    return rows + out.getvalue().to_pybytes()


def packed_rows(data: bytes) -> int:
    """The number of rows in what `pack` returned. Does not decode them."""
    return int(_ROWS.unpack_from(data)[0])


def unpack(data: bytes) -> pa.Table:
    """The table that `pack` serialized."""
    return pa.ipc.open_stream(pa.py_buffer(data).slice(_ROWS.size)).read_all()


def joined(staged: list[Staged], cut: Callable[[pa.Table], pa.Table]) -> list[Staged]:
    """Merge the receipts of one task into one. It counts all rows and carries those that `cut` keeps."""
    if len(staged) < 2:
        return staged
    rows = cut(pa.concat_tables([unpack(receipt.data) for receipt in staged]))
    return [Staged(sum(receipt.rows for receipt in staged), data=pack(rows))]


class InProcessSink:
    """Base of the driver sides whose rows are in the driver's process already. Nothing can fail between a promise and
    its commit, and nothing is staged on disk."""

    def __init__(self) -> None:
        self._seen = NewestEpoch()

    def promise(self, key: SinkKey, staged: list[Staged]) -> None:
        """Nothing to do: the rows are in this process."""

    def committed(self, key: SinkKey) -> bool:
        return self._seen.repeated(key) is not None

    def verify(self, key: SinkKey) -> None:
        self._seen.repeated(key)

    def discard(self, key: SinkKey) -> None:
        """Nothing to do: all staged rows are in the receipts."""

    def ahead(self, key: SinkKey) -> int:
        """Always 0: nothing outlives the process."""
        return 0

    def rewind(self, key: SinkKey) -> None:
        """Nothing to do: nothing outlives the process."""

    def forget(self, key: SinkKey) -> None:
        """Nothing to do: only rows are kept."""


class NewestEpoch:
    """Remembers the newest epoch of each (checkpoint, instance), to detect a repeated commit.

    The epochs of one instance only grow and Spark repeats only the newest, so one entry per instance is enough.
    """

    def __init__(self) -> None:
        self._newest: dict[tuple[str, int], tuple[int, int, str]] = {}

    def repeated(self, key: SinkKey) -> int | None:
        """The number of rows of an epoch that was committed before; None if the epoch is new. Raises EpochMismatch if
        it was committed with another digest, or if a later epoch was committed."""
        epoch, rows, digest = self._newest.get((key.checkpoint, key.instance), (-1, 0, ""))
        if key.epoch > epoch:
            return None
        if key.digest and (key.epoch < epoch or digest not in ("", key.digest)):
            raise EpochMismatch(
                f"epoch {key.epoch} has other input than the epoch {key.epoch} whose rows the sink already has",
                advice="Restore a savepoint, or drop the stream and create it again.",
                epoch=key.epoch,
            )
        return rows if key.epoch == epoch else 0

    def add(self, key: SinkKey, staged: list[Staged]) -> int:
        """Record a new epoch. Returns its number of rows."""
        rows = sum(s.rows for s in staged)
        self._newest[key.checkpoint, key.instance] = (key.epoch, rows, key.digest)
        return rows
