"""Turns Spark SQL literals into typed values: numbers with suffixes, dates, timestamps in the session time zone."""

from __future__ import annotations

import datetime
import decimal
import re
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from headrace.model.schema import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    DataType,
    Decimal,
)
from headrace.sql.parse.syntax import Constant, TextRange
from headrace.sql.plan.expr import Literal
from headrace.sql.plan.types import VOID

_NUMBER = re.compile(r"(-?(?:\d+(?:\.\d*)?|\.\d+))([eE][+-]?\d+)?(BD|bd|[LlSsYyDdFf])?")
_LIMITS: dict[DataType, int] = {TINYINT: 2**7, SMALLINT: 2**15, INT: 2**31, BIGINT: 2**63}
_SUFFIXES: dict[str, DataType] = {"y": TINYINT, "s": SMALLINT, "l": BIGINT}
_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?")
_MOMENT = re.compile(
    r"(\d{4}(?:-\d{1,2}(?:-\d{1,2})?)?)"
    r"(?:[T ](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?\s*(Z|UTC|GMT|[+-]\d{1,2}(?::?\d{2})?|[A-Za-z]+/\S+)?)?"
)
_EPOCH = datetime.datetime(1970, 1, 1)


def constant(node: Constant, time_zone: str) -> Literal:
    """The typed value of a literal. Raises ValueError with the reason."""
    text, at = node.text, node.at
    if node.kind == "number":
        return number(text, at)
    if node.kind == "string":
        return Literal(STRING, text, at=at)
    if node.kind == "boolean":
        return Literal(BOOLEAN, text == "TRUE", at=at)
    if node.kind == "null":
        return Literal(VOID, None, at=at)
    if node.kind == "date":
        return date(text, at)
    if node.kind == "binary":
        return Literal(BINARY, bytes.fromhex(text.zfill(len(text) + len(text) % 2)), at=at)
    return timestamp(text, TIMESTAMP if node.kind == "timestamp" else TIMESTAMP_NTZ, time_zone, at)


def number(text: str, at: TextRange) -> Literal:
    """A number literal. Raises ValueError with the reason."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a number")
    digits, exponent, suffix = match[1], match[2], (match[3] or "").lower()
    if suffix in _SUFFIXES:
        if exponent or "." in digits:
            raise ValueError(f"{text!r} is not a whole number")
        return _whole(int(digits), _SUFFIXES[suffix], text, at)
    if suffix in ("d", "f"):
        return Literal(DOUBLE if suffix == "d" else FLOAT, float(digits + (exponent or "")), at=at)
    if suffix == "bd":
        return _decimal(digits + (exponent or ""), at)
    if exponent:
        return Literal(DOUBLE, float(digits + exponent), at=at)
    if "." in digits:
        return _decimal(digits, at)
    value = int(digits)
    for kind in (INT, BIGINT):
        if -_LIMITS[kind] <= value < _LIMITS[kind]:
            return Literal(kind, value, at=at)
    return _decimal(digits, at)


def _whole(value: int, kind: DataType, text: str, at: TextRange) -> Literal:
    if not -_LIMITS[kind] <= value < _LIMITS[kind]:
        raise ValueError(f"{text} is out of range for {kind}")
    return Literal(kind, value, at=at)


def _decimal(text: str, at: TextRange) -> Literal:
    value = decimal.Decimal(text)
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale)
    if precision > 38:
        raise ValueError(f"{text} has more than 38 digits")
    return Literal(Decimal(max(1, precision), scale), value, at=at)


def fits(value: int, kind: DataType) -> bool:
    """True if a whole number is in the range of an integral type."""
    return -_LIMITS[kind] <= value < _LIMITS[kind]


def date(text: str, at: TextRange) -> Literal:
    """A date text. Raises ValueError."""
    return Literal(DATE, _date(text.strip()), at=at)


def _date(text: str) -> datetime.date:
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a date such as 2024-01-31")
    try:
        return datetime.date(int(match[1]), int(match[2] or 1), int(match[3] or 1))
    except ValueError as problem:
        raise ValueError(f"{text!r} is not a date: {problem}") from None


def timestamp(text: str, kind: DataType, time_zone: str, at: TextRange) -> Literal:
    """A timestamp text as microseconds since 1970: an instant for TIMESTAMP, a wall-clock reading otherwise."""
    match = _MOMENT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a timestamp such as 2024-01-31 10:00:00")
    day = _date(match[1])
    try:
        clock = datetime.time(int(match[2] or 0), int(match[3] or 0), int(match[4] or 0))
    except ValueError as problem:
        raise ValueError(f"{text!r} is not a timestamp: {problem}") from None
    moment = datetime.datetime.combine(day, clock)
    fraction = int((match[5] or "0").ljust(6, "0")[:6])
    if kind == TIMESTAMP:
        moment -= _offset(match[6], moment, time_zone)
    delta = moment - _EPOCH
    return Literal(kind, (delta.days * 86_400 + delta.seconds) * 1_000_000 + fraction, at=at)


def _offset(zone: str | None, moment: datetime.datetime, time_zone: str) -> datetime.timedelta:
    if (zone or time_zone) in ("Z", "UTC", "GMT", "Etc/UTC"):
        return datetime.timedelta()
    if zone is not None and zone[0] in "+-":
        digits = zone[1:].replace(":", "")
        hours, minutes = (int(digits), 0) if len(digits) <= 2 else (int(digits[:-2]), int(digits[-2:]))
        delta = datetime.timedelta(hours=hours, minutes=minutes)
        return -delta if zone[0] == "-" else delta
    try:
        found = moment.replace(tzinfo=ZoneInfo(zone or time_zone)).utcoffset()
    except (ZoneInfoNotFoundError, ValueError):
        raise ValueError(f"there is no time zone {zone or time_zone!r}") from None
    assert found is not None
    return found
