"""The format `arrow`: Arrow IPC files (also called Feather) and Arrow IPC streams, one record batch at a time.

Unit of parallelism: a record batch of a file. One task reads a stream, batch by batch: it has no list of its batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from headrace.formats.conform import named, require_fit
from headrace.formats.format_kind import FormatKind
from headrace.formats.format_settings import FormatSettings
from headrace.formats.tables import FieldPath, FileColumn, TableFile, TableUnit, part_of, reading
from headrace.model.schema import Schema

_MAGIC = b"ARROW1"


class ArrowFormat(TableFile):
    """The `arrow` format."""

    name = "arrow"
    indexer = "pyarrow.ipc"
    unit = "record batch"

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def units(self, file: Any, path: str, size: int, begin: int, end: int) -> Iterator[TableUnit]:
        with reading(path):
            is_file = file.read(len(_MAGIC)) == _MAGIC
            file.seek(0)
            opened = pa.ipc.open_file(file) if is_file else pa.ipc.open_stream(file)
            require_fit(self.schema, opened.schema, path)
        if isinstance(opened, pa.ipc.RecordBatchFileReader):
            yield from self._batches(file=file, opened=opened, path=path, size=size, begin=begin, end=end)
        elif begin <= size - 1 < end:
            yield from _stream(opened, path, size)

    def _batches(
        self, file: Any, opened: pa.ipc.RecordBatchFileReader, path: str, size: int, begin: int, end: int
    ) -> Iterator[TableUnit]:
        # pyarrow does not say where a batch ends. Give each batch one place in the file, the last one the last byte.
        count = opened.num_record_batches
        places = [size * (i + 1) // count - 1 for i in range(count)]
        lengths = _Columns(file, opened.schema)
        first = 0
        for i in range(count):
            if places[i] >= end:
                return
            with reading(path):
                rows = lengths.batch(i, [_cheapest(opened.schema)]).num_rows
            if begin <= places[i]:
                yield FileBatch(
                    columns=_Columns(file, opened.schema),
                    path=path,
                    number=i,
                    first=first,
                    rows=rows,
                    size=size // count,
                )
            first += rows


def _cheapest(schema: pa.Schema) -> int:
    """A column of a file that tells the length of a batch and costs little to read."""
    fixed = [i for i, field in enumerate(schema) if pa.types.is_primitive(field.type)]
    return fixed[0] if fixed else 0


class _Columns:
    """Reads some columns of a batch of a file."""

    def __init__(self, file: Any, schema: pa.Schema) -> None:
        self._file, self.schema = file, schema

    def batch(self, number: int, columns: Sequence[int]) -> pa.RecordBatch:
        self._file.seek(0)
        options = pa.ipc.IpcReadOptions(included_fields=list(columns), use_threads=False)
        with pa.ipc.open_file(self._file, options=options) as reader:
            return reader.get_batch(number)


class FileBatch:
    """A record batch of a file; see `headrace.formats.tables.TableUnit`."""

    def __init__(self, columns: _Columns, path: str, number: int, first: int, rows: int, size: int) -> None:
        self._columns, self._path, self._number = columns, path, number
        self.first, self.rows, self.size = first, rows, size
        self._kept: dict[str, Any] = {}

    def read(self, paths: Sequence[FieldPath]) -> list[FileColumn]:
        names = self._columns.schema.names
        holders = dict.fromkeys(h for p in paths if (h := named(p[0], names, self._path)) is not None)
        fresh = [names.index(h) for h in holders if h not in self._kept]
        if fresh:
            batch = self._columns.batch(self._number, sorted(fresh))
            self._kept |= {name: batch.column(name) for name in batch.schema.names}
        return [part_of(self._kept, named(path[0], self._kept, self._path), path[1:], self._path) for path in paths]


class StreamBatch:
    """A record batch of a stream, whose columns are all in memory."""

    def __init__(self, batch: pa.RecordBatch, path: str, first: int, size: int) -> None:
        self._kept, self._path = dict(zip(batch.schema.names, batch.columns, strict=True)), path
        self.first, self.rows, self.size = first, batch.num_rows, size

    def read(self, paths: Sequence[FieldPath]) -> list[FileColumn]:
        return [part_of(self._kept, named(path[0], self._kept, self._path), path[1:], self._path) for path in paths]


def _stream(opened: Any, path: str, size: int) -> Iterator[TableUnit]:
    first = 0
    while True:
        with reading(path):
            try:
                batch = opened.read_next_batch()
            except StopIteration:
                return
        yield StreamBatch(batch, path, first, batch.nbytes)
        first += batch.num_rows


def _build(schema: Schema, settings: FormatSettings) -> ArrowFormat:
    return ArrowFormat(schema)


ARROW = FormatKind("arrow", "Arrow IPC files and streams", FormatSettings, _build)
