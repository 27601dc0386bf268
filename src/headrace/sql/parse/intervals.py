"""Parses interval texts such as `10 SECONDS` and `1 hour 30 minutes` into months and microseconds, and writes them."""

from __future__ import annotations

import re
from collections.abc import Collection
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
DAY_TO_SECOND = ("DAY", "HOUR", "MINUTE", "SECOND")
_WRITTEN = {"week": "DAY", "quarter": "MONTH", "millisecond": "SECOND", "microsecond": "SECOND"}
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
    months, micros, _ = parse_interval_parts(text)
    return months, micros


def parse_interval_parts(text: str) -> tuple[int, int, str]:
    """An interval text as (months, microseconds, unit), the unit as `spanned` has it. Raises ValueError."""
    rest = re.sub(r"^\s*interval\b", "", text, flags=re.IGNORECASE)
    months = micros = position = 0
    units: set[str] = set()
    if not rest.strip():
        raise ValueError("an interval such as '10 seconds' or '1 hour 30 minutes'")
    while position < len(rest):
        match = _PART.match(rest, position)
        if match is None:
            raise ValueError("an interval such as '10 seconds' or '1 hour 30 minutes'")
        part_months, part_micros = unit_amount(match[2], match[3])
        sign = -1 if match[1] == "-" else 1
        months, micros, position = months + sign * part_months, micros + sign * part_micros, match.end()
        units.add(match[3])
    return months, micros, spanned(units)


def spanned(units: Collection[str]) -> str:
    """The unit of Spark's type of an interval that is written with these units. '' for months and days together.

    >>> spanned({"weeks", "hour"}), spanned({"MILLISECONDS"}), spanned({"year", "month"})
    ('DAY TO HOUR', 'SECOND', 'YEAR TO MONTH')
    """
    names = {_WRITTEN.get(unit.lower().removesuffix("s"), unit.lower().removesuffix("s").upper()) for unit in units}
    for known in (("YEAR", "MONTH"), DAY_TO_SECOND):
        if names and names <= set(known):
            used = [name for name in known if name in names]
            return used[0] if len(used) == 1 else f"{used[0]} TO {used[-1]}"
    return ""


def parse_range(text: str, first: str, last: str) -> tuple[int, int]:
    """The text of `INTERVAL '1 02:03' DAY TO MINUTE` as (months, microseconds). Raises ValueError.

    >>> parse_range("-1-2", "YEAR", "MONTH"), parse_range("1 02:03", "DAY", "MINUTE")
    ((-14, 0), (0, 93780000000))
    """
    match = re.fullmatch(r"\s*([+-]?)(.*?)\s*", text, re.DOTALL)
    assert match is not None
    sign = -1 if match[1] == "-" else 1
    if (first, last) == ("YEAR", "MONTH"):
        found = re.fullmatch(r"(\d+)-(\d+)", match[2])
        if found is None or int(found[2]) > 11:
            raise ValueError(f"{text!r} is not years and months, as in '1-6'")
        return sign * (12 * int(found[1]) + int(found[2])), 0
    known = (first, last) if {first, last} <= set(DAY_TO_SECOND) else DAY_TO_SECOND[:0]
    if not known or DAY_TO_SECOND.index(first) >= DAY_TO_SECOND.index(last):
        raise ValueError(f"there is no interval {first} TO {last}")
    names = DAY_TO_SECOND[DAY_TO_SECOND.index(first) : DAY_TO_SECOND.index(last) + 1]
    pattern = r"(\d+)" + "".join((r"\s+" if names[i] == "DAY" else ":") + r"(\d+)" for i in range(len(names) - 1))
    found = re.fullmatch(pattern + (r"(?:\.(\d{0,9}))?" if last == "SECOND" else ""), match[2])
    if found is None:
        raise ValueError(f"{text!r} does not have the form of {first} TO {last}")
    micros = 0
    for i, name in enumerate(names):
        if i and int(found[i + 1]) > (23 if name == "HOUR" else 59):
            raise ValueError(f"{found[i + 1]} is too large for {name}")
        micros += int(found[i + 1]) * _MICROS[name.lower()]
    if last == "SECOND" and found[len(names) + 1]:
        micros += int(found[len(names) + 1][:6].ljust(6, "0"))
    return 0, sign * micros


def interval_text(number: int, unit: str) -> str:
    """Months or microseconds as Spark writes an interval of this unit.

    >>> interval_text(-14, "YEAR TO MONTH"), interval_text(93_780_500_000, "DAY TO SECOND")
    ("INTERVAL '-1-2' YEAR TO MONTH", "INTERVAL '1 02:03:00.5' DAY TO SECOND")
    """
    rest, sign = abs(number), "-" if number < 0 else ""
    if unit in ("YEAR TO MONTH", "YEAR", "MONTH"):
        body = {"YEAR": f"{rest // 12}", "MONTH": f"{rest}"}.get(unit, f"{rest // 12}-{rest % 12}")
        return f"INTERVAL '{sign}{body}' {unit}"
    first, _, last = unit.partition(" TO ")
    body = ""
    for name in DAY_TO_SECOND[DAY_TO_SECOND.index(first) : DAY_TO_SECOND.index(last or first) + 1]:
        count, rest = divmod(rest, _MICROS[name.lower()])
        between = "" if not body else " " if ":" not in body and first == "DAY" and name == "HOUR" else ":"
        body += f"{count}" if name == "DAY" else f"{between}{count:02}"
    fraction = f".{rest:06}".rstrip("0") if rest and (last or first) == "SECOND" else ""
    return f"INTERVAL '{sign}{body}{fraction}' {unit}"


def show_interval(micros: int) -> str:
    """Microseconds as text: the largest unit that divides them, as in `90 seconds`."""
    for unit in ("day", "hour", "minute", "second", "millisecond"):
        size = _MICROS[unit]
        if micros % size == 0 and (micros or unit == "second"):
            count = micros // size
            return f"{count} {unit}" + ("" if count == 1 else "s")
    return f"{micros} microseconds"
