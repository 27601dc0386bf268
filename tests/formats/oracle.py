"""Pure-Python twins of the kernels: slow, simple, and written only from the documentation."""

from __future__ import annotations

import base64
import binascii
import contextlib
import datetime as dt
import decimal
import json
import re
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from headrace.formats.csv import Dialect
from headrace.model.schema import Array, DataType, Decimal, Map, Scalar, Schema, Struct

sys.set_int_max_str_digits(0)  # integers of any length


class Bad(Exception):
    """A bad record or value; the argument is the reason."""


class _Any:
    """Equal to everything: the text of an object inside an object."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


ANY = _Any()


class Number(str):
    """A JSON number, kept as its text."""


_SPACE = re.compile(r"[ \t\r]*")
_scanstring: Any = json.decoder.scanstring  # type: ignore[attr-defined]


# Python reads NaN, Infinity and -Infinity without quotes; Spark and headrace also read these.
_SIGNED = re.compile(r"[+-]INF|[+]Infinity")
DEEPEST = 256  # levels of a value


class _Scanner(json.JSONDecoder):
    """Python's decoder, with numbers, NaN and infinities kept as their texts."""

    def __init__(self) -> None:
        super().__init__(parse_int=Number, parse_float=Number, parse_constant=Number)
        decoder: Any = json.decoder
        self._depth = 0
        self.parse_array: Any = lambda place, _: self._nested("]", place, decoder.JSONArray, self._scan)
        self.parse_object: Any = lambda place, strict, _, *more: self._nested(
            "}", place, decoder.JSONObject, strict, self._scan, *more
        )
        self._inner: Any = json.scanner.py_make_scanner(self)  # type: ignore[attr-defined]
        self.scan_once: Any = self._scan

    def _scan(self, text: str, at: int) -> Any:
        found = _SIGNED.match(text, at)
        return (Number(found[0]), found.end()) if found else self._inner(text, at)

    def _nested(self, closing: str, place: tuple[str, int], parse: Any, *given: Any) -> Any:
        """An array or object, whose bracket is before `place`. An empty one is no level."""
        text, at = place
        level = not text.startswith(closing, _skip(text, at))
        self._depth += level
        try:
            if self._depth > DEEPEST:
                raise Bad("too_deep")
            return parse(place, *given)
        finally:
            self._depth -= level


_DECODER = _Scanner()


