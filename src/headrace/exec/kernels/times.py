"""Kernels over dates and timestamps. A timestamp is passed as microseconds since 1970, a date as days."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute

from headrace.exec.kernels.dates import Flags, Numbers, civil
from headrace.exec.kernels.kernel import Kernel, KernelError
from headrace.exec.kernels.time_texts import parse_dates, parse_moments
from headrace.exec.kernels.zones import DAY, SECOND, UnknownZone, zone

pc: Any = pyarrow.compute
Column: TypeAlias = Any  # an Arrow array


def numbers(column: Column) -> Numbers:
    """The values of a column as 64-bit numbers, 0 for NULL."""
    found: Numbers = pc.fill_null(column, 0).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return found


def valid(*columns: Column) -> Flags:
    """Which rows are NULL in no column."""
    found: Flags = np.ones(len(columns[0]), bool)
    for column in columns:
        if column.null_count:
            found &= np.asarray(column.is_valid())
    return found


def whole(values: Numbers, known: Flags) -> Column:
    """A BIGINT column with NULL where `known` is False."""
    return pa.array(values, pa.int64(), mask=None if known.all() else ~known)


def one(column: Column) -> Any:
    """The value of a column that has the same value in all rows. None without rows."""
    return column[0].as_py() if len(column) else None


def checked(good: Flags, given: Flags, attempt: Column, condition: str = "CAST_INVALID_INPUT") -> Flags:
    """The rows with a value. Raises KernelError for a given row that is not good, unless `attempt` is true."""
    if not one(attempt) and (given & ~good).any():
        raise KernelError(condition)
    return good & given


def by_zone(zones: Column, compute: Any, *arrays: Numbers) -> Numbers:
    """`compute(zone, *arrays)` for the rows of each zone. Raises KernelError for a text that is no zone."""
    encoded = zones.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    try:
        if len(names) == 1 and not encoded.null_count:
            found: Numbers = compute(zone(names[0]), *arrays)
            return found
        result = np.zeros(len(zones), np.int64)
        indexes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
        for i, name in enumerate(names):
            rows = indexes == i
            result[rows] = compute(zone(name), *(a[rows] for a in arrays))
        return result
    except UnknownZone:
        raise KernelError("INVALID_TIMEZONE") from None


def _local(instants: Column, zones: Column) -> Column:
    return whole(by_zone(zones, lambda z, a: z.local(a), numbers(instants)), valid(instants, zones))


def _instant(readings: Column, zones: Column) -> Column:
    return whole(by_zone(zones, lambda z, a: z.instant(a), numbers(readings)), valid(readings, zones))


def _timestamp(texts: Column, zones: Column, attempt: Column) -> Column:
    found, good = parse_moments(texts).instants(one(zones) or "UTC")
    return whole(found, checked(good, valid(texts), attempt))


def _timestamp_ntz(texts: Column, attempt: Column) -> Column:
    found, good = parse_moments(texts).readings()
    return whole(found, checked(good, valid(texts), attempt))


def _date(texts: Column, attempt: Column) -> Column:
    found, good = parse_dates(texts)
    return whole(found, checked(good, valid(texts), attempt))


def _date_text(days: Column) -> Column:
    """For years outside 1 to 9999: with a sign."""
    date = civil(numbers(days))
    found = [
        f"{'-' if y < 0 else '+' if y > 9999 else ''}{abs(y):04d}-{m:02d}-{d:02d}"
        for y, m, d in zip(date.year.tolist(), date.month.tolist(), date.day.tolist(), strict=True)
    ]
    return pa.array(found, pa.string(), mask=~valid(days))


def _moment_text(micros: Column) -> Column:
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


KERNELS: tuple[Kernel, ...] = (
    Kernel("hr_local", ("BIGINT", "VARCHAR"), "BIGINT", _local),
    Kernel("hr_instant", ("BIGINT", "VARCHAR"), "BIGINT", _instant),
    Kernel("hr_timestamp", ("VARCHAR", "VARCHAR", "BOOLEAN"), "BIGINT", _timestamp),
    Kernel("hr_timestamp_ntz", ("VARCHAR", "BOOLEAN"), "BIGINT", _timestamp_ntz),
    Kernel("hr_date", ("VARCHAR", "BOOLEAN"), "BIGINT", _date),
    Kernel("hr_date_text", ("BIGINT",), "VARCHAR", _date_text),
    Kernel("hr_moment_text", ("BIGINT",), "VARCHAR", _moment_text),
)
