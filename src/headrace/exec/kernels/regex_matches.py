"""Kernels for regular expressions that RE2 cannot run: look-around, back references, matches of the empty text.

The patterns are those of Python's `re`, written by `headrace.sql.functions.regex`. They are the same for all rows of a
call. Matching goes on after an empty match as in Java.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import pyarrow as pa

from headrace.exec.kernels.kernel import Kernel

_compile = lru_cache(maxsize=256)(re.compile)


def _mapped(text: pa.Array[Any], kind: pa.DataType, function: Callable[[str], Any]) -> pa.Array[Any]:
    return pa.array([None if t is None else function(t) for t in text.to_pylist()], kind)


def _constant(column: pa.Array[Any]) -> Any:
    return column[0].as_py() if len(column) else None


def _pattern(column: pa.Array[Any]) -> re.Pattern[str]:
    return _compile(_constant(column) or "")


def _matches(text: pa.Array[Any], pattern: pa.Array[Any]) -> pa.Array[Any]:
    search = _pattern(pattern).search
    return _mapped(text, pa.bool_(), lambda t: search(t) is not None)


def _find(pattern: re.Pattern[str], text: str, at: int = 0) -> Iterator[re.Match[str]]:
    """All matches. After an empty one Java moves on by a character; Python would first try a longer one there."""
    while at <= len(text):
        found = pattern.search(text, at)
        if found is None:
            return
        yield found
        at = found.end() if found.end() > found.start() else found.end() + 1


def _replace(
    text: pa.Array[Any], pattern: pa.Array[Any], template: pa.Array[Any], position: pa.Array[Any]
) -> pa.Array[Any]:
    """From a position on, from 1. For the pattern, nothing exists before it."""
    compiled, new, skipped = _pattern(pattern), _constant(template) or "", (_constant(position) or 1) - 1

    def replaced(t: str) -> str:
        if skipped and skipped >= len(t):
            return t
        rest, at = t[skipped:], 0
        parts = [t[:skipped]]
        for found in _find(compiled, rest):
            parts += (rest[at : found.start()], found.expand(new))
            at = found.end()
        return "".join((*parts, rest[at:]))

    return _mapped(text, pa.string(), replaced)


def _extract(text: pa.Array[Any], pattern: pa.Array[Any], group: pa.Array[Any]) -> pa.Array[Any]:
    """The text of a group in the first match; empty without a match."""
    search, number = _pattern(pattern).search, _constant(group) or 0

    def extracted(t: str) -> str:
        found = search(t)
        return "" if found is None else found[number] or ""

    return _mapped(text, pa.string(), extracted)


def _extract_all(text: pa.Array[Any], pattern: pa.Array[Any], group: pa.Array[Any]) -> pa.Array[Any]:
    compiled, number = _pattern(pattern), _constant(group) or 0
    return _mapped(text, pa.list_(pa.string()), lambda t: [found[number] or "" for found in _find(compiled, t)])


def _count(text: pa.Array[Any], pattern: pa.Array[Any]) -> pa.Array[Any]:
    compiled = _pattern(pattern)
    return _mapped(text, pa.int32(), lambda t: sum(1 for _ in _find(compiled, t)))


def _position(text: pa.Array[Any], pattern: pa.Array[Any]) -> pa.Array[Any]:
    """The position of the first match, from 1; 0 without a match."""
    search = _pattern(pattern).search

    def found_at(t: str) -> int:
        found = search(t)
        return 0 if found is None else found.start() + 1

    return _mapped(text, pa.int32(), found_at)


def _split(text: pa.Array[Any], pattern: pa.Array[Any], limit: pa.Array[Any]) -> pa.Array[Any]:
    """As Java's split with trailing empty parts kept. An empty match at the start does not make a part."""
    compiled, most = _pattern(pattern), _constant(limit) or -1

    def parts(t: str) -> list[str]:
        found: list[str] = []
        at = 0
        for match in _find(compiled, t):
            if len(found) + 1 == most:
                break
            if match.end() == 0:
                continue
            found.append(t[at : match.start()])
            at = match.end()
        found.append(t[at:])
        return found

    return _mapped(text, pa.list_(pa.string()), parts)


_V, _I = "VARCHAR", "INTEGER"
KERNELS: tuple[Kernel, ...] = (
    Kernel("hr_regex_matches", (_V, _V), "BOOLEAN", _matches, slow=True),
    Kernel("hr_regex_replace", (_V, _V, _V, _I), _V, _replace, slow=True),
    Kernel("hr_regex_extract", (_V, _V, _I), _V, _extract, slow=True),
    Kernel("hr_regex_extract_all", (_V, _V, _I), "VARCHAR[]", _extract_all, slow=True),
    Kernel("hr_regex_count", (_V, _V), _I, _count, slow=True),
    Kernel("hr_regex_position", (_V, _V), _I, _position, slow=True),
    Kernel("hr_regex_split", (_V, _V, _I), "VARCHAR[]", _split, slow=True),
)
