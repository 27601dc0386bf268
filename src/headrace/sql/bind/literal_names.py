"""Prints literals as Spark does in the names of columns."""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np

from headrace.exec.kernels.zones import zone
from headrace.model.schema import DOUBLE, FLOAT, TIMESTAMP, DataType
from headrace.model.schema import Decimal as DecimalType
from headrace.sql.bind import literals
from headrace.sql.parse.intervals import interval_text
from headrace.sql.parse.syntax import Constant, IntervalConstant

_EPOCH = datetime(1970, 1, 1)
_CYCLE = 146_097 * 86_400_000_000  # 400 years, after which the calendar repeats
_FIRST, _LAST = ((end - _EPOCH) // timedelta(microseconds=1) for end in (datetime.min, datetime.max))


def literal_text(node: Constant, time_zone: str) -> str:
    """A literal as Spark prints it. One that cannot be read stays as it is written."""
    if node.kind in ("null", "boolean", "string"):
        return {"null": "NULL", "boolean": node.text.lower()}.get(node.kind, node.text)
    try:
        found = literals.constant(node, time_zone)
    except ValueError:
        return node.text
    if node.kind == "number":
        return number_text(found.type, found.value)
    if node.kind == "binary":
        return f"X'{found.value.hex().upper()}'"
    return f"{node.kind.upper()} '{_time_text(found.type, found.value, time_zone)}'"


def number_text(kind: DataType, value: Any) -> str:
    """A number in Java's spelling."""
    if kind == FLOAT:
        return double_text(float(str(np.float32(value))))
    if kind == DOUBLE:
        return double_text(value)
    if isinstance(kind, DecimalType):  # Java's has no exponent above 0, and no -0
        return str(int(value) if kind.scale == 0 else value or value.copy_abs())
    return str(value)


def double_text(value: float) -> str:
    """A DOUBLE in Java's spelling."""
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value and not 1e-3 <= abs(value) < 1e7:
        head, _, power = f"{Decimal(repr(value)).normalize():E}".partition("E")
        return f"{head if '.' in head else head + '.0'}E{int(power)}"
    return repr(value)


def interval_name(node: IntervalConstant) -> str:
    """An interval as Spark prints it."""
    if not node.unit:
        return f"INTERVAL {node.months} MONTHS" if node.months else f"INTERVAL {node.micros} MICROSECONDS"
    return interval_text(node.months if node.unit in ("YEAR", "MONTH", "YEAR TO MONTH") else node.micros, node.unit)


def _time_text(kind: DataType, value: date | int, time_zone: str) -> str:
    """A date, or a time in the session's time zone."""
    if isinstance(value, date):
        return value.isoformat()
    micros = int(zone(time_zone).local(np.array([value]))[0]) if kind == TIMESTAMP else value
    # Python's dates are those of the years 1 to 9999.
    cycles = max(0, (micros - _LAST - 1) // _CYCLE + 1) + min(0, (micros - _FIRST) // _CYCLE)
    moment = _EPOCH + timedelta(microseconds=micros - cycles * _CYCLE)
    year = moment.year + 400 * cycles
    sign = "+" if year > 9999 else "-" if year < 0 else ""
    fraction = f".{moment.microsecond:06d}".rstrip("0").rstrip(".")
    return f"{sign}{abs(year):04d}{moment:-%m-%d %H:%M:%S}{fraction}"
