"""Records of a chunk in the full index space: the format decodes the payload, the source fills metadata columns, and
computed columns (`headrace.ring0.computed`) come later.

A stream of payload columns, whose records are not a broker's messages, is left to its format as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from headrace.formats.bad import BadRecords
from headrace.formats.format_kind import Decoded, Format, Indexed, Located
from headrace.formats.index import bad_cells
from headrace.formats.packing import MessageFormat
from headrace.formats.tables import ParsesFields, TableIndex
from headrace.model.bad_reasons import REASONS
from headrace.model.definitions import StreamDef
from headrace.model.schema import NESTED, nested_fields
from headrace.sources.source_kind import RawChunk

_BAD_TEXT = REASONS.index("bad_utf8")


class RecordLayout:
    """Which columns of a stream come from where. Immutable."""

    def __init__(self, stream: StreamDef) -> None:
        self.schema = stream.schema
        self.keys = {column.index: column.key for column in stream.metadata}
        self.full = np.array(stream.in_records, np.int32)  # the full-schema index of each column of the format
        self.inner = {full: inner for inner, full in enumerate(stream.in_records)}
        self.padded = dict(stream.padded)
        # Fields of STRUCT columns may be asked for after the index was made, so such a stream is never plain.
        self.plain = len(self.full) == len(stream.schema) and not self.padded and not nested_fields(stream.schema)

    def index(self, fmt: Format, chunk: RawChunk, wanted: Sequence[int]) -> Indexed:
        """Locate columns of the records of a chunk."""
        if chunk.table is not None:
            found = TableIndex(chunk.table, chunk.origin)
            return found if self.plain else LocatedIndex(self, chunk, found)
        if chunk.packed is None and self.plain:
            return fmt.index(chunk.data, wanted, chunk.origin, chunk.offset)
        holders = dict.fromkeys(self.holder(c) for c in wanted)
        inner = [self.inner[c] for c in holders if c in self.inner]
        if chunk.packed is None:
            return LocatedIndex(self, chunk, fmt.index(chunk.data, inner, chunk.origin, chunk.offset))
        assert isinstance(fmt, MessageFormat), "CREATE STREAM rejects other formats"
        return LocatedIndex(self, chunk, fmt.index_packed(chunk.packed, inner, chunk.origin))

    def holder(self, column: int) -> int:
        """The column that is, or holds, a column or a field of one."""
        return column if column < NESTED else nested_fields(self.schema)[column - NESTED].column

    def bad_values(
        self,
        chunk: RawChunk,
        indexed: Indexed,
        found: Sequence[tuple[int, npt.NDArray[np.uint8]]],
        selection: npt.NDArray[np.int64] | None,
    ) -> BadRecords:
        """The bad values among computed cells: (column, status of its cells), of all rows or of those in `selection`.
        Their `row` counts all rows."""
        data, begins, stops = indexed.records
        bad = bad_cells(
            found=found,
            data=data,
            begins=begins,
            stops=stops,
            origin=chunk.origin,
            offset=chunk.offset,
            selection=selection,
        )
        return bad if chunk.packed is None else chunk.packed.locate(bad)


@dataclass(frozen=True, slots=True)
class LocatedIndex:
    """An index of a format in the full index space; see `headrace.formats.format_kind.Indexed`."""

    layout: RecordLayout
    chunk: RawChunk
    inner: Indexed

    @property
    def rows(self) -> int:
        return self.inner.rows

    @property
    def bad(self) -> BadRecords:
        return self._outer(self.inner.bad)

    @property
    def records(self) -> Located:
        return self.inner.records

    def parse(self, columns: Sequence[int], selection: npt.NDArray[np.int64] | None = None) -> Decoded:
        layout = self.layout
        decoded = self.inner.parse([layout.inner[c] for c in columns if c in layout.inner], selection)
        found: dict[int, Any] = {int(layout.full[i]): array for i, array in decoded.columns.items()}
        bad = self._outer(decoded.bad)
        for column in columns:
            if column in layout.keys:
                found[column], wrong = self._fact(column, selection)
                bad = bad.plus(wrong)
        nested = [c for c in columns if c >= NESTED]
        if nested:
            arrays, wrong = self._fields(nested, selection)
            found |= arrays
            bad = bad.plus(wrong)
        for column, length in layout.padded.items():
            if column in found:
                found[column] = pc.utf8_rpad(found[column], length)
        return Decoded(decoded.rows, {c: found[c] for c in columns if c in found}, bad)

    def _fields(
        self, columns: Sequence[int], selection: npt.NDArray[np.int64] | None
    ) -> tuple[dict[int, Any], BadRecords]:
        """Fields of STRUCT columns. Their other fields are not parsed."""
        assert isinstance(self.inner, ParsesFields), "formats with STRUCT columns have a field index"
        layout, arrays, wrong = self.layout, dict[int, Any](), list[tuple[int, npt.NDArray[np.uint8]]]()
        for holder in dict.fromkeys(map(layout.holder, columns)):
            mine = [c for c in columns if layout.holder(c) == holder]
            paths = [nested_fields(layout.schema)[c - NESTED].path for c in mine]
            for column, part in zip(mine, self.inner.parse_fields(layout.inner[holder], paths, selection), strict=True):
                arrays[column] = part.array
                if part.odd:
                    wrong.append((column, part.status))
        return arrays, layout.bad_values(self.chunk, self.inner, wrong, selection)

    def _fact(self, column: int, selection: npt.NDArray[np.int64] | None) -> tuple[Any, BadRecords]:
        """A metadata column of all rows, or of the selected ones."""
        data, begins, stops = self.inner.records
        rows = np.arange(self.rows) if selection is None else selection
        where = begins[rows]
        if self.chunk.packed is not None:
            places = self.chunk.packed.message_of(where) + self.chunk.packed.first
        else:
            places = where.astype(np.int64) + self.chunk.offset
        assert self.chunk.facts is not None, "a source with metadata gives facts with every chunk"
        fact = self.chunk.facts.column(self.layout.keys[column], self.layout.schema[column].type, places)
        if fact.bad is None or not fact.bad.any():
            return fact.values, BadRecords()
        wrong = rows[fact.bad].astype(np.int32)
        bad = BadRecords(
            data=data,
            origin=self.chunk.origin,
            offset=self.chunk.offset,
            begins=begins[wrong],
            stops=stops[wrong],
            rows=wrong,
            columns=np.full(len(wrong), column, np.int32),
            codes=np.full(len(wrong), _BAD_TEXT, np.uint8),
        )
        return fact.values, bad if self.chunk.packed is None else self.chunk.packed.locate(bad)

    def _outer(self, bad: BadRecords) -> BadRecords:
        """Bad records with full-schema indexes, and with the offsets of messages."""
        if len(self.layout.full) < len(self.layout.schema) and len(bad.rows):
            columns = bad.columns
            bad = replace(bad, columns=np.where(columns < 0, -1, self.layout.full[columns]).astype(np.int32))
        return bad if self.chunk.packed is None else self.chunk.packed.locate(bad)
