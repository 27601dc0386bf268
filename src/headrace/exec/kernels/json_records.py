"""Kernel of `from_json`: a JSON text becomes a JSON text of exactly the wanted fields, with values that DuckDB casts.

Spark reads the first value of the text. A text that is not JSON is a bad record: NULL, or a struct of NULLs. A value of
another type than the field is NULL, and the other fields stay.
"""

from __future__ import annotations

import decimal
import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pyarrow as pa

from headrace.exec.kernels.json_texts import JsonNumber, JsonObject, java_double, parse_json, write_json
from headrace.exec.kernels.kernel import Kernel, per_row
from headrace.model.schema import Array, DataType, Decimal, Map, Struct, parse_type

_RANGES = {"TINYINT": 2**7, "SMALLINT": 2**15, "INT": 2**31, "BIGINT": 2**63}
_LARGEST_FLOAT = 3.4028235677973366e38  # and larger ones are infinite
_NAMED = {
    "NaN": "nan", "Infinity": "inf", "+Infinity": "inf", "INF": "inf", "+INF": "inf", "-Infinity": "-inf",
    "-INF": "-inf",
}  # fmt: skip
_INFINITIES = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|([+-]?INF\b|\+Infinity\b)', re.DOTALL)
_LONG = re.compile(r"[0-9eE.+-]{1,1000}")
_WIDE = decimal.Context(prec=1100, rounding=decimal.ROUND_HALF_UP, Emax=999_999, Emin=-999_999)


class _Fraction(JsonNumber):
    """A number with a point or an exponent, as it was written. As text it is Java's DOUBLE."""

    __slots__ = ()

    def __str__(self) -> str:
        return java_double(float(self)) if self != "nan" else '"NaN"'


class _UnfitJson(ValueError):
    """A value that does not have the type of its field."""


JsonValueReader = Callable[[Any], Any]  # the value for DuckDB. Raises _UnfitJson. NULL never reaches it.


def _number(text: str) -> str:
    if not _LONG.fullmatch(text):
        raise ValueError("a number that is too long")
    return text


def _whole(text: str) -> JsonNumber:
    return JsonNumber("0" if text == "-0" else _number(text))


_decoder = json.JSONDecoder(
    object_pairs_hook=JsonObject,
    parse_int=_whole,
    parse_float=lambda text: _Fraction(_number(text)),
    parse_constant=lambda text: _Fraction(_NAMED[text]),
    strict=False,
)


def _plain_infinities(match: re.Match[str]) -> str:
    return match[0] if match[1] is None else "-Infinity" if match[1].startswith("-") else "Infinity"


def _decoded(text: str) -> Any:
    try:
        return parse_json(text, _decoder)
    except ValueError:
        if "INF" not in text and "+Inf" not in text:
            raise
        return parse_json(_INFINITIES.sub(_plain_infinities, text), _decoder)


def _of_text(value: Any) -> Any:
    if isinstance(value, str) and not isinstance(value, JsonNumber):
        return value.encode("utf-8", "replace").decode()  # half of a surrogate pair is a question mark
    return write_json(value)


def _of_boolean(value: Any) -> Any:
    if not isinstance(value, bool):
        raise _UnfitJson
    return "true" if value else "false"


def _of_whole(limit: int) -> JsonValueReader:
    def read(value: Any) -> Any:
        if not isinstance(value, JsonNumber) or isinstance(value, _Fraction) or not -limit <= int(value) < limit:
            raise _UnfitJson
        return value + ""

    return read


def _of_float(narrow: bool) -> JsonValueReader:
    def read(value: Any) -> Any:
        if isinstance(value, JsonNumber):
            number = float(value)
        elif isinstance(value, str) and value in _NAMED:
            number = float(_NAMED[value])
        else:
            raise _UnfitJson
        if narrow and abs(number) >= _LARGEST_FLOAT:
            return "inf" if number > 0 else "-inf"
        return repr(number)

    return read


