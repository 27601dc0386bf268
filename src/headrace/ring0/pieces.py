"""Cuts a chunk into pieces that fit into a task's memory, because tiny records may take much more memory decoded.

A chunk of 4 MiB with ordinary records is one piece. A chunk of records like `{}` holds a million of them, and twenty
columns of those would take half a gigabyte. So would arrays of items like `{}` with the fields of a record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headrace.formats.format_kind import Format
from headrace.formats.packing import Packed
from headrace.ring0.record_cells import RecordCells
from headrace.sources.source_kind import RawChunk

# Bytes for the index, the columns and the bad records of a piece. A task may use 64 MB beside the interpreter. Reading,
# DuckDB's view of the rows and memory that Python's allocator does not return need the rest.
BUDGET = 16 << 20
PER_CELL = 24  # bytes: start, end, status and value of a field, and temporary memory of parsing
PER_ITEM_CELL = 12  # bytes: the same for a field of an item; 6 to 9 were measured for items without values
PER_RECORD = 400  # bytes: the position of a record, and the reason if it is bad
# Columns of a table need no index and no temporary memory. So pieces may be larger: each costs every pipeline a call.
TABLE_ROWS, TABLE_BUDGET = 1 << 16, 32 << 20
SAMPLES, SAMPLE = 4, 4096  # records are counted in this many places of a chunk, in this many bytes each


def pieces(fmt: Format, chunk: RawChunk, cells: RecordCells) -> Iterator[RawChunk]:
    """The records of `chunk`, in order, in chunks of whole records. `cells` are the decoded values of a record."""
    columns = cells.columns
    if chunk.table is not None:
        most = max(1, min(TABLE_ROWS, TABLE_BUDGET // ((columns + 1) * PER_CELL)))
        for part in chunk.table.cut(most):
            yield replace(chunk, offset=chunk.offset + part.begin, table=part)
        return
    for piece in _packed_pieces(chunk, chunk.packed, columns) if chunk.packed else _by_records(fmt, chunk, columns):
        yield from _by_items(fmt, piece, cells)


def _by_records(fmt: Format, chunk: RawChunk, columns: int) -> Iterator[RawChunk]:
    size = _piece_bytes(fmt, chunk.data, columns)
    if len(chunk.data) <= size:
        yield chunk
        return
    at = 0
    while at < len(chunk.data):
        whole = _whole(fmt, memoryview(chunk.data)[at:], size)
        yield _slice(chunk, at, whole)
        at += whole


def _whole(fmt: Format, data: memoryview, size: int) -> int:
    """The length of the whole records in the first `size` bytes, or of the first record if that is longer."""
    while size < len(data):
        whole = fmt.frame(data[:size], False).whole
        if whole:
            return whole
        size *= 2  # there is a long record among small ones
    return len(data)


def _slice(chunk: RawChunk, at: int, size: int) -> RawChunk:
    bad = () if at else chunk.bad
    return RawChunk(chunk.origin, chunk.offset + at, memoryview(chunk.data)[at : at + size], bad, facts=chunk.facts)


def _packed_pieces(chunk: RawChunk, packed: Packed, columns: int) -> Iterator[RawChunk]:
    most = max(1, BUDGET // (columns * PER_CELL + PER_RECORD))  # messages
    if len(packed) <= most:
        yield chunk
        return
    for part in packed.cut(max(1, len(packed.data) * most // len(packed))):
        yield replace(chunk, data=part.data, packed=part)


def _by_items(fmt: Format, chunk: RawChunk, cells: RecordCells) -> Iterator[RawChunk]:
    """Cut a piece in halves until the items of its arrays and maps fit, or it is one record."""
    fitting = BUDGET // PER_ITEM_CELL
    if cells.in_items(fmt, chunk.data, fitting) <= fitting:
        yield chunk
        return
    if chunk.packed is not None:
        parts = [replace(chunk, data=p.data, packed=p) for p in chunk.packed.cut(max(1, len(chunk.data) // 2))]
    else:
        whole = _whole(fmt, memoryview(chunk.data), max(1, len(chunk.data) // 2))
        rest = len(chunk.data) - whole
        parts = [_slice(chunk, 0, whole), *([_slice(chunk, whole, rest)] if rest else [])]
    if len(parts) == 1:
        yield chunk
        return
    for part in parts:
        yield from _by_items(fmt, part, cells)


def _piece_bytes(fmt: Format, data: bytes | memoryview, columns: int) -> int:
    """How many bytes to decode at a time."""
    if len(data) <= SAMPLE * SAMPLES:
        return len(data)
    if fmt.row_bytes:
        length = float(fmt.row_bytes)
    elif fmt.delimiter:
        step = (len(data) - SAMPLE) // (SAMPLES - 1)
        seen = [bytes(data[k * step : k * step + SAMPLE]).count(fmt.delimiter) for k in range(SAMPLES)]
        length = SAMPLE / max(1, *seen)
    else:
        head = data[:SAMPLE]
        whole = fmt.frame(head, False).whole
        length = max(1, whole) / max(1, fmt.index(head[:whole], (), "", 0).rows)
    return max(SAMPLE, int(BUDGET / (columns * PER_CELL + PER_RECORD) * length))
