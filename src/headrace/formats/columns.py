"""Fields to Arrow columns: the value parsers that all formats share.

The indexer of a format locates fields (`Fields`); `parse_column` picks the parser for a type. Kernels parse almost
every cell. They mark the others as SLOW, and `headrace.formats.values` parses those one by one. So a rare spelling
costs time, never exactness.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.kernels import numbers, texts, times
from headrace.formats.kernels.numbers import FINE, NULL, REASON_BASE, SLOW
from headrace.formats.values import BadValue, Rules, json_cell, text_cell, unscaled
from headrace.model.bad_reasons import VALUE_REASONS
from headrace.model.schema import Array, DataType, Decimal, Map, Scalar, Struct

ByteArray = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int32]

JSON, PLAIN, QUOTED = texts.JSON, texts.PLAIN, texts.QUOTED


@dataclass(frozen=True, slots=True)
class Syntax:
    """How to read the bytes of a field: as a JSON value, plain bytes or CSV, with which quotes and which value
    rules."""

    kind: int
    quote: int = -1
    escape: int = -1
    rules: Rules = field(default_factory=Rules)


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of one column: bytes [starts, ends) of `data` per row. A start of -1 means NULL. A negative end `e`
    means that the field ends at `~e` and has escapes."""

    data: ByteArray
    starts: Places
    ends: Places
    syntax: Syntax

    def __len__(self) -> int:
        return len(self.starts)

    def text(self, row: int) -> bytes:
        """The bytes of a field, not unescaped."""
        end = int(self.ends[row])
        return self.data[int(self.starts[row]) : end if end >= 0 else ~end].tobytes()


@dataclass(frozen=True, slots=True)
class Parsed:
    """A column with a status for each cell. `odd` is the number of cells that are not FINE."""

    array: Any
    status: ByteArray
    odd: int


_cells = 0


def cells_parsed() -> int:
    """How many cells this process has parsed so far. Parts of nested values count, too."""
    return _cells


def count_cells(count: int) -> None:
    """Add cells that `parse_column` did not parse."""
    global _cells
    _cells += count


def parse_column(fields: Fields, kind: DataType) -> Parsed:
    """Parse fields into a column of type `kind`. Bad cells are NULL, with the reason in `status`."""
    count_cells(len(fields))
    if isinstance(kind, Scalar):
        return _SCALARS[kind.name](fields, kind)
    return _OTHERS[type(kind)](fields, kind)


def status_of(reason: str) -> int:
    """The status of a cell that is bad for `reason`."""
    return VALUE_REASONS.index(reason) + REASON_BASE


def _validity(status: ByteArray, odd: int) -> Any:
    return pa.py_buffer(np.packbits(status == FINE, bitorder="little").tobytes()) if odd else None


def _buffer(values: npt.NDArray[Any]) -> Any:
    whole: Any = memoryview(values)  # type: ignore[arg-type]
    return pa.py_buffer(whole.cast("B")) if len(values) else pa.py_buffer(b"")


def _slow_cells(fields: Fields, kind: DataType, status: ByteArray, store: Callable[[int, Any], None]) -> int:
    """Parse the SLOW cells. Returns how many cells are not FINE afterwards."""
    for row in np.flatnonzero(status == SLOW).tolist():
        try:
            store(row, slow_cell(fields, kind, row))
            status[row] = FINE
        except BadValue as bad:
            status[row] = status_of(bad.reason)
    return int(np.count_nonzero(status != FINE))


def slow_cell(fields: Fields, kind: DataType, row: int) -> Any:
    """Parse one cell exactly. Raises BadValue."""
    syntax = fields.syntax
    if syntax.kind == JSON:
        return json_cell(kind, fields.text(row), syntax.rules)
    raw = fields.text(row)
    if fields.ends[row] < 0:
        raw = unquoted(raw, syntax.quote, syntax.escape)
    return text_cell(kind, raw, syntax.rules)


def unquoted(raw: bytes, quote: int, escape: int) -> bytes:
    """Unescape the inside of a quoted CSV field."""
    out, at = bytearray(), 0
    while at < len(raw):
        c = raw[at]
        if c in (escape, quote) and at + 1 < len(raw) and (c == escape or raw[at + 1] == quote):
            at += 1
        out.append(raw[at])
        at += 1
    return bytes(out)


