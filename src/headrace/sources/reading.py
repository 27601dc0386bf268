"""Reads the records of a file: byte ranges of it, or the whole file in order.

A record belongs to the range that contains its *end*. The first record of a range may begin before the range: the
reader goes back to the previous delimiter. The range that contains the end of a too long record reports it. Such a
record is never loaded into memory as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from headrace.errors import HeaderMismatch, HeadraceError
from headrace.formats.codecs import Decompressor
from headrace.formats.format_kind import Format, too_long
from headrace.formats.framing import first_record
from headrace.formats.tables import TableFormat, UnitRows
from headrace.sources.badfiles import BadRange, in_short
from headrace.sources.extent import BAD_FILE, Extent, changed, stamp_at
from headrace.sources.file_facts import FileFacts
from headrace.sources.handles import SKIP_ADVICE, Handle, as_file, close_file, closing_file, open_file, read_at
from headrace.sources.source_kind import RawChunk
from headrace.stores.object_store import ObjectStore

# How much a task decodes at a time. JSON with 20 columns decodes at 293, 377, 370 and 272 MB/s with 256 KiB, 1, 2 and
# 8 MiB: index and columns must stay near the CPU cache. A filter that keeps 1 % of the rows makes it 1.9 times as fast
# at 2 MiB and 2.2 times at 4 MiB, where the calls per chunk cost less.
CHUNK = 4 << 20
HEADER = 64 << 10  # bytes read to find BOM and header
WINDOW = 4 << 10  # first read when searching for a delimiter; longer than any delimiter


@dataclass(frozen=True, slots=True)
class FileRange:
    """Bytes [begin, end) of an extent's file: the records that *end* there. `number` is the extent's in the log."""

    extent: Extent
    begin: int
    end: int
    number: int = 0


@dataclass(frozen=True, slots=True)
class FileSplit:
    """The ranges that one task reads. With `skip`, a range that cannot be read gives a chunk that reports it, and the
    other ranges are read. Otherwise it is an error. The files are objects if there is a `store`."""

    ranges: tuple[FileRange, ...]
    skip: bool = False
    store: ObjectStore | None = None

    def read(self, fmt: Format) -> Iterator[RawChunk]:
        for part in self.ranges:
            try:
                yield from _read(part, fmt, self.store)
            except BAD_FILE as problem:
                found = self.unreadable(part.extent.path, problem)
                yield RawChunk(part.extent.path, part.begin, b"", unreadable=found)

    def unreadable(self, origin: str, problem: HeadraceError) -> BadRange:
        if not self.skip:
            if SKIP_ADVICE not in problem.advice:  # the epoch is planned already: replacing the file does not help
                problem.advice = f"To continue without it: {SKIP_ADVICE} A good copy that arrives later is read."
            raise problem
        part = next(part for part in self.ranges if part.extent.path == origin)
        return BadRange(origin, part.number, part.begin, *in_short(problem), stamp_at(origin, self.store))

    def line(self, origin: str, offset: int, fmt: Format) -> int | None:
        extent = next((part.extent for part in self.ranges if part.extent.path == origin), None)
        if extent is None or not fmt.delimiter:
            return None
        try:
            return 1 + _count(extent, offset, fmt.delimiter, self.store)
        except (HeadraceError, OSError):  # the file is gone, and the error is about that
            return None


def _read(part: FileRange, fmt: Format, store: ObjectStore | None) -> Iterator[RawChunk]:
    fd = part.extent.open(store)
    try:
        chunks = _chunks(fd, part, fmt)
        facts = FileFacts.of(fd, part.extent.path)
        for chunk in chunks:
            yield replace(chunk, facts=facts)
    except OSError as problem:  # an error of the disk may be temporary, so the file is not bad
        problem.filename = problem.filename or part.extent.path
        raise
    finally:
        close_file(fd)


def _chunks(fd: Handle, part: FileRange, fmt: Format) -> Iterator[RawChunk]:
    if isinstance(fmt, TableFormat):
        return table_chunks(fd, part, fmt)
    if part.extent.whole:
        return OrderedReader(fd, part.extent, fmt).chunks()
    return RangeReader(fd, part, fmt).chunks()


def table_chunks(fd: Handle, part: FileRange, fmt: TableFormat) -> Iterator[RawChunk]:
    """The units of a table that end in the range, each a chunk. They are read when they are decoded."""
    path = part.extent.path
    with as_file(fd) as file:
        for unit in fmt.units(file, path, size=part.extent.end, begin=part.begin, end=part.end):
            yield RawChunk(
                path, unit.first, b"", table=UnitRows(unit=unit, schema=fmt.schema, path=path, begin=0, end=unit.rows)
            )


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Add the file's path to a HeaderMismatch."""
    try:
        yield
    except HeaderMismatch as problem:
        problem.message = f"{path}: {problem.message}"
        problem.params["path"] = path
        raise


