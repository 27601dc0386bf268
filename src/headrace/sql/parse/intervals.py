"""Parses interval texts such as `10 SECONDS` and `1 hour 30 minutes` into months and microseconds."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

_MICROS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 7 * 86_400_000_000,
}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_PART = re.compile(r"\s*([+-]?)\s*(\d+(?:\.\d*)?|\.\d+)\s+([A-Za-z]+)\s*")
UNITS = frozenset({*_MICROS, *_MONTHS, *(u + "s" for u in (*_MICROS, *_MONTHS))})


def unit_amount(amount: str, unit: str) -> tuple[int, int]:
    """`amount` of `unit` as (months, microseconds). Raises ValueError."""
    singular = unit.lower().removesuffix("s")
    try:
        number = Decimal(amount.strip())
    except InvalidOperation:
        raise ValueError(f"{amount!r} is not a number") from None
    if singular in _MONTHS:
        months = number * _MONTHS[singular]
        if months != int(months):
            raise ValueError("months and years must be whole numbers")
        return int(months), 0
    if singular not in _MICROS:
        raise ValueError(f"there is no interval unit {unit!r}")
    micros = number * _MICROS[singular]
    if micros != int(micros) or (singular != "second" and number != int(number)):
        raise ValueError("only seconds can have a fraction")
    return 0, int(micros)


def parse_interval(text: str) -> tuple[int, int]:
    """An interval text such as `1 hour 30 minutes` as (months, microseconds). Raises ValueError.

    >>> parse_interval("interval 1 minute 30 seconds")
    (0, 90000000)
    """
    rest = re.sub(r"^\s*interval\b", "", text, flags=re.IGNORECASE)
    months = micros = position = 0
    if not rest.strip():
        raise ValueError("an interval such as '10 seconds' or '1 hour 30 minutes'")
    while position < len(rest):
        match = _PART.match(rest, position)
        if match is None:
            raise ValueError("an interval such as '10 seconds' or '1 hour 30 minutes'")
        part_months, part_micros = unit_amount(match[2], match[3])
        sign = -1 if match[1] == "-" else 1
        months, micros, position = months + sign * part_months, micros + sign * part_micros, match.end()
    return months, micros


def show_interval(micros: int) -> str:
    """Microseconds as text: the largest unit that divides them, as in `90 seconds`."""
    for unit in ("day", "hour", "minute", "second", "millisecond"):
        size = _MICROS[unit]
        if micros % size == 0 and (micros or unit == "second"):
            count = micros // size
            return f"{count} {unit}" + ("" if count == 1 else "s")
    return f"{micros} microseconds"
