"""Date patterns with the letters of Spark (java.time.format.DateTimeFormatter), and writing texts with them.

`compile_pattern` splits a pattern into elements once. Writing joins one array of texts per element. Reading is in
`pattern_reading`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from headrace.exec.kernels.dates import Civil, Int64s, civil, day_of_year, weekday
from headrace.exec.kernels.kernel import ArrowColumn
from headrace.exec.kernels.zones import DAY, SECOND

pc: Any = pyarrow.compute

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_QUARTERS = ("1st quarter", "2nd quarter", "3rd quarter", "4th quarter")
# How often a letter may repeat.
_WRITTEN = {
    "G": 4, "y": 6, "M": 4, "L": 4, "d": 2, "D": 3, "Q": 4, "q": 4, "E": 4, "a": 1, "h": 2, "H": 2, "k": 2, "K": 2,
    "m": 2, "s": 2, "S": 9, "V": 2, "O": 4, "X": 5, "x": 5, "Z": 5,
}  # fmt: skip
# All letters that Spark has, for writing and for reading. It passes g and v on to Java. The others of Java depend on
# the weeks of a country.
_SPARKS = frozenset("GyMLdDQqEFahHkKmsSVzOXxZgv")
_ONLY_WRITTEN = frozenset("EFQq")


class BadPattern(ValueError):
    """A pattern that cannot be used. The message names what about it."""


@dataclass(frozen=True, slots=True)
class Element:
    """A letter `count` times, or a fixed `text`, or a bracket (`letter` is [ or ])."""

    letter: str = ""
    count: int = 0
    text: str = ""


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> tuple[Element, ...]:
    """The elements of a pattern. Raises BadPattern."""
    found: list[Element] = []
    position = 0
    while position < len(pattern):
        letter = pattern[position]
        if letter == "'":
            match = re.compile(r"'((?:[^']|'')*)'").match(pattern, position)
            if match is None:
                raise BadPattern("a quote that is not closed")
            found.append(Element(text=match[1].replace("''", "'") or "'"))
            position = match.end()
        elif letter.isascii() and letter.isalpha():
            end = position
            while end < len(pattern) and pattern[end] == letter:
                end += 1
            found.append(Element(letter, end - position))
            position = end
        elif letter in "{}#":
            raise BadPattern(f"the reserved character {letter!r}")
        else:
            found.append(Element(letter) if letter in "[]" else Element(text=letter))
            position += 1
    depth = 0
    for element in found:
        depth += {"[": 1, "]": -1}.get(element.letter, 0)
        if depth < 0:
            raise BadPattern("a bracket that is not opened")
    return tuple(found)


def check_letters(elements: tuple[Element, ...], known: dict[str, int]) -> None:
    for element in elements:
        if element.count and element.count > known.get(element.letter, 0):
            raise BadPattern(f"the letters {element.letter * element.count!r}")
        if element.letter == "V" and element.count != 2:
            raise BadPattern("the letter 'V'")
        if element.letter == "O" and element.count not in (1, 4):
            raise BadPattern(f"the letters {'O' * element.count!r}")


def unknown_letter(pattern: str, reading: bool) -> str | None:
    """The first letter of `pattern` with which Spark always fails. None if there is none."""
    try:
        elements = compile_pattern(pattern)
    except BadPattern:
        return None
    known = _SPARKS - _ONLY_WRITTEN if reading else _SPARKS
    return next((e.letter for e in elements if e.count and e.letter not in known), None)


@lru_cache(maxsize=1024)
def check_written(pattern: str) -> None:
    """Raises BadPattern if texts cannot be written with `pattern`."""
    check_letters(compile_pattern(pattern), _WRITTEN)


def write(pattern: str, local: Int64s, offset: Int64s, zone: str) -> ArrowColumn:
    """The texts of wall-clock readings. `offset` is the distance to UTC in microseconds."""
    check_written(pattern)
    elements = compile_pattern(pattern)
    days, clock = local // DAY, local % DAY
    moment = _Moment(civil(days), days, clock, offset // SECOND, zone, any(e.letter == "G" for e in elements))
    parts: list[Any] = []
    for element in elements:
        if element.count:
            parts.append(moment.text(element))
        elif element.text:
            parts.append(element.text)
    if not parts:
        return pa.array([""] * len(local), pa.string())
    if all(isinstance(part, str) for part in parts):
        return pa.array(["".join(parts)] * len(local), pa.string())
    return pc.binary_join_element_wise(*parts, "")


@dataclass(frozen=True, slots=True)
class _Moment:
    date: Civil
    days: Int64s
    clock: Int64s
    offset: Int64s
    zone: str
    with_era: bool

    def text(self, element: Element) -> Any:
        letter, count = element.letter, element.count
        hour = self.clock // (3600 * SECOND)
        plain: dict[str, Callable[[], Int64s]] = {
            "d": lambda: self.date.day,
            "D": lambda: day_of_year(self.date),
            "H": lambda: hour,
            "k": lambda: np.where(hour == 0, 24, hour),
            "K": lambda: hour % 12,
            "h": lambda: np.where(hour % 12 == 0, 12, hour % 12),
            "m": lambda: self.clock // (60 * SECOND) % 60,
            "s": lambda: self.clock // SECOND % 60,
        }
        if letter in plain:
            return _padded(plain[letter](), count)
        if letter == "y":
            return self._year(count)
        if letter in "ML":
            return _padded(self.date.month, count) if count <= 2 else _chosen(self.date.month - 1, MONTHS, count)
        if letter in "Qq":
            return self._quarter(count)
        if letter == "E":
            return _chosen(weekday(self.days), _DAYS, 3 if count < 4 else 4)
        if letter == "a":
            return _chosen(hour // 12, ("AM", "PM"), 4)
        if letter == "G":
            return _chosen((self.date.year > 0).astype(np.int64), _ERAS[count == 4], 4)
        if letter == "S":
            digits = pc.utf8_slice_codeunits(_padded(self.clock % SECOND, 6), 0, min(count, 6))
            return digits if count <= 6 else pc.utf8_rpad(digits, count, "0")
        if letter == "V":
            return self.zone
        return self._offset(letter, count)

    def _year(self, count: int) -> ArrowColumn:
        year = np.where(self.date.year > 0, self.date.year, 1 - self.date.year) if self.with_era else self.date.year
        size = np.abs(year)
        if count == 2:
            return _padded(size % 100, 2)
        digits = _padded(size, 4 if count == 4 else count)
        plus = (size >= 10**count) & (count >= 4)
        sign = _chosen(np.where(year < 0, 1, np.where(plus, 2, 0)), ("", "-", "+"), 4)
        return pc.binary_join_element_wise(sign, digits, "")

    def _quarter(self, count: int) -> ArrowColumn:
        quarter = (self.date.month + 2) // 3
        if count <= 2:
            return _padded(quarter, count)
        return _chosen(quarter - 1, ("Q1", "Q2", "Q3", "Q4") if count == 3 else _QUARTERS, 4)

    def _offset(self, letter: str, count: int) -> ArrowColumn:
        offsets, which = np.unique(self.offset, return_inverse=True)
        texts = tuple(offset_text(letter, count, int(seconds)) for seconds in offsets)
        return _chosen(which.astype(np.int64), texts, 4)


_ERAS = (("BC", "AD"), ("Before Christ", "Anno Domini"))


def _padded(values: Int64s, width: int) -> ArrowColumn:
    text = pc.cast(pa.array(values), pa.string())
    return pc.utf8_lpad(text, width, "0") if width > 1 else text


def _chosen(which: Int64s, names: tuple[str, ...], count: int) -> ArrowColumn:
    """The names at `which`, in short form for a count of 3."""
    texts = pa.array([name if count == 4 else name[:3] for name in names], pa.string())
    return texts.take(which)


def offset_text(letter: str, count: int, seconds: int) -> str:
    """The text of an offset for the letters O, X, x and Z."""
    sign, size = "-" if seconds < 0 else "+", abs(seconds)
    hours, minutes, rest = size // 3600, size // 60 % 60, size % 60
    if letter == "O" or (letter == "Z" and count == 4):
        if size == 0:
            return "GMT"
        if count == 4:
            return f"GMT{sign}{hours:02d}:{minutes:02d}" + (f":{rest:02d}" if rest else "")
        end = f":{minutes:02d}" if minutes or rest else ""
        return f"GMT{sign}{hours}{end}" + (f":{rest:02d}" if rest else "")
    zero = {
        "Z": "Z" if count == 5 else "+0000",
        "X": "Z",
        "x": ("+00", "+0000", "+00:00", "+0000", "+00:00")[count - 1],
    }
    shape = {1: 2, 2: 2, 3: 2, 5: 5}.get(count, count) if letter == "Z" else count
    colon = ":" if shape in (3, 5) else ""
    text = f"{sign}{hours:02d}"
    if shape > 1 or minutes:
        text += f"{colon}{minutes:02d}"
    if shape >= 4 and rest:
        text += f"{colon}{rest:02d}"
    empty = hours == minutes == 0 and (rest == 0 or shape < 4)
    return zero[letter] if empty else text