def _count(extent: Extent, offset: int, delimiter: bytes, store: ObjectStore | None) -> int:
    """Count the delimiters in the first `offset` bytes of a file, which it reads again."""
    with closing_file(open_file(extent.path, store)) as handle, as_file(handle) as file:
        stream = Decompressor(file, extent.codec, extent.path) if extent.codec else file
        count, left, tail = 0, offset, b""
        while left > 0 and (piece := stream.read(min(left, CHUNK))):
            left -= len(piece)
            piece = tail + piece
            count += piece.count(delimiter)
            tail = piece[max(0, len(piece) - len(delimiter) + 1) :]
        return count


class RangeReader:
    """Reads the records that end in one range, in chunks of whole records."""

    def __init__(self, fd: Handle, part: FileRange, fmt: Format, chunk: int = CHUNK) -> None:
        self.fd, self.part, self.fmt = fd, part, fmt
        self.path = part.extent.path
        self.delimiter = fmt.delimiter
        self.row = fmt.row_bytes
        self.chunk = chunk
        # The longest good record with its delimiter and a carriage return.
        self.longest = self.row or fmt.max_record_bytes + len(self.delimiter) + 1

    def chunks(self) -> Iterator[RawChunk]:
        begin, end, last = self.part.begin, self.part.end, self.part.extent.end
        head = self.head_bytes()
        at = head if begin <= head else self.record_start(begin, head)
        size = self.chunk
        while at < end:
            data = self.read(at, min(size, end - at))
            stop = at + len(data)
            cut = self.whole(data)
            if stop == last and (cut or len(data) < self.longest):
                cut = len(data)  # the end of the file is the end of the last record
            if cut:
                yield RawChunk(self.path, at, memoryview(data)[:cut])
                at += cut
                size = self.chunk
            elif len(data) < self.longest and stop < end:
                size = max(2 * size, self.longest)  # a long record: try again with more bytes
            elif len(data) < self.longest:
                return  # no record ends in the rest of the range
            else:
                after = self.skip_record(stop)
                if after is None:
                    return
                yield RawChunk(self.path, at, b"", (too_long(self.path, at, data, self.fmt.max_record_bytes),))
                at = after
                size = self.chunk

    def whole(self, data: bytes) -> int:
        """How many bytes of `data`, which begins with a record, are whole records."""
        if self.row:
            return len(data) - len(data) % self.row
        found = data.rfind(self.delimiter)
        return found + len(self.delimiter) if found >= 0 else 0

    def read(self, at: int, length: int) -> bytes:
        data = read_at(self.fd, length, at)
        if len(data) != length:
            raise changed(self.path, f"shrank to {at + len(data)} bytes")
        return data

    def head_bytes(self) -> int:
        """The offset of the first record of the file."""
        size = self.part.extent.end
        with naming(self.path):
            return first_record(self.fmt, lambda at, length: self.read(at, min(length, size - at)), HEADER)

    def record_start(self, at: int, floor: int) -> int:
        """The start of the record that contains byte `at`: after the last delimiter that ends at or before `at`."""
        if self.row:
            return at - (at - floor) % self.row
        overlap = len(self.delimiter) - 1
        window, high = WINDOW, at
        while high > floor:
            low = max(floor, high - window)
            found = self.read(low, min(at, high + overlap) - low).rfind(self.delimiter)
            if found >= 0:
                return low + found + len(self.delimiter)
            high, window = low, min(window * 4, max(self.chunk, WINDOW))
        return floor

    def skip_record(self, at: int) -> int | None:
        """The end of a record whose delimiter comes after `at`; None if it does not end in this range."""
        overlap = len(self.delimiter) - 1
        while at < self.part.end:
            low = at - overlap
            data = self.read(low, min(max(self.chunk, WINDOW), self.part.end - low))
            found = data.find(self.delimiter)
            if found >= 0:
                return low + found + len(self.delimiter)
            at = low + len(data)
        return at if self.part.end == self.part.extent.end else None


