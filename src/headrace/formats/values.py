"""Parses one value at a time, exactly, in plain Python.

Kernels leave the cells to it that they cannot parse: numbers with many digits, special values, escaped text. Raises
`BadValue` with the reason. docs/formats.md lists what each type accepts.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import decimal
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.formats.patterns import Pattern
from headrace.model.schema import DataType, Decimal, Scalar


class BadValue(ValueError):
    """A cell that does not fit the type of its column. `reason` is one of VALUE_REASONS."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Rules:
    """How values are spelled, where the stream's options decide. `epoch` is None, epoch_s, epoch_ms, epoch_us or
    epoch_ns."""

    epoch: str | None = None
    stamp: Pattern | None = None
    date: Pattern | None = None
    utf8: str = "reject"
    binary: str = "base64"

    @property
    def epoch_scale(self) -> int:
        """The decimal scale that turns the epoch unit into microseconds. Nanoseconds are truncated later."""
        return {"epoch_s": 6, "epoch_ms": 3}.get(self.epoch or "", 0)


_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_SPECIAL = {
    "nan": "nan", "inf": "inf", "+inf": "inf", "-inf": "-inf", "infinity": "inf", "+infinity": "inf",
    "-infinity": "-inf",
}  # fmt: skip
_BASE64 = re.compile(rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})", re.ASCII)
_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?",
    re.ASCII,
)
_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
_EPOCH = dt.datetime(1970, 1, 1)
REASON = {
    "BOOLEAN": "bad_boolean", "TINYINT": "bad_integer", "SMALLINT": "bad_integer", "INT": "bad_integer",
    "BIGINT": "bad_integer", "FLOAT": "bad_number", "DOUBLE": "bad_number", "DECIMAL": "bad_decimal",
    "DATE": "bad_date", "TIMESTAMP": "bad_timestamp", "TIMESTAMP_NTZ": "bad_timestamp", "BINARY": "bad_binary",
    "STRING": "bad_utf8",
}  # fmt: skip


def text_cell(kind: DataType, raw: bytes, rules: Rules) -> Any:
    """Parse plain text. Timestamps are microseconds (or the unit of `rules.epoch`), dates are days."""
    if isinstance(kind, Decimal):
        return _decimal(kind, raw.decode("ascii", "replace"))
    assert isinstance(kind, Scalar)
    if kind.name == "STRING":
        return _string(raw, rules)
    if kind.name == "BINARY":
        return _binary(raw, rules)
    return _SCALARS[kind.name](kind.name, raw.decode("ascii", "replace"), rules)


def json_cell(kind: DataType, raw: bytes, rules: Rules) -> Any:
    """Parse the JSON text of a scalar. A STRING column takes the JSON text of values that are not strings."""
    name = kind.name if isinstance(kind, Scalar) else "DECIMAL"
    if not raw.startswith(b'"'):
        if name == "STRING":
            return _string(raw, rules)
        number = raw[:1] in b"-0123456789"
        takes_number = name in _BITS or name in ("FLOAT", "DOUBLE", "DECIMAL") or (rules.epoch and "TIME" in name)
        if not number or not takes_number:
            raise BadValue(REASON[name])
        return text_cell(kind, raw, rules)
    inside = _unescaped(raw)
    if name in _BITS or name == "BOOLEAN":
        raise BadValue(REASON[name])
    if name in ("FLOAT", "DOUBLE") and inside.decode("ascii", "replace").lower() not in _SPECIAL:
        raise BadValue("bad_number")
    return text_cell(kind, inside, rules)


_ESCAPE = re.compile(rb"((?:\\u[0-9a-fA-F]{4})+)|\\(.)", re.DOTALL)
_PLAIN = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}


def _unescaped(raw: bytes) -> bytes:
    """Unescape a JSON string. Bytes outside escapes stay as they are, even if they are not UTF-8. A lone surrogate
    becomes one byte that is not UTF-8."""

    def undo(found: re.Match[bytes]) -> bytes:
        if found[1] is None:
            return _PLAIN.get(found[2], found[2])
        units = binascii.unhexlify(found[1].replace(b"\\u", b""))
        return _LONE.sub(b"\xff", units.decode("utf-16-be", "surrogatepass").encode("utf-8", "surrogatepass"))

    return _ESCAPE.sub(undo, raw[1:-1])


_LONE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")  # a lone surrogate, as `surrogatepass` writes it


def _string(raw: bytes, rules: Rules) -> str:
    try:
        return raw.decode("utf-8", "replace" if rules.utf8 == "replace" else "strict")
    except UnicodeDecodeError:
        raise BadValue("bad_utf8") from None


