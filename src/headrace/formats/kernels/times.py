"""Fields to dates and timestamps: ISO 8601, and patterns compiled to a small program.

Status and fields are as in numbers.py. Timestamps are microseconds since 1970, dates are days.
"""

# Numba needs plain comparisons and its own integer types, so some lints and type checks do not apply.
# mypy: disable-error-code="no-any-return,return-value,assignment"
from __future__ import annotations

from typing import Any

from headrace.formats.kernels.jit import helper, kernel
from headrace.formats.kernels.numbers import FINE, NULL, SLOW, some_digits
from headrace.formats.kernels.simd import byte_at, digit_run, get8, view, wide, word_at

BAD_DATE, BAD_TIMESTAMP = 7, 8
DAY = 86_400_000_000
# The first and the last value of the years 1 to 9999, which Spark's types support.
DATES = (-719_162, 2_932_896)
TIMESTAMPS = (-719_162 * DAY, 2_932_897 * DAY - 1)
# Steps of a pattern program: (code, argument).
LITERAL, YEAR, MONTH, DAYS, HOUR, MINUTE, SECOND, FRACTION, ZONE = 0, 1, 2, 3, 4, 5, 6, 7, 8


@helper
def two_digits(buf: Any, p: int) -> int:
    """The number of two digits; at least 100 if they are not digits."""
    a, b = get8(buf, p) - 48, get8(buf, p + 1) - 48
    if a < 0 or a > 9 or b < 0 or b > 9:
        return 100
    return a * 10 + b


@helper
def days_of(year: int, month: int, day: int) -> int:
    """Days since 1970 of a civil date; a very negative number if there is no such day."""
    if year < 1 or month < 1 or month > 12 or day < 1 or day > 31:
        return -(1 << 40)
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if day > 28 and (
        (month == 2 and day > (29 if leap else 28))
        or (day == 31 and (month == 4 or month == 6 or month == 9 or month == 11))
    ):
        return -(1 << 40)
    y = year - 1 if month <= 2 else year
    era = y // 400
    within = y - era * 400
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146097 + within * 365 + within // 4 - within // 100 + of_year - 719468


@helper
def iso_days(buf: Any, p: int) -> int:
    """Days since 1970 of yyyy-mm-dd in the ten bytes at `p`; a very negative number if it is not a date."""
    if get8(buf, p + 4) != 45 or get8(buf, p + 7) != 45:
        return -(1 << 40)
    century, year = two_digits(buf, p), two_digits(buf, p + 2)
    if century > 99 or year > 99:
        return -(1 << 40)
    return days_of(century * 100 + year, two_digits(buf, p + 5), two_digits(buf, p + 8))


@helper
def zone_minutes(buf: Any, p: int, e: int) -> int:
    """Minutes east of UTC of the offset [p, e); 10000 if it is not an offset."""
    c = get8(buf, p)
    length = e - p
    if c == 90:
        return 0 if length == 1 else 10000
    if (c != 43 and c != 45) or (length != 3 and length != 5 and length != 6):
        return 10000
    hours = two_digits(buf, p + 1)
    minutes = 0
    if length == 5:
        minutes = two_digits(buf, p + 3)
    elif length == 6:
        minutes = two_digits(buf, p + 4) if get8(buf, p + 3) == 58 else 100
    if minutes > 59 or hours * 60 + minutes > 18 * 60:
        return 10000
    return hours * 60 + minutes if c == 43 else -(hours * 60 + minutes)


@helper
def fraction_micros(buf: Any, p: int, count: int, n: int) -> int:
    """The microseconds of a fraction of 1 to 9 digits at `p`, truncated."""
    value = some_digits(word_at(buf, p, n), min(count, 6))
    for _ in range(count, 6):
        value *= 10
    return value


@helper
def iso_micros(buf: Any, p: int, e: int, n: int, zoned: bool) -> int:
    """Microseconds since 1970 of the ISO 8601 date or date and time [p, e); the lowest int64 if it is neither."""
    none = -(1 << 63)
    if e - p < 10:
        return none
    days = iso_days(buf, p)
    if days == -(1 << 40):
        return none
    if e - p == 10:
        return days * DAY
    if e - p < 16 or (get8(buf, p + 10) != 84 and get8(buf, p + 10) != 32) or get8(buf, p + 13) != 58:
        return none
    hour, minute, second = two_digits(buf, p + 11), two_digits(buf, p + 14), 0
    q = p + 16
    micros = 0
    if q + 3 <= e and get8(buf, q) == 58:
        second = two_digits(buf, q + 1)
        q += 3
        if q < e and get8(buf, q) == 46:
            run = digit_run(word_at(buf, q + 1, n))
            if run == 8 and 48 <= byte_at(buf, q + 9, n) <= 57:
                run = 9
            if run == 0 or q + 1 + run > e:
                return none
            micros = fraction_micros(buf, q + 1, run, n)
            q += 1 + run
    if hour > 23 or minute > 59 or second > 59:
        return none
    offset = 0
    if q < e:
        offset = zone_minutes(buf, q, e)
        if offset == 10000 or not zoned:
            return none
    return days * DAY + ((hour * 60 + minute - offset) * 60 + second) * 1_000_000 + micros