class OrderedReader:
    """Reads a whole file in order: for formats that must be read in order, and for compressed files.

    Offsets count decompressed bytes. Keeps one chunk and at most one record in memory.
    """

    def __init__(self, fd: Handle, extent: Extent, fmt: Format, chunk: int = CHUNK) -> None:
        self.fd, self.extent, self.fmt, self.chunk = fd, extent, fmt, chunk
        self.file = as_file(fd)
        self.stream = Decompressor(self.file, extent.codec, extent.path) if extent.codec else self.file

    def chunks(self) -> Iterator[RawChunk]:
        try:
            yield from self._chunks()
        finally:
            self.file.close()

    def _chunks(self) -> Iterator[RawChunk]:
        path, longest = self.extent.path, self.fmt.max_record_bytes + len(self.fmt.delimiter) + 1
        data, at, final = self._first()
        while True:
            framed = self.fmt.frame(data, final)
            if framed.whole:
                yield RawChunk(path, at, memoryview(data)[: framed.whole])
                data, at = data[framed.whole :], at + framed.whole
            if framed.skip or (self.fmt.delimiter and len(data) > longest):
                yield RawChunk(path, at, b"", (too_long(path, at, data, self.fmt.max_record_bytes),))
                data, at, final = self._skip(data, at, framed.skip)
            elif final:
                return
            if not final:
                more = self.stream.read(self.chunk)
                data, final = data + more, len(more) < self.chunk

    def _first(self) -> tuple[bytes, int, bool]:
        """Find the first record. Returns (the bytes read from there on, its offset, True at the end of the file)."""
        data, begin, final = b"", 0, False

        def read(at: int, length: int) -> bytes:
            nonlocal data, begin, final
            data, begin = data[at - begin :], at
            while len(data) < length and not final:
                more = self.stream.read(self.chunk)
                data, final = data + more, len(more) < self.chunk
            return data[:length]

        with naming(self.extent.path):
            at = first_record(self.fmt, read, HEADER)
        return data[at - begin :], at, final

    def _skip(self, data: bytes, at: int, length: int) -> tuple[bytes, int, bool]:
        """Skip a record: `length` bytes, or up to its delimiter if `length` is 0. Returns (the bytes after it, their
        offset, True at the end of the file)."""
        delimiter, begin, final = self.fmt.delimiter, 0, False
        while True:
            if length:
                end = length if length <= len(data) else -1
            else:
                found = data.find(delimiter, begin)
                end = found + len(delimiter) if found >= 0 else -1
            if end >= 0:
                return data[end:], at + end, final
            if final:
                return b"", at + len(data), True
            kept = 0 if length else len(delimiter) - 1
            drop = max(0, len(data) - kept)
            more = self.stream.read(self.chunk)
            final = len(more) < self.chunk
            data, at = data[drop:] + more, at + drop
            length -= drop if length else 0
