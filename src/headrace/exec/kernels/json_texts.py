"""Kernels over JSON texts, with the leniency and the spelling of Spark's parser.

Strings may have single quotes and control characters. What follows the first value is ignored. A text that is not JSON
gives NULL. Numbers are written again: whole numbers as they are, others as a DOUBLE.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

import pyarrow as pa

from headrace.exec.kernels.kernel import Kernel, per_row

_LONGEST_NUMBER = 1000  # characters; Spark's parser takes no longer ones
_BLANK = re.compile(r"[ \t\r\n]*")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\'((?:[^\'\\]|\\.)*)\'', re.DOTALL)


class JsonNumber(str):
    """A number as Spark writes it."""

    __slots__ = ()


class JsonObject(list[tuple[str, Any]]):
    """The fields of an object, in order. A name may occur twice."""

    __slots__ = ()


def _whole(text: str) -> JsonNumber:
    if len(text) > _LONGEST_NUMBER:
        raise ValueError("a number that is too long")
    return JsonNumber("0" if text == "-0" else text)


def _fraction(text: str) -> JsonNumber:
    if len(text) > _LONGEST_NUMBER:
        raise ValueError("a number that is too long")
    return JsonNumber(java_double(float(text)))


def _refuse(text: str) -> Any:
    raise ValueError(text)


def java_double(value: float) -> str:
    """A DOUBLE in Java's spelling."""
    if value in (float("inf"), float("-inf")):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    if value == 0:
        return "-0.0" if str(value).startswith("-") else "0.0"
    digits, _, exponent = f"{value:.16e}".partition("e")
    for precision in range(1, 17):
        shorter = f"{value:.{precision}e}"
        if float(shorter) == value:
            digits, _, exponent = shorter.partition("e")
            break
    sign, digits, power = ("-" if value < 0 else ""), digits.lstrip("-").replace(".", ""), int(exponent)
    if -3 <= power < 7:
        digits = digits.rstrip("0")
        if power < 0:
            return f"{sign}0.{'0' * (-power - 1)}{digits}"
        whole = digits[: power + 1].ljust(power + 1, "0")
        return f"{sign}{whole}.{digits[power + 1 :] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:].rstrip('0') or '0'}E{power}"


_decoder = json.JSONDecoder(
    object_pairs_hook=JsonObject, parse_int=_whole, parse_float=_fraction, parse_constant=_refuse, strict=False
)


def _double_quoted(match: re.Match[str]) -> str:
    if match[1] is None:
        return match[0].replace("\\'", "'") if "\\'" in match[0] else match[0]
    inner = re.sub(r'\\(.)|"', lambda m: '\\"' if m[0] == '"' else "'" if m[1] == "'" else m[0], match[1], flags=re.S)
    return f'"{inner}"'


def parse_json(text: str, decoder: json.JSONDecoder = _decoder) -> Any:
    """The first value of a text. Raises ValueError or RecursionError."""
    start = _BLANK.match(text)
    assert start is not None
    try:
        return decoder.raw_decode(text, start.end())[0]
    except ValueError:
        if "'" not in text:
            raise
        return decoder.raw_decode(_TOKEN.sub(_double_quoted, text), start.end())[0]


def _value(text: str) -> Any:
    """The first value; None for JSON's null and for what is not JSON."""
    try:
        return parse_json(text)
    except (ValueError, RecursionError):
        return None


# --- writing ------------------------------------------------------------------------------------

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_ESCAPED = re.compile('[\x00-\x1f"\\\\\ud800-\udfff\U00010000-\U0010ffff]')
_ESCAPED_IN_BUFFER = re.compile('[\x00-\x1f"\\\\]')


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    if char in _ESCAPES:
        return _ESCAPES[char]
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex().upper()}" for i in range(0, len(units), 2))


