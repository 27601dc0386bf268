"""Kernels that add the seven parts of make_interval to a time: months first, then days, then microseconds.

They take the parts instead of their sums: Spark looks for an overflow of the sums only where no part is NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from headrace.exec.kernels.dates import Int64s, RowFlags, add_months
from headrace.exec.kernels.kernel import ArrowColumn, Kernel, KernelError
from headrace.exec.kernels.timestamps import beyond, by_zone, numbers, one, valid, whole
from headrace.exec.kernels.zones import DAY, SECOND, Zone

_MINUTE, _HOUR = 60 * SECOND, 3600 * SECOND
_SMALLEST, _LARGEST = -(2**31), 2**31 - 1
_CYCLE = 146_097  # days in 400 years: the calendar and the rules of zones repeat
_FAR = 200 * _CYCLE  # in these years, a zone has only rules that repeat, or its first offset
# The parameters that are the same for both kernels: years, months, weeks, days, hours, minutes and microseconds;
# whether to subtract them; whether an overflow is NULL.
_PARAMS = (*("INTEGER",) * 6, "BIGINT", "BOOLEAN", "BOOLEAN")


@dataclass(frozen=True, slots=True)
class _CalendarInterval:
    """Months, days and microseconds, and the rows that have them."""

    months: Int64s
    days: Int64s
    micros: Int64s
    known: RowFlags


def _fits(values: Int64s) -> RowFlags:
    return (values >= _SMALLEST) & (values <= _LARGEST)


def _interval(
    parts: Sequence[ArrowColumn], known: RowFlags, negated: ArrowColumn, attempt: ArrowColumn
) -> _CalendarInterval:
    """The interval of the known rows. Months and days are 32-bit numbers in every step. No microseconds overflow: all
    hours, minutes and seconds together fit 64 bits. With `attempt`, an overflow makes a row unknown."""
    years, months, weeks, days, hours, minutes, micros = map(numbers, parts)
    years, weeks = years * 12, weeks * 7
    months, days = months + years, days + weeks
    good = _fits(years) & _fits(months) & _fits(weeks) & _fits(days)
    if not one(attempt) and (known & ~good).any():
        raise KernelError("ARITHMETIC_OVERFLOW")
    known = known & good
    micros = micros + hours * _HOUR + minutes * _MINUTE
    if not one(negated):
        return _CalendarInterval(months, days, micros, known)
    if (known & ((months == _SMALLEST) | (days == _SMALLEST))).any():  # also with `attempt`
        raise KernelError("ARITHMETIC_OVERFLOW")
    return _CalendarInterval(-months, -days, -micros, known)


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


def _added(local: Zone, start: Int64s, months: Int64s, days: Int64s, micros: Int64s) -> Int64s:
    """As java.time adds them one after the other: only the last result must be a timestamp."""
    first = start // DAY
    near = _near(first)
    instant, ahead = near * DAY + start % DAY, first - near
    instant, ahead = _on_day(local, instant, ahead, lambda day: add_months(day, months))
    instant, ahead = _on_day(local, instant, ahead, lambda day: day + days)
    clock = instant % DAY + micros % DAY
    last = instant // DAY + ahead + micros // DAY + clock // DAY
    clock = clock % DAY
    if beyond(last, clock).any():
        raise KernelError("DATETIME_OVERFLOW")
    found: Int64s = last * DAY + clock
    return found


def _add_interval(start: ArrowColumn, *rest: ArrowColumn) -> ArrowColumn:
    *parts, negated, attempt, zones = rest
    interval = _interval(parts, valid(start, *parts, zones), negated, attempt)
    arrays = numbers(start), interval.months, interval.days, interval.micros
    return whole(by_zone(zones, _added, interval.known, *arrays), interval.known)


def _date_add_interval(start: ArrowColumn, *rest: ArrowColumn) -> ArrowColumn:
    *parts, negated, attempt = rest
    interval = _interval(parts, valid(start, *parts), negated, attempt)
    if (interval.known & (interval.micros != 0)).any():
        raise KernelError("INVALID_INTERVAL_WITH_MICROSECONDS_ADDITION")
    days = add_months(numbers(start), interval.months) + interval.days
    if (interval.known & (np.abs(days) >= _LARGEST)).any():  # the last two numbers are DuckDB's infinite dates
        raise KernelError("DATETIME_OVERFLOW")
    return whole(days, interval.known)


KERNELS: tuple[Kernel, ...] = (
    Kernel("hr_add_interval", ("BIGINT", *_PARAMS, "VARCHAR"), "BIGINT", _add_interval),
    Kernel("hr_date_add_interval", ("BIGINT", *_PARAMS), "BIGINT", _date_add_interval),
)
