"""Reads times by a pattern: the elements become a regular expression, whose groups are the fields of a time."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from headrace.exec.kernels.date_patterns import MONTHS, BadPattern, Element, check_letters, compile_pattern
from headrace.exec.kernels.dates import Int64s, RowFlags, civil, days_of, exists
from headrace.exec.kernels.kernel import ArrowColumn
from headrace.exec.kernels.zones import DAY, SECOND, Zone, zone_by_id

pc: Any = pyarrow.compute

# How often a letter may repeat.
_READ = {"G": 4, "y": 6, "M": 4, "L": 4, "d": 2, "D": 3, "a": 1, "h": 2, "H": 2, "k": 2, "K": 2, "m": 2, "s": 2, "S": 9,
         "X": 5, "x": 5, "Z": 5, "O": 4, "V": 2}  # fmt: skip
_FIELD = {"L": "M", "X": "Z", "x": "Z", "O": "Z"}
_ZONE_LETTERS = "A-Za-z0-9~/._+-"
_ZONE_NAME = f"[A-Za-z][{_ZONE_LETTERS}:]*|[+-][0-9:]+"
_AFTER_ZONE = re.compile(f"[^{_ZONE_LETTERS}:]")
_ERAS = {3: "AD|BC", 4: "Anno Domini|Before Christ"}
_RANGES = {
    "M": (1, 12), "d": (1, 31), "D": (1, 366), "h": (1, 12), "H": (0, 23), "k": (1, 24), "K": (0, 11), "m": (0, 59),
    "s": (0, 59),
}  # fmt: skip
_OFFSETS = {
    1: "[+-][0-9]{2}(?:[0-9]{2})?",
    2: "[+-][0-9]{4}",
    3: "[+-][0-9]{2}:[0-9]{2}",
    4: "[+-][0-9]{4}(?:[0-9]{2})?",
    5: "[+-][0-9]{2}:[0-9]{2}(?::[0-9]{2})?",
}


@dataclass(frozen=True, slots=True)
class PatternReader:
    """A pattern as a regular expression. `fields` has a letter for each kind of element that it reads."""

    expression: str
    fields: dict[str, Element]


@lru_cache(maxsize=1024)
def reader(pattern: str) -> PatternReader:
    """How texts of `pattern` are read. Raises BadPattern."""
    elements = compile_pattern(pattern)
    check_letters(elements, _READ)
    _check_digits(elements)
    fields: dict[str, Element] = {}
    letters = {element.letter for element in elements}
    expression = ""
    depth = 0
    for place, element in enumerate(elements):
        depth += {"[": 1, "]": -1}.get(element.letter, 0)
        if element.text:
            expression += re.escape(element.text)
        elif element.letter == "[":
            expression += "(?:"
        elif element.letter == "]":
            expression += ")?"
        else:
            field = _FIELD.get(element.letter, element.letter)
            if field in fields:
                raise BadPattern(f"the letter {element.letter!r} twice")
            if field == "V" and depth:
                raise BadPattern("a zone in brackets")
            if field == "Z" and depth and any(following.letter != "]" for following in elements[place + 1 :]):
                raise BadPattern("an offset in brackets that is not at the end")
            if field in "Gy" and depth and "G" in letters:
                raise BadPattern("an era or its year in brackets")
            fields[field] = element
            expression += f"(?P<{field}>{_digits_of(element)})"
    if sum(letter in fields for letter in "hHkK") > 1 or ("a" in fields and fields.keys() & {"H", "k"}):
        raise BadPattern("several letters for the hour")
    if "D" in fields and (fields.keys() & {"M", "d"} or "y" not in fields):
        raise BadPattern("the letter 'D' with a month or without a year")
    if "G" in fields and "y" not in fields:
        raise BadPattern("the letter 'G' without a year")
    if {"V", "Z"} <= fields.keys():
        raise BadPattern("a zone beside an offset")
    expression += ")?" * depth  # brackets that stay open end with the pattern
    return PatternReader(f"(?is)^{expression}$", fields)


def _digits_of(element: Element) -> str:
    """The regular expression of an element."""
    letter, count = element.letter, element.count
    if letter == "y":
        if count == 2:
            return "[0-9]{2}"
        if count < 4:
            return f"-?[0-9]{{{count},9}}"
        return f"-[0-9]{{{count},9}}|[0-9]{{{count}}}|[+][0-9]{{{count + 1},9}}"
    if letter in "ML" and count > 2:
        return "|".join(name if count == 4 else name[:3] for name in MONTHS)
    if letter == "G":
        return _ERAS[max(count, 3)]
    if letter == "a":
        return "AM|PM"
    if letter == "V":
        return _ZONE_NAME
    if letter == "S":
        return f"[0-9]{{1,{count}}}"
    if _is_from_gmt(element):
        hours, minutes, seconds = "[+-][0-9]{1,2}", ":[0-9]{2}", "(?::[0-9]{2})?"
        return f"GMT(?:[+-][0-9]{{2}}{minutes}{seconds})?" if count == 4 else f"GMT(?:{hours}(?:{minutes}{seconds})?)?"
    if letter in "XxZ":
        shape = _OFFSETS[2 if letter == "Z" and count < 4 else count]
        return f"Z|{shape}" if letter == "X" or (letter == "Z" and count == 5) else shape
    if letter == "D" and count == 2:
        return "[0-9]{2,3}"
    return "[0-9]{1,9}" if count == 1 else f"[0-9]{{{count}}}"


def _is_from_gmt(element: Element) -> bool:
    """True for an offset that is written as GMT+8 or GMT+08:00."""
    return element.letter == "O" or (element.letter == "Z" and element.count == 4)


def _check_digits(elements: tuple[Element, ...]) -> None:
    """Java reads as many digits as it can, and never fewer in a second attempt. So digits of variable length must be
    followed by something else, or by numbers of fixed length."""
    greedy, past_bracket = False, False
    for element, following in itertools.pairwise(elements):
        if _is_from_gmt(element) and (following.letter not in ("", "]") or following.text[:1] in tuple(":+-")):
            raise BadPattern("an offset from GMT without a separator after it")
        if element.letter == "V" and not _AFTER_ZONE.match(following.text):
            raise BadPattern("a zone without a separator after it")
    for element in elements:
        if element.letter in ("[", "]") and not element.count:
            past_bracket = True
            continue
        kind = _number_kind(element)
        if greedy and (kind == "variable" or (kind == "fixed" and past_bracket)):
            raise BadPattern("numbers without a separator between them")
        greedy = kind == "variable" or (greedy and kind == "fixed")
        past_bracket = False


def _number_kind(element: Element) -> str:
    letter, count = element.letter, element.count
    if not count:
        return "variable" if element.text[:1].isdigit() else "text"
    if _is_from_gmt(element):
        return "variable"
    if letter in "aGV" or (letter in "ML" and count > 2) or letter in "XxZ":
        return "text"
    if letter == "S" or (letter == "y" and count != 2) or count == 1 or (letter == "D" and count == 2):
        return "variable"
    return "fixed"


@dataclass(frozen=True, slots=True)
class Read:
    """Wall-clock readings, which of them are good, and the offsets from UTC or the names of zones if the pattern has
    them. `with_offset` says which texts have an offset."""

    micros: Int64s
    good: RowFlags
    offset: Int64s | None = None
    with_offset: RowFlags | None = None
    zones: ArrowColumn | None = None

    def instants(self, default: Zone) -> tuple[Int64s, RowFlags]:
        """Instants, and which are good, with `default` for a pattern that reads neither offset nor zone."""
        if self.offset is not None:
            moved = self.micros - self.offset
            if self.with_offset is None or self.with_offset.all():
                return moved, self.good
            return np.where(self.with_offset, moved, default.instant(self.micros)), self.good
        if self.zones is None:
            return default.instant(self.micros), self.good
        found, good = self.micros.copy(), self.good.copy()
        encoded = self.zones.dictionary_encode()
        indexes = np.asarray(encoded.indices)
        for i, name in enumerate(encoded.dictionary.to_pylist()):
            rows, named = indexes == i, zone_by_id(name)
            if named is None:
                good[rows] = False
            else:
                found[rows] = named.instant(self.micros[rows])
        return found, good


def read(pattern: str, texts: ArrowColumn) -> Read:
    """Reads texts. NULL and texts that do not match are not good."""
    found = reader(pattern)
    parts = pc.extract_regex(texts, found.expression) if found.fields else None
    if parts is None:
        good = np.asarray(pc.fill_null(pc.match_substring_regex(texts, found.expression), False))
        return Read(np.zeros(len(texts), np.int64), good)
    good = np.asarray(parts.is_valid()).copy()
    values: dict[str, Int64s] = {}
    present: dict[str, RowFlags] = {}
    for field, element in found.fields.items():
        if field == "V":
            continue
        text = pc.coalesce(parts.field(field), "")
        present[field] = np.asarray(pc.not_equal(text, ""))
        values[field] = _value(element, pc.if_else(pc.equal(text, ""), "", text))
        low, high = _RANGES.get(field, (-(10**9), 10**9))
        if field != "Z":
            good &= ~present[field] | ((values[field] >= low) & (values[field] <= high))
    read = _resolved(found, values, present, good, len(texts))
    return read if "V" not in found.fields else replace(read, zones=pc.coalesce(parts.field("V"), ""))


def _value(element: Element, text: ArrowColumn) -> Int64s:
    """The numbers of an element's texts; 0 for none."""
    letter, count = element.letter, element.count
    if letter in "ML" and count > 2:
        names = pa.array([(n if count == 4 else n[:3]).lower() for n in MONTHS], pa.string())
        return np.asarray(pc.fill_null(pc.index_in(pc.utf8_lower(text), names), -1)).astype(np.int64) + 1
    if letter == "a":
        return np.asarray(pc.equal(pc.utf8_lower(text), "pm")).astype(np.int64)
    if letter == "G":
        return np.asarray(pc.equal(pc.utf8_lower(pc.utf8_slice_codeunits(text, 0, 1)), "b")).astype(np.int64)
    if _is_from_gmt(element):
        return _offset_value(text, check_minutes=False)
    if letter == "S":
        return _whole(pc.utf8_slice_codeunits(pc.utf8_rpad(text, 6, "0"), 0, 6))
    if letter in "XxZ":
        return _offset_value(text)
    number = _whole(text)
    return number + 2000 if letter == "y" and count == 2 else number