# A kernel: it fills the values and the status of fields, and returns how many are not FINE.
FieldKernel = Callable[[Fields, npt.NDArray[Any], ByteArray], int]


def _run(fields: Fields, kind: DataType, run: FieldKernel, values: npt.NDArray[Any]) -> tuple[ByteArray, int]:
    """Run a kernel, then run it again on the unescaped text of fields with escapes. Returns (status, number of cells
    that are not FINE)."""
    status = np.empty(len(fields), np.uint8)
    odd = run(fields, values, status)
    if not odd:
        return status, odd
    rows = np.flatnonzero((status == SLOW) & (fields.ends < 0))
    if len(rows):
        texts_of = plain_texts(at(fields, rows))
        found, verdict = np.zeros(len(rows), values.dtype), np.empty(len(rows), np.uint8)
        run(texts_of, found, verdict)
        if fields.syntax.kind == JSON:
            _no_json_string(kind, found, verdict)
        values[rows], status[rows] = found, verdict
        odd = int(np.count_nonzero(status != FINE))
    return status, odd


def plain_texts(fields: Fields) -> Fields:
    """Unescape quoted fields and JSON strings into plain fields. A lone surrogate becomes an empty text, which is not a
    value of any type that is read this way."""
    syntax, out = fields.syntax, np.empty(_room(fields), np.uint8)
    offsets, status = np.empty(len(fields) + 1, np.int32), np.empty(len(fields), np.uint8)
    texts.parse_strings(
        fields.data, fields.starts, fields.ends, syntax.kind, syntax.quote, syntax.escape, False, NULL, out, offsets,
        status,
    )  # fmt: skip
    out.flags.writeable = False  # the kernels are compiled for read-only input
    return Fields(out, offsets[:-1], offsets[1:], Syntax(PLAIN, rules=syntax.rules))


def _no_json_string(kind: DataType, values: npt.NDArray[Any], status: ByteArray) -> None:
    """Reject JSON strings as integers and booleans, and as FLOAT or DOUBLE except NaN and the infinities."""
    if kind.ddl in _WIDTHS or kind.ddl == "BOOLEAN":
        status[:] = status_of("bad_boolean" if kind.ddl == "BOOLEAN" else "bad_integer")
    elif kind.ddl in ("FLOAT", "DOUBLE"):
        status[(status == SLOW) | ((status == FINE) & np.isfinite(values))] = status_of("bad_number")


def _fixed(
    fields: Fields, kind: DataType, run: FieldKernel, dtype: Any, fit: Callable[[Any], int | float]
) -> tuple[npt.NDArray[Any], ByteArray, int]:
    """Run a kernel into a new value array, then parse its SLOW cells."""
    values = np.zeros(len(fields), dtype) if dtype == np.int64 else np.empty(len(fields), dtype)
    status, odd = _run(fields, kind, run, values)
    if odd and (status == SLOW).any():

        def store(row: int, value: Any) -> None:
            values[row] = fit(value)

        odd = _slow_cells(fields, kind, status, store)
    return values, status, odd


def _boolean(fields: Fields, kind: DataType) -> Parsed:
    def run(of: Fields, values: Any, status: ByteArray) -> int:
        values[:] = 0
        return numbers.parse_booleans(of.data, of.starts, of.ends, of.syntax.kind == JSON, values, status)

    values, status, odd = _fixed(fields=fields, kind=kind, run=run, dtype=np.uint8, fit=int)
    bits = pa.py_buffer(np.packbits(values.astype(bool), bitorder="little").tobytes())
    return Parsed(pa.Array.from_buffers(pa.bool_(), len(fields), [_validity(status, odd), bits], odd), status, odd)


_WIDTHS: dict[str, Any] = {"TINYINT": np.int8, "SMALLINT": np.int16, "INT": np.int32, "BIGINT": np.int64}


def _integer(fields: Fields, kind: DataType) -> Parsed:
    width = _WIDTHS[kind.ddl]
    limits = np.iinfo(width)

    def run(of: Fields, values: Any, status: ByteArray) -> int:
        return numbers.parse_integers(of.data, of.starts, of.ends, int(limits.max), values, status)

    values, status, odd = _fixed(fields=fields, kind=kind, run=run, dtype=np.int64, fit=int)
    return _primitive(kind, values.astype(width, copy=False), status, odd)