@contextlib.contextmanager
def _deep_recursion() -> Iterator[None]:
    """Python's scanner takes several calls for each of 256 levels."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, 5_000))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def json_members(text: str) -> dict[str, tuple[Any, str]]:
    """Key to (value, its text)."""
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        try:
            _, end = _DECODER.raw_decode(text, at)
        except (ValueError, Bad):
            raise Bad("bad_json") from None
        raise Bad("not_an_object" if _skip(text, end) == len(text) else "bad_json")
    found: dict[str, tuple[Any, str]] = {}
    try:
        at = _skip(text, at + 1)
        while text[at : at + 1] != "}":
            if text[at : at + 1] != '"':
                raise Bad("bad_json")
            key, at = _scanstring(text, at + 1)
            at = _skip(text, at)
            if text[at : at + 1] != ":":
                raise Bad("bad_json")
            at = _skip(text, at + 1)
            value, end = _DECODER.raw_decode(text, at)
            found[key] = (value, text[at:end])
            at = _skip(text, end)
            if text[at : at + 1] == ",":
                at = _skip(text, at + 1)
                if text[at : at + 1] != '"':
                    raise Bad("bad_json")
            elif text[at : at + 1] != "}":
                raise Bad("bad_json")
    except (ValueError, StopIteration):
        raise Bad("bad_json") from None
    if _skip(text, at + 1) != len(text):
        raise Bad("bad_json")
    return found


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def lines(data: bytes) -> list[tuple[int, bytes]]:
    out, at = [], 0
    for line in data.split(b"\n"):
        out.append((at, line))
        at += len(line) + 1
    return out[:-1] if not out[-1][1] else out


Rows = list[list[Any]]
BadSet = set[tuple[int, str, int | None]]


def decode_json(data: bytes, schema: Schema) -> tuple[Rows, BadSet]:
    """(rows of all columns, {(offset, reason, column)})."""
    rows: Rows = []
    bad: BadSet = set()
    for offset, raw in lines(data):
        if not raw.strip(b" \t\r"):
            continue
        try:
            with _deep_recursion():
                members = json_members(raw.decode("utf-8", "surrogateescape"))
        except Bad as problem:
            bad.add((offset, problem.args[0], None))
            continue
        row: list[Any] = []
        for i, field in enumerate(schema):
            value, text = members.get(field.name, (None, ""))
            try:
                row.append(json_value(field.type, value, text))
            except Bad as problem:
                row.append(None)
                bad.add((offset, problem.args[0], i))
        rows.append(row)
    return rows, bad


def split_csv(raw: bytes, dialect: Dialect) -> list[tuple[bytes, bool]]:
    """The fields of one record, each with True if it was quoted."""
    fields: list[tuple[bytes, bool]] = []
    at, step = 0, len(dialect.delimiter)
    while True:
        if dialect.quote and raw.startswith(dialect.quote, at):
            value, at = _quoted(raw, at + 1, dialect)
            fields.append((value, True))
            if at < len(raw) and not raw.startswith(dialect.delimiter, at):
                raise Bad("bad_quote")
        else:
            end = raw.find(dialect.delimiter, at)
            end = len(raw) if end < 0 else end
            fields.append((raw[at:end], False))
            at = end
        if at >= len(raw):
            return fields
        at += step


def _quoted(raw: bytes, at: int, dialect: Dialect) -> tuple[bytes, int]:
    out = b""
    while at < len(raw):
        c = raw[at : at + 1]
        if c == dialect.escape and c != dialect.quote and at + 1 < len(raw):
            out += raw[at + 1 : at + 2]
            at += 2
        elif c == dialect.quote:
            if raw[at + 1 : at + 2] != dialect.quote:
                return out, at + 1
            out += c
            at += 2
        else:
            out += c
            at += 1
    raise Bad("open_quote")


def decode_csv(data: bytes, schema: Schema, dialect: Dialect) -> tuple[Rows, BadSet]:
    """(rows of all columns, {(offset, reason, column)}); no multiline, no custom record delimiter."""
    rows: Rows = []
    bad: BadSet = set()
    for offset, line in lines(data):
        raw = line.removesuffix(b"\r")
        if not raw or (dialect.comment and raw.startswith(dialect.comment)):
            continue
        try:
            fields = split_csv(raw, dialect)
            extra = dialect.trailing and len(fields) == len(schema) + 1 and fields[-1] == (b"", False)
            if len(fields) != len(schema) and not dialect.ragged and not extra:
                raise Bad("field_count")
        except Bad as problem:
            bad.add((offset, problem.args[0], None))
            continue
        fields += [(b"", False)] * (len(schema) - len(fields))
        missing_from = len(split_csv(raw, dialect))
        row: list[Any] = []
        for i, field in enumerate(schema):
            value, quoted = fields[i]
            try:
                null = i >= missing_from or (not quoted and value in dialect.nulls)
                row.append(None if null else text_value(field.type, value.decode("utf-8", "surrogateescape")))
            except Bad as problem:
                row.append(None)
                bad.add((offset, problem.args[0], i))
        rows.append(row)
    return rows, bad


_REASON = {
    "BOOLEAN": "bad_boolean", "TINYINT": "bad_integer", "SMALLINT": "bad_integer", "INT": "bad_integer",
    "BIGINT": "bad_integer", "FLOAT": "bad_number", "DOUBLE": "bad_number", "DATE": "bad_date",
    "TIMESTAMP": "bad_timestamp", "TIMESTAMP_NTZ": "bad_timestamp", "BINARY": "bad_binary",
}  # fmt: skip
_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
_SPECIAL = re.compile(r"[+-]?(inf|infinity)|nan", re.IGNORECASE)
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def json_value(kind: DataType, value: Any, text: str) -> Any:
    if value is None:
        return None
    if isinstance(kind, Struct | Map):
        if not isinstance(value, dict):
            raise Bad("bad_nested")
        if isinstance(kind, Struct):
            return {f.name: json_value(f.type, value.get(f.name), "?") for f in kind.fields}
        return {text_value(kind.key, k): json_value(kind.value, v, "?") for k, v in value.items()}
    if isinstance(kind, Array):
        if not isinstance(value, list):
            raise Bad("bad_nested")
        return [json_value(kind.element, v, "?") for v in value]
    is_text = isinstance(value, str) and not isinstance(value, Number)
    if isinstance(kind, Decimal):
        if not isinstance(value, str):
            raise Bad("bad_decimal")
        return text_value(kind, str(value))
    assert isinstance(kind, Scalar)
    if kind.name == "STRING" and text == "?" and not is_text:  # inside a nested value, where its text was not kept
        return str(value) if isinstance(value, Number) else str(value).lower() if isinstance(value, bool) else ANY
    if kind.name == "STRING":
        return text_value(kind, value if is_text else text)
    if kind.name == "BOOLEAN":
        if not isinstance(value, bool):
            raise Bad("bad_boolean")
        return value
    numeric = kind.name in _BITS or kind.name in ("FLOAT", "DOUBLE")
    special = is_text and kind.name in ("FLOAT", "DOUBLE") and _SPECIAL.fullmatch(value)
    if not isinstance(value, str) or (is_text == numeric and not special):
        raise Bad(_REASON[kind.name])
    return text_value(kind, str(value))


def text_value(kind: DataType, text: str) -> Any:
    if isinstance(kind, Decimal):
        return _decimal(kind, text)
    assert isinstance(kind, Scalar)
    name = kind.name
    try:
        return _scalar(name, text)
    except OverflowError:
        raise Bad("out_of_range") from None
    except ValueError:
        raise Bad("bad_utf8" if name == "STRING" else _REASON[name]) from None


def _scalar(name: str, text: str) -> Any:
    if name == "STRING":
        text.encode()
        return text
    if name == "BOOLEAN":
        return {"true": True, "false": False}[text.lower()] if text.lower() in ("true", "false") else int("x")
    if name in _BITS:
        if not re.fullmatch(r"[+-]?[0-9]+", text, re.ASCII):
            raise ValueError
        if not -(1 << (_BITS[name] - 1)) <= int(text) < 1 << (_BITS[name] - 1):
            raise OverflowError
        return int(text)
    if name in ("DOUBLE", "FLOAT"):
        if not (_FLOAT.fullmatch(text) or _SPECIAL.fullmatch(text)) or not text.isascii():
            raise ValueError
        return float(text) if name == "DOUBLE" else _nearest_single(text)
    if name == "BINARY":
        if len(text) % 4 or "=" in text[:-2]:  # Python forgives padding that is not needed
            raise ValueError
        try:
            return base64.b64decode(text.encode("ascii"), validate=True)
        except binascii.Error:
            raise ValueError from None
    if name == "DATE":
        if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII):
            raise ValueError
        return dt.date.fromisoformat(text)
    return _moment(name, text)


def _nearest_single(text: str) -> float:
    """The float32 nearest to the exact decimal, ties to even, without rounding to a double first."""
    if float(text) == 0 or abs(float(text)) == float("inf"):
        return float(text)
    exact = decimal.Decimal(text)
    guess = np.float32(float(text)) if abs(float(text)) < 3.4028236e38 else np.float32(np.inf) * np.sign(float(text))
    if not np.isfinite(guess):
        return float(guess)
    near = {float(np.nextafter(guess, np.float32(s))) for s in (-np.inf, np.inf)} | {float(guess)}
    finite = [x for x in near if np.isfinite(x)]
    with decimal.localcontext(prec=400):
        return min(finite, key=lambda x: (abs(decimal.Decimal(x) - exact), int(np.float32(x).view(np.uint32)) & 1))


def _decimal(kind: Decimal, text: str) -> decimal.Decimal:
    if not _FLOAT.fullmatch(text) or not text.isascii():
        raise Bad("bad_decimal")
    mantissa, _, power = text.lower().partition("e")
    if abs(int(power or 0)) > 1000:
        if int(power) > 0 and mantissa.strip("+-0."):
            raise Bad("out_of_range")
        text = "0"
    with decimal.localcontext(prec=2000 + len(text)):
        rounded = decimal.Decimal(text).quantize(decimal.Decimal(1).scaleb(-kind.scale), decimal.ROUND_HALF_UP)
        if abs(rounded) >= decimal.Decimal(10) ** (kind.precision - kind.scale):
            raise Bad("out_of_range")
    return rounded


_ISO = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2})(:\d{2})?(\.\d{1,9})?(Z|[+-]\d{2}(?::?\d{2})?)?)?", re.ASCII)


def _moment(name: str, text: str) -> dt.datetime:
    match = _ISO.fullmatch(text)
    if match is None or (match[4] and not match[3]) or (match[5] and name == "TIMESTAMP_NTZ"):
        raise ValueError
    fraction = (match[4] or ".")[1:].ljust(6, "0")[:6]
    local = dt.datetime.fromisoformat(f"{match[1]}T{match[2] or '00:00'}{match[3] or ':00'}.{fraction}")
    if name == "TIMESTAMP_NTZ":
        return local
    zone = match[5] or "Z"
    shift = dt.timedelta(0)
    if zone != "Z":
        digits = zone[1:].replace(":", "").ljust(4, "0")
        if int(digits[2:]) > 59 or int(digits[:2]) * 60 + int(digits[2:]) > 1080:
            raise ValueError
        shift = dt.timedelta(hours=int(digits[:2]), minutes=int(digits[2:])) * (1 if zone[0] == "+" else -1)
    try:
        return local.replace(tzinfo=dt.UTC) - shift
    except OverflowError:  # outside of the years 1 to 9999
        raise Bad("out_of_range") from None
