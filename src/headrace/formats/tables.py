"""Files that hold columns with types of their own: Parquet and Arrow files, and the blocks of Avro files.

Such a file is made of units (row groups, record batches, runs of blocks). A unit belongs to the byte range that
contains its last byte, so the ranges that a text file is cut into serve here too: an epoch may end inside a file,
and a re-run reads the same units. Nothing of a unit is read before a column of it is parsed. So only needed columns are
read, and the columns beside those of a filter only if a row of the unit passes it.

A row has no bytes of its own. Its place is its number in the file, from 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import DamagedStream
from headrace.formats.bad import NOTHING_BAD, BadRecords
from headrace.formats.columns import Parsed
from headrace.formats.conform import conformed, named
from headrace.formats.format_kind import Decoded, Framed, Indexed, Located, Preamble
from headrace.formats.index import bad_cells
from headrace.model.schema import Schema, nested_fields

FieldPath = tuple[str, ...]  # of a column, or of a field of a STRUCT column, in the declared spelling
FileColumn = Any  # pa.ChunkedArray; None if the file lacks it


class TableUnit(Protocol):
    """Rows of a file that are read together. Used by one thread, while the file is open."""

    @property
    def first(self) -> int:
        """The number of its first row in the file."""
        ...

    @property
    def rows(self) -> int: ...

    @property
    def size(self) -> int:
        """About how many bytes of the file it is."""
        ...

    def read(self, paths: Sequence[FieldPath]) -> list[FileColumn]:
        """Columns with the file's own types. Keeps them for the next call. Raises DamagedStream."""
        ...


@runtime_checkable
class TableFormat(Protocol):
    """A format that reads whole files by their own structure. `unit` is what tasks share, in words."""

    unit: str
    schema: Schema

    def units(self, file: Any, path: str, size: int, begin: int, end: int) -> Iterator[TableUnit]:
        """The units whose last byte is in [begin, end) of an open file of `size` bytes. `file` is what pyarrow reads.
        Raises DamagedStream, and SchemaMismatch if the columns do not fit the declared ones, whichever are needed."""
        ...


class TableFile:
    """Base of table formats: what they say where other formats frame bytes. No source asks them for that: CREATE STREAM
    takes such a format for files only, or for messages if it is a MessageFormat too."""

    skips = True
    max_record_bytes = 0
    delimiter = b""
    row_bytes = 0
    in_order = ""
    has_header = False

    def preamble(self, head: bytes, first: bool, final: bool) -> Preamble:
        raise AssertionError("a table has no preamble")

    def frame(self, data: bytes | memoryview, final: bool) -> Framed:
        raise AssertionError("a table has no records to frame")

    def index(self, data: bytes | memoryview, wanted: Sequence[int], origin: str, offset: int) -> Indexed:
        raise AssertionError("a table is read by its units")

    def decode(self, data: bytes | memoryview, wanted: Sequence[int], origin: str, offset: int) -> Decoded:
        raise AssertionError("a table is read by its units")


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn an error of the library about the content of a file into DamagedStream. An error of the disk stays."""
    try:
        yield
    except (pa.ArrowException, OSError, EOFError) as problem:
        if isinstance(problem, OSError) and problem.errno is not None:
            raise
        raise damaged(path, str(problem)) from problem


def damaged(path: str, why: str) -> DamagedStream:
    shown = " ".join(why.split())[:300]
    return DamagedStream(f"{path} cannot be read: {shown}", path=path)


def part_of(columns: dict[str, Any], name: str | None, below: FieldPath, origin: str) -> FileColumn:
    """A column, or a field of one, as a chunked array; None if the file lacks it."""
    if name is None:
        return None
    found = columns[name]
    for part in below:
        inner = [found.type.field(i).name for i in range(found.type.num_fields)]
        other = named(part, inner, origin)
        if other is None:
            return None
        found = pc.struct_field(found, [inner.index(other)])
    return pa.chunked_array([found])


_NO_BYTES = np.empty(0, np.uint8)


@dataclass(frozen=True, slots=True)
class UnitRows:
    """Rows [begin, end) of a unit, with the declared schema of the payload."""

    unit: TableUnit
    schema: Schema
    path: str
    begin: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.begin

    @property
    def size(self) -> int:
        """About how many bytes of the file they are."""
        return self.unit.size * self.rows // max(1, self.unit.rows)

    def cut(self, most: int) -> Iterator[UnitRows]:
        """The same rows, in order, `most` at a time."""
        for begin in range(self.begin, self.end, most):
            yield replace(self, begin=begin, end=min(self.end, begin + most))

    def columns(self, paths: Sequence[FieldPath], kinds: Sequence[Any], selection: npt.NDArray[np.int64] | None) -> Any:
        """Parsed columns, of all rows or of the selected ones."""
        if not paths or (selection is not None and not len(selection)):
            return [conformed(None, kind, 0, self.path) for kind in kinds]
        found = []
        count = self.rows if selection is None else len(selection)
        with reading(self.path):
            for column, kind in zip(self.unit.read(paths), kinds, strict=True):
                part = None if column is None else column.slice(self.begin, self.rows)
                if part is not None and selection is not None:
                    part = part.take(pa.array(selection))
                found.append(conformed(part, kind, count, self.path))
        return found


@runtime_checkable
class ParsesFields(Protocol):
    """An index that can parse some fields of a STRUCT column without its others."""

    def parse_fields(
        self, column: int, paths: Sequence[FieldPath], selection: npt.NDArray[np.int64] | None = None
    ) -> list[Parsed]: ...


@dataclass(frozen=True, slots=True)
class TableIndex:
    """The rows of one chunk; see `headrace.formats.format_kind.Indexed`."""

    table: UnitRows
    origin: str

    @property
    def rows(self) -> int:
        return self.table.rows

    @property
    def bad(self) -> BadRecords:
        return NOTHING_BAD

    @property
    def records(self) -> Located:
        places = np.arange(self.rows)
        return Located(_NO_BYTES, places, places)

    def parse(self, columns: Sequence[int], selection: npt.NDArray[np.int64] | None = None) -> Decoded:
        schema = self.table.schema
        kinds = [schema[c].type for c in columns]
        parts = self.table.columns([(schema[c].name,) for c in columns], kinds, selection)
        wrong = [(c, p.status) for c, p in zip(columns, parts, strict=True) if p.odd]
        places = np.arange(self.rows if wrong else 0)
        bad = bad_cells(
            found=wrong,
            data=_NO_BYTES,
            begins=places,
            stops=places,
            origin=self.origin,
            offset=self.table.unit.first + self.table.begin,
            selection=selection,
        )
        rows = self.rows if selection is None else len(selection)
        return Decoded(rows, {c: p.array for c, p in zip(columns, parts, strict=True)}, bad)

    def parse_fields(
        self, column: int, paths: Sequence[FieldPath], selection: npt.NDArray[np.int64] | None = None
    ) -> list[Parsed]:
        """Some fields of a STRUCT column, of all rows or of those in `selection`."""
        schema = self.table.schema
        types = {f.path: f.type for f in nested_fields(schema) if f.column == column}
        names = [(schema[column].name, *path) for path in paths]
        found: list[Parsed] = self.table.columns(names, [types[path] for path in paths], selection)
        return found
