"""Encodes tables of partial aggregates as bytes, for messages and for state.

A blob is a prefix (magic, number of rows, digest of schema and rows, which columns have a mask), then the size of each
column of strings, then the columns, each aligned to eight bytes. A column with NULLs begins with its mask: a byte per
row, 1 for a value. Then come its values, or for strings their lengths and their bytes. A blob does not contain its
schema, which both sides know from the pipeline's program. That matters because a state of a million groups is read in
hundreds of blobs of 32 groups, and an Arrow IPC message takes 600 bytes and 5 us to open. Many blobs become one table,
and one table many blobs, in a few calls.

A blob with another magic has rows of one window: its first two columns, the bounds of the window, have one value each
and no mask. Kernels write it (`headrace.ring0.folding`), because the bounds would be a third of its bytes.

Tables with nested types are encoded as Arrow IPC.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.base.arrays import Ints
from headrace.bridge.kernels import blobs as k
from headrace.errors import InternalError

MAX_PAYLOAD = 8 * 1024 * 1024
# Blobs that are larger than this on average are not copied when they are read: the arrays point into them.
LARGE = 128 * 1024
_MOST = 1 << 30  # bytes that are joined to one table, because offsets of strings have 32 bits
MAGIC = int.from_bytes(b"HRT3", "little")
_PREFIX = struct.Struct("<IIqQ")
_BYTES_AT = bytes.__basicsize__ - 1  # offset of the data in a `bytes` object
_NOTHING = np.empty(0, np.uint8)
_PADDING = [bytes(-n & 7) for n in range(8)]


@dataclass(frozen=True, slots=True)
class BlobLayout:
    """How tables of one schema are encoded. `widths` are bytes per value, or `k.BYTES` for strings."""

    schema: pa.Schema
    widths: Ints
    digest: int
    columns: tuple[tuple[pa.DataType, int, bool], ...]  # type, width and whether it is BOOLEAN
    sizes: struct.Struct  # of the columns of strings


@lru_cache(maxsize=4096)
def layout_of(schema: pa.Schema) -> BlobLayout | None:
    """The layout of a schema; None if it has a type that only Arrow IPC can encode, or too many columns for the
    flags."""
    found = [_width(field.type) for field in schema]
    widths = [width for width in found if width is not None]
    if len(widths) > 63 or len(widths) < len(found):
        return None
    text = "\n".join(f"{f.name} {f.type}" for f in schema)
    digest = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)
    columns = tuple((kind, w, pa.types.is_boolean(kind)) for kind, w in zip(schema.types, widths, strict=True))
    return BlobLayout(
        schema=schema,
        widths=np.array(widths, np.int64),
        digest=digest,
        columns=columns,
        sizes=struct.Struct(f"<{widths.count(k.BYTES)}q"),
    )


def _width(kind: pa.DataType) -> int | None:
    if pa.types.is_boolean(kind):
        return 1
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return k.BYTES
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind):
        return kind.bit_width // 8
    return None


def encode_rows(table: pa.Table) -> bytes:
    """Encode the rows of `table` as one blob."""
    layout = layout_of(table.schema)
    if layout is None:
        return _encode_ipc(table)
    parts: list[Any] = []
    sizes, flags = [], 0
    for c, column in enumerate(_columns(table, layout)):
        if column.mask is not None:
            flags |= 1 << c
            _append(parts, column.mask)
        if column.offsets is not None:
            begin, end = int(column.offsets[0]), int(column.offsets[-1])
            _append(parts, np.diff(column.offsets))
            _append(parts, column.data[begin:end])
            sizes.append(end - begin)
        else:
            _append(parts, column.data)
    prefix = _PREFIX.pack(MAGIC, table.num_rows, layout.digest ^ table.num_rows, flags)
    return b"".join((prefix, layout.sizes.pack(*sizes), *parts))


def _append(parts: list[Any], data: npt.NDArray[Any]) -> None:
    parts.append(data.data)
    if data.nbytes & 7:
        parts.append(_PADDING[data.nbytes & 7])


def encode_runs(table: pa.Table, cuts: Ints) -> list[bytes]:
    """Encode each run of rows, from cuts[i] to cuts[i + 1], as one blob."""
    layout = layout_of(table.schema)
    if layout is None:
        return [_encode_ipc(table.slice(a, b - a)) for a, b in zip(cuts.tolist(), cuts[1:].tolist(), strict=False)]
    if len(cuts) and cuts[-1] > table.num_rows:
        raise InternalError(f"a run ends at row {cuts[-1]} of {table.num_rows}")
    columns = _columns(table, layout)
    data, offsets, masks = (
        np.array([0 if part is None else part.ctypes.data for part in parts], np.int64)
        for parts in zip(*((c.data, c.offsets, c.mask) for c in columns), strict=True)
    )
    sizes = np.empty(len(cuts) - 1, np.int64)
    k.run_sizes(cuts, layout.widths, offsets, masks, sizes)
    ends = np.cumsum(sizes)
    out = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
    k.scatter(out, cuts, sizes, layout.widths, data, offsets, masks, MAGIC, layout.digest)
    whole = out.data
    return [bytes(whole[end - size : end]) for size, end in zip(sizes.tolist(), ends.tolist(), strict=True)]


def decode_rows(blobs: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    """The rows of all blobs, in order."""
    return decode_counted(blobs, schema)[0]


def decode_counted(blobs: Sequence[bytes], schema: pa.Schema) -> tuple[pa.Table, Ints]:
    """The rows of all blobs, in order, and the number of rows of each blob."""
    layout = layout_of(schema)
    if not blobs:
        return schema.empty_table(), np.zeros(0, np.int64)
    if layout is None:
        tables = [_decode_ipc(blob, schema) for blob in blobs]
        return pa.concat_tables(tables), np.array([t.num_rows for t in tables], np.int64)
    found = _Measured(blobs, layout)
    if len(blobs) == 1 or found.size > min(LARGE * len(blobs), _MOST):
        return pa.concat_tables([view_rows(blob, layout) for blob in blobs]), found.rows
    return view_rows(found.join(), layout), found.rows


class _Measured:
    """Blobs that have the given layout: the rows of each, which columns have a mask in some blob, the bytes of each
    column of strings, and the size of one blob with all rows. Raises InternalError for other blobs."""

    def __init__(self, blobs: Sequence[bytes], layout: BlobLayout) -> None:
        if set(map(type, blobs)) != {bytes}:
            raise InternalError("rows can only be read from `bytes` objects")
        self._blobs, self._layout, count = blobs, layout, len(blobs)
        self._addresses = np.fromiter(map(id, blobs), np.int64, count) + _BYTES_AT
        sizes = np.fromiter(map(len, blobs), np.int64, count)
        self.rows, self.held = np.empty(count, np.int64), np.zeros(len(layout.widths), np.int64)
        wrong, self.flags, self.size = k.measure(
            self._addresses, sizes, layout.widths, MAGIC, layout.digest, self.rows, self.held
        )
        if wrong != k.FINE:
            raise InternalError(f"{len(blobs[wrong])} bytes are not rows of {', '.join(layout.schema.names)}")

    def join(self) -> npt.NDArray[np.uint8]:
        """One blob with all rows."""
        out, layout = np.empty(self.size, np.uint8), self._layout
        k.join(self._addresses, layout.widths, MAGIC, layout.digest, self.rows, self.held, self.flags, out)
        return out


@dataclass(frozen=True, slots=True)
class JoinedRows:
    """Many blobs as one: `counts` are the rows of each. Bit c of `flags` says that column c has a mask, and `held` has
    the bytes of each column of strings."""

    blob: npt.NDArray[np.uint8]
    counts: Ints
    flags: int
    held: Ints


def join_rows(blobs: Sequence[bytes], layout: BlobLayout) -> JoinedRows:
    """Join blobs to one, without looking at their strings. Raises InternalError if one has another layout."""
    found = _Measured(blobs, layout)
    return JoinedRows(found.join(), found.rows, found.flags, found.held)


def view_rows(memory: bytes | npt.NDArray[np.uint8], layout: BlobLayout) -> pa.Table:
    """The table in a blob whose layout was already checked. Values are not copied."""
    blob = _buffer(memory)
    magic, rows, _, flags = _PREFIX.unpack_from(blob)
    single = k.BOUNDS if magic == k.OF_ONE_WINDOW else 0
    sizes = iter(layout.sizes.unpack_from(blob, _PREFIX.size))
    at = _PREFIX.size + layout.sizes.size

    def take(size: int) -> Any:
        nonlocal at
        found = blob.slice(at, size)
        at += size + (-size & 7)
        return found

    arrays: list[pa.Array[Any]] = []
    for c, (kind, width, boolean) in enumerate(layout.columns):
        valid = _bits(take(rows)) if flags >> c & 1 else None
        if width == k.BYTES:
            lengths, data = np.frombuffer(take(4 * rows), np.int32), take(next(sizes))
            offsets = np.zeros(rows + 1, np.int32)
            np.cumsum(lengths, out=offsets[1:])
            if rows and (lengths.min() < 0 or lengths.sum(dtype=np.int64) != data.size):
                raise InternalError(f"the lengths of the strings of {layout.schema.names[c]} do not add up")
            buffers = [valid, _buffer(offsets), data]
        elif boolean:
            buffers = [valid, _bits(take(rows))]
        elif c < single:
            buffers = [None, _buffer(np.full(rows, np.frombuffer(take(8), np.int64)[0]))]
        else:
            buffers = [valid, take(width * rows)]
        arrays.append(pa.Array.from_buffers(kind, rows, buffers))
    return pa.Table.from_arrays(arrays, schema=layout.schema)


def _buffer(memory: Any) -> pa.Buffer:
    return pa.py_buffer(memory)


def _bits(flags: Any) -> pa.Buffer:
    """Turn a byte per row into Arrow's bit per row."""
    return _buffer(np.packbits(np.frombuffer(flags, np.uint8), bitorder="little"))


