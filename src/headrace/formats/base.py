"""The interface between bytes and columns.

A `Format` is made once per plan version and worker from a stream's schema and options. It frames (finds where records
end) and decodes (records to Arrow columns, only the wanted ones). It holds no state between calls, so buffers may come
in any order. Where a record belongs: to the buffer that holds its *end* (docs/design/2026-11-16-founding.md).

Validity does not depend on who is listening: the structure of every record is checked, always; a bad *value* is a fact
of (row, column), found only when that column is decoded. A format reports both and judges neither: what happens to a
pipeline is decided by the stream's `on_error`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.base.options import Option, check_options, choice, size
from headrace.errors import BadOption
from headrace.formats.bad import NOTHING_BAD, BadRecords
from headrace.formats.bad import BadRecord as BadRecord
from headrace.formats.bad import too_long as too_long
from headrace.model.schema import Schema


@dataclass(frozen=True, slots=True)
class Decoded:
    """The records of one buffer. `columns` has an array of `rows` values for each wanted index."""

    rows: int
    columns: Mapping[int, pa.Array[Any]]
    bad: BadRecords = NOTHING_BAD


class Indexed(Protocol):
    """The records of one buffer, found and checked but not parsed: the meeting point of indexing and parsing.

    Parse the columns that a filter needs, then the others for the rows that it kept. Valid while the buffer is.
    """

    @property
    def rows(self) -> int: ...

    @property
    def bad(self) -> BadRecords: ...

    def parse(self, columns: Sequence[int], selection: npt.NDArray[np.int64] | None = None) -> Decoded:
        """The columns (by full-schema index), of all rows or of the rows `selection`, in its order. Columns that were
        not wanted at first are located now, in the selected records: index the filter's columns, parse the others late.
        `bad` are the bad values among them, their `row` counted in all rows; structure is not repeated."""
        ...

    def field(self, row: int, column: int) -> bytes | None:
        """The text of one wanted field as it stands in the buffer; None if it is NULL or missing."""
        ...


class Format(Protocol):
    """What a format promises. Thread-safe by holding no state.

    `indexer` names the code that finds the records, `skips` says whether it leaves unwanted fields unparsed: both are
    shown by stream info.
    """

    @property
    def name(self) -> str: ...

    @property
    def indexer(self) -> str: ...

    @property
    def skips(self) -> bool: ...

    @property
    def max_record_bytes(self) -> int: ...

    @property
    def delimiter(self) -> bytes:
        """The bytes that end a record; empty if nothing does."""
        ...

    @property
    def row_bytes(self) -> int:
        """The size of every record, for a format whose records all have one; else 0."""
        ...

    @property
    def in_order(self) -> str:
        """Why a file must be read in order, by one task; empty if it may be cut at any byte and read by several. A
        format without a delimiter and without `row_bytes` must be read in order."""
        ...

    def header(self, head: bytes, first: bool, final: bool) -> Header:
        """What is no record at the start of a file: BOM, comments before a CSV header, the header itself.

        `head` is the file's beginning (`first`), or what follows the bytes that an earlier call passed; with `final`
        the file ends with it. Raises HeaderMismatch when a header names other columns than the schema.
        """
        ...

    def frame(self, data: bytes | memoryview, final: bool) -> Framed:
        """Find whole records in order: `data` begins at a record's beginning. With `final` nothing follows it, and its
        end ends the last record."""
        ...

    def index(self, data: bytes | memoryview, wanted: Sequence[int], origin: str, offset: int) -> Indexed:
        """Index whole records. `data` starts at byte `offset` of `origin`, at a record's beginning, and ends at a
        record's end (the last may lack its delimiter). `wanted` are the columns, by full-schema index, to locate."""
        ...

    def decode(self, data: bytes | memoryview, wanted: Sequence[int], origin: str, offset: int) -> Decoded:
        """Index, then parse the wanted columns of all rows. `bad` holds bad structure and bad values."""
        ...


@dataclass(frozen=True, slots=True)
class Header:
    """The first `passed` bytes are no record. With `more`, what follows them may be none either: ask again from there,
    with more bytes than were left."""

    passed: int
    more: bool = False


@dataclass(frozen=True, slots=True)
class Framed:
    """The first `whole` bytes are whole records. If the record after them is known to be longer than
    `max_record_bytes`, it has `skip` bytes, which may lie beyond the data."""

    whole: int
    skip: int = 0


@dataclass(frozen=True, slots=True)
class FormatKind:
    """A format as users name it in `WITH (format = '...')`. `options` are its own; `build` gets their values."""

    name: str
    help: str
    options: tuple[Option, ...]
    build: Callable[[Schema, Mapping[str, Any]], Format]

    def make(self, schema: Schema, options: Mapping[str, str]) -> Format:
        """The format of a stream. Of `options`, a stream's raw strings, only those that are declared here are read:
        the others belong to the source, and `headrace.sources.check_stream` has checked them together."""
        own = {o.name for o in self.options}
        mine = {k: v for k, v in options.items() if k.lower() in own}
        return self.build(schema, check_options(f"format '{self.name}'", self.options, mine))


# Options that every format has.
COMMON_OPTIONS = (
    Option(
        "on_error",
        choice("null", "skip", "fail", "dead_letter"),
        help="what a bad value does: null nulls the cell, skip drops the row, fail stops the pipeline that reads it, "
        "dead_letter drops the row and writes the record to dead_letter_sink",
    ),
    Option("max_record_bytes", size, default=4 << 20, help="a longer record is bad (record_too_long)"),
)

# For formats that Spark reads, too.
MODE_OPTION = Option(
    "mode",
    choice("permissive", "dropmalformed", "failfast"),
    help="Spark's word for on_error: PERMISSIVE makes every record a row, with NULL for what is bad; DROPMALFORMED is "
    "skip, FAILFAST is fail",
)


def is_permissive(values: Mapping[str, Any]) -> bool:
    """Whether checked options ask for a row of every record. Raises BadOption when `mode` and `on_error` are both
    given."""
    if values["mode"] is not None and values["on_error"] is not None:
        raise BadOption(
            "mode and on_error both say what a bad record does",
            advice="Give one of them: PERMISSIVE, DROPMALFORMED and FAILFAST are modes; null, skip, fail and "
            "dead_letter are for on_error.",
            option="mode",
            value=values["mode"],
        )
    return bool(values["mode"] == "permissive")
