"""Where each row of a task came from, as one number per row: the chunk, and the place of the record in it."""

from __future__ import annotations

import numpy as np

from headrace.formats.format_kind import Indexed
from headrace.ring0.batch import PlaceOffsets
from headrace.sources.source_kind import RawChunk

_CHUNK = 1 << 32  # more than the bytes of any chunk


class RecordPlaces:
    """Numbers the records of a task's chunks."""

    def __init__(self) -> None:
        self._chunks: list[tuple[str, int]] = []  # the origin of each chunk, and the offset that it begins with

    def of(self, chunk: RawChunk, indexed: Indexed) -> PlaceOffsets:
        """The places of all records of a chunk, in the order of its rows."""
        begins = np.asarray(indexed.records.begins)
        base, within = chunk.offset, begins.astype(np.int64)
        if chunk.packed is not None:  # the origin counts messages
            base, within = chunk.packed.first, chunk.packed.message_of(begins).astype(np.int64)
        self._chunks.append((chunk.origin, int(base)))
        return within + (len(self._chunks) - 1) * _CHUNK

    def locate(self, place: int) -> tuple[str, int]:
        """The origin and the offset of a record."""
        origin, base = self._chunks[place // _CHUNK]
        return origin, base + place % _CHUNK