class _Column:
    """The parts of an array that go into a blob: the mask, the values from the first row on, and for strings the
    `offsets` of the values."""

    __slots__ = ("data", "mask", "offsets")

    def __init__(self, array: pa.Array[Any], width: int, boolean: bool) -> None:
        self.mask = array.is_valid().cast(pa.uint8()).to_numpy() if array.null_count else None
        self.offsets: npt.NDArray[np.int32] | None = None
        if boolean:
            self.data = array.fill_null(False).cast(pa.uint8()).to_numpy()
            return
        rows, first = len(array), array.offset
        buffers: list[Any] = array.buffers()
        values = _NOTHING if buffers[-1] is None else np.frombuffer(buffers[-1], np.uint8)
        if width == k.BYTES:
            offsets = np.frombuffer(buffers[1], np.int32) if rows else np.zeros(1, np.int32)
            self.offsets, self.data = offsets[first : first + rows + 1] if rows else offsets, values
        else:
            self.data = values[first * width : (first + rows) * width]


def _columns(table: pa.Table, layout: BlobLayout) -> list[_Column]:
    pieces = table.to_batches()
    if len(pieces) != 1:
        pieces = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
        if len(pieces) > 1:
            raise InternalError("a table with more than 2 GB of strings cannot be encoded as one blob")
    arrays = pieces[0].columns
    return [_Column(a, width, boolean) for a, (_, width, boolean) in zip(arrays, layout.columns, strict=True)]


