"""The format `native`: binary rows with a null bitmap, a fixed part and a variable part (docs/formats.md).

Row layout, little-endian, no padding: [u32 length of the rest, only if the schema has STRING or BINARY columns] [null
bitmap, bit i set: column i is NULL] [fixed part: one slot per column] [variable part]. A STRING or BINARY slot is (u32
offset from the row's bitmap, u32 length). `write_rows` writes such rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import BadOption
from headrace.formats.bad import NOTHING_BAD, BadRecords, bad_frame
from headrace.formats.columns import PLAIN, ByteArray, Fields, Places, Syntax, count_cells, mark_beyond, parse_column
from headrace.formats.format_kind import BadRecord, Decoded, FormatKind, Framed, Located, Preamble, too_long
from headrace.formats.format_settings import RecordSettings
from headrace.formats.index import bad_cells, view_of
from headrace.formats.kernels import times
from headrace.formats.kernels.numbers import FINE, NULL, OUT_OF_RANGE
from headrace.formats.kernels.scan_frames import scan_frames
from headrace.formats.values import Rules
from headrace.model.schema import DataType, Decimal, Scalar, Schema

_WIDTHS = {
    "BOOLEAN": "u1", "TINYINT": "i1", "SMALLINT": "<i2", "INT": "<i4", "BIGINT": "<i8", "FLOAT": "<f4", "DOUBLE": "<f8",
    "DATE": "<i4", "TIMESTAMP": "<i8", "TIMESTAMP_NTZ": "<i8", "STRING": "<u4", "BINARY": "<u4",
}  # fmt: skip
_VARIABLE = ("STRING", "BINARY")


@dataclass(frozen=True, slots=True)
class NativeLayout:
    """The row of a schema as a numpy record: `nulls`, then c0, c1, ... A length of `prefix` bytes precedes it."""

    row: Any
    prefix: int

    @staticmethod
    def of(schema: Schema) -> NativeLayout:
        fields: list[Any] = [("nulls", "u1", ((len(schema) + 7) // 8,))]
        for i, field in enumerate(schema):
            if isinstance(field.type, Decimal):
                fields.append((f"c{i}", "<i8", (2,)))
            elif field.type.ddl in _VARIABLE:
                fields.append((f"c{i}", "<u4", (2,)))
            else:
                fields.append((f"c{i}", _WIDTHS[field.type.ddl]))
        variable = any(f.type.ddl in _VARIABLE for f in schema)
        return NativeLayout(np.dtype(fields), 4 if variable else 0)


@dataclass(frozen=True, slots=True)
class NativeIndex:
    """The rows of one buffer; see `headrace.formats.format_kind.Indexed`. The position of a row gives those of its
    fields."""

    schema: Schema
    data: ByteArray
    fixed: npt.NDArray[Any]
    begins: npt.NDArray[np.int64]
    stops: npt.NDArray[np.int64]
    prefix: int
    origin: str
    offset: int
    bad: BadRecords = NOTHING_BAD

    @property
    def rows(self) -> int:
        return len(self.fixed)

    @property
    def records(self) -> Located:
        return Located(self.data, self.begins - self.prefix, self.stops)

    def parse(self, columns: Sequence[int], selection: npt.NDArray[np.int64] | None = None) -> Decoded:
        rows = np.arange(self.rows) if selection is None else np.asarray(selection)
        parsed: dict[int, Any] = {}
        bad: list[tuple[int, ByteArray]] = []
        for column in columns:
            array, status = self._column(column, rows)
            parsed[column] = array
            if status is not None:
                bad.append((column, status))
        begins = self.begins - self.prefix
        cells = bad_cells(
            found=bad,
            data=self.data,
            begins=begins,
            stops=self.stops,
            origin=self.origin,
            offset=self.offset,
            selection=rows,
        )
        return Decoded(len(rows), parsed, cells)

    def _nulls(self, column: int, rows: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        return np.asarray(self.fixed["nulls"][rows, column // 8] >> (column % 8) & 1, bool)

    def _column(self, column: int, rows: npt.NDArray[Any]) -> tuple[Any, ByteArray | None]:
        kind = self.schema[column].type
        nulls = self._nulls(column, rows)
        cells = self.fixed[f"c{column}"][rows]
        if kind.ddl in _VARIABLE:
            return self._texts(kind, cells, nulls, rows)
        count_cells(len(rows))
        if isinstance(kind, Decimal):
            return _decimals(kind, cells, nulls)
        if kind.ddl == "BOOLEAN":
            return pa.array(cells != 0, mask=nulls), None
        width = {"DATE": pa.int32(), "TIMESTAMP": pa.int64(), "TIMESTAMP_NTZ": pa.int64()}.get(kind.ddl)
        status = None
        if width is not None:  # a moment
            status = np.where(nulls, NULL, FINE).astype(np.uint8)
            mark_beyond(cells, times.DATES if kind.ddl == "DATE" else times.TIMESTAMPS, status)
            nulls = status != FINE
        array = pa.array(np.ascontiguousarray(cells), width or kind.arrow, mask=nulls if nulls.any() else None)
        return array.view(kind.arrow), status

    def _texts(self, kind: DataType, cells: Any, nulls: Any, rows: Any) -> tuple[Any, ByteArray | None]:
        start = self.begins[rows] + cells[:, 0]
        fields = Fields(
            self.data,
            np.where(nulls, -1, start).astype(np.int32),
            (start + cells[:, 1]).astype(np.int32),
            Syntax(PLAIN, rules=Rules(binary="raw")),
        )
        found = parse_column(fields, kind)
        return found.array, found.status if found.odd else None


def _decimals(kind: Decimal, cells: Any, nulls: Any) -> tuple[Any, ByteArray | None]:
    words = np.ascontiguousarray(cells, dtype=np.int64)
    limit = 10**kind.precision
    status = np.where(nulls, NULL, 0).astype(np.uint8)
    wide = words[:, 1] != words[:, 0] >> 63
    suspects = wide if kind.precision > 18 else wide | (np.abs(words[:, 0].astype(np.float64)) >= limit * 0.999)
    for i in np.flatnonzero(suspects & ~nulls).tolist():
        value = int.from_bytes(words[i].tobytes(), "little", signed=True)
        if abs(value) >= limit:
            status[i] = OUT_OF_RANGE
    odd = int(np.count_nonzero(status))
    valid = pa.py_buffer(np.packbits(status == 0, bitorder="little").tobytes()) if odd else None
    array = pa.Array.from_buffers(kind.arrow, len(words), [valid, pa.py_buffer(words.tobytes())], odd)
    return array, status if (status > NULL).any() else None


class Native:
    """The `native` format. Keeps no state between calls. Rows without a variable part all have the same size."""

    name = "native"
    indexer = "headrace.formats.native"
    skips = True
    delimiter = b""
    has_header = False

    def __init__(self, schema: Schema, max_record_bytes: int) -> None:
        self.schema = schema
        self.max_record_bytes = max_record_bytes
        self.layout = NativeLayout.of(schema)

    @property
    def row_bytes(self) -> int:
        return 0 if self.layout.prefix else int(self.layout.row.itemsize)

    @property
    def in_order(self) -> str:
        return "rows with STRING or BINARY values differ in size" if self.layout.prefix else ""

    def preamble(self, head: bytes, first: bool, final: bool) -> Preamble:
        return Preamble(0)

    def frame(self, data: bytes | memoryview, final: bool) -> Framed:
        if final:
            return Framed(len(data))
        if not self.layout.prefix:
            return Framed(len(data) - len(data) % self.layout.row.itemsize)
        _, whole, length = scan_frames(view_of(data), 4, False, self.max_record_bytes, *_NOWHERE)
        return Framed(whole, 4 + length if length > self.max_record_bytes else 0)

    def index(self, data: bytes | memoryview, wanted: Sequence[int], origin: str, offset: int) -> NativeIndex:
        buf = view_of(data)
        size, prefix = self.layout.row.itemsize, self.layout.prefix
        if not prefix:
            rows = len(buf) // size
            begins = np.arange(rows, dtype=np.int64) * size
            return self._indexed(
                buf=buf, begins=begins, stops=begins + size, whole=rows * size, origin=origin, offset=offset
            )
        room = len(buf) // 4 + 1
        first, last = np.empty(room, np.int32), np.empty(room, np.int32)
        count, whole, _ = scan_frames(buf, 4, False, max(len(buf), self.max_record_bytes), first, last)
        return self._indexed(
            buf=buf,
            begins=first[:count].astype(np.int64),
            stops=last[:count].astype(np.int64),
            whole=whole,
            origin=origin,
            offset=offset,
        )

    def _indexed(self, buf: ByteArray, begins: Any, stops: Any, whole: int, origin: str, offset: int) -> NativeIndex:
        size, prefix = self.layout.row.itemsize, self.layout.prefix
        fits = stops - begins >= size
        fixed = self._gathered(buf, np.where(fits, begins, 0)) if prefix else buf[:whole].view(self.layout.row)
        good = fits & (stops - begins <= self.max_record_bytes)
        for i, field in enumerate(self.schema):
            if field.type.ddl in _VARIABLE:
                cells = fixed[f"c{i}"].astype(np.int64)
                null = fixed["nulls"][:, i // 8] >> (i % 8) & 1 == 1
                good &= null | ((cells[:, 0] >= size) & (cells.sum(axis=1) <= stops - begins))
        bad = [
            self._bad(buf=buf, begin=int(begins[i]), stop=int(stops[i]), origin=origin, offset=offset)
            for i in np.flatnonzero(~good)
        ]
        if whole < len(buf):
            bad.append(bad_frame(origin, offset + whole, buf[whole : whole + 1024].tobytes()))
        if not good.all():
            fixed, begins, stops = fixed[good], begins[good], stops[good]
        return NativeIndex(
            schema=self.schema,
            data=buf,
            fixed=fixed,
            begins=begins,
            stops=stops,
            prefix=prefix,
            origin=origin,
            offset=offset,
            bad=BadRecords.of(bad),
        )

    def _gathered(self, buf: ByteArray, begins: Any) -> Any:
        """Copy the fixed parts of rows of different sizes into one array. Rows of one size need no copy."""
        size = self.layout.row.itemsize
        rows = buf[begins[:, None] + np.arange(size)] if len(buf) >= size else np.zeros((len(begins), size), np.uint8)
        return np.ascontiguousarray(rows).view(self.layout.row).reshape(-1)

    def _bad(self, buf: ByteArray, begin: int, stop: int, origin: str, offset: int) -> BadRecord:
        place = offset + begin - self.layout.prefix
        if stop - begin > self.max_record_bytes:
            return too_long(origin, place, buf[begin:stop][: self.max_record_bytes].tobytes(), self.max_record_bytes)
        return bad_frame(origin, place, buf[begin - self.layout.prefix : stop].tobytes())

    def decode(self, data: bytes | memoryview, wanted: Sequence[int], origin: str, offset: int) -> Decoded:
        index = self.index(data, wanted, origin, offset)
        parsed = index.parse(wanted)
        return Decoded(parsed.rows, parsed.columns, index.bad.plus(parsed.bad))


_NOWHERE: tuple[Places, Places] = (np.empty(0, np.int32), np.empty(0, np.int32))


def write_rows(schema: Schema, table: pa.Table) -> bytes:
    """Encode `table`, which has the columns of `schema`, as native rows."""
    layout = NativeLayout.of(schema)
    rows = table.num_rows
    fixed = np.zeros(rows, layout.row)
    variable: list[tuple[int, list[bytes]]] = []
    for i, field in enumerate(schema):
        column: Any = table.column(i).combine_chunks()
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        fixed["nulls"][:, i // 8] |= nulls.astype(np.uint8) << np.uint8(i % 8)
        if field.type.ddl in _VARIABLE:
            variable.append((i, [v or b"" for v in column.cast(pa.binary()).to_pylist()]))
        elif isinstance(field.type, Decimal):
            words = np.frombuffer(column.buffers()[1], np.int64).reshape(-1, 2)[column.offset : column.offset + rows]
            fixed[f"c{i}"] = words
        else:
            whole: Any = {"DATE": pa.int32(), "TIMESTAMP": pa.int64(), "TIMESTAMP_NTZ": pa.int64()}.get(field.type.ddl)
            plain = column.cast(pa.uint8()) if field.type.ddl == "BOOLEAN" else column.view(whole) if whole else column
            fixed[f"c{i}"] = plain.fill_null(0).to_numpy(zero_copy_only=False)
    if not layout.prefix:
        return bytes(fixed.tobytes())
    tails = [b""] * rows
    for i, values in variable:
        fixed[f"c{i}"][:, 0] = [layout.row.itemsize + len(tail) for tail in tails]
        fixed[f"c{i}"][:, 1] = [len(v) for v in values]
        tails = [tail + v for tail, v in zip(tails, values, strict=True)]
    parts = (fixed[r : r + 1].tobytes() + tails[r] for r in range(rows))
    return b"".join(len(p).to_bytes(4, "little") + p for p in parts)


def _build(schema: Schema, settings: RecordSettings) -> Native:
    for field in schema:
        if not isinstance(field.type, Scalar | Decimal):
            raise BadOption(
                f"format 'native' cannot store {field.type.ddl} (column {field.name})",
                advice="Use format = 'json'.",
                option="format",
                value="native",
            )
    return Native(schema, settings.max_record_bytes)


NATIVE = FormatKind("native", "fixed-width binary rows", RecordSettings, _build)
