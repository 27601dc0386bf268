"""Text and JSON values to Python values of a declared type, one at a time.

Raises `BadValue` with the reason word. What each type accepts is listed in docs/formats.md.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import decimal
import json
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headrace.schema import Array, DataType, Decimal, Map, Scalar, Struct


class BadValue(ValueError):
    """A cell that is not of its column's type; `reason` is one of VALUE_REASONS."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Number(str):
    """A JSON number, by its text, so that nothing is lost before its type is known."""


_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_SPECIAL = {"nan": "nan", "inf": "inf", "+inf": "inf", "-inf": "-inf", "infinity": "inf", "+infinity": "inf",
            "-infinity": "-inf"}  # fmt: skip
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})", re.ASCII)
_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?",
    re.ASCII,
)
_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
_EPOCH = dt.datetime(1970, 1, 1)


def text_value(kind: DataType, text: str) -> Any:
    """The value that `text` (a CSV field) spells. TIMESTAMP values are microseconds since 1970."""
    if isinstance(kind, Decimal):
        return _decimal(kind, text)
    if not isinstance(kind, Scalar):
        raise BadValue("bad_nested")
    return _SCALAR[kind.name](kind.name, text)


def json_value(kind: DataType, value: Any, raw: str) -> Any:
    """The value that a parsed JSON `value` gives; `raw` is its text, for STRING columns that meet no string."""
    if value is None:
        return None
    if isinstance(kind, Struct):
        if not isinstance(value, dict):
            raise BadValue("bad_nested")
        return {f.name: json_value(f.type, value.get(f.name), "") for f in kind.fields}
    if isinstance(kind, Array):
        if not isinstance(value, list):
            raise BadValue("bad_nested")
        return [json_value(kind.element, v, "") for v in value]
    if isinstance(kind, Map):
        if not isinstance(value, dict):
            raise BadValue("bad_nested")
        return [(text_value(kind.key, k), json_value(kind.value, v, "")) for k, v in value.items()]
    if kind.ddl == "STRING" and not (isinstance(value, str) and not isinstance(value, Number)):
        return _string("STRING", raw or _compact(value))
    return _json_scalar(kind, value)


def _json_scalar(kind: DataType, value: Any) -> Any:
    name = kind.name if isinstance(kind, Scalar) else "DECIMAL"
    if isinstance(value, bool):
        if name == "BOOLEAN":
            return value
        raise BadValue(REASON[name])
    number = isinstance(value, Number)
    wants_number = name in _BITS or name in ("FLOAT", "DOUBLE", "DECIMAL")
    special = name in ("FLOAT", "DOUBLE") and isinstance(value, str) and value.lower() in _SPECIAL
    if isinstance(value, dict | list) or (number != wants_number and not special and name != "DECIMAL"):
        raise BadValue(REASON[name])
    if name == "BOOLEAN":
        raise BadValue("bad_boolean")
    return text_value(kind, str(value))


def _compact(value: Any) -> str:
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k, ensure_ascii=False)}:{_compact(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_compact, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


REASON = {
    "BOOLEAN": "bad_boolean", "TINYINT": "bad_integer", "SMALLINT": "bad_integer", "INT": "bad_integer",
    "BIGINT": "bad_integer", "FLOAT": "bad_number", "DOUBLE": "bad_number", "DECIMAL": "bad_decimal",
    "DATE": "bad_date", "TIMESTAMP": "bad_timestamp", "TIMESTAMP_NTZ": "bad_timestamp", "BINARY": "bad_binary",
    "STRING": "bad_utf8",
}  # fmt: skip


def _boolean(_: str, text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise BadValue("bad_boolean")
    return lowered == "true"


def _integer(name: str, text: str) -> int:
    if _INTEGER.fullmatch(text) is None:
        raise BadValue("bad_integer")
    if len(text) > 40 and len(text.lstrip("+-0")) > 40:
        raise BadValue("out_of_range")
    value = int(text)
    limit = 1 << (_BITS[name] - 1)
    if not -limit <= value < limit:
        raise BadValue("out_of_range")
    return value


def _double(name: str, text: str) -> float:
    special = _SPECIAL.get(text.lower())
    if special is None and _FLOAT.fullmatch(text) is None:
        raise BadValue("bad_number")
    spelled = special or text
    if name == "DOUBLE" or special:
        return float(spelled)
    return float(pa.array([spelled.lstrip("+")]).cast(pa.float32())[0].as_py())


_CONTEXT = decimal.Context(prec=100, rounding=decimal.ROUND_HALF_UP, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


def _decimal(kind: Decimal, text: str) -> decimal.Decimal:
    if _FLOAT.fullmatch(text) is None:
        raise BadValue("bad_decimal")
    value = decimal.Decimal(text)
    if value and value.adjusted() >= kind.precision:
        raise BadValue("out_of_range")
    if value and value.adjusted() < -kind.scale - 1:
        return decimal.Decimal(0).scaleb(-kind.scale)
    rounded = value.quantize(decimal.Decimal(1).scaleb(-kind.scale), context=_CONTEXT)
    if rounded and rounded.adjusted() >= kind.precision - kind.scale:
        raise BadValue("out_of_range")
    return rounded


def _string(_: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadValue("bad_utf8") from None
    return text


def _binary(_: str, text: str) -> bytes:
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise BadValue("bad_binary") from None


def _date(_: str, text: str) -> dt.date:
    match = _DATE.fullmatch(text)
    if match is None:
        raise BadValue("bad_date")
    try:
        return dt.date(int(match[1]), int(match[2]), int(match[3]))
    except ValueError:
        raise BadValue("bad_date") from None


def _timestamp(name: str, text: str) -> int:
    match = _TIMESTAMP.fullmatch(text)
    if match is None or (match[8] and name == "TIMESTAMP_NTZ"):
        raise BadValue("bad_timestamp")
    year, month, day, hour, minute, second = (int(g or 0) for g in match.groups()[:6])
    micros = int((match[7] or "").ljust(6, "0")[:6])
    try:
        local = dt.datetime(year, month, day, hour, minute, second, micros)
    except ValueError:
        raise BadValue("bad_timestamp") from None
    return (local - _EPOCH) // dt.timedelta(microseconds=1) - _zone(match[8]) * 60_000_000


def _zone(text: str | None) -> int:
    if not text or text == "Z":
        return 0
    digits = text[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 18 or minutes > 59 or hours * 60 + minutes > 18 * 60:
        raise BadValue("bad_timestamp")
    return (hours * 60 + minutes) * (-1 if text[0] == "-" else 1)


_SCALAR: dict[str, Callable[[str, str], Any]] = {
    "BOOLEAN": _boolean, "TINYINT": _integer, "SMALLINT": _integer, "INT": _integer, "BIGINT": _integer,
    "FLOAT": _double, "DOUBLE": _double, "STRING": _string, "BINARY": _binary, "DATE": _date,
    "TIMESTAMP": _timestamp, "TIMESTAMP_NTZ": _timestamp,
}  # fmt: skip
