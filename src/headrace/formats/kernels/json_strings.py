"""Unescapes JSON strings."""

# Numba needs plain comparisons and its own integer types, so some lints and type checks do not apply.
# mypy: disable-error-code="no-any-return,return-value,assignment"
from __future__ import annotations

from typing import Any

from headrace.formats.kernels.jit import helper
from headrace.formats.kernels.simd import get8, put8


@helper
def hex_value(buf: Any, p: int) -> int:
    """The number that four hexadecimal digits spell."""
    value = 0
    for k in range(4):
        c = get8(buf, p + k)
        value = value * 16 + (c - 48 if c <= 57 else (c | 32) - 87)
    return value


@helper
def put_utf8(code: int, out: Any, q: int) -> int:
    """Write a code point. Returns the position after it."""
    if code < 0x80:
        put8(out, q, code)
        return q + 1
    if code < 0x800:
        put8(out, q, 0xC0 | code >> 6)
        put8(out, q + 1, 0x80 | code & 63)
        return q + 2
    if code < 0x10000:
        put8(out, q, 0xE0 | code >> 12)
        put8(out, q + 1, 0x80 | code >> 6 & 63)
        put8(out, q + 2, 0x80 | code & 63)
        return q + 3
    put8(out, q, 0xF0 | code >> 18)
    put8(out, q + 1, 0x80 | code >> 12 & 63)
    put8(out, q + 2, 0x80 | code >> 6 & 63)
    put8(out, q + 3, 0x80 | code & 63)
    return q + 4


@helper
def unescape(buf: Any, p: int, end: int, out: Any, q: int) -> int:
    """Write the text of the valid string content [p, end). Returns the position after it, or -1 for a lone surrogate.

    The text is never longer than the escaped text.
    """
    while p < end:
        c = get8(buf, p)
        if c != 92:
            put8(out, q, c)
            q += 1
            p += 1
            continue
        e = get8(buf, p + 1)
        p += 2
        if e != 117:
            plain = e
            if e == 98:
                plain = 8
            elif e == 102:
                plain = 12
            elif e == 110:
                plain = 10
            elif e == 114:
                plain = 13
            elif e == 116:
                plain = 9
            put8(out, q, plain)
            q += 1
            continue
        code = hex_value(buf, p)
        p += 4
        if 0xD800 <= code < 0xE000:
            if code >= 0xDC00 or p + 6 > end or get8(buf, p) != 92 or get8(buf, p + 1) != 117:
                return -1
            low = hex_value(buf, p + 2)
            if not 0xDC00 <= low < 0xE000:
                return -1
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
            p += 6
        q = put_utf8(code, out, q)
    return q