def write_json(value: Any, escaped: re.Pattern[str] = _ESCAPED) -> str:
    """A parsed value as Spark writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, JsonNumber):
        return str(value)
    if isinstance(value, str):
        return '"' + escaped.sub(_escape, value) + '"'
    if isinstance(value, JsonObject):
        return (
            "{" + ",".join(f"{write_json(name, escaped)}:{write_json(inner, escaped)}" for name, inner in value) + "}"
        )
    return "[" + ",".join(write_json(item, escaped) for item in value) + "]"


# --- get_json_object ------------------------------------------------------------------------------

_STEP = re.compile(r"\.\*|\['\*'\]|\.([^.\[]+)|\['([^'?]+)'\]|\[(?:(\*)|([0-9]+))\]")
_NOWHERE: tuple[Any, ...] = ("nowhere",)
_ALL = "*"
Path = tuple[Any, ...]
_RAW, _QUOTED, _FLAT = 0, 1, 2


def _index(digits: str) -> int:
    """The number of an element. Python reads no more than 4,300 digits, and no array has as many elements."""
    digits = digits.lstrip("0")
    return int(digits or "0") if len(digits) < 20 else 10**20


@lru_cache(maxsize=512)
def _path(text: str) -> Path | None:
    """The steps of a path: ("key", name), ("at", number or *) and _NOWHERE. None if it is not a path."""
    if not text.startswith("$"):
        return None
    steps: list[Any] = []
    at = 1
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None:
            return None
        at = found.end()
        name = found[1] or found[2]
        if name is not None:
            steps.append(("key", name))
        elif found[3] or found[4]:
            steps.append(("at", _ALL if found[3] else _index(found[4])))
        else:
            steps.append(_NOWHERE)  # Spark reads .* and never finds anything
    return tuple(steps)


def _select(value: Any, path: Path, style: int, out: list[str], escaped: re.Pattern[str] = _ESCAPED) -> bool:
    """Writes what the path selects to `out`. True if that is anything. The cases and their order are Spark's. A single
    [*] collects in a buffer of characters, where those beyond U+FFFF are not escaped."""
    if not path:
        if isinstance(value, str) and not isinstance(value, JsonNumber) and style == _RAW:
            out.append(value)
            return True
        if isinstance(value, list) and not isinstance(value, JsonObject) and style == _FLAT:
            found = [_select(item, (), style, out, escaped) for item in value]
            return any(found)
        out.append(write_json(value, escaped))
        return True
    step, rest = path[0], path[1:]
    if isinstance(value, JsonObject):
        if step[0] == "key":
            named = (inner for name, inner in value if name == step[1] and inner is not None)
            return any(_select(inner, rest, style, out, escaped) for inner in named)
        return False
    if not isinstance(value, list) or step[0] != "at":
        return False
    if step[1] != _ALL:
        if step[1] >= len(value):
            return False
        return _select(value[step[1]], rest, _QUOTED if rest[:1] == (("at", _ALL),) else style, out, escaped)
    if rest[:1] == (("at", _ALL),):
        parts: list[str] = []
        found = [_select(item, rest[1:], _FLAT, parts, escaped) for item in value]
        out.append("[" + ",".join(parts) + "]")
        return any(found)
    parts = []
    if style == _QUOTED:
        found = [_select(item, rest, _QUOTED, parts, escaped) for item in value]
        out.append("[" + ",".join(parts) + "]")
        return any(found)
    inner_style = _FLAT if style == _FLAT else _QUOTED
    count = sum(_select(item, rest, inner_style, parts, _ESCAPED_IN_BUFFER) for item in value)
    if count:
        out.append("[" + ",".join(parts) + "]" if count > 1 else ",".join(parts))
    return count > 0


def _get(text: str, path: str) -> str | None:
    steps = _path(path)
    if steps is None:
        return None
    out: list[str] = []
    try:  # half of a surrogate pair is an error, too
        return ",".join(out).encode().decode() if _select(parse_json(text), steps, _RAW, out) else None
    except (ValueError, RecursionError):
        return None


def _length(text: str) -> int | None:
    value = _value(text)
    return len(value) if isinstance(value, list) and not isinstance(value, JsonObject) else None


def _keys(text: str) -> list[str] | None:
    value = _value(text)
    return [name.encode("utf-8", "replace").decode() for name, _ in value] if isinstance(value, JsonObject) else None


_V = "VARCHAR"
KERNELS: tuple[Kernel, ...] = (
    Kernel("hr_json_get", (_V, _V), _V, per_row(pa.string(), _get), slow=True),
    Kernel("hr_json_length", (_V,), "INTEGER", per_row(pa.int32(), _length), slow=True),
    Kernel("hr_json_keys", (_V,), "VARCHAR[]", per_row(pa.list_(pa.string()), _keys), slow=True),
)