def _of_decimal(kind: Decimal) -> JsonValueReader:
    unit = decimal.Decimal(1).scaleb(-kind.scale)
    limit = decimal.Decimal(10) ** (kind.precision - kind.scale)

    def read(value: Any) -> Any:
        if not isinstance(value, str) or not value:
            raise _UnfitJson
        try:
            found = decimal.Decimal(value + "").quantize(unit, context=_WIDE)
        except decimal.InvalidOperation:
            raise _UnfitJson from None
        if not found.is_finite() or abs(found) >= limit:
            raise _UnfitJson
        return f"{found:f}"

    return read


def _of_time(seconds: bool) -> JsonValueReader:
    """A text, which DuckDB casts with Spark's leniency. A whole number is seconds since 1970."""

    def read(value: Any) -> Any:
        if isinstance(value, JsonNumber):
            if not seconds or isinstance(value, _Fraction) or abs(int(value)) >= 2**63 // 1_000_000:
                raise _UnfitJson
            return f"@{int(value)}"
        if not isinstance(value, str) or not value:
            raise _UnfitJson
        return value

    return read


def _of_array(element: JsonValueReader) -> JsonValueReader:
    def read(value: Any) -> Any:
        if not isinstance(value, list) or isinstance(value, JsonObject):
            raise _UnfitJson
        return [None if item is None else element(item) for item in value]

    return read


def _of_map(inner: JsonValueReader) -> JsonValueReader:
    def read(value: Any) -> Any:
        if not isinstance(value, JsonObject):
            raise _UnfitJson
        found = {_of_text(name): None if item is None else inner(item) for name, item in value}
        return [{"key": name, "value": item} for name, item in found.items()]

    return read


def _of_struct(kind: Struct) -> JsonValueReader:
    readers = {field.name: reader_of(field.type) for field in kind.fields}

    def read(value: Any) -> Any:
        if not isinstance(value, JsonObject):
            raise _UnfitJson
        found: dict[str, Any] = dict.fromkeys(readers)
        for name, item in value:
            reader = readers.get(name)
            if reader is not None:
                try:
                    found[name] = None if item is None else reader(item)
                except _UnfitJson:
                    found[name] = None
        return found

    return read


def reader_of(kind: DataType) -> JsonValueReader:
    """The reader of values of `kind`."""
    if isinstance(kind, Struct):
        return _of_struct(kind)
    if isinstance(kind, Array):
        return _of_array(reader_of(kind.element))
    if isinstance(kind, Map):
        return _of_map(reader_of(kind.value))
    if isinstance(kind, Decimal):
        return _of_decimal(kind)
    if kind.ddl in _RANGES:
        return _of_whole(_RANGES[kind.ddl])
    if kind.ddl in ("FLOAT", "DOUBLE"):
        return _of_float(kind.ddl == "FLOAT")
    if kind.ddl in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ"):
        return _of_time(kind.ddl == "TIMESTAMP")
    return _of_boolean if kind.ddl == "BOOLEAN" else _of_text


@lru_cache(maxsize=256)
def _root(ddl: str) -> tuple[JsonValueReader, Any]:
    """The reader of a schema, and the value of a bad record."""
    kind = parse_type(ddl)
    read = reader_of(kind)
    if isinstance(kind, Struct):
        return read, dict.fromkeys(field.name for field in kind.fields)
    if isinstance(kind, Array) and isinstance(kind.element, Struct):  # an object counts as an array of one
        return lambda value: read([value] if isinstance(value, JsonObject) else value), None
    return read, None


def _record(text: str, ddl: str) -> str | None:
    if not text.strip(" \t\r\n\x0b\x0c"):
        return None
    read, bad = _root(ddl)
    try:
        found = read(_decoded(text))
    except (ValueError, RecursionError):
        found = bad
    return None if found is None else json.dumps(found, ensure_ascii=False)


KERNELS: tuple[Kernel, ...] = (
    Kernel("hr_from_json", ("VARCHAR", "VARCHAR"), "VARCHAR", per_row(pa.string(), _record), slow=True),
)