def _whole(text: ArrowColumn) -> Int64s:
    filled = pc.if_else(pc.equal(text, ""), "0", pc.utf8_ltrim(text, "+"))
    found: Int64s = filled.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return found


def _offset_value(text: ArrowColumn, check_minutes: bool = True) -> Int64s:
    """Seconds from UTC, or a number out of range for an offset that does not exist. Java takes GMT+08:60 for GMT+09:00,
    but no other offset of 60 minutes."""
    encoded = text.dictionary_encode()
    values = []
    for name in encoded.dictionary.to_pylist():
        digits = re.sub("[^0-9]", "", re.sub("[+-]([0-9])(?=:|$)", "0\\1", name))
        hours, minutes, seconds = (int(digits[i : i + 2] or 0) for i in (0, 2, 4))
        total = hours * 3600 + minutes * 60 + seconds
        bad = (check_minutes and (minutes > 59 or seconds > 59)) or total > 18 * 3600
        values.append(10**6 if bad else -total if "-" in name else total)
    found: Int64s = np.array(values, np.int64)[np.asarray(encoded.indices)]
    return found


def _resolved(
    found: PatternReader, values: dict[str, Int64s], present: dict[str, RowFlags], good: RowFlags, count: int
) -> Read:
    def value(field: str, default: int) -> Int64s:
        if field not in values:
            return np.full(count, default, np.int64)
        return np.where(present[field], values[field], default)

    year = value("y", 1970)
    if "G" in values:
        good = good & (year > 0)
        year = np.where(values["G"] == 1, 1 - year, year)
    if "D" in values:
        ordinal = value("D", 1)
        days = days_of(year, np.ones(count, np.int64), np.ones(count, np.int64)) + ordinal - 1
        good = good & (civil(days).year == year)
    else:
        month, day = value("M", 1), value("d", 1)
        good = good & exists(year, month, day)
        days = days_of(year, np.clip(month, 1, 12), day)
    good = good & (np.abs(days) < 106_751_990)
    half = value("a", 0) * 12
    if "h" in values or "K" in values:
        hour = (value("h", 0) + value("K", 0)) % 12 + half
    else:
        hour = value("H", 0) + value("k", 0) % 24 + half
    clock = (hour * 3600 + value("m", 0) * 60 + value("s", 0)) * SECOND + value("S", 0)
    micros = np.where(good, days, 0) * DAY + clock
    if "Z" not in values:
        return Read(micros, good)
    good = good & (np.abs(values["Z"]) <= 18 * 3600)
    return Read(micros, good, offset=values["Z"] * SECOND, with_offset=present["Z"])