def _primitive(kind: DataType, values: npt.NDArray[Any], status: ByteArray, odd: int) -> Parsed:
    buffers = [_validity(status, odd), _buffer(values)]
    return Parsed(pa.Array.from_buffers(kind.arrow, len(values), buffers, odd), status, odd)


def _double(fields: Fields, kind: DataType) -> Parsed:
    single = kind.ddl == "FLOAT"

    def run(of: Fields, values: Any, status: ByteArray) -> int:
        return numbers.parse_doubles(of.data, of.starts, of.ends, single, of.syntax.kind == JSON, values, status)

    values, status, odd = _fixed(fields=fields, kind=kind, run=run, dtype=np.float64, fit=float)
    if single:
        with np.errstate(over="ignore", invalid="ignore"):
            values = values.astype(np.float32)
    return _primitive(kind, values, status, odd)


def _decimal(fields: Fields, kind: DataType) -> Parsed:
    assert isinstance(kind, Decimal)
    wide: dict[int, int] = {}

    def run(of: Fields, values: Any, status: ByteArray) -> int:
        return numbers.parse_decimals(
            of.data, of.starts, of.ends, kind.precision, kind.scale, of.syntax.kind == JSON, numbers.BAD_DECIMAL,
            values, status,
        )  # fmt: skip

    values = np.zeros(len(fields), np.int64)
    status, odd = _run(fields, kind, run, values)
    if odd and (status == SLOW).any():

        def store(row: int, value: Any) -> None:
            wide[row] = unscaled(value, kind.scale)

        odd = _slow_cells(fields, kind, status, store)
    words = np.empty((len(fields), 2), np.int64)
    words[:, 0] = values
    words[:, 1] = values >> 63
    for row, units in wide.items():
        words[row] = np.frombuffer((units % (1 << 128)).to_bytes(16, "little"), np.int64)
    return _primitive(kind, words.reshape(-1), status, odd) if not len(words) else _words(kind, words, status, odd)


def _words(kind: DataType, words: npt.NDArray[np.int64], status: ByteArray, odd: int) -> Parsed:
    buffers = [_validity(status, odd), _buffer(words.reshape(-1))]
    return Parsed(pa.Array.from_buffers(kind.arrow, len(words), buffers, odd), status, odd)


def _timestamp(fields: Fields, kind: DataType) -> Parsed:
    rules = fields.syntax.rules
    zoned = kind.ddl == "TIMESTAMP"

    def run(of: Fields, values: Any, status: ByteArray) -> int:
        found, quoted = (of.data, of.starts, of.ends), of.syntax.kind == JSON
        if rules.epoch is not None:
            return numbers.parse_decimals(*found, 19, rules.epoch_scale, quoted, times.BAD_TIMESTAMP, values, status)
        if rules.stamp is not None:
            return times.parse_pattern(*found, quoted, rules.stamp.program, times.BAD_TIMESTAMP, values, status)
        return times.parse_timestamps(*found, quoted, zoned, values, status)

    values, status, odd = _fixed(fields=fields, kind=kind, run=run, dtype=np.int64, fit=int)
    if rules.epoch == "epoch_ns":
        values //= 1000
    odd += mark_beyond(values, times.TIMESTAMPS, status)
    return _primitive(kind, values, status, odd)


def mark_beyond(values: npt.NDArray[Any], limits: tuple[int, int], status: ByteArray) -> int:
    """Mark values outside `limits` as out of range. Returns how many there are."""
    first, last = limits
    if not len(values) or (values.min() >= first and values.max() <= last):
        return 0
    outside = (status == FINE) & ((values < first) | (values > last))
    status[outside] = numbers.OUT_OF_RANGE
    return int(np.count_nonzero(outside))


