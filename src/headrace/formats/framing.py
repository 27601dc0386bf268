"""Finds where records begin and end, for formats whose records end with a delimiter."""

from __future__ import annotations

from collections.abc import Callable

from headrace.errors import HeaderMismatch
from headrace.formats.format_kind import Format, Framed

BOM = b"\xef\xbb\xbf"


def bom_bytes(head: bytes, first: bool) -> int:
    """The size of the byte order mark at the beginning of a file, 0 if there is none."""
    return len(BOM) if first and head.startswith(BOM) else 0


def first_record(fmt: Format, read: Callable[[int, int], bytes], window: int) -> int:
    """The offset of the first record of a file. `read(offset, length)` returns fewer bytes only at the end of the file.
    Reads `window` bytes at a time, and more only for a longer line, up to `max_record_bytes`."""
    at, length = 0, window
    while True:
        head = read(at, length)
        found = fmt.preamble(head, at == 0, len(head) < length)
        at += found.passed
        if not found.more:
            return at
        if not found.passed and length > fmt.max_record_bytes:
            raise HeaderMismatch(
                f"the line at byte {at}, where the header should be, is longer than max_record_bytes",
                advice="Check that the file belongs to the stream. If so, raise max_record_bytes or remove header.",
                header=[],
                declared=[],
            )
        length = window if found.passed else 2 * length


def frame_lines(data: bytes | memoryview, final: bool, delimiter: bytes) -> Framed:
    """Whole records end with the last delimiter, or with the data if nothing follows it."""
    if final:
        return Framed(len(data))
    raw = data if isinstance(data, bytes) else bytes(data)
    if overlaps_itself(delimiter):
        return Framed(len(raw) - len(raw.split(delimiter)[-1]))  # delimiters are matched from the front
    found = raw.rfind(delimiter)
    return Framed(found + len(delimiter) if found >= 0 else 0)


def overlaps_itself(delimiter: bytes) -> bool:
    """True if a delimiter can begin inside itself. Then its positions depend on where the search starts."""
    return any(delimiter.startswith(delimiter[k:]) for k in range(1, len(delimiter)))


def unclear(delimiter: bytes) -> str:
    """Why files with this delimiter must be read in order; empty if they may be cut at any byte."""
    return "the record delimiter can begin inside itself" if overlaps_itself(delimiter) else ""
