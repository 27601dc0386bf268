"""Kernels that add the seven parts of make_interval to a time: months first, then days, then microseconds.

They take the parts instead of their sums: Spark looks for an overflow of the sums only where no part is NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headrace.exec.kernels.dates import Int64s, RowFlags, add_months
from headrace.exec.kernels.kernel import ArrowColumn, Kernel, KernelError
from headrace.exec.kernels.timestamps import added, by_zone, numbers, one, valid, whole
from headrace.exec.kernels.zones import SECOND

_MINUTE, _HOUR = 60 * SECOND, 3600 * SECOND
_SMALLEST, _LARGEST = -(2**31), 2**31 - 1
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


def _add_interval(start: ArrowColumn, *rest: ArrowColumn) -> ArrowColumn:
    *parts, negated, attempt, zones = rest
    interval = _interval(parts, valid(start, *parts, zones), negated, attempt)
    arrays = numbers(start), interval.months, interval.days, interval.micros
    return whole(by_zone(zones, added, interval.known, *arrays), interval.known)


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
