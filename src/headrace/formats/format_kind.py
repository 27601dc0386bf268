"""The interface between bytes and columns.

Each worker makes one `Format` per plan version, from the stream's schema and options. It frames (finds where records
end) and decodes (turns records into Arrow columns, only the wanted ones). It keeps no state between calls, so buffers
may arrive in any order. A record belongs to the buffer that contains its *end*.

Which records are valid does not depend on the pipelines that read them. A format always checks the structure of every
record. A bad *value* belongs to one (row, column), and is found only when that column is decoded. A format reports
both; the stream's `on_error` decides what happens to a pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.base.options import Option, declared, read_settings
from headrace.formats.bad import NOTHING_BAD, BadRecords
from headrace.formats.bad import BadRecord as BadRecord
from headrace.formats.bad import too_long as too_long
from headrace.formats.format_settings import FormatSettings
from headrace.model.schema import Schema


@dataclass(frozen=True, slots=True)
class Decoded:
    """The decoded records of one buffer. `columns` maps each wanted index to an array of `rows` values."""

    rows: int
    columns: Mapping[int, pa.Array[Any]]
    bad: BadRecords = NOTHING_BAD


class Located(NamedTuple):
    """Records in a buffer: record r is bytes [begins[r], stops[r]) of `data`."""

    data: npt.NDArray[np.uint8]
    begins: npt.NDArray[Any]
    stops: npt.NDArray[Any]


class Indexed(Protocol):
    """The records of one buffer: located and checked, not parsed yet.

    Callers parse the columns that a filter needs first, then the other columns for the rows that passed. Valid as long
    as the buffer is.
    """

    @property
    def rows(self) -> int: ...

    @property
    def bad(self) -> BadRecords: ...

    @property
    def records(self) -> Located:
        """Where each row's record is."""
        ...

    def parse(self, columns: Sequence[int], selection: npt.NDArray[np.int64] | None = None) -> Decoded:
        """Parse columns (by full-schema index) of all rows, or of the rows in `selection`, in that order.

        Columns that `index` was not asked for are located now, in the selected records only: index the columns of the
        filter, parse the others late. `bad` are the bad values among them. Their `row` counts all rows. Bad structure
        is not reported again.
        """
        ...


class Format(Protocol):
    """The promises of a format. Thread-safe, because it keeps no state.

    `indexer` names the code that finds the records. `skips` is true if it leaves unwanted fields unparsed. EXPLAIN and
    DESCRIBE STREAM show both.
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
        """The bytes that end a record; empty for formats without a delimiter."""
        ...

    @property
    def row_bytes(self) -> int:
        """The size of a record if all records have the same size, else 0."""
        ...

    @property
    def in_order(self) -> str:
        """Why one task must read a whole file in order; empty if several tasks may read ranges of it, cut at any byte.
        A format without a delimiter and without `row_bytes` must be read in order."""
        ...

    @property
    def has_header(self) -> bool:
        """True if each file begins with a header that must name the stream's columns."""
        ...

    def preamble(self, head: bytes, first: bool, final: bool) -> Preamble:
        """Find the bytes before the first record of a file: BOM, comments before a CSV header, the header itself.

        `head` begins at the start of the file (`first`), or after the bytes that an earlier call passed. With `final`
        the file ends with it. Raises HeaderMismatch if the header names other columns than the schema.
        """
        ...

    def frame(self, data: bytes | memoryview, final: bool) -> Framed:
        """Find how much of `data`, which begins with a record, is whole records. With `final` nothing follows `data`,
        so its end is the end of the last record."""
        ...

    def index(self, data: bytes | memoryview, wanted: Sequence[int], origin: str, offset: int) -> Indexed:
        """Locate the fields of whole records. `data` starts at byte `offset` of `origin`, at the beginning of a record,
        and ends at the end of one (the last may lack its delimiter). `wanted` are the columns to locate, by full-schema
        index."""
        ...

    def decode(self, data: bytes | memoryview, wanted: Sequence[int], origin: str, offset: int) -> Decoded:
        """Index, then parse the wanted columns of all rows. `bad` contains bad structure and bad values."""
        ...


@dataclass(frozen=True, slots=True)
class Preamble:
    """The bytes before the first record. The first `passed` bytes belong to them. With `more`, later bytes may belong
    to them, too: call again from there, with more bytes than were left."""

    passed: int
    more: bool = False


@dataclass(frozen=True, slots=True)
class Framed:
    """How much of a buffer is whole records: its first `whole` bytes. If the next record is known to be longer than
    `max_record_bytes`, `skip` is its size, which may reach beyond the buffer."""

    whole: int
    skip: int = 0


S = TypeVar("S", bound=FormatSettings)


@dataclass(frozen=True, slots=True)
class FormatKind(Generic[S]):
    """A format as users name it in `WITH (format = '...')`. `settings` declares its options."""

    name: str
    help: str
    settings: type[S]
    build: Callable[[Schema, S], Format]

    @property
    def options(self) -> tuple[Option, ...]:
        """The options that this format reads."""
        kind: Any = self.settings
        return declared(kind)

    def settings_of(self, options: Mapping[str, str]) -> S:
        """Parse the format's own options among a stream's `options`. The others belong to the source and the engine:
        `headrace.sources.check_stream` rejects options that none of them reads."""
        own = {o.name for o in self.options}
        mine = {k: v for k, v in options.items() if k.lower() in own}
        return read_settings(self.settings, f"format '{self.name}'", mine)

    def make(self, schema: Schema, options: Mapping[str, str]) -> Format:
        """The format of a stream with this schema and these options, as they are stored."""
        return self.build(schema, self.settings_of(options))
