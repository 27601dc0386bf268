"""Finds where JSON values end, nested ones included, and checks every byte of them."""

# Numba needs plain comparisons and its own integer types, so some lints and type checks do not apply.
# mypy: disable-error-code="no-any-return,return-value,assignment"
from __future__ import annotations

from typing import Any

import numpy as np

from headrace.formats.kernels.jit import helper, inlined
from headrace.formats.kernels.simd import HIGH, byte_at, digit_run, get8, put8, string_stop, trailing_zeros, word_at

MAX_DEPTH = 256

_TRUE = np.uint64(0x65757274)
_NULL = np.uint64(0x6C6C756E)
_ALSE = np.uint64(0x65736C61)
_FOUR = np.uint64(0xFFFFFFFF)
_BYTE = np.uint64(0xFF)
_THREE = np.uint64(0xFFFFFF)
_NAN = np.uint64(0x4E614E)
_INF = np.uint64(0x464E49)
_INFINITY = np.uint64(0x7974696E69666E49)
_ONES = np.uint64(0x0101010101010101)
_COMMAS = np.uint64(0x2C2C2C2C2C2C2C2C)
_BRACES = np.uint64(0x7D7D7D7D7D7D7D7D)


@helper
def skip_space(buf: Any, p: int, n: int) -> int:
    """The first position from `p` on that is not a space, tab or carriage return."""
    while p < n and (get8(buf, p) == 32 or get8(buf, p) == 9 or get8(buf, p) == 13):
        p += 1
    return p


@helper
def is_hex(c: int) -> bool:
    return 48 <= c <= 57 or 65 <= c <= 70 or 97 <= c <= 102


@helper
def string_end(buf: Any, p: int, n: int) -> int:
    """Twice the position after the string that begins at `p`, plus one if it has escapes; -1 if it is malformed."""
    p = string_stop(buf, p + 1, n)
    if p < n and get8(buf, p) == 34:
        return 2 * (p + 1)
    while p < n:
        c = get8(buf, p)
        if c == 34:
            return 2 * (p + 1) + 1
        if c != 92:
            return -1
        e = byte_at(buf, p + 1, n)
        if e == 117:
            for k in range(4):
                if not is_hex(byte_at(buf, p + 2 + k, n)):
                    return -1
            p += 6
        elif e == 34 or e == 92 or e == 47 or e == 98 or e == 102 or e == 110 or e == 114 or e == 116:
            p += 2
        else:
            return -1
        p = string_stop(buf, p, n)
    return -1


@inlined
def digits_end(buf: Any, p: int, n: int) -> int:
    """The first position from `p` on that is not a digit."""
    run = digit_run(word_at(buf, p, n))
    p += run
    while run == 8:
        run = digit_run(word_at(buf, p, n))
        p += run
    return p


@inlined
def number_end(buf: Any, p: int, n: int) -> int:
    """The position after the number that begins at `p`; -1 if it is malformed."""
    if get8(buf, p) == 45:
        p += 1
    q = digits_end(buf, p, n)
    if q == p or (q > p + 1 and get8(buf, p) == 48):
        return -1
    c = byte_at(buf, q, n)
    if c == 46:
        p = q + 1
        q = digits_end(buf, p, n)
        if q == p:
            return -1
        c = byte_at(buf, q, n)
    if c == 101 or c == 69:
        p = q + 1
        c = byte_at(buf, p, n)
        if c == 43 or c == 45:
            p += 1
        q = digits_end(buf, p, n)
        if q == p:
            return -1
    return q


@helper
def special_end(buf: Any, p: int, n: int) -> int:
    """Twice the position after NaN, Infinity, -Infinity, +Infinity, -INF or +INF at `p`; -1 if none is there."""
    c = byte_at(buf, p, n)
    signed = c == 43 or c == 45
    if signed:
        p += 1
    word = word_at(buf, p, n)
    if not signed and (word & _THREE) == _NAN:
        return 2 * (p + 3)
    if word == _INFINITY:
        return 2 * (p + 8)
    if signed and (word & _THREE) == _INF:
        return 2 * (p + 3)
    return -1


@inlined
def scalar_end(buf: Any, p: int, n: int, c: int, specials: bool) -> int:
    """Twice the position after the scalar at `p` (first byte `c`), plus one for a string with escapes; or -1. With
    `specials`, NaN and Infinity are scalars."""
    if c == 34:
        return string_end(buf, p, n)
    if 48 <= c <= 57 or c == 45:
        q = number_end(buf, p, n)
        if q >= 0:
            return 2 * q
    if c == 116 and (word_at(buf, p, n) & _FOUR) == _TRUE:
        return 2 * (p + 4)
    if c == 102 and (word_at(buf, p + 1, n) & _FOUR) == _ALSE:
        return 2 * (p + 5)
    if c == 110 and (word_at(buf, p, n) & _FOUR) == _NULL:
        return 2 * (p + 4)
    return special_end(buf, p, n) if specials else -1


@inlined
def short_number(buf: Any, p: int, n: int) -> int:
    """The position after the plain number at `p` if a comma or brace follows within eight bytes; else -1.

    Only the search for the end delays the next field. The processor can run the checks in parallel with it.
    """
    word = word_at(buf, p, n)
    x, y = word ^ _COMMAS, word ^ _BRACES
    hit = (((x - _ONES) & ~x) | ((y - _ONES) & ~y)) & HIGH
    if hit == 0:
        return -1
    length = trailing_zeros(hit) >> 3
    sign = 1 if (word & _BYTE) == 45 else 0
    digits = word >> np.uint64(8 * sign)
    run = digit_run(digits)
    rest = digits >> np.uint64(8 * run)
    good = run > 0 and (run == 1 or (digits & _BYTE) != 48)
    if run != length - sign:
        good = good and (rest & _BYTE) == 46 and length - sign - run > 1
        good = good and digit_run(rest >> np.uint64(8)) == length - sign - run - 1
    return p + length if good else -1


@helper
def key_end(buf: Any, p: int, n: int) -> int:
    """The start of the value whose key begins at `p`, after spaces; -1 if it is malformed."""
    p = skip_space(buf, p, n)
    if byte_at(buf, p, n) != 34:
        return -1
    e = string_end(buf, p, n)
    if e < 0:
        return -1
    p = skip_space(buf, e >> 1, n)
    if byte_at(buf, p, n) != 58:
        return -1
    return skip_space(buf, p + 1, n)


@helper
def value_end(buf: Any, p: int, n: int, stack: Any, specials: bool) -> int:
    """Twice the position after the value at `p`, plus one for a string with escapes; -1 malformed, -2 too deep."""
    depth = 0
    while True:
        c = byte_at(buf, p, n)
        if c == 123 or c == 91:
            inner = skip_space(buf, p + 1, n)
            if byte_at(buf, inner, n) == c + 2:
                end = 2 * (inner + 1)
            else:
                if depth == MAX_DEPTH:
                    return -2
                put8(stack, depth, c)
                depth += 1
                p = inner if c == 91 else key_end(buf, inner, n)
                if p < 0:
                    return -1
                continue
        else:
            end = scalar_end(buf, p, n, c, specials)
            if end < 0:
                return -1
        while True:
            if depth == 0:
                return end
            p = skip_space(buf, end >> 1, n)
            c = byte_at(buf, p, n)
            if c == 44:
                p = skip_space(buf, p + 1, n) if get8(stack, depth - 1) == 91 else key_end(buf, p + 1, n)
                if p < 0:
                    return -1
                break
            if c != get8(stack, depth - 1) + 2:
                return -1
            depth -= 1
            end = 2 * (p + 1)
