"""Reads dates and timestamps without a pattern, as Spark's CAST does.

The common layouts, `yyyy-MM-dd` and `yyyy-MM-dd HH:mm:ss` with a fraction of up to six digits, are read by their
positions. A regular expression reads all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from headrace.exec.kernels.dates import Int64s, RowFlags, days_of, exists
from headrace.exec.kernels.kernel import ArrowColumn
from headrace.exec.kernels.zones import DAY, SECOND, UnknownZone, zone

pc: Any = pyarrow.compute
_BLANK = r"[\x00-\x20\x7f]*"
_DAY_PART = r"(?P<sign>[+-]?)(?P<year>[0-9]{4,%d})(?:-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2})%s)?)?"
_CLOCK_PART = (
    r"(?:[ T](?P<hour>[0-9]{1,2})(?::(?P<minute>[0-9]{1,2})(?::(?P<second>[0-9]{1,2})"
    r"(?:(?:\.(?P<fraction>[0-9]*)(?P<zone>[^0-9].*)?)|(?P<zone2>[^0-9.].*)?)?)?)?)?"
)
_DATE = "(?s)^" + _BLANK + _DAY_PART % (7, "(?:[ T].*)?") + _BLANK + "$"
_MOMENT = "(?s)^" + _BLANK + _DAY_PART % (6, _CLOCK_PART) + _BLANK + "$"
_TRIMMED = "".join(map(chr, range(33)))
_DATE_LENGTH, _SECOND_LENGTH, _LONGEST = 10, 19, 26
_MAX_DAYS = 106_751_990  # microseconds of later days do not fit 64 bits


@dataclass(slots=True)
class Moments:
    """Wall-clock readings in microseconds. `good` is False for texts that are none, and for NULL. `zones` holds the
    names of the zones in the texts; `zone_of` is the index of a row's zone, or -1."""

    micros: Int64s
    good: RowFlags
    zone_of: Int64s
    zones: list[str]

    def instants(self, default: str) -> tuple[Int64s, RowFlags]:
        """Instants, and which are good, with `default` for texts without a zone."""
        found = zone(default).instant(self.micros)
        good = self.good.copy()
        for i, name in enumerate(self.zones):
            rows = self.zone_of == i
            bare = name.rstrip(_TRIMMED + "\x7f").strip(_TRIMMED)
            if not bare:
                continue
            try:
                found[rows] = zone(bare).instant(self.micros[rows])
            except UnknownZone:
                good[rows] = False
        return found, good

    def readings(self) -> tuple[Int64s, RowFlags]:
        """The readings, and which are good. A zone is ignored, but must exist."""
        return self.micros, self.instants("UTC")[1]


def text_bytes(texts: ArrowColumn) -> tuple[npt.NDArray[np.uint8], Int64s, Int64s]:
    """The bytes of all texts, and where each begins and ends."""
    large = texts.cast(pa.large_string())
    buffers: Any = large.buffers()
    offsets = np.frombuffer(buffers[1], np.int64)[large.offset : large.offset + len(large) + 1]
    data = np.frombuffer(buffers[2], np.uint8) if buffers[2] is not None else np.empty(0, np.uint8)
    return data, offsets[:-1], offsets[1:]


def parse_dates(texts: ArrowColumn) -> tuple[Int64s, RowFlags]:
    """Days since 1970, and which texts are dates."""
    count = len(texts)
    days, good = np.zeros(count, np.int64), np.zeros(count, bool)
    data, begin, end = text_bytes(texts)
    rows = np.flatnonzero(end - begin >= _DATE_LENGTH)
    if len(rows):
        day, fine = _date_letters(data[begin[rows, None] + np.arange(_DATE_LENGTH)])
        after = data[np.minimum(begin[rows] + _DATE_LENGTH, len(data) - 1)]
        fine &= (end - begin == _DATE_LENGTH)[rows] | (after == ord(" ")) | (after == ord("T"))
        days[rows[fine]], good[rows[fine]] = day[fine], True
    rest = _rest(texts, good)
    if len(rest):
        day, fine = _date_of(pc.extract_regex(texts.take(pa.array(rest)), _DATE))
        days[rest[fine]], good[rest[fine]] = day[fine], True
    return days, good


def parse_moments(texts: ArrowColumn) -> Moments:
    """Reads timestamps. A time without a date is none: Spark would take today's date."""
    count = len(texts)
    found = Moments(np.zeros(count, np.int64), np.zeros(count, bool), np.full(count, -1, np.int64), [])
    data, begin, end = text_bytes(texts)
    sizes = end - begin
    for rows, size in (
        (np.flatnonzero(sizes == _DATE_LENGTH), _DATE_LENGTH),
        (np.flatnonzero(sizes == _SECOND_LENGTH), _SECOND_LENGTH),
        (np.flatnonzero((sizes > _SECOND_LENGTH + 1) & (sizes <= _LONGEST)), _LONGEST),
    ):
        if not len(rows):
            continue
        letters = data[np.minimum(begin[rows, None] + np.arange(size), len(data) - 1)]
        if size == _LONGEST:
            letters[np.arange(size) >= sizes[rows, None]] = ord("0")  # digits that a fraction does not have
        days, good = _date_letters(letters)
        clock = _clock_letters(letters, good) if size > _DATE_LENGTH else 0
        chosen = rows[good]
        found.micros[chosen], found.good[chosen] = (days * DAY + clock)[good], True
    rest = _rest(texts, found.good)
    if len(rest):
        _match(texts.take(pa.array(rest)), rest, found)
    return found


