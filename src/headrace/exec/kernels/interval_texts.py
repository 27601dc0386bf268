"""The kernel that reads a text as an interval, as Spark's CAST does.

Spark takes `1 02:03:04.5` for INTERVAL DAY TO SECOND, and the literal `INTERVAL '1 02:03:04.5' DAY TO SECOND` of
exactly that type. A number of a single unit is multiplied in 64 bits and wraps around, like in Spark.
"""

from __future__ import annotations

import functools
import re

import pyarrow as pa

from headrace.exec.kernels.kernel import Kernel, KernelError, per_row
from headrace.exec.kernels.zones import SECOND

_SIZES = {"DAY": 86_400 * SECOND, "HOUR": 3_600 * SECOND, "MINUTE": 60 * SECOND, "SECOND": SECOND}
_UNITS = tuple(_SIZES)
_DIGITS = {"DAY": 9, "HOUR": 10, "MINUTE": 12, "SECOND": 13}  # of the first unit
_SEPARATORS = {"HOUR": " ", "MINUTE": ":", "SECOND": ":"}
_BLANK = "".join(map(chr, (*range(33), 127)))
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
_LONGEST = len(str(_LARGEST))
_SMALLEST_MONTHS = -(2**31)


@functools.cache
def _patterns(unit: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """The bare form and the literal. The groups are one or two signs, the units, and a fraction of seconds."""
    first, _, last = unit.partition(" TO ")
    if first in ("YEAR", "MONTH"):
        body = r"(\d+)-(\d+)" if last else r"(\d+)"
    else:
        names = _UNITS[_UNITS.index(first) : _UNITS.index(last or first) + 1]
        parts = [rf"(\d{{1,{_DIGITS[first]}}})", *(_SEPARATORS[name] + r"(\d{1,2})" for name in names[1:])]
        body = "".join(parts) + (r"(?:\.(\d{1,9}))?" if names[-1] == "SECOND" else "")
    spelled = unit.replace(" ", r"\s+")
    sign = "([+|-])?"
    flags = re.ASCII | re.IGNORECASE
    return re.compile(sign + body, flags), re.compile(rf"INTERVAL\s+{sign}'{sign}{body}'\s+{spelled}", flags)


def _interval(text: str, unit: str, attempt: bool) -> int | None:
    """Months or microseconds. A bad text is NULL with `attempt`."""
    found = _read(text.strip(_BLANK), unit)
    if found is None and not attempt:
        raise KernelError("INVALID_INTERVAL_FORMAT")
    return found


def _read(text: str, unit: str) -> int | None:
    bare, literal = _patterns(unit)
    if (match := bare.fullmatch(text)) is not None:
        negative, parts = match[1] == "-", list(match.groups()[1:])
    elif (match := literal.fullmatch(text)) is not None:
        negative, parts = (match[1] == "-") != (match[2] == "-"), list(match.groups()[2:])
    else:
        return None
    fraction = (parts.pop() or "") if unit.endswith("SECOND") else ""
    counts = [part.lstrip("0") for part in parts]
    if any(len(count) > _LONGEST for count in counts):  # Python reads no more than 4,300 digits
        return None
    sign, numbers = -1 if negative else 1, [int(count or "0") for count in counts]
    if unit in ("YEAR TO MONTH", "YEAR", "MONTH"):
        return _months(numbers, unit, sign)
    return _micros(numbers, unit, sign, int(fraction.ljust(6, "0")[:6]))


def _months(counts: list[int], unit: str, sign: int) -> int | None:
    if counts[0] > _LARGEST or (len(counts) > 1 and counts[1] > 11):
        return None
    if unit == "YEAR":  # it has its sign only as a number of 32 bits, which wraps around, too
        months = _wrapped(counts[0] * 12)
        found = months if sign > 0 or months == _SMALLEST_MONTHS else -months
        return found if _SMALLEST_MONTHS <= months < -_SMALLEST_MONTHS else None
    months = sign * (counts[0] if unit == "MONTH" else counts[0] * 12 + counts[1])
    return months if _SMALLEST_MONTHS <= months < -_SMALLEST_MONTHS else None


def _micros(counts: list[int], unit: str, sign: int, fraction: int) -> int | None:
    first, _, last = unit.partition(" TO ")
    if not last and first != "SECOND":
        return _wrapped(sign * counts[0] * _SIZES[first])
    if not last:
        # Spark's sign of a fraction is that of the whole seconds, which -0 does not have
        found = sign * counts[0] * SECOND + (fraction if sign > 0 or counts[0] == 0 else -fraction)
        return found if abs(counts[0]) <= _LARGEST // SECOND and _SMALLEST <= found <= _LARGEST else None
    if counts[0] > _LARGEST // _SIZES[first]:
        return None
    names = _UNITS[_UNITS.index(first) : _UNITS.index(last) + 1]
    if any(count > (23 if name == "HOUR" else 59) for name, count in list(zip(names, counts, strict=True))[1:]):
        return None
    size = sum(count * _SIZES[name] for name, count in zip(names, counts, strict=True)) + fraction
    return sign * size if _SMALLEST <= sign * size <= _LARGEST else None


def _wrapped(number: int) -> int:
    """A number as 64 bits hold it."""
    return (number + 2**63) % 2**64 - 2**63


KERNELS: tuple[Kernel, ...] = (
    Kernel("hr_interval", ("VARCHAR", "VARCHAR", "BOOLEAN"), "BIGINT", per_row(pa.int64(), _interval), slow=True),
)
