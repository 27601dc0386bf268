"""The interface of sources: the driver side plans offsets and splits, tasks read the splits.

The two sides share only the split, which is pickled. Offsets are dictionaries that JSON can store. An offset that
`latest` returned must stay readable after a restart, so everything it refers to is durable before it is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.base.durable import private_directory
from headrace.base.options import Option, declared, read_settings
from headrace.errors import HeadraceError
from headrace.formats.format_kind import BadRecord, Format
from headrace.formats.packing import Packed
from headrace.formats.tables import UnitRows
from headrace.model.definitions import StreamDef
from headrace.model.schema import DataType
from headrace.sources.badfiles import BadRange

SourceOffset = dict[str, Any]
WallClock = Callable[[], float]  # seconds since 1970


@dataclass(frozen=True, slots=True)
class RawChunk:
    """Whole records of one origin. `data` starts at byte `offset` of it.

    `bad` are records that the source itself rejected, because they are longer than `max_record_bytes`; they are not in
    `data`. `unreadable` is a part of the split that could not be read. Then nothing of the epoch may be committed until
    the source leaves that part out. `left_out` counts, by reason, what the source found and made no record of.

    The records of a broker's messages are `packed`, and `data` is their buffer. `facts` fills metadata columns. Rows of
    a file that has columns are a `table`; then `data` is empty, and `offset` is the number of the first row.
    """

    origin: str
    offset: int
    data: bytes | memoryview
    bad: tuple[BadRecord, ...] = ()
    unreadable: BadRange | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)
    packed: Packed | None = None
    facts: RecordFacts | None = None
    table: UnitRows | None = None

    @property
    def size(self) -> int:
        """How many bytes were read for it; about, if it is a table."""
        return len(self.data) if self.table is None else self.table.size


@dataclass(frozen=True, slots=True)
class Fact:
    """A metadata column. `bad` marks the rows whose value is not valid text (bad_utf8); they are NULL."""

    values: pa.Array[Any]
    bad: npt.NDArray[np.bool_] | None = None


class RecordFacts(Protocol):
    """What a source knows about the records of a chunk, beside their bytes."""

    def column(self, key: str, kind: DataType, places: npt.NDArray[np.int64]) -> Fact:
        """The fact `key` of the records at `places`: bytes of the origin, or numbers of the chunk's messages. The type
        is one that the source's `SourceKind.metadata` allows."""
        ...


class InputSplit(Protocol):
    """The part of an epoch that one task reads. It can be pickled. Reading it twice gives the same records."""

    def read(self, fmt: Format) -> Iterator[RawChunk]:
        """Yield the records that end in this split, in order, in chunks of bounded size."""
        ...


@runtime_checkable
class LocatesLines(Protocol):
    """A split that knows on which line of its origin a record begins, so that error messages can name the line."""

    def line(self, origin: str, offset: int, fmt: Format) -> int | None:
        """The line number, from 1, of byte `offset` of `origin`; None if the origin has no lines. May read the origin
        up to that byte, so it is only for errors."""
        ...


@runtime_checkable
class ReadsLate(Protocol):
    """A split whose chunks may be read from their file only when they are decoded."""

    def unreadable(self, origin: str, problem: HeadraceError) -> BadRange:
        """The report about a chunk of `origin` that could not be read. Raises `problem` if it must not be left out."""
        ...


@runtime_checkable
class CarriesTime(Protocol):
    """A split that knows how far the stream's event time has come. If it is `timed`, its rows do not count."""

    @property
    def timed(self) -> bool: ...

    @property
    def event_time(self) -> int | None:
        """Microseconds since 1970. None if nothing is known yet."""
        ...


class StreamSource(Protocol):
    """The driver side of a source. It runs in the process that plans epochs; one thread calls it.

    Unit of parallelism: the split. Delivery: replayable from any offset that was not committed.
    """

    def initial(self) -> SourceOffset:
        """The offset before the first record."""
        ...

    def latest(self, start: SourceOffset, max_bytes: int | None) -> SourceOffset:
        """The end of the next epoch, about `max_bytes` after `start` at most. Returns an equal offset if there is
        nothing new."""
        ...

    def splits(self, start: SourceOffset, end: SourceOffset, parallelism: int) -> list[InputSplit]:
        """Divide (start, end] into splits of similar size for `parallelism` tasks; into fewer if there is little
        data."""
        ...

    def exhausted(self, at: SourceOffset) -> bool:
        """True if there is nothing after `at` and the source is finite, or finite for now (all files that exist)."""
        ...

    def backlog(self, at: SourceOffset) -> int:
        """About how many bytes there are after `at`."""
        ...

    def commit(self, end: SourceOffset) -> None:
        """Everything up to `end` is committed and will never be read again."""
        ...


S = TypeVar("S")
S_in = TypeVar("S_in", contravariant=True)


class SourceFactory(Protocol[S_in]):
    """Makes a source. `state_dir` is durable and belongs to this stream alone."""

    def __call__(self, stream: StreamDef, settings: S_in, state_dir: Path, clock: WallClock) -> StreamSource: ...


def no_more_checks(stream: StreamDef, settings: object) -> None:
    """For sources whose options can only be wrong one by one."""


@dataclass(frozen=True, slots=True)
class SourceKind(Generic[S]):
    """A source as users name it in `WITH (source = '...')`.

    `settings` declares its options. `check_settings` looks at what a single option cannot show, such as a missing
    directory. The bytes of a `pushed` source come through the gateway, which runs while the stream does. CREATE OR
    REPLACE STREAM may change the options in `changeable` and keep the stream's progress and pipelines: the rows that
    were read do not depend on them. `metadata` are the facts that METADATA columns can name, with their types.
    `guarantee` says how records of another system come into epochs; EXPLAIN prints it.
    """

    name: str
    help: str
    settings: type[S]
    build: SourceFactory[S]
    check_settings: Callable[[StreamDef, S], None] = no_more_checks
    pushed: bool = False
    changeable: tuple[str, ...] = ()
    metadata: Mapping[str, tuple[DataType, ...]] = field(default_factory=dict)
    guarantee: str = ""

    @property
    def options(self) -> tuple[Option, ...]:
        """The options that this source reads."""
        kind: Any = self.settings
        return declared(kind)

    def settings_of(self, stream: StreamDef) -> S:
        """Parse the source's own options among those of `stream`. The others belong to its format and the engine."""
        mine = {k: v for k, v in stream.options.items() if any(o.covers(k) for o in self.options)}
        return read_settings(self.settings, f"source '{self.name}'", mine)

    def check(self, stream: StreamDef) -> None:
        """Raise what CREATE STREAM should reject now rather than when the stream runs, such as a missing directory."""
        self.check_settings(stream, self.settings_of(stream))

    def make(self, stream: StreamDef, state_dir: Path, clock: WallClock) -> StreamSource:
        """The source of `stream`. Its durable files are in `state_dir`, which is created if missing."""
        private_directory(state_dir)
        return self.build(stream, self.settings_of(stream), state_dir, clock)
