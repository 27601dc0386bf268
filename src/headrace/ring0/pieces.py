"""Cuts a chunk into pieces that fit into a task's memory, because tiny records may take much more memory decoded.

A chunk of 4 MiB with ordinary records is one piece. A chunk of records like `{}` holds a million of them, and twenty
columns of those would take half a gigabyte.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headrace.formats.format_kind import Format
from headrace.formats.packing import Packed
from headrace.sources.source_kind import RawChunk

# Bytes for the index, the columns and the bad records of a piece. A task may use 64 MB beside the interpreter. Reading,
# DuckDB's view of the rows and memory that Python's allocator does not return need the rest.
BUDGET = 16 << 20
PER_CELL = 24  # bytes: start, end, status and value of a field, and temporary memory of parsing
PER_RECORD = 400  # bytes: the position of a record, and the reason if it is bad
# Columns of a table need no index and no temporary memory. So pieces may be larger: each costs every pipeline a call.
TABLE_ROWS, TABLE_BUDGET = 1 << 16, 32 << 20
SAMPLES, SAMPLE = 4, 4096  # records are counted in this many places of a chunk, in this many bytes each


def pieces(fmt: Format, chunk: RawChunk, columns: int) -> Iterator[RawChunk]:
    """The records of `chunk`, in order, in chunks of whole records. `columns` is the number of decoded columns."""
    if chunk.packed is not None:
        yield from _packed_pieces(chunk, chunk.packed, columns)
        return
    if chunk.table is not None:
        most = max(1, min(TABLE_ROWS, TABLE_BUDGET // ((columns + 1) * PER_CELL)))
        for part in chunk.table.cut(most):
            yield replace(chunk, offset=chunk.offset + part.begin, table=part)
        return
    size = _piece_bytes(fmt, chunk.data, columns)
    if len(chunk.data) <= size:
        yield chunk
        return
    data, at, bad = memoryview(chunk.data), 0, chunk.bad
    while at < len(data):
        length = size
        whole = 0
        while not whole and at + length < len(data):
            whole = fmt.frame(data[at : at + length], False).whole
            length *= 2  # there is a long record among small ones
        whole = whole or len(data) - at
        yield RawChunk(chunk.origin, chunk.offset + at, data[at : at + whole], bad, facts=chunk.facts)
        at, bad = at + whole, ()


def _packed_pieces(chunk: RawChunk, packed: Packed, columns: int) -> Iterator[RawChunk]:
    most = max(1, BUDGET // (columns * PER_CELL + PER_RECORD))  # messages
    if len(packed) <= most:
        yield chunk
        return
    for part in packed.cut(max(1, len(packed.data) * most // len(packed))):
        yield replace(chunk, data=part.data, packed=part)


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