def _rest(texts: ArrowColumn, done: RowFlags) -> npt.NDArray[np.intp]:
    """The rows that are neither done nor NULL."""
    return np.flatnonzero(~done & np.asarray(texts.is_valid()))


Letters: TypeAlias = npt.NDArray[np.uint8]


def _date_letters(letters: Letters) -> tuple[Int64s, RowFlags]:
    """Days, and which texts begin with `yyyy-MM-dd`. All have the same length."""
    digits = letters[:, :_DATE_LENGTH] - np.uint8(ord("0"))
    good = (digits[:, [0, 1, 2, 3, 5, 6, 8, 9]] <= 9).all(axis=1)
    good &= (letters[:, 4] == ord("-")) & (letters[:, 7] == ord("-"))
    year = _two(digits, 0) * 100 + _two(digits, 2)
    month, day = _two(digits, 5), _two(digits, 8)
    good &= exists(year, month, day)
    return days_of(year, np.clip(month, 1, 12), day), good


def _clock_letters(letters: Letters, good: RowFlags) -> Int64s:
    """Microseconds of the day. Clears `good` where ` HH:mm:ss` does not follow the date."""
    digits = letters - np.uint8(ord("0"))
    good &= (digits[:, [11, 12, 14, 15, 17, 18]] <= 9).all(axis=1)
    good &= (letters[:, 13] == ord(":")) & (letters[:, 16] == ord(":"))
    good &= (letters[:, 10] == ord(" ")) | (letters[:, 10] == ord("T"))
    hour, minute, second = _two(digits, 11), _two(digits, 14), _two(digits, 17)
    good &= (hour < 24) & (minute < 60) & (second < 60)
    clock: Int64s = (hour * 3600 + minute * 60 + second) * SECOND
    if letters.shape[1] > _SECOND_LENGTH:
        good &= (letters[:, 19] == ord(".")) & (digits[:, 20:] <= 9).all(axis=1)
        clock += _two(digits, 20) * 10_000 + _two(digits, 22) * 100 + _two(digits, 24)
    return clock


def _two(digits: Letters, at: int) -> Int64s:
    """The number of two digits."""
    found: Int64s = digits[:, at].astype(np.int64) * 10 + digits[:, at + 1]
    return found


def _number(texts: ArrowColumn, default: int) -> Int64s:
    """Digits as numbers. `default` for none."""
    filled = pc.if_else(pc.equal(pc.coalesce(texts, ""), ""), str(default), texts)
    found: Int64s = filled.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return found


def _date_of(parts: ArrowColumn) -> tuple[Int64s, RowFlags]:
    matched = np.asarray(parts.is_valid())
    year = _number(parts.field("year"), 1)
    year = np.where(np.asarray(pc.equal(pc.coalesce(parts.field("sign"), ""), "-")), -year, year)
    month, day = _number(parts.field("month"), 1), _number(parts.field("day"), 1)
    good = matched & exists(year, month, day)
    days = days_of(year, np.clip(month, 1, 12), day)
    return days, good & (days < 2**31) & (days >= -(2**31))


def _match(texts: ArrowColumn, rows: npt.NDArray[np.intp], found: Moments) -> None:
    parts = pc.extract_regex(texts, _MOMENT)
    days, good = _date_of(parts)
    hour, minute, second = (_number(parts.field(name), 0) for name in ("hour", "minute", "second"))
    fraction = pc.utf8_slice_codeunits(pc.coalesce(parts.field("fraction"), ""), 0, 6)
    micros = _number(pc.utf8_rpad(fraction, 6, "0"), 0)
    good &= (hour < 24) & (minute < 60) & (second < 60) & (np.abs(days) <= _MAX_DAYS)
    safe = np.where(good, days, 0)
    found.micros[rows] = safe * DAY + (hour * 3600 + minute * 60 + second) * SECOND + micros
    found.good[rows] = good
    named = pc.binary_join_element_wise(
        pc.coalesce(parts.field("zone"), ""), pc.coalesce(parts.field("zone2"), ""), ""
    ).dictionary_encode()
    found.zones = named.dictionary.to_pylist()
    indexes: Int64s = np.asarray(named.indices).astype(np.int64)
    if "" in found.zones:
        indexes[indexes == found.zones.index("")] = -1
    found.zone_of[rows] = indexes
