"""The format `parquet`: Parquet files, one row group at a time, only the needed columns and fields.

Unit of parallelism: a row group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.formats.conform import named, require_fit
from headrace.formats.format_kind import FormatKind
from headrace.formats.format_settings import FormatSettings
from headrace.formats.tables import FieldPath, FileColumn, TableFile, TableUnit, reading
from headrace.model.schema import Schema


class ParquetFormat(TableFile):
    """The `parquet` format."""

    name = "parquet"
    indexer = "pyarrow.parquet"
    unit = "row group"

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def units(self, file: Any, path: str, size: int, begin: int, end: int) -> Iterator[TableUnit]:
        with reading(path):
            opened = pq.ParquetFile(file, coerce_int96_timestamp_unit="us", pre_buffer=False)
            require_fit(self.schema, opened.schema_arrow, path)
            first, groups = 0, opened.metadata.num_row_groups
            starts = [_start(opened.metadata.row_group(i)) for i in range(groups)]
        for i in range(groups):
            rows = opened.metadata.row_group(i).num_rows
            last = size - 1 if i + 1 == groups else min(max(0, starts[i + 1] - 1), size - 1)
            if begin <= last < end:
                yield RowGroup(file=opened, path=path, number=i, first=first, rows=rows, size=last - starts[i])
            first += rows


def _start(group: Any) -> int:
    """The first byte of a row group."""
    if not group.num_columns:
        return 0
    column = group.column(0)
    return int(column.dictionary_page_offset or column.data_page_offset)


class RowGroup:
    """A row group. Keeps the columns that were read; see `headrace.formats.tables.TableUnit`."""

    def __init__(self, file: pq.ParquetFile, path: str, number: int, first: int, rows: int, size: int) -> None:
        self._file, self._path, self._number = file, path, number
        self.first, self.rows, self.size = first, rows, size
        self._kept: dict[FieldPath, FileColumn] = {}

    def read(self, paths: Sequence[FieldPath]) -> list[FileColumn]:
        missing = [path for path in paths if path not in self._kept]
        found = {path: _leaves(self._file.schema_arrow, path, self._path) for path in missing}
        wanted = sorted({leaf for place in found.values() if place is not None for leaf in place.leaves})
        table = self._rows(wanted) if wanted else None
        for path, place in found.items():
            self._kept[path] = None if place is None or table is None else _part(table, place.names)
        return [self._kept[path] for path in paths]

    def _rows(self, leaves: list[int]) -> pa.Table:
        reader: Any = self._file.reader  # takes leaves by number: a name with a dot is not a path there
        table: pa.Table = reader.read_row_group(self._number, column_indices=leaves, use_threads=False)
        return table


class _LeafPlace:
    """A column or field of a file: its names there, and the numbers of its leaves."""

    def __init__(self, names: Sequence[str], leaves: range) -> None:
        self.names, self.leaves = names, leaves


def _leaves(schema: pa.Schema, path: FieldPath, origin: str) -> _LeafPlace | None:
    fields: list[Any] = [schema.field(i) for i in range(len(schema))]
    names: list[str] = []
    before = 0
    for depth, wanted in enumerate(path):
        name = named(wanted, [f.name for f in fields], origin)
        if name is None:
            return None
        at = [f.name for f in fields].index(name)
        before += sum(_width(f.type) for f in fields[:at])
        names.append(name)
        if depth + 1 == len(path):
            return _LeafPlace(names, range(before, before + _width(fields[at].type)))
        kind = fields[at].type
        fields = [kind.field(i) for i in range(kind.num_fields)]
    return None


def _width(kind: Any) -> int:
    """How many leaves a type has: columns that the file stores apart."""
    if pa.types.is_dictionary(kind) or not kind.num_fields:
        return 1
    if pa.types.is_map(kind):
        return _width(kind.key_type) + _width(kind.item_type)
    return sum(_width(kind.field(i).type) for i in range(kind.num_fields))


def _part(table: pa.Table, names: Sequence[str]) -> FileColumn:
    column: Any = table.column(names[0])
    for name in names[1:]:
        column = pc.struct_field(column, name)
    return column


def _build(schema: Schema, settings: FormatSettings) -> ParquetFormat:
    return ParquetFormat(schema)


PARQUET = FormatKind("parquet", "Parquet files", FormatSettings, _build)
