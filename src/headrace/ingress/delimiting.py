"""Delimiter finders: find where records end in a stream of bytes that arrives in arbitrary buffers.

A finder is an automaton over bytes: the meaning of a byte depends on the *state* after the bytes before it. A delimiter
of one byte needs one state, a delimiter of n bytes needs n (how much of it was seen), and CSV with quoted newlines
needs a few. A buffer can therefore be searched before its predecessors arrive, once for each state that it may begin in
(`outcomes`). The buffers of one connection arrive in order, so each is searched once (`search`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.formats.csv import Csv
from headrace.formats.format_kind import Format
from headrace.formats.kernels.jit import kernel

_ENDS = 128  # in a transition: this byte ends a record; the lower bits are the next state


@dataclass(frozen=True, slots=True)
class Found:
    """The delimiters of a buffer: the positions after the first and the last (-1 for none), their count, the end
    state."""

    first: int
    last: int
    count: int
    state: int


class Delimiting:
    """A finder. `table[state, byte]` is the next state, plus 128 if the byte ends a record. State 0 is the state at the
    beginning of a record. Immutable, so any thread may use it."""

    def __init__(self, table: npt.NDArray[np.uint8], delimiter: bytes) -> None:
        self.table, self.delimiter = table, delimiter
        self.states = len(table)
        self._plain = self.states == 1

    @staticmethod
    def of_token(delimiter: bytes) -> Delimiting:
        """A finder for records that end with `delimiter`, searched from the left."""
        table = np.zeros((len(delimiter), 256), np.uint8)
        for state in range(len(delimiter)):
            for byte in range(256):
                text = delimiter[:state] + bytes([byte])
                if text == delimiter:
                    table[state, byte] = _ENDS
                else:
                    kept = max(m for m in range(len(delimiter)) if m <= len(text) and text.endswith(delimiter[:m]))
                    table[state, byte] = kept
        return Delimiting(table, delimiter)

    @staticmethod
    def of_quoted(separator: int, quote: int, escape: int) -> Delimiting:
        """A finder for CSV whose quoted fields may contain newlines. A quote opens only at the beginning of a field."""
        begin, plain, quoted, closing, escaped = range(5)
        table = np.zeros((5, 256), np.uint8)
        for state in (begin, plain, closing):
            table[state, :] = plain
            table[state, separator] = begin
            table[state, 10] = begin | _ENDS
        table[begin, quote] = quoted
        table[quoted, :] = table[escaped, :] = quoted
        table[quoted, quote] = closing
        table[closing, quote] = quoted  # two quotes are one literal quote, even if there is an escape character
        if escape not in (-1, quote):
            table[quoted, escape] = escaped
        return Delimiting(table if escape not in (-1, quote) else table[:4], b"\n")

    def search(self, data: bytes | bytearray, begin: int, end: int, state: int) -> Found:
        """The delimiters of data[begin:end], which begins in `state`. Positions count from `begin`."""
        if self._plain:
            first = data.find(self.delimiter, begin, end)
            if first < 0:
                return _NOTHING
            last = data.rfind(self.delimiter, begin, end)
            return Found(first + 1 - begin, last + 1 - begin, -1, 0)
        view = np.frombuffer(data, np.uint8)[begin:end]
        return Found(*_run(self.table, view, state))

    def count(self, data: bytes | bytearray, begin: int, end: int, state: int) -> int:
        """How many records end in data[begin:end]."""
        if self._plain:
            return data.count(self.delimiter, begin, end)
        return self.search(data, begin, end, state).count

    def outcomes(self, data: bytes) -> npt.NDArray[np.int32]:
        """(first, last, end state) for every state that `data` may begin in."""
        found = [self.search(data, 0, len(data), state) for state in range(self.states)]
        return np.array([(f.first, f.last, f.state) for f in found], np.int32)


_NOTHING = Found(-1, -1, 0, 0)


@kernel
def _run(table: Any, data: Any, state: int) -> tuple[int, int, int, int]:
    first, last, count = -1, -1, 0
    for i in range(len(data)):
        move = table[state, data[i]]
        state = move & 127
        if move >= 128:
            first = i + 1 if first < 0 else first
            last = i + 1
            count += 1
    return first, last, count, state


def warm() -> None:
    """Compile the kernel of finders with several states."""
    finder = Delimiting.of_token(b"\r\n")
    for data in (b"\r\n", bytearray(b"\r\n")):
        finder.search(data, 0, len(data), 0)


def finder_of(fmt: Format) -> Delimiting | None:
    """The finder of a format. None if its records have no delimiter that bytes alone identify."""
    if isinstance(fmt, Csv) and fmt.dialect.multiline:
        dialect = fmt.dialect
        if len(dialect.delimiter) > 1 or dialect.ending not in (b"", b"\n"):
            return None
        if not dialect.quote:
            return Delimiting.of_token(b"\n")
        escape = dialect.escape[0] if dialect.escape else -1
        return Delimiting.of_quoted(dialect.delimiter[0], dialect.quote[0], escape)
    return Delimiting.of_token(fmt.delimiter) if fmt.delimiter else None
