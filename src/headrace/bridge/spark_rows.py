"""Rows that the rings stage for the epoch host: few rows travel inside messages, many rows are written to files.

A task or a lane stages the rows of a pipeline whose program has a Spark query. Up to `INLINE_BYTES` travel to the
driver as Arrow IPC inside a message. More are written as Parquet files to the staging directory of the stream, which
Spark reads in parallel and without Python. Where a task does not see that directory (a cluster whose machines do not
mount the state directory), all rows travel inside messages.

A file belongs to one attempt of one epoch. The driver deletes the directory's files after every epoch, when a query
begins and is stopped, and when the hub is opened, because a killed process may have left some. Savepoints have none.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.base.durable import private_directory, state_errors
from headrace.base.faults import fault_point
from headrace.bridge.messages import VERSION
from headrace.errors import InternalError

STAGING = "staged"
# What a task may send of one pipeline. Rows inside messages are converted one at a time in the driver; files need a job
# that reads them. With two tasks both took the same CPU at about 700 KB each (docs/design/2026-11-17-epoch-host.md).
INLINE_BYTES = 512 * 1024
# Spark holds a message in memory several times on its way.
MESSAGE_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RowsForSpark:
    """Rows of one instance: in `data` (Arrow IPC), or in the file `file` of `size` bytes."""

    instance: int
    rows: int
    file: str = ""
    size: int = 0
    data: bytes = b""

    def encode(self) -> bytes:
        """JSON, a zero byte, then the rows, if the message carries them."""
        facts = [VERSION, self.instance, self.rows, self.file, self.size]
        return b"%b\0%b" % (json.dumps(facts).encode(), self.data)

    @staticmethod
    def decode(payload: bytes) -> RowsForSpark:
        facts, _, data = payload.partition(b"\0")
        version, instance, rows, file, size = json.loads(facts)
        if version != VERSION:
            raise InternalError(f"staged rows have version {version}, but this release reads version {VERSION}")
        return RowsForSpark(instance=instance, rows=rows, file=file, size=size, data=data)


def stage_rows(instance: int, table: pa.Table, directory: str) -> list[RowsForSpark]:
    """Stage a table that is not empty. `directory` is the staging directory, which may not exist on this machine.
    Raises DiskFull and StateUnavailable when a file cannot be written."""
    if table.nbytes > INLINE_BYTES and os.path.isdir(directory):
        path = os.path.join(directory, f"{instance}-{uuid.uuid4().hex}.parquet")
        with state_errors(Path(directory)):
            # Compression and dictionaries cost more CPU than they save, and few of these pages ever reach the disk.
            pq.write_table(table, path, compression="none", use_dictionary=False, write_statistics=False)
            size = os.path.getsize(path)
        staged = [RowsForSpark(instance, table.num_rows, file=path, size=size)]
    else:
        staged = [RowsForSpark(instance, part.num_rows, data=to_ipc(part)) for part in _parts(table)]
    fault_point("after-staging")
    return staged


def clear_staging(stream_directory: Path) -> None:
    """Delete the staged files of a stream. None is needed after its epoch, or when that is run again. Raises
    StateUnavailable."""
    directory = stream_directory / STAGING
    with state_errors(directory):
        if directory.is_dir():
            for path in directory.iterdir():
                path.unlink(missing_ok=True)


def open_staging(stream_directory: Path) -> None:
    """Make an empty staging directory, before a stream's query starts."""
    clear_staging(stream_directory)
    private_directory(stream_directory / STAGING)


def _parts(table: pa.Table) -> Iterator[pa.Table]:
    count = max(1, -(-table.nbytes // MESSAGE_BYTES))
    rows = max(1, -(-table.num_rows // count))
    for start in range(0, table.num_rows, rows):
        yield table.slice(start, rows)


def to_ipc(table: pa.Table) -> bytes:
    """A table as an Arrow IPC stream."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    data: bytes = out.getvalue().to_pybytes()
    return data


def rows_in_messages(staged: Iterable[RowsForSpark], schema: pa.Schema) -> pa.Table:
    """The rows that travelled inside messages, as one table."""
    tables = [pa.ipc.open_stream(part.data).read_all() for part in staged if part.data]
    return pa.concat_tables(tables) if tables else schema.empty_table()