def _binary(raw: bytes, rules: Rules) -> bytes:
    try:
        if rules.binary == "raw":
            return raw
        if rules.binary == "base64" and _BASE64.fullmatch(raw) is None:
            raise ValueError("this is not base64")
        return binascii.unhexlify(raw) if rules.binary == "hex" else base64.b64decode(raw)
    except (binascii.Error, ValueError):
        raise BadValue("bad_binary") from None


def _boolean(_: str, text: str, rules: Rules) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise BadValue("bad_boolean")
    return lowered == "true"


def _integer(name: str, text: str, rules: Rules) -> int:
    if _INTEGER.fullmatch(text) is None:
        raise BadValue("bad_integer")
    digits = text.lstrip("+-").lstrip("0")
    if len(digits) > 19:  # int() rejects thousands of digits, leading zeros included
        raise BadValue("out_of_range")
    value = int(digits or "0") * (-1 if text.startswith("-") else 1)
    limit = 1 << (_BITS[name] - 1)
    if not -limit <= value < limit:
        raise BadValue("out_of_range")
    return value


def _double(name: str, text: str, rules: Rules) -> float:
    special = _SPECIAL.get(text.lower())
    if special is None and _FLOAT.fullmatch(text) is None:
        raise BadValue("bad_number")
    if name == "DOUBLE" or special:
        return float(special or text)
    return float(pa.array([text.lstrip("+")]).cast(pa.float32())[0].as_py())


_CONTEXT = decimal.Context(
    prec=100, rounding=decimal.ROUND_HALF_UP, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[]
)


def _decimal(kind: Decimal, text: str) -> decimal.Decimal:
    if _FLOAT.fullmatch(text) is None:
        raise BadValue("bad_decimal")
    value = _CONTEXT.create_decimal(text)
    if not value.is_finite():  # the exponent is out of range for decimal
        mantissa, _, exponent = text.lower().partition("e")
        if mantissa.strip("+-0.") and not exponent.startswith("-"):
            raise BadValue("out_of_range")
        value = decimal.Decimal(0)
    if value and value.adjusted() >= kind.precision:
        raise BadValue("out_of_range")
    if value and value.adjusted() < -kind.scale - 1:
        return decimal.Decimal(0).scaleb(-kind.scale)
    rounded = value.quantize(decimal.Decimal(1).scaleb(-kind.scale), context=_CONTEXT)
    if rounded and rounded.adjusted() >= kind.precision - kind.scale:
        raise BadValue("out_of_range")
    return rounded


def unscaled(value: decimal.Decimal, scale: int) -> int:
    """value * 10**scale, exactly. Python's default context would round to 28 digits."""
    return int(value.scaleb(scale, _CONTEXT))


def _date(_: str, text: str, rules: Rules) -> int:
    if rules.date is not None:
        micros = rules.date.read(text.encode())
        if micros is None:
            raise BadValue("bad_date")
        return micros
    match = _DATE.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        return dt.date(int(match[1]), int(match[2]), int(match[3])).toordinal() - 719163
    except ValueError:
        raise BadValue("bad_date") from None


def _timestamp(name: str, text: str, rules: Rules) -> int:
    if rules.epoch is not None:
        return _epoch(text, rules)
    if rules.stamp is not None:
        micros = rules.stamp.read(text.encode())
        if micros is None:
            raise BadValue("bad_timestamp")
        return micros
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


def _epoch(text: str, rules: Rules) -> int:
    try:
        value = _decimal(Decimal(38, rules.epoch_scale), text)
    except BadValue as bad:
        raise BadValue("out_of_range" if bad.reason == "out_of_range" else "bad_timestamp") from None
    units = unscaled(value, rules.epoch_scale)
    if not -(1 << 63) <= units < 1 << 63:
        raise BadValue("out_of_range")
    return units


def _zone(text: str | None) -> int:
    if not text or text == "Z":
        return 0
    digits = text[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if minutes > 59 or hours * 60 + minutes > 18 * 60:
        raise BadValue("bad_timestamp")
    return (hours * 60 + minutes) * (-1 if text[0] == "-" else 1)


_SCALARS: dict[str, Callable[[str, str, Rules], Any]] = {
    "BOOLEAN": _boolean, "TINYINT": _integer, "SMALLINT": _integer, "INT": _integer, "BIGINT": _integer,
    "FLOAT": _double, "DOUBLE": _double, "DATE": _date, "TIMESTAMP": _timestamp, "TIMESTAMP_NTZ": _timestamp,
}  # fmt: skip
