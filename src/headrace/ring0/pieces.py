"""A chunk in pieces that a task has the memory for: records may be so small that their columns dwarf their bytes.

A chunk of 4 MiB with ordinary records is one piece. Of records like `{}` it holds a million, and twenty columns of
those would take half a gigabyte.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.formats.base import Format
from headrace.sources.base import RawChunk

# Index, columns and verdicts of a piece should fit in this; a task may have 64 MB above the interpreter, and reading,
# DuckDB's view of the rows and what Python's allocator does not give back need the rest.
BUDGET = 16 << 20
PER_CELL = 24  # bytes: start, end, status and value of a field, and what parsing takes beside them
PER_RECORD = 400  # bytes: places of a record, and a verdict if it is bad
SAMPLES, SAMPLE = 4, 4096  # places in a chunk where records are counted, and bytes at each


def pieces(fmt: Format, chunk: RawChunk, columns: int) -> Iterator[RawChunk]:
    """The records of `chunk`, in order, in chunks of whole records; `columns` is how many are decoded."""
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
            length *= 2  # a long record among small ones
        whole = whole or len(data) - at
        yield RawChunk(chunk.origin, chunk.offset + at, data[at : at + whole], bad)
        at, bad = at + whole, ()


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
