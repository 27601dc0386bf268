"""Decodes records into columns of the stream: by full-schema index, also where the stream has columns that its records
do not hold.

A format knows only the columns in the records, by their position there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from headrace.formats.bad import BadRecords
from headrace.formats.format_kind import Decoded, Format, Indexed
from headrace.model.program import StreamDef
from headrace.sources.source_kind import RawChunk


@dataclass(frozen=True, slots=True)
class Places:
    """Where the columns of a stream are in its records. `columns` are their full-schema indexes, in the order of the
    records. `padded` are the lengths to which CHAR columns are padded."""

    columns: tuple[int, ...]
    positions: Mapping[int, int]
    padded: Mapping[int, int]

    @staticmethod
    def of(stream: StreamDef) -> Places:
        held = stream.in_records
        return Places(held, {column: position for position, column in enumerate(held)}, dict(stream.padded))

    def inside(self, columns: Sequence[int]) -> list[int]:
        """The columns among these that the records hold."""
        return [c for c in columns if c in self.positions]

    def renamed(self, bad: BadRecords) -> BadRecords:
        """Bad values with the full-schema index of their column."""
        if not len(bad.rows):
            return bad
        names = np.array([*self.columns, -1], np.int32)  # -1, for bad structure, picks the last
        return replace(bad, columns=names[bad.columns])


@dataclass(frozen=True, slots=True)
class StreamRecords:
    """The records of one chunk, by full-schema index; see `headrace.formats.format_kind.Indexed`."""

    indexed: Indexed
    places: Places

    @property
    def bad(self) -> BadRecords:
        """The records with a bad structure."""
        return self.indexed.bad

    def parse(self, columns: Sequence[int], selection: npt.NDArray[np.int64] | None = None) -> Decoded:
        """Parse columns that the records hold. Others are left out."""
        inside = self.places.inside(columns)
        found = self.indexed.parse([self.places.positions[c] for c in inside], selection)
        arrays = {c: found.columns[self.places.positions[c]] for c in inside}
        for column in inside:
            if column in self.places.padded:
                arrays[column] = pc.utf8_rpad(arrays[column], self.places.padded[column])
        return Decoded(found.rows, arrays, self.places.renamed(found.bad))

    def bad_values(
        self, found: Sequence[tuple[int, npt.NDArray[np.uint8]]], selection: npt.NDArray[np.int64] | None = None
    ) -> BadRecords:
        """The bad values among the given cells, whose columns may be any."""
        return self.indexed.bad_values(found, selection)


def index_records(fmt: Format, places: Places, chunk: RawChunk, columns: Sequence[int]) -> StreamRecords:
    """Locate the fields of `columns` in the records of a chunk."""
    wanted = [places.positions[c] for c in places.inside(columns)]
    return StreamRecords(fmt.index(chunk.data, wanted, chunk.origin, chunk.offset), places)
