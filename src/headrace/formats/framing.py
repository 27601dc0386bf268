"""Finding where records end, for formats whose records end with a delimiter."""

from __future__ import annotations

from collections.abc import Callable

from headrace.errors import HeaderMismatch
from headrace.formats.base import Format, Framed

BOM = b"\xef\xbb\xbf"


def bom_bytes(head: bytes, first: bool) -> int:
    """The bytes of a byte order mark at the beginning of a file."""
    return len(BOM) if first and head.startswith(BOM) else 0


def first_record(fmt: Format, read: Callable[[int, int], bytes], window: int) -> int:
    """Where the first record of a file begins. `read` gives bytes by place and length, fewer only where the file ends.
    Looks at `window` bytes at a time, and at more only for a line that is longer, up to `max_record_bytes`."""
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
                advice="Is this a file of the stream? If it is, raise max_record_bytes, or set header = 'false'.",
                header=[],
                declared=[],
            )
        length = window if found.passed else 2 * length


def frame_lines(data: bytes | memoryview, final: bool, delimiter: bytes) -> Framed:
    """Whole records up to the last delimiter, or all of the data when nothing follows it."""
    if final:
        return Framed(len(data))
    raw = data if isinstance(data, bytes) else bytes(data)
    if overlaps_itself(delimiter):
        return Framed(len(raw) - len(raw.split(delimiter)[-1]))  # places count from the beginning, not from the end
    found = raw.rfind(delimiter)
    return Framed(found + len(delimiter) if found >= 0 else 0)


def overlaps_itself(delimiter: bytes) -> bool:
    """Whether a delimiter can begin inside itself, so that its places depend on where one starts to look."""
    return any(delimiter.startswith(delimiter[k:]) for k in range(1, len(delimiter)))


def unclear(delimiter: bytes) -> str:
    """Why files with this delimiter must be read in order; empty if they may be cut anywhere."""
    return "the record delimiter can begin inside itself" if overlaps_itself(delimiter) else ""
