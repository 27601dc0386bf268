"""The columns of a batch as the kernels of `headrace.bridge.kernels.folds` read them.

All filters, arguments and keys of many passes are evaluated in one statement. A key is encoded once, whichever passes
group by it: its *code* is the number of its value among those of the batch, and NULL has the last code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.arrays import Ints
from headrace.bridge.buckets import NULL_HASH, Hashes, column_hashes, mix64
from headrace.bridge.kernels import folds as k
from headrace.exec import duck
from headrace.model.program import Meaning, Window
from headrace.ring0.fold_program import FoldKey, FoldProgram, FoldStep, RowCondition, is_column

S = TypeVar("S", bound=np.generic)
Bits = npt.NDArray[np.uint8]  # one bit per row
TimedRows = npt.NDArray[np.bool_]
ConditionalSql = tuple[RowCondition, str]  # an expression, and on which rows it is evaluated
TIME = "_t"
# So many expressions are evaluated by one statement. DuckDB has buffers for all of them at once, and a worker stays as
# large as its largest task: with 300 filters in one statement it took 16 MB.
TOGETHER = 64


class CannotFold(Exception):
    """The values of a batch are not of the types that the kernels know."""


class KeyCodes:
    """The codes of one key. `count` is the number of codes, `known` of those that are not NULL."""

    def __init__(self, column: pa.Array[Any]) -> None:
        encoded: Any = pc.dictionary_encode(column)
        self._values, indices = encoded.dictionary, encoded.indices
        self.known, self.nullable = len(self._values), indices.null_count > 0
        self.count = self.known + self.nullable
        filled = indices.fill_null(self.known) if self.nullable else indices
        self.codes: Ints = filled.to_numpy(zero_copy_only=False).astype(np.int64)
        self._hashes: Hashes | None = None
        self._texts: tuple[Ints, Ints, Bits] | None = None
        self._numbers: Ints | None = None
        self._buckets: dict[int, Ints] = {}

    def hashes(self) -> Hashes:
        """The hash of each code, for the bucket."""
        if self._hashes is None:
            self._hashes = np.append(column_hashes(self._values), NULL_HASH)
        return self._hashes

    def buckets(self, count: int) -> Ints:
        """The bucket of each code among `count`, if this is the only key that is hashed."""
        found = self._buckets.get(count)
        if found is None:
            mixed = mix64(self.hashes())
            found = self._buckets[count] = (mixed % np.uint64(count)).astype(np.int64)
        return found

    def texts(self) -> tuple[Ints, Ints, Bits]:
        """The offsets of the texts, the length of the text of each code (0 for NULL), and the bytes of all texts.
        Computed once for all passes, as are the numbers."""
        if self._texts is None:
            offsets, data = self._stored_texts()
            self._texts = offsets, np.append(np.diff(offsets), 0), data
        return self._texts

    def _stored_texts(self) -> tuple[Ints, Bits]:
        buffers: list[Any] = self._values.buffers()
        first = self._values.offset
        if not self.known or buffers[2] is None:
            return np.zeros(self.known + 1, np.int64), np.zeros(0, np.uint8)
        offsets = np.frombuffer(buffers[1], np.int32)[first : first + self.known + 1]
        return offsets.astype(np.int64), np.frombuffer(buffers[2], np.uint8)

    def numbers(self) -> Ints:
        """The value of each code as a whole number; 0 for NULL."""
        if self._numbers is None:
            self._numbers = np.append(_integers(self._values), 0)
        return self._numbers


class EventTimes(NamedTuple):
    """The event times of a batch, which rows have one (None if all do), and the lowest and highest; None without
    any."""

    values: Ints
    valid: TimedRows | None
    bounds: tuple[int, int] | None


class FoldColumns:
    """The columns of one batch for some passes. Making one raises what an expression raises, and CannotFold."""

    def __init__(
        self, meaning: Meaning, rows: pa.Table, passes: Sequence[Sequence[FoldProgram]], known: Mapping[str, str]
    ) -> None:
        """`known` maps filters to columns of `rows` that hold their result."""
        self.rows = rows.num_rows
        self._table, self._known = rows, known
        self._columns: dict[str, pa.Array[Any]] = {}
        self._codes: dict[ConditionalSql, KeyCodes] = {}
        self._numbers: dict[ConditionalSql, int] = {}
        self._masked: dict[ConditionalSql, int] = {}
        self._times: EventTimes | None = None
        self._windows: dict[tuple[int, int], tuple[Ints, Ints, int]] = {}
        programs = [member for members in passes for member in members]
        self._flags = {f: i for i, f in enumerate(dict.fromkeys(p.filter for p in programs if p.filter is not None))}
        self._made = self._evaluated(meaning, passes)
        ints: list[Ints] = []
        doubles: list[npt.NDArray[np.float64]] = []
        masks: list[Bits] = []
        for program in programs:
            for step in program.steps:
                name = _named(step.argument, program.guard)
                if not step.argument or (name in self._masked and (step.kind == k.COUNT or name in self._numbers)):
                    continue
                column = self._value(name)
                if name not in self._masked:
                    self._masked[name] = len(masks) if column.null_count else -1
                    masks += [_valid_bits(column)] if column.null_count else []
                if step.kind == k.COUNT:
                    continue
                if step.type == pa.float64() == column.type:
                    self._numbers[name] = len(doubles)
                    doubles.append(column.to_numpy(zero_copy_only=False) if column.null_count else column.to_numpy())
                elif pa.types.is_signed_integer(column.type) if step.type is None else _alike(column.type, step.type):
                    self._numbers[name] = len(ints)
                    ints.append(_integers(column))
                else:
                    raise CannotFold(f"{step.argument} is {column.type}")
        bits = [_bits(self._made[None, text]) for text in self._flags]
        self.flags = _stacked(bits, -(-self.rows // 8), np.uint8)
        self.masks = _stacked(masks, -(-self.rows // 8), np.uint8)
        self.ints = _stacked(ints, self.rows, np.int64)
        self.doubles = _stacked(doubles, self.rows, np.float64)

    def flag(self, program: FoldProgram) -> int:
        """The row of `flags` for the filter of a program; -1 if it has none."""
        return -1 if program.filter is None else self._flags[program.filter]

    def place(self, program: FoldProgram, step: FoldStep) -> tuple[int, int]:
        """The row of `ints` or `doubles` with the argument of a step, and the row of `masks`; -1 if no value is
        NULL."""
        if not step.argument:
            return 0, -1
        name = _named(step.argument, program.guard)
        return self._numbers.get(name, 0), self._masked[name]

    def times(self) -> EventTimes:
        """The event times, read once for all passes."""
        if self._times is None:
            column = self._column(TIME)
            valid = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
            values = _integers(column)
            timed = values if valid is None else values[valid]
            bounds = (int(timed.min()), int(timed.max())) if len(timed) else None
            self._times = EventTimes(values, valid, bounds)
        return self._times

    def windowed(self, window: Window, times: EventTimes, low: int, high: int) -> tuple[Ints, Ints, int]:
        """The number of each row's window, counted from that of the lowest event time, the start of the window, and
        how many windows there are up to that of the highest. Computed once for all passes with this window."""
        key = (window.offset, window.slide)
        found = self._windows.get(key)
        if found is None:
            starts = times.values - np.mod(times.values - window.offset, window.slide)
            earliest = low - (low - window.offset) % window.slide
            size = (high - earliest) // window.slide + 1
            found = self._windows[key] = ((starts - earliest) // window.slide, starts, size)
        return found

    def codes(self, key: FoldKey, guard: RowCondition) -> KeyCodes:
        """The codes of a key, in a pass with this guard."""
        name = _named(key.sql, guard)
        found = self._codes.get(name)
        if found is None:
            column = self._value(name)
            if not _alike(column.type, key.type):
                raise CannotFold(f"{key.sql} is {column.type}, not {key.type}")
            found = self._codes[name] = KeyCodes(column)
        return found

    def _evaluated(
        self, meaning: Meaning, passes: Sequence[Sequence[FoldProgram]]
    ) -> dict[ConditionalSql, pa.Array[Any]]:
        """Evaluate all that is not just a column: filters, and arguments and keys on the rows that filters keep."""
        wanted: dict[ConditionalSql, str] = {}
        for members in passes:
            for program in members:
                guard = program.guard
                wanted |= {(guard, s.argument): s.argument for s in program.steps if not is_column(s.argument or "c0")}
            guard = guard_of(members)
            wanted |= {(guard, key.sql): key.cast for key in members[0].keys if not is_column(key.sql)}
        filters = ((self._known.get(text, text), i) for text, i in self._flags.items())
        flags = [f"coalesce(CAST(({text}) AS BOOLEAN), false) AS _f{i}" for text, i in filters]
        values = [f"{self._guarded(guard, sql)} AS _a{i}" for i, ((guard, _), sql) in enumerate(wanted.items())]
        found: list[Any] = []
        if values and flags:
            names = [f"_f{i}" for i in range(len(flags))]
            sql = f"SELECT {', '.join([*names, *values])} FROM (SELECT *, {', '.join(flags)} FROM rows)"
            found += duck.run(meaning, sql, {"rows": self._table}).columns
        else:
            for first in range(0, len(flags) + len(values), TOGETHER):
                sql = f"SELECT {', '.join([*flags, *values][first : first + TOGETHER])} FROM rows"
                found += duck.run(meaning, sql, {"rows": self._table}).columns
        made: list[ConditionalSql] = [*((None, text) for text in self._flags), *wanted]
        return {name: _one(column) for name, column in zip(made, found, strict=True)}

    def _guarded(self, guard: RowCondition, sql: str) -> str:
        if guard is None:
            return f"({sql})"
        return f"CASE WHEN {' OR '.join(f'_f{self._flags[text]}' for text in guard)} THEN ({sql}) END"

    def _column(self, name: str) -> pa.Array[Any]:
        found = self._columns.get(name)
        if found is None:
            found = self._columns[name] = _one(self._table.column(name))
        return found

    def _value(self, name: ConditionalSql) -> pa.Array[Any]:
        return self._column(name[1]) if is_column(name[1]) else self._made[name]


def guard_of(members: Sequence[FoldProgram]) -> RowCondition:
    """The filters of a pass: its keys are evaluated on rows that one of them keeps."""
    filters = [member.filter for member in members]
    return None if None in filters else tuple(dict.fromkeys(text for text in filters if text is not None))


def _named(sql: str, guard: RowCondition) -> ConditionalSql:
    return (None if is_column(sql) else guard), sql


def _alike(found: pa.DataType, wanted: pa.DataType) -> bool:
    """True if two types have the same values. DuckDB may call a time zone by another name."""
    times = pa.types.is_timestamp(found) and pa.types.is_timestamp(wanted)
    return found == wanted or (times and found.unit == wanted.unit)  # type: ignore[attr-defined]


def _one(column: pa.ChunkedArray[Any]) -> pa.Array[Any]:
    whole: pa.Array[Any] = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()  # type: ignore[assignment]
    return whole


def _integers(column: pa.Array[Any]) -> Ints:
    """Whole numbers, dates, times or booleans as 64-bit numbers. NULL is any number."""
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    if column.type != pa.int64():
        column = column.cast(pa.int64())
    if len(column) == 0:
        return np.zeros(0, np.int64)
    values: Any = column.buffers()[1]
    return np.frombuffer(values, np.int64)[column.offset : column.offset + len(column)]


def _bits(column: pa.Array[Any]) -> Bits:
    """The values of a BOOLEAN column without NULL."""
    return _bitmap(column, column.buffers()[1])


def _valid_bits(column: pa.Array[Any]) -> Bits:
    """Which values are not NULL."""
    bitmap = column.buffers()[0]
    if bitmap is None:  # a column of type NULL
        return np.zeros(-(-len(column) // 8), np.uint8)
    return _bitmap(column, bitmap)


def _bitmap(column: pa.Array[Any], bitmap: Any) -> Bits:
    size, offset = len(column), column.offset
    if size == 0:
        return np.zeros(0, np.uint8)
    data = np.frombuffer(bitmap, np.uint8)
    if offset % 8 == 0:
        return data[offset // 8 : offset // 8 + -(-size // 8)]
    bits = np.unpackbits(data, bitorder="little")[offset : offset + size]
    return np.packbits(bits, bitorder="little")


def _stacked(arrays: list[npt.NDArray[S]], size: int, kind: type[S]) -> npt.NDArray[S]:
    """The arrays as rows of one; one row of zeros if there are none."""
    return np.stack(arrays) if arrays else np.zeros((1, size), kind)
