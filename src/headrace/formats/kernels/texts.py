"""Fields to strings and binaries: copied, unescaped, checked to be UTF-8, or decoded from base64 and hex.

Status and fields are as in numbers.py. The caller passes an output buffer that is large enough in any case.
"""

# Numba needs plain comparisons and its own integer types, so some lints and type checks do not apply.
# mypy: disable-error-code="no-any-return,return-value,assignment"
from __future__ import annotations

from typing import Any

import numpy as np

from headrace.formats.kernels.jit import helper, inlined, kernel
from headrace.formats.kernels.json_strings import unescape
from headrace.formats.kernels.numbers import FINE, NULL, SLOW
from headrace.formats.kernels.simd import HIGH, ONE, copy_bytes, get8, put8, view, wide, word_at

BAD_BINARY, BAD_UTF8 = 9, 10
JSON, PLAIN, QUOTED = 0, 1, 2  # how a field is written: as a JSON value, as plain bytes, as CSV with quotes
BASE64, HEX = 0, 1


@inlined
def all_ascii(buf: Any, p: int, e: int, n: int) -> bool:
    """True if no byte of [p, e) has its high bit set."""
    seen = np.uint64(0)
    while p + 8 <= e:
        seen |= word_at(buf, p, n)
        p += 8
    if p < e:
        seen |= word_at(buf, p, n) & ((ONE << np.uint64(8 * (e - p))) - ONE)
    return (seen & HIGH) == 0


@helper
def valid_utf8(buf: Any, p: int, e: int) -> bool:
    """True if [p, e) is UTF-8: shortest forms, no surrogates, nothing above U+10FFFF."""
    while p < e:
        c = get8(buf, p)
        if c < 0x80:
            p += 1
            continue
        if c < 0xC2 or c > 0xF4:
            return False
        more = 1 if c < 0xE0 else 2 if c < 0xF0 else 3
        if p + more >= e:
            return False
        second = get8(buf, p + 1)
        low = 0xA0 if c == 0xE0 else 0x90 if c == 0xF0 else 0x80
        high = 0x9F if c == 0xED else 0x8F if c == 0xF4 else 0xBF
        if second < low or second > high:
            return False
        for k in range(2, more + 1):
            if get8(buf, p + k) & 0xC0 != 0x80:
                return False
        p += more + 1
    return True


@helper
def unquote(buf: Any, p: int, e: int, out: Any, q: int, quote: int, escape: int) -> int:
    """Write the content of a quoted CSV field: `escape` makes the next byte plain, two quotes stand for one."""
    while p < e:
        c = get8(buf, p)
        doubled = c == quote and p + 1 < e and get8(buf, p + 1) == quote
        if doubled or (c == escape and p + 1 < e):
            p += 1
            c = get8(buf, p)
        put8(out, q, c)
        q += 1
        p += 1
    return q


@kernel
def parse_strings(
    data: Any, starts: Any, ends: Any, syntax: int, quote: int, escape: int, utf8: bool, wrong: int, out: Any,
    offsets: Any, status: Any,
) -> int:  # fmt: skip
    """Write the texts one after the other. `wrong` is the status of a text that is not UTF-8 (checked if `utf8`)."""
    buf, n = view(data), len(data)
    target, room = view(out), len(out)
    odd = 0
    at = 0
    offsets[0] = 0
    for i in range(len(starts)):
        p, e = wide(starts[i]), wide(ends[i])
        state = FINE
        if p < 0:
            state = NULL
        else:
            raw = e >= 0
            e = e if raw else ~e
            if syntax == JSON and get8(buf, p) == 34:
                p += 1
                e -= 1
            first = at
            if raw:
                copy_bytes(buf, p, n, target, at, room, e - p)
                at += e - p
            elif syntax == JSON:
                at = unescape(buf, p, e, target, at)
            else:
                at = unquote(buf, p, e, target, at, quote, escape)
            if at < 0 or (utf8 and not all_ascii(target, first, at, room) and not valid_utf8(target, first, at)):
                at = first
                state = wrong
        offsets[i + 1] = at
        status[i] = state
        if state != FINE:
            odd += 1
    return odd


@kernel
def gather(data: Any, begins: Any, stops: Any, rows: Any, joint: Any, out: Any) -> int:
    """Copy the records `rows` one after the other, each followed by `joint`. Returns the number of bytes."""
    buf, n = view(data), len(data)
    target, room, glue = view(out), len(out), view(joint)
    at = 0
    for row in rows:
        p, e = wide(begins[row]), wide(stops[row])
        copy_bytes(buf, p, n, target, at, room, e - p)
        at += e - p
        for k in range(len(joint)):
            put8(target, at, get8(glue, k))
            at += 1
    return at


@helper
def base64_value(c: int) -> int:
    if 65 <= c <= 90:
        return c - 65
    if 97 <= c <= 122:
        return c - 71
    if 48 <= c <= 57:
        return c + 4
    if c == 43:
        return 62
    return 63 if c == 47 else -1


@helper
def decode_base64(buf: Any, p: int, e: int, out: Any, q: int) -> int:
    """Decode [p, e) from base64. Returns the position after the written bytes, or -1."""
    if (e - p) % 4 != 0:
        return -1
    while p < e:
        last = p + 4 == e
        a, b = base64_value(get8(buf, p)), base64_value(get8(buf, p + 1))
        c, d = get8(buf, p + 2), get8(buf, p + 3)
        padding = 2 if last and c == 61 and d == 61 else 1 if last and d == 61 else 0
        x = 0 if padding == 2 else base64_value(c)
        y = 0 if padding > 0 else base64_value(d)
        if a < 0 or b < 0 or x < 0 or y < 0:
            return -1
        word = a << 18 | b << 12 | x << 6 | y
        for k in range(3 - padding):
            put8(out, q, word >> (16 - 8 * k) & 255)
            q += 1
        p += 4
    return q


@helper
def hex_digit(c: int) -> int:
    if 48 <= c <= 57:
        return c - 48
    c |= 32
    return c - 87 if 97 <= c <= 102 else -1


@helper
def decode_hex(buf: Any, p: int, e: int, out: Any, q: int) -> int:
    """Decode [p, e) from hexadecimal. Returns the position after the written bytes, or -1."""
    if (e - p) % 2 != 0:
        return -1
    while p < e:
        a, b = hex_digit(get8(buf, p)), hex_digit(get8(buf, p + 1))
        if a < 0 or b < 0:
            return -1
        put8(out, q, a * 16 + b)
        q += 1
        p += 2
    return q


@kernel
def parse_binaries(
    data: Any, starts: Any, ends: Any, syntax: int, code: int, out: Any, offsets: Any, status: Any
) -> int:
    """Parse fields in base64 or hexadecimal."""
    buf = view(data)
    target = view(out)
    odd = 0
    at = 0
    offsets[0] = 0
    for i in range(len(starts)):
        p, e = wide(starts[i]), wide(ends[i])
        state = FINE
        if p < 0:
            state = NULL
        elif e < 0:
            state = SLOW
        else:
            quoted = syntax == JSON and get8(buf, p) == 34
            if quoted:
                p += 1
                e -= 1
            after = -1
            if syntax != JSON or quoted:
                after = decode_base64(buf, p, e, target, at) if code == BASE64 else decode_hex(buf, p, e, target, at)
            if after < 0:
                state = BAD_BINARY
            else:
                at = after
        offsets[i + 1] = at
        status[i] = state
        if state != FINE:
            odd += 1
    return odd
