"""The kernel of the generator: writes the text of rows into a buffer.

A program is a list of pieces (code, a, b, c, salt). Each piece writes one value or constant text. Random numbers are
hashes of (seed, salt, row), so a row does not depend on other rows.
"""

# Numba needs plain comparisons and its own integer types, so some lints and type checks do not apply.
# mypy: disable-error-code="no-any-return,return-value,assignment"
from __future__ import annotations

from typing import Any

import numpy as np

from headrace.formats.kernels.jit import helper, inlined, kernel
from headrace.formats.kernels.simd import copy_bytes, get32, put8, view, wide

# The codes of pieces. `a` and `b` are positions in the text table unless stated otherwise.
CONSTANT = 0  # text [a, b)
WORD = 1  # one of b texts, whose bounds begin at entry a of the bounds table
NUMBERED = 2  # a random number below a, with b digits
SERIAL = 3  # the row's number
WHOLE = 4  # a random number below a
TRUTH = 5  # true (80 %) or false
HUNDREDTHS = 6  # a wave with noise between a and b hundredths
MOMENT = 7  # a timestamp: event time (a = 0) or up to a second before (a = 1); with a Z if b = 1
DAY = 8  # the date of the event time
DECIMAL = 9  # a random number below 10**a, a point, b random digits (none: no point)
MAYBE = 10  # with the probability `nulls`, text [a, b) instead of the next c pieces


@inlined
def mix(seed: Any, salt: int, row: int) -> Any:
    """64 random bits: the finaliser of splitmix64 over (seed, salt, row)."""
    z = np.uint64(row) * np.uint64(0x9E3779B97F4A7C15) + seed * np.uint64(0xD1342543DE82EF95)
    z += np.uint64(salt) * np.uint64(0x2545F4914F6CDD1D)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@inlined
def share(bits: Any) -> float:
    """Random bits as a number in [0, 1)."""
    return np.float64(bits >> np.uint64(11)) * (1.0 / (1 << 53))


@inlined
def put_digits(out: Any, at: int, value: int, width: int) -> int:
    """Write `value` with `width` digits. Returns the position after them, like all functions here."""
    for place in range(at + width - 1, at - 1, -1):
        put8(out, place, 48 + value % 10)
        value //= 10
    return at + width


@inlined
def put_whole(out: Any, at: int, value: int) -> int:
    """Write a number that is not negative."""
    width = 1
    rest = value
    while rest >= 10:
        rest //= 10
        width += 1
    return put_digits(out, at, value, width)


@helper
def put_date(out: Any, at: int, days: int) -> int:
    """Write days since 1970 as yyyy-mm-dd."""
    z = days + 719468
    era = z // 146097
    of_era = z - era * 146097
    of_year_era = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * of_year_era + of_year_era // 4 - of_year_era // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    year = of_year_era + era * 400 + (1 if month <= 2 else 0)
    at = put_digits(out, at, year, 4)
    put8(out, at, 45)
    at = put_digits(out, at + 1, month, 2)
    put8(out, at, 45)
    return put_digits(out, at + 1, of_year - (153 * shifted + 2) // 5 + 1, 2)


@helper
def put_moment(out: Any, at: int, micros: int, zone: bool) -> int:
    """Write microseconds since 1970 in ISO 8601."""
    seconds = micros // 1_000_000
    days = seconds // 86400
    within = seconds - days * 86400
    at = put_date(out, at, days)
    put8(out, at, 84)
    at = put_digits(out, at + 1, within // 3600, 2)
    put8(out, at, 58)
    at = put_digits(out, at + 1, within // 60 % 60, 2)
    put8(out, at, 58)
    at = put_digits(out, at + 1, within % 60, 2)
    put8(out, at, 46)
    at = put_digits(out, at + 1, micros - seconds * 1_000_000, 6)
    if zone:
        put8(out, at, 90)
        at += 1
    return at


@helper
def put_hundredths(out: Any, at: int, value: int) -> int:
    """Write a number of hundredths as a decimal, without a trailing zero in the second place."""
    if value < 0:
        put8(out, at, 45)
        at += 1
        value = -value
    at = put_whole(out, at, value // 100)
    rest = value % 100
    put8(out, at, 46)
    put8(out, at + 1, 48 + rest // 10)
    if rest % 10 == 0:
        return at + 2
    put8(out, at + 2, 48 + rest % 10)
    return at + 3


@inlined
def put_text(out: Any, at: int, size: int, texts: Any, begin: int, end: int, all_texts: int) -> int:
    """Copy text [begin, end) of the table; `size` and `all_texts` are the sizes of both buffers."""
    copy_bytes(texts, begin, all_texts, out, at, size, end - begin)
    return at + end - begin


@kernel
def render(
    program: Any, texts: Any, bounds: Any, seed: Any, begin: int, end: int, start: int, step: float, disorder: float,
    spread: int, nulls: float, room: int, out: Any,
) -> tuple[int, int]:  # fmt: skip
    """Write rows [begin, end) as long as `out` has `room` bytes for one more. Returns (rows written, bytes written)."""
    target, table, words = view(out), view(texts), view(bounds)
    pieces, size, all_texts = len(program), len(out), len(texts)
    at = 0
    row = begin
    while row < end and at + room <= len(out):
        when = start + wide(np.float64(row) * step)
        if disorder > 0.0 and share(mix(seed, 901, row)) < disorder:
            when -= wide(share(mix(seed, 902, row)) * spread)
        wave = 0.5 + 0.3 * np.sin(np.float64(row) * (2 * np.pi / 100_000))
        i = 0
        while i < pieces:
            code, a, b = wide(program[i, 0]), wide(program[i, 1]), wide(program[i, 2])
            salt = wide(program[i, 4])
            i += 1
            if code == CONSTANT:
                at = put_text(target, at, size, table, a, b, all_texts)
                continue
            if code == SERIAL:
                at = put_whole(target, at, row)
                continue
            bits = mix(seed, salt, row)
            if code == HUNDREDTHS:
                part = min(1.0, max(0.0, wave + 0.4 * (share(bits) - 0.5)))
                at = put_hundredths(target, at, wide(np.round(a + (b - a) * part)))
            elif code == WORD:
                pick = a + wide(bits % np.uint64(b))
                at = put_text(target, at, size, table, get32(words, pick), get32(words, pick + 1), all_texts)
            elif code == NUMBERED:
                at = put_digits(target, at, wide(bits % np.uint64(a)), b)
            elif code == WHOLE:
                at = put_whole(target, at, wide(bits % np.uint64(a)))
            elif code == TRUTH:
                yes = share(bits) < 0.8
                at = put_text(target, at, size, table, a if yes else a + 4, a + 4 if yes else a + 9, all_texts)
            elif code == MOMENT:
                moment = when if a == 0 else when - wide(bits % np.uint64(1_000_000))
                at = put_moment(target, at, moment, b == 1)
            elif code == DAY:
                at = put_date(target, at, when // 86_400_000_000)
            elif code == DECIMAL:
                at = put_whole(target, at, wide(bits % np.uint64(10**a)))
                if b > 0:
                    put8(target, at, 46)
                    at = put_digits(target, at + 1, wide((bits >> np.uint64(32)) % np.uint64(10**b)), b)
            elif share(bits) < nulls:
                at = put_text(target, at, size, table, a, b, all_texts)
                i += wide(program[i - 1, 3])
        row += 1
    return row - begin, at
