"""Finding where records end, for formats whose records end with a delimiter."""

from __future__ import annotations

from headrace.formats.base import Framed

BOM = b"\xef\xbb\xbf"


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
