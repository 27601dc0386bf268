"""Kernels over dates and timestamps. A timestamp is passed as microseconds since 1970, a date as days."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from headrace.exec.kernels.date_patterns import write
from headrace.exec.kernels.dates import Int64s, RowFlags, add_months, civil, days_of, exists, month_length
from headrace.exec.kernels.kernel import ArrowColumn, Kernel, KernelError
from headrace.exec.kernels.pattern_reading import read
from headrace.exec.kernels.time_texts import parse_dates, parse_moments
from headrace.exec.kernels.zones import DAY, SECOND, UnknownZone, Zone, zone

pc: Any = pyarrow.compute

# A timestamp is a 64-bit number of microseconds. Its last day and its first one are not whole.
_LAST_DAY, _LAST_MICROS = divmod(2**63 - 1, DAY)
_FIRST_DAY, _FIRST_MICROS = divmod(-(2**63), DAY)
_CYCLE = 146_097  # days in 400 years: the calendar and the rules of zones repeat
_FAR = 200 * _CYCLE  # in these years, a zone has only rules that repeat, or its first offset


def numbers(column: ArrowColumn) -> Int64s:
    """The values of a column as 64-bit numbers, 0 for NULL."""
    found: Int64s = pc.fill_null(column, 0).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return found


def valid(*columns: ArrowColumn) -> RowFlags:
    """Which rows are NULL in no column."""
    found: RowFlags = np.ones(len(columns[0]), bool)
    for column in columns:
        if column.null_count:
            found &= np.asarray(column.is_valid())
    return found


def whole(values: Int64s, known: RowFlags) -> ArrowColumn:
    """A BIGINT column with NULL where `known` is False."""
    return pa.array(values, pa.int64(), mask=None if known.all() else ~known)


def one(column: ArrowColumn) -> Any:
    """The value of a column that has the same value in all rows. None without rows."""
    return column[0].as_py() if len(column) else None


def checked(good: RowFlags, given: RowFlags, attempt: ArrowColumn, condition: str = "CAST_INVALID_INPUT") -> RowFlags:
    """The rows with a value. Raises KernelError for a given row that is not good, unless `attempt` is true."""
    if not one(attempt) and (given & ~good).any():
        raise KernelError(condition)
    return good & given


def by_zone(zones: ArrowColumn, compute: Any, known: RowFlags, *arrays: Int64s) -> Int64s:
    """`compute(zone, *arrays)` for the known rows of each zone. Raises KernelError for a text that is no zone."""
    encoded = zones.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    try:
        if len(names) == 1 and known.all():
            found: Int64s = compute(zone(names[0]), *arrays)
            return found
        result = np.zeros(len(zones), np.int64)
        indexes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
        for i, name in enumerate(names):
            rows = (indexes == i) & known
            if rows.any():
                result[rows] = compute(zone(name), *(a[rows] for a in arrays))
        return result
    except UnknownZone:
        raise KernelError("INVALID_TIMEZONE") from None


def _local(instants: ArrowColumn, zones: ArrowColumn) -> ArrowColumn:
    known = valid(instants, zones)
    return whole(by_zone(zones, lambda z, a: z.local(a), known, numbers(instants)), known)


def _instant(readings: ArrowColumn, zones: ArrowColumn) -> ArrowColumn:
    known = valid(readings, zones)
    return whole(by_zone(zones, lambda z, a: z.instant(a), known, numbers(readings)), known)


def _convert(readings: ArrowColumn, source: ArrowColumn, target: ArrowColumn) -> ArrowColumn:
    """The reading of the clock in another zone at the same instant."""
    known = valid(readings, source, target)
    instants = by_zone(source, lambda z, a: z.instant(a), known, numbers(readings))
    return whole(by_zone(target, lambda z, a: z.local(a), known, instants), known)


def _timestamp(texts: ArrowColumn, zones: ArrowColumn, attempt: ArrowColumn) -> ArrowColumn:
    found, good = parse_moments(texts).instants(one(zones) or "UTC")
    return whole(found, checked(good, valid(texts), attempt))


def _timestamp_ntz(texts: ArrowColumn, attempt: ArrowColumn) -> ArrowColumn:
    found, good = parse_moments(texts).readings()
    return whole(found, checked(good, valid(texts), attempt))


def _date(texts: ArrowColumn, attempt: ArrowColumn) -> ArrowColumn:
    found, good = parse_dates(texts)
    return whole(found, checked(good, valid(texts), attempt))


def _date_text(days: ArrowColumn) -> ArrowColumn:
    """For years outside 1 to 9999: with a sign."""
    date = civil(numbers(days))
    found = [
        f"{'-' if y < 0 else '+' if y > 9999 else ''}{abs(y):04d}-{m:02d}-{d:02d}"
        for y, m, d in zip(date.year.tolist(), date.month.tolist(), date.day.tolist(), strict=True)
    ]
    return pa.array(found, pa.string(), mask=~valid(days))


def _moment_text(micros: ArrowColumn) -> ArrowColumn:
    """As `_date_text`, with the time and without zeros at its end."""
    local = numbers(micros)
    days = pa.array(local // DAY)
    clock = local % DAY
    found = []
    for text, part in zip(_date_text(days).to_pylist(), clock.tolist(), strict=True):
        seconds, fraction = divmod(part, SECOND)
        end = f".{fraction:06d}".rstrip("0") if fraction else ""
        found.append(f"{text} {seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{end}")
    return pa.array(found, pa.string(), mask=~valid(micros))


def _formatted(instants: ArrowColumn, pattern: ArrowColumn, zones: ArrowColumn) -> ArrowColumn:
    name = one(zones) or "UTC"
    local, values = zone(name), numbers(instants)
    offset = local.offset(values)
    text = write(one(pattern) or "", values + offset, offset, name)
    known = valid(instants)
    return text if known.all() else pc.if_else(pa.array(known), text, None)


def _parsed(texts: ArrowColumn, pattern: ArrowColumn, zones: ArrowColumn, attempt: ArrowColumn) -> ArrowColumn:
    found = read(one(pattern) or "", texts)
    micros, good = found.instants(zone(one(zones) or "UTC"))
    return whole(micros, checked(good, valid(texts), attempt, "CANNOT_PARSE_TIMESTAMP"))


def _parsed_ntz(texts: ArrowColumn, pattern: ArrowColumn, attempt: ArrowColumn) -> ArrowColumn:
    found = read(one(pattern) or "", texts)
    return whole(found.micros, checked(found.good, valid(texts), attempt, "CANNOT_PARSE_TIMESTAMP"))


def _require_near(counts: Int64s) -> None:
    """Raises KernelError for days or months that lead from no timestamp to another. NumPy would wrap around."""
    if len(counts) and (counts.max() > _LAST_DAY - _FIRST_DAY or counts.min() < _FIRST_DAY - _LAST_DAY):
        raise KernelError("DATETIME_OVERFLOW")


def _beyond(days: Int64s, clock: Int64s) -> RowFlags:
    """Which days since 1970 and microseconds of the day are no timestamps."""
    found: RowFlags = (days > _LAST_DAY) | (days < _FIRST_DAY)
    found |= (days == _LAST_DAY) & (clock > _LAST_MICROS) | (days == _FIRST_DAY) & (clock < _FIRST_MICROS)
    return found


def _near(days: Int64s) -> Int64s:
    """Days on which every zone has the offset of the given ones, and whose microseconds fit 64 bits."""
    return np.where(days > _FAR, _FAR + (days - _FAR) % _CYCLE, np.maximum(days, -_FAR))


def _on_day(local: Zone, instant: Int64s, ahead: Int64s, day_of: Callable[[Int64s], Int64s]) -> tuple[Int64s, Int64s]:
    """The same time of the clock on another day. `instant` and the result are `ahead` days before their true time."""
    offset = local.offset(instant)
    reading = instant + offset
    days = day_of(reading // DAY + ahead)
    near = _near(days)
    return local.instant_near(near * DAY + reading % DAY, offset), days - near


def added(local: Zone, start: Int64s, months: Int64s, days: Int64s, micros: Int64s) -> Int64s:
    """As java.time adds them one after the other: only the last result must be a timestamp."""
    first = start // DAY
    near = _near(first)
    instant, ahead = near * DAY + start % DAY, first - near
    if months.any():
        instant, ahead = _on_day(local, instant, ahead, lambda day: add_months(day, months))
    if days.any():
        instant, ahead = _on_day(local, instant, ahead, lambda day: day + days)
    clock = instant % DAY + micros % DAY
    last = instant // DAY + ahead + micros // DAY + clock // DAY
    clock = clock % DAY
    if _beyond(last, clock).any():
        raise KernelError("DATETIME_OVERFLOW")
    found: Int64s = last * DAY + clock
    return found


def _add_days(instants: ArrowColumn, days: ArrowColumn, zones: ArrowColumn) -> ArrowColumn:
    """The same time on another day of the calendar."""
    return _counted(instants, days, zones, lambda z, at, n, zero: added(z, at, months=zero, days=n, micros=zero))


def _add_months(instants: ArrowColumn, months: ArrowColumn, zones: ArrowColumn) -> ArrowColumn:
    """The same day and time in another month, or its last day."""
    return _counted(instants, months, zones, lambda z, at, n, zero: added(z, at, months=n, days=zero, micros=zero))


def _counted(
    instants: ArrowColumn,
    counts: ArrowColumn,
    zones: ArrowColumn,
    add: Callable[[Zone, Int64s, Int64s, Int64s], Int64s],
) -> ArrowColumn:
    """`add` over the known rows, with the counts and as many zeros. Raises KernelError for a count that is too big."""

    def checked_add(local: Zone, start: Int64s, count: Int64s) -> Int64s:
        _require_near(count)
        return add(local, start, count, np.zeros_like(count))

    known = valid(instants, counts, zones)
    return whole(by_zone(zones, checked_add, known, numbers(instants), numbers(counts)), known)


def _date_add_months(days: ArrowColumn, months: ArrowColumn) -> ArrowColumn:
    """The same day of another month, or its last day."""
    return whole(add_months(numbers(days), numbers(months)), valid(days, months))


def _months_apart(start: ArrowColumn, end: ArrowColumn) -> ArrowColumn:
    """Whole months between two readings, towards zero."""
    a, b = numbers(start), numbers(end)
    first, last = a // DAY, b // DAY
    last = last - ((last > first) & (b % DAY < a % DAY)) + ((last < first) & (b % DAY > a % DAY))
    from_date, to_date = civil(first), civil(last)
    packed = (to_date.year * 12 + to_date.month - from_date.year * 12 - from_date.month) * 32
    packed = packed + to_date.day - from_date.day
    return whole(np.sign(packed) * (np.abs(packed) // 32), valid(start, end))


def _months_between(later: ArrowColumn, earlier: ArrowColumn, rounded: ArrowColumn, zones: ArrowColumn) -> ArrowColumn:
    local = zone(one(zones) or "UTC")
    dates, seconds = [], []
    for column in (later, earlier):
        instants = numbers(column)
        days = local.local(instants) // DAY
        dates.append(civil(days))
        past = instants - local.instant(days * DAY)
        seconds.append(np.sign(past) * (np.abs(past) // SECOND))
    a, b = dates
    months = (a.year * 12 + a.month) - (b.year * 12 + b.month)
    ends = (a.day == month_length(a.year, a.month)) & (b.day == month_length(b.year, b.month))
    apart = (a.day - b.day) * 86_400 + seconds[0] - seconds[1]
    exact = months + apart / (31 * 86_400.0)
    asked = pc.fill_null(rounded, False).to_numpy(zero_copy_only=False)
    found = np.where(asked, np.floor(exact * 1e8 + 0.5) / 1e8, exact)
    found = np.where((a.day == b.day) | ends, months.astype(np.float64), found)
    return pa.array(found, pa.float64(), mask=~valid(later, earlier, rounded))


def _make_moment(
    year: ArrowColumn,
    month: ArrowColumn,
    day: ArrowColumn,
    hour: ArrowColumn,
    minute: ArrowColumn,
    micros: ArrowColumn,
    attempt: ArrowColumn,
) -> ArrowColumn:
    """A reading from its parts. 60 seconds are the next minute."""
    given = valid(year, month, day, hour, minute, micros)
    y, mo, d, h, mi, us = map(numbers, (year, month, day, hour, minute, micros))
    good = exists(y, mo, d) & (h >= 0) & (h < 24) & (mi >= 0) & (mi < 60) & (us >= 0) & (us <= 60 * SECOND)
    good &= np.abs(y) < 292_000
    safe = np.where(good, y, 1970), np.where(good, mo, 1), np.where(good, d, 1)
    found = days_of(*safe) * DAY + (h * 3600 + mi * 60) * SECOND + us
    return whole(found, checked(good, given, attempt, "DATETIME_FIELD_OUT_OF_BOUNDS"))


KERNELS: tuple[Kernel, ...] = (
    Kernel("hr_local", ("BIGINT", "VARCHAR"), "BIGINT", _local),
    Kernel("hr_instant", ("BIGINT", "VARCHAR"), "BIGINT", _instant),
    Kernel("hr_convert", ("BIGINT", "VARCHAR", "VARCHAR"), "BIGINT", _convert),
    Kernel("hr_timestamp", ("VARCHAR", "VARCHAR", "BOOLEAN"), "BIGINT", _timestamp),
    Kernel("hr_timestamp_ntz", ("VARCHAR", "BOOLEAN"), "BIGINT", _timestamp_ntz),
    Kernel("hr_date", ("VARCHAR", "BOOLEAN"), "BIGINT", _date),
    Kernel("hr_date_text", ("BIGINT",), "VARCHAR", _date_text),
    Kernel("hr_moment_text", ("BIGINT",), "VARCHAR", _moment_text),
    Kernel("hr_date_format", ("BIGINT", "VARCHAR", "VARCHAR"), "VARCHAR", _formatted),
    Kernel("hr_parse", ("VARCHAR", "VARCHAR", "VARCHAR", "BOOLEAN"), "BIGINT", _parsed),
    Kernel("hr_parse_ntz", ("VARCHAR", "VARCHAR", "BOOLEAN"), "BIGINT", _parsed_ntz),
    Kernel("hr_add_days", ("BIGINT", "BIGINT", "VARCHAR"), "BIGINT", _add_days),
    Kernel("hr_add_months", ("BIGINT", "BIGINT", "VARCHAR"), "BIGINT", _add_months),
    Kernel("hr_date_add_months", ("BIGINT", "BIGINT"), "BIGINT", _date_add_months),
    Kernel("hr_months_apart", ("BIGINT", "BIGINT"), "BIGINT", _months_apart),
    Kernel("hr_months_between", ("BIGINT", "BIGINT", "BOOLEAN", "VARCHAR"), "DOUBLE", _months_between),
    Kernel(
        "hr_make_moment",
        ("INTEGER", "INTEGER", "INTEGER", "INTEGER", "INTEGER", "BIGINT", "BOOLEAN"),
        "BIGINT",
        _make_moment,
    ),
)