def _encode_ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue().to_pybytes()


def _decode_ipc(blob: bytes, schema: pa.Schema) -> pa.Table:
    table = pa.ipc.open_stream(blob).read_all()
    if table.schema != schema:
        raise InternalError(f"rows of {', '.join(table.schema.names)} are not rows of {', '.join(schema.names)}")
    return table


def payloads(table: pa.Table, max_rows: int = 1 << 31) -> Iterator[bytes]:
    """Encode `table` in blobs of at most `max_rows` rows and `MAX_PAYLOAD` bytes. A single row that is larger gets a
    blob of its own."""
    if table.num_rows > max_rows:
        for at in range(0, table.num_rows, max_rows):
            yield from payloads(table.slice(at, max_rows))
        return
    # The size of the buffers is an upper bound that costs nothing. The bytes of a slice have to be counted.
    if table.num_rows <= 1 or table.get_total_buffer_size() <= MAX_PAYLOAD or table.nbytes <= MAX_PAYLOAD:
        payload = encode_rows(table)  # masks and padding make it larger than the rows
        if table.num_rows <= 1 or len(payload) <= MAX_PAYLOAD:
            yield payload
            return
    half = table.num_rows // 2
    yield from payloads(table.slice(0, half))
    yield from payloads(table.slice(half))


def warm() -> None:
    """Compile or load the kernels for reading and writing."""
    table = pa.table({"k0": ["a", "b"], "p0": [1, None]})
    decode_rows(encode_runs(table, np.array([0, 1, 2])), table.schema)