def _date(fields: Fields, kind: DataType) -> Parsed:
    rules = fields.syntax.rules

    def run(of: Fields, values: Any, status: ByteArray) -> int:
        found = (of.data, of.starts, of.ends, of.syntax.kind == JSON)
        if rules.date is not None:
            return times.parse_pattern(*found, rules.date.program, times.BAD_DATE, values, status)
        return times.parse_dates(*found, values, status)

    values, status, odd = _fixed(fields=fields, kind=kind, run=run, dtype=np.int64, fit=int)
    days = values // times.DAY if rules.date is not None else values
    return _primitive(kind, days.astype(np.int32), status, odd)


def _room(fields: Fields) -> int:
    """An upper bound on the bytes of all texts."""
    ends = np.where(fields.ends >= 0, fields.ends, ~fields.ends).astype(np.int64)
    return int((ends - fields.starts)[fields.starts >= 0].sum()) + 8


def _string(fields: Fields, kind: DataType) -> Parsed:
    syntax = fields.syntax
    wrong = SLOW if syntax.rules.utf8 == "replace" else texts.BAD_UTF8
    return _texts(fields, kind, True, wrong)


def _binary(fields: Fields, kind: DataType) -> Parsed:
    coding = fields.syntax.rules.binary
    if coding == "raw":
        return _texts(fields, kind, False, texts.BAD_BINARY)
    out = np.empty(_room(fields), np.uint8)
    offsets = np.empty(len(fields) + 1, np.int32)
    status = np.empty(len(fields), np.uint8)
    code = texts.HEX if coding == "hex" else texts.BASE64
    odd = texts.parse_binaries(
        fields.data, fields.starts, fields.ends, fields.syntax.kind, code, out, offsets, status
    )  # fmt: skip
    return _variable(fields=fields, kind=kind, out=out, offsets=offsets, status=status, odd=odd)


def _texts(fields: Fields, kind: DataType, utf8: bool, wrong: int) -> Parsed:
    syntax = fields.syntax
    out = np.empty(_room(fields), np.uint8)
    offsets = np.empty(len(fields) + 1, np.int32)
    status = np.empty(len(fields), np.uint8)
    odd = texts.parse_strings(
        fields.data, fields.starts, fields.ends, syntax.kind, syntax.quote, syntax.escape, utf8, wrong, out, offsets,
        status,
    )  # fmt: skip
    return _variable(fields=fields, kind=kind, out=out, offsets=offsets, status=status, odd=odd)


def _variable(fields: Fields, kind: DataType, out: ByteArray, offsets: Places, status: ByteArray, odd: int) -> Parsed:
    changed: dict[int, Any] = {}
    if odd and (status == SLOW).any():
        odd = _slow_cells(fields, kind, status, changed.__setitem__)
    buffers = [_validity(status, odd), _buffer(offsets), _buffer(out)]
    array: Any = pa.Array.from_buffers(kind.arrow, len(fields), buffers, odd)
    if changed:
        where = np.zeros(len(fields), bool)
        where[list(changed)] = True
        array = pc.replace_with_mask(array, pa.array(where), pa.array(changed.values(), kind.arrow))
    return Parsed(array, status, odd)


def merge(status: ByteArray, inner: ByteArray) -> ByteArray:
    """Merge the status of parts into that of nested cells: a cell is bad if a part of it is."""
    return np.where((inner > NULL) & (status == FINE), inner, status).astype(np.uint8)


_SCALARS: dict[str, Callable[[Fields, DataType], Parsed]] = {
    "BOOLEAN": _boolean, "TINYINT": _integer, "SMALLINT": _integer, "INT": _integer, "BIGINT": _integer,
    "FLOAT": _double, "DOUBLE": _double, "STRING": _string, "BINARY": _binary, "DATE": _date,
    "TIMESTAMP": _timestamp, "TIMESTAMP_NTZ": _timestamp,
}  # fmt: skip


def _nested(fields: Fields, kind: DataType) -> Parsed:
    from headrace.formats.nested import parse_nested

    return parse_nested(fields, kind)


_OTHERS: dict[type[DataType], Callable[[Fields, DataType], Parsed]] = {
    Decimal: _decimal, Struct: _nested, Array: _nested, Map: _nested,
}  # fmt: skip


def at(fields: Fields, rows: npt.NDArray[Any]) -> Fields:
    """The fields of some rows."""
    return replace(fields, starts=np.take(fields.starts, rows), ends=np.take(fields.ends, rows))
