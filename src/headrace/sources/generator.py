"""The source `generator`: made-up rows in the stream's own format, for demos, tests and benchmarks.

Row k is a pure function of (seed, k), so any task can make any split again. The rows are bytes in the stream's format
and are decoded like those of other sources. Values depend on the type and the name of a column
(`headrace.sources.shapes`).

Unit of parallelism: a range of rows. Delivery: exactly once into an epoch, always replayable.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from headrace.base.options import duration, integer, number, option
from headrace.errors import BadOption
from headrace.formats import FORMATS
from headrace.formats.csv import Csv
from headrace.formats.format_kind import Format
from headrace.model.definitions import StreamDef
from headrace.model.schema import Schema
from headrace.sources.shapes import RowMaker
from headrace.sources.source_kind import InputSplit, RawChunk, SourceKind, SourceOffset, WallClock

CHUNK_BYTES = 1 << 20  # size of a chunk: small enough to stay in the CPU cache
SLOT = 1 << 16  # rows have no byte offset; row k is reported at offset k * SLOT
HEAD_START = 1.0  # seconds
SMALLEST_SPLIT = 2000  # rows; less is not worth a task
# Options of formats that the generator can write in one way only.
_ONLY_DEFAULT = ("timestamp_format", "date_format", "binary", "record_delimiter")


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that a row depends on, except its number."""

    schema: Schema
    format: str
    delimiter: str
    event_time: int | None
    seed: int
    start_us: int
    step_us: float
    disorder: float
    spread_us: int
    cardinality: int
    nulls: float


@dataclass(frozen=True, slots=True)
class RowSplit:
    """Rows [begin, end)."""

    recipe: Recipe
    name: str
    begin: int
    end: int

    def read(self, fmt: Format) -> Iterator[RawChunk]:
        maker = RowMaker(self.recipe)
        at = self.begin
        while at < self.end:
            stop = min(self.end, at + maker.rows_per(CHUNK_BYTES))
            yield RawChunk(f"generator:{self.name}", at * SLOT, maker.text(at, stop))
            at = stop


def instant(value: str) -> int:
    """Microseconds since 1970 of an ISO 8601 date and time. It is UTC unless it has an offset."""
    try:
        parsed = dt.datetime.fromisoformat(value)
    except ValueError:
        raise ValueError("a time such as 2026-01-01T00:00:00Z") from None
    zoned = parsed if parsed.tzinfo else parsed.replace(tzinfo=dt.UTC)
    return (zoned - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class GeneratorSettings:
    """The options of `source = 'generator'`. Times and durations are microseconds."""

    rows: int | None = option(integer(0, 1 << 60), help="how many rows in all; endless if absent")
    rate: float | None = option(number(0.001, 1e9), help="rows per second; as fast as possible if absent")
    seed: int = option(integer(0, (1 << 63) - 1), default=1, help="another seed gives other rows")
    start: int = option(instant, default=1_767_225_600_000_000, help="event time of the first row (2026-01-01)")
    step: int | None = option(duration, help="event time between rows; 1/rate if absent, 1 ms without a rate")
    disorder: float = option(number(0, 1), default=0.0, help="share of the rows that arrive late")
    spread: int = option(duration, default=5_000_000, help="how late such a row is at most")
    cardinality: int = option(integer(1, 10_000_000), default=100, help="distinct values of a key-like column")
    nulls: float = option(number(0, 1), default=0.0, help="share of NULL cells; never in the event time")

    @property
    def step_us(self) -> float:
        """Event time between two rows."""
        if self.step is not None:
            return float(self.step)
        return 1e6 / self.rate if self.rate else 1000.0


class Generator:
    """Plans the epochs of a generated stream. The rate counts from the first call after a start, so a stream does not
    make up for the time in which it was stopped."""

    def __init__(self, stream: StreamDef, settings: GeneratorSettings, state_dir: Path, clock: WallClock) -> None:
        fmt = FORMATS[stream.format].make(stream.record_schema, stream.options)
        delimiter = fmt.dialect.delimiter.decode() if isinstance(fmt, Csv) else ","
        held = stream.in_records
        self.recipe = Recipe(
            schema=stream.record_schema,
            format=stream.format,
            delimiter=delimiter,
            event_time=held.index(stream.event_time) if stream.event_time in held else None,
            seed=settings.seed,
            start_us=settings.start,
            step_us=settings.step_us,
            disorder=settings.disorder,
            spread_us=settings.spread,
            cardinality=settings.cardinality,
            nulls=settings.nulls,
        )
        self.name = stream.name
        self.rows = settings.rows
        self.rate = settings.rate
        self.clock = clock
        self.row_bytes = RowMaker(self.recipe).row_bytes
        self._from: tuple[int, float] | None = None

    def initial(self) -> SourceOffset:
        return {"row": 0}

    def latest(self, start: SourceOffset, max_bytes: int | None) -> SourceOffset:
        at: int = start["row"]
        due = self._due(at)
        # Without a rate, a number of rows or a limit the backlog is endless. A million rows is an arbitrary epoch size.
        most = max(1, max_bytes // self.row_bytes) if max_bytes is not None else 1_000_000 if due is None else due - at
        end = at + most if due is None else min(due, at + most)
        return {"row": end} if end > at else start

    def _due(self, at: int) -> int | None:
        """How many rows exist now; None if there is no limit."""
        if self.rate is None:
            return self.rows
        now = self.clock()
        if self._from is None:
            # The rows of one second exist at once: the first epoch costs the most, and an empty one would show nothing.
            self._from = (at, now - HEAD_START if at == 0 else now)
        row, since = self._from
        due = row + int((now - since) * self.rate)
        return due if self.rows is None else min(due, self.rows)

    def splits(self, start: SourceOffset, end: SourceOffset, parallelism: int) -> list[InputSplit]:
        low, high = start["row"], end["row"]
        count = max(1, min(parallelism, -(-(high - low) // SMALLEST_SPLIT)))
        cuts = [low + (high - low) * i // count for i in range(count + 1)]
        return [RowSplit(self.recipe, self.name, a, b) for a, b in pairwise(cuts) if b > a]

    def exhausted(self, at: SourceOffset) -> bool:
        return self.rows is not None and at["row"] >= self.rows

    def backlog(self, at: SourceOffset) -> int:
        due = self._due(at["row"])
        return (1 << 40) if due is None else max(0, due - at["row"]) * self.row_bytes

    def commit(self, end: SourceOffset) -> None:
        """Nothing to release: rows are made when they are read."""


def _check(stream: StreamDef, settings: GeneratorSettings) -> None:
    if stream.format not in ("json", "ndjson", "csv"):
        raise BadOption(
            f"source 'generator' cannot write format '{stream.format}'",
            advice="It writes json and csv.",
            option="format",
            value=stream.format,
        )
    kind = FORMATS[stream.format]
    chosen = kind.settings_of(stream.options)
    for declared in kind.options:
        if declared.name in _ONLY_DEFAULT and getattr(chosen, declared.name) != declared.default:
            raise BadOption(
                f"source 'generator' cannot write with {declared.name}",
                advice=f"Remove {declared.name}.",
                option=declared.name,
            )
    if kind.make(stream.record_schema, stream.options).has_header:
        raise BadOption("source 'generator' writes no header", advice="Remove header.", option="header")


GENERATOR = SourceKind(
    name="generator",
    help="made-up rows, the same for the same seed",
    settings=GeneratorSettings,
    build=Generator,
    check_settings=_check,
)
