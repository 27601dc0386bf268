"""Turns Spark SQL literals into typed values: numbers with suffixes, dates, timestamps in the session time zone."""

from __future__ import annotations

import datetime
import decimal
import re
import sys

import pyarrow as pa

from headrace.exec.kernels.time_texts import parse_dates, parse_moments
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
from headrace.sql.plan.expr import Expr, Literal
from headrace.sql.plan.types import VOID

_NUMBER = re.compile(r"(-?(?:\d+(?:\.\d*)?|\.\d+))([eE][+-]?\d+)?(BD|bd|[LlSsYyDdFf])?")
_LIMITS: dict[DataType, int] = {TINYINT: 2**7, SMALLINT: 2**15, INT: 2**31, BIGINT: 2**63}
_SUFFIXES: dict[str, DataType] = {"y": TINYINT, "s": SMALLINT, "l": BIGINT}
_LARGEST: dict[DataType, decimal.Decimal] = {
    DOUBLE: decimal.Decimal(sys.float_info.max),
    FLOAT: decimal.Decimal("340282346638528859811704183484516925440"),
}
_EPOCH = datetime.date(1970, 1, 1)


def is_untyped_null(expr: Expr) -> bool:
    """True for NULL without a type. As in Spark, conditions among such NULLs have no type either."""
    return isinstance(expr, Literal) and expr.type == VOID


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


def _fraction(text: str, kind: DataType, at: TextRange) -> Literal:
    """A DOUBLE or FLOAT. As in Spark, one beyond the largest is an error, and not an infinity."""
    if abs(decimal.Decimal(text)) > _LARGEST[kind]:
        raise ValueError(f"{text} is larger than the largest {kind}")
    return Literal(kind, float(text), at=at)


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
        return _fraction(digits + (exponent or ""), DOUBLE if suffix == "d" else FLOAT, at)
    if suffix == "bd":
        return _decimal(digits + (exponent or ""), at)
    if exponent:
        return _fraction(digits + exponent, DOUBLE, at)
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
    """A date text, as Spark's CAST reads it. Raises ValueError."""
    (days,), (good,) = parse_dates(pa.array([text]))
    if not good:
        raise ValueError(f"{text!r} is not a date such as 2024-01-31")
    try:
        return Literal(DATE, _EPOCH + datetime.timedelta(days=int(days)), at=at)
    except OverflowError:
        raise ValueError(f"{text!r} is not a date from year 1 to 9999") from None


def timestamp(text: str, kind: DataType, time_zone: str, at: TextRange) -> Literal:
    """A timestamp text as microseconds since 1970: an instant for TIMESTAMP, a wall-clock reading otherwise."""
    moments = parse_moments(pa.array([text]))
    (micros,), (good,) = moments.instants(time_zone) if kind == TIMESTAMP else moments.readings()
    if not good:
        raise ValueError(f"{text!r} is not a timestamp such as 2024-01-31 10:00:00")
    return Literal(kind, int(micros), at=at)