@kernel
def parse_timestamps(data: Any, starts: Any, ends: Any, quoted: bool, zoned: bool, values: Any, status: Any) -> int:
    """Parse ISO 8601 timestamps. `quoted`: fields are JSON values, so a timestamp must be a string. `zoned`: a UTC
    offset is allowed."""
    buf, n = view(data), len(data)
    odd = 0
    for i in range(len(starts)):
        p, e = wide(starts[i]), wide(ends[i])
        if p < 0:
            status[i] = NULL
            odd += 1
            continue
        if e < 0:
            status[i] = SLOW
            odd += 1
            continue
        value = -(1 << 63)
        if not quoted:
            value = iso_micros(buf, p, e, n, zoned)
        elif get8(buf, p) == 34:
            value = iso_micros(buf, p + 1, e - 1, n, zoned)
        if value == -(1 << 63):
            status[i] = BAD_TIMESTAMP
            odd += 1
        else:
            values[i] = value
            status[i] = FINE
    return odd


@kernel
def parse_dates(data: Any, starts: Any, ends: Any, quoted: bool, values: Any, status: Any) -> int:
    """Parse dates as yyyy-mm-dd."""
    buf = view(data)
    odd = 0
    for i in range(len(starts)):
        p, e = wide(starts[i]), wide(ends[i])
        if p < 0:
            status[i] = NULL
            odd += 1
            continue
        if e < 0:
            status[i] = SLOW
            odd += 1
            continue
        if quoted:
            e = e - 1 if get8(buf, p) == 34 else p
            p += 1
        days = iso_days(buf, p) if e - p == 10 else -(1 << 40)
        if days == -(1 << 40):
            status[i] = BAD_DATE
            odd += 1
        else:
            values[i] = days
            status[i] = FINE
    return odd


@kernel
def parse_pattern(
    data: Any, starts: Any, ends: Any, quoted: bool, program: Any, wrong: int, values: Any, status: Any
) -> int:
    """Parse dates and times with a compiled pattern (`formats.patterns`), as microseconds. `wrong` is the status of a
    field that does not match."""
    buf, n = view(data), len(data)
    odd = 0
    for i in range(len(starts)):
        p, e = wide(starts[i]), wide(ends[i])
        if p < 0:
            status[i] = NULL
            odd += 1
            continue
        if e < 0:
            status[i] = SLOW
            odd += 1
            continue
        good = True
        if quoted:
            good = get8(buf, p) == 34
            p += 1
            e -= 1
        year, month, day, hour, minute, second, micros, offset = 1970, 1, 1, 0, 0, 0, 0, 0
        for k in range(len(program)):
            code, argument = program[k, 0], program[k, 1]
            if not good:
                break
            if code == LITERAL:
                good = p < e and get8(buf, p) == argument
                p += 1
            elif code == ZONE:
                q = p
                while q < e and (q == p or 48 <= get8(buf, q) <= 58):
                    q += 1
                offset = zone_minutes(buf, p, q) if q > p else 10000
                good = offset != 10000
                p = q
            else:
                good = p + argument <= e and digit_run(word_at(buf, p, n)) >= min(argument, 8)
                if not good:
                    break
                if code == FRACTION:
                    good = argument < 9 or 48 <= get8(buf, p + 8) <= 57
                    micros = fraction_micros(buf, p, argument, n)
                else:
                    value = some_digits(word_at(buf, p, n), argument)
                    if code == YEAR:
                        year = value
                    elif code == MONTH:
                        month = value
                    elif code == DAYS:
                        day = value
                    elif code == HOUR:
                        hour = value
                    elif code == MINUTE:
                        minute = value
                    else:
                        second = value
                p += argument
        days = days_of(year, month, day)
        if good and p == e and days != -(1 << 40) and hour < 24 and minute < 60 and second < 60:
            values[i] = days * DAY + ((hour * 60 + minute - offset) * 60 + second) * 1_000_000 + micros
            status[i] = FINE
        else:
            status[i] = wrong
            odd += 1
    return odd
