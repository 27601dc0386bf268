"""The interface between bytes and columns.

A `Format` is made once per plan version and worker from a stream's schema and options. It frames (finds where records
end) and decodes (records to Arrow columns, only the wanted ones). It holds no state between calls, so buffers may come
in any order. Where a record belongs: to the buffer that holds its *end* (DESIGN section 4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from headrace.schema import Schema


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record, or a cell of it, that is not what the schema declares. `column` is None for bad structure."""

    origin: str
    offset: int
    reason: str
    column: int | None
    raw: bytes


@dataclass(frozen=True, slots=True)
class Decoded:
    """The records of one buffer. `columns` has an array of `rows` values for each wanted index."""

    rows: int
    columns: Mapping[int, pa.Array]
    bad: tuple[BadRecord, ...] = ()


class Format(Protocol):
    """What a format promises. Thread-safe by holding no state."""

    name: str

    @property
    def delimiter(self) -> bytes:
        """The bytes that end a record."""
        ...

    @property
    def splittable(self) -> bool:
        """Whether a file may be cut at any byte and read by several tasks."""
        ...

    def header_bytes(self, head: bytes) -> int:
        """How many bytes at the start of a file are no record (BOM, CSV header); `head` is the file's beginning."""
        ...

    def decode(self, data: bytes | memoryview, wanted: Sequence[int], origin: str, offset: int) -> Decoded:
        """Decode whole records. `data` starts at byte `offset` of `origin`, at a record's beginning, and ends at a
        record's end (the last may lack its delimiter). `wanted` are full-schema indexes."""
        ...


class FormatFactory(Protocol):
    """Makes a format from a schema and the options of the stream; raises BadOption/UnknownOption."""

    def __call__(self, schema: Schema, options: Mapping[str, str]) -> Format: ...
