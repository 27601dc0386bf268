"""The proleptic Gregorian calendar over arrays: days since 1970 to year, month, day and back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
RowFlags = npt.NDArray[np.bool_]

_LENGTHS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], np.int64)
_BEFORE = np.array([0, 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334], np.int64)


@dataclass(frozen=True, slots=True)
class Civil:
    """Years, months and days of dates. Year 0 is the year before year 1."""

    year: Int64s
    month: Int64s
    day: Int64s


def days_of(year: Int64s, month: Int64s, day: Int64s) -> Int64s:
    """Days since 1970-01-01. The date must exist."""
    shifted = year - (month <= 2)
    era = shifted // 400
    of_era = shifted - era * 400
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    found: Int64s = era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468
    return found


def civil(days: Int64s) -> Civil:
    """The inverse of `days_of`."""
    shifted = days + 719_468
    era = shifted // 146_097
    of_era = shifted - era * 146_097
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = np.where(month < 10, month + 3, month - 9)
    return Civil(year + era * 400 + (month <= 2), month, day)


def is_leap(year: Int64s) -> RowFlags:
    """True for years with a 29th of February."""
    found: RowFlags = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    return found


def month_length(year: Int64s, month: Int64s) -> Int64s:
    """The number of days of a month."""
    found: Int64s = _LENGTHS[month] + ((month == 2) & is_leap(year))
    return found


def exists(year: Int64s, month: Int64s, day: Int64s) -> RowFlags:
    """True if the date exists."""
    safe = np.clip(month, 1, 12)
    return (month >= 1) & (month <= 12) & (day >= 1) & (day <= month_length(year, safe))


def day_of_year(date: Civil) -> Int64s:
    """1 for the first of January."""
    return _BEFORE[date.month] + ((date.month > 2) & is_leap(date.year)) + date.day


def weekday(days: Int64s) -> Int64s:
    """0 for Monday to 6 for Sunday."""
    return (days + 3) % 7


def add_months(days: Int64s, months: Int64s) -> Int64s:
    """The same day of another month, or the last of that month when it is shorter."""
    date = civil(days)
    total = date.year * 12 + date.month - 1 + months
    year, month = total // 12, total % 12 + 1
    return days_of(year, month, np.minimum(date.day, month_length(year, month)))
