"""Kernels between strings and binary values."""

from __future__ import annotations

import base64
import re
from typing import Any

import pyarrow as pa

from headrace.exec.kernels.kernel import Kernel, KernelError, per_row

# The names that Spark takes, and Python's codecs with the same result.
_ENCODERS = {
    "UTF-8": "utf-8", "US-ASCII": "ascii", "ISO-8859-1": "latin-1", "UTF-16BE": "utf-16-be", "UTF-16LE": "utf-16-le",
    "UTF-32": "utf-32-be",
}  # fmt: skip
CHARSETS = (*_ENCODERS, "UTF-16")


def _encode(text: str, charset: str) -> bytes:
    name = charset.upper()
    try:
        if name == "UTF-16":
            return b"\xfe\xff" + text.encode("utf-16-be") if text else b""
        return text.encode(_ENCODERS[name])
    except UnicodeError:
        raise KernelError("MALFORMED_CHARACTER_CODING") from None


def _decode(data: bytes, charset: str) -> str:
    name = charset.upper()
    try:
        return data.decode(_ENCODERS[name])
    except UnicodeError:
        raise KernelError("MALFORMED_CHARACTER_CODING") from None


_NO_DIGIT = re.compile(r"[^A-Za-z0-9+/=]+")


def _from_base64(text: str) -> bytes:
    """As Java's MIME decoder: characters that are not digits do not count, and the padding may be missing."""
    digits = _NO_DIGIT.sub("", text)
    body = digits.rstrip("=")
    padding = len(digits) - len(body)
    if "=" in body or len(body) % 4 == 1 or (padding and (len(digits) % 4 or padding > 2)):
        raise KernelError("CONVERSION_INVALID_INPUT")
    return base64.b64decode(body + "=" * (-len(body) % 4))


def _contains(data: bytes, part: bytes) -> bool:
    return part in data


def _bytewise(column: pa.Array[Any]) -> pa.Array[Any]:
    return per_row(pa.binary(), lambda data: data[::-1])(column)


_V, _B = "VARCHAR", "BLOB"
KERNELS: tuple[Kernel, ...] = (
    Kernel("hr_encode", (_V, _V), _B, per_row(pa.binary(), _encode), slow=True),
    Kernel("hr_decode", (_B, _V), _V, per_row(pa.string(), _decode), slow=True),
    Kernel("hr_from_base64", (_V,), _B, per_row(pa.binary(), _from_base64), slow=True),
    Kernel("hr_contains", (_B, _B), "BOOLEAN", per_row(pa.bool_(), _contains), slow=True),
    Kernel("hr_reverse_bytes", (_B,), _B, _bytewise, slow=True),
)
