"""Fields to booleans, integers, doubles and decimals.

A field is bytes [start, end) of the data. A start of -1 means NULL; a negative end (~end) marks text with escapes. Each
cell gets a status: FINE, NULL, a reason (REASON_BASE + its index in VALUE_REASONS), or SLOW if the kernel cannot parse
it exactly. `formats.columns` then parses the cell with `formats.values`. Every kernel returns how many cells are not
FINE.
"""

# Numba needs plain comparisons and its own integer types, so some lints and type checks do not apply.
# mypy: disable-error-code="no-any-return,return-value,assignment"
from __future__ import annotations

from typing import Any

import numpy as np

from headrace.formats.kernels.jit import helper, inlined, kernel
from headrace.formats.kernels.simd import (
    ONE,
    as_double,
    byte_at,
    digit_run,
    get8,
    high_product,
    leading_zeros,
    view,
    wide,
    word_at,
)  # fmt: skip

FINE, NULL, REASON_BASE, SLOW = 0, 1, 2, 255
BAD_BOOLEAN, BAD_INTEGER, OUT_OF_RANGE, BAD_NUMBER, BAD_DECIMAL = 2, 3, 4, 5, 6

_BYTE = np.uint64(0xFF)
_NIBBLES = np.uint64(0x0F0F0F0F0F0F0F0F)
_PAIRS = np.uint64(0x00FF00FF00FF00FF)
_QUADS = np.uint64(0x0000FFFF0000FFFF)
_LOWER = np.uint64(0x2020202020202020)
_TRUE = np.uint64(0x65757274)
_FALSE = np.uint64(0x65736C6166)
_THREE = np.uint64(0xFFFFFF)
_NAN = np.uint64(0x6E616E)
_INF = np.uint64(0x666E69)
_INFINITY = np.uint64(0x7974696E69666E69)
_POWERS = 10 ** np.arange(19, dtype=np.int64)
_EXACT = np.array([float(10**i) for i in range(23)])
_LOWEST, _HIGHEST = -342, 308


def _power_table() -> tuple[Any, Any]:
    """The upper 128 bits of 5**q for the decimal exponents of doubles, normalised: two words each."""
    high, low = [], []
    for q in range(_LOWEST, _HIGHEST + 1):
        power = 5 ** abs(q)
        bits = power.bit_length()
        if q >= 0:
            value = power << (128 - bits) if bits <= 128 else power >> (bits - 128)
        elif q >= -27:  # the reciprocal must be above the exact one where products can be exact, below it elsewhere
            value = (1 << (bits + 127)) // power + 1
        else:
            value = (1 << (2 * bits + 128)) // power + 1
            value >>= value.bit_length() - 128
        high.append(value >> 64)
        low.append(value & (2**64 - 1))
    return np.array(high, np.uint64), np.array(low, np.uint64)


_FIVES_HIGH, _FIVES_LOW = _power_table()


@inlined
def eight_digits(word: Any) -> Any:
    """The number of eight ASCII digits, the first in the lowest byte. Zero bytes count as zeros."""
    w = word & _NIBBLES
    w = (w * np.uint64(2561)) >> np.uint64(8)
    w = ((w & _PAIRS) * np.uint64(6553601)) >> np.uint64(16)
    return ((w & _QUADS) * np.uint64(42949672960001)) >> np.uint64(32)


@inlined
def some_digits(word: Any, count: int) -> int:
    """The number of the first `count` (0 to 8) digits of a word."""
    if count == 0:
        return 0
    return np.int64(eight_digits(word << np.uint64(64 - 8 * count)))


@kernel
def parse_booleans(data: Any, starts: Any, ends: Any, quoted: bool, values: Any, status: Any) -> int:
    """Parse true and false. `quoted`: a leading quote is part of the field (JSON), so a field with one is bad."""
    buf, n = view(data), len(data)
    odd = 0
    for i in range(len(starts)):
        p, e = wide(starts[i]), wide(ends[i])
        if p < 0:
            status[i] = NULL
            odd += 1
            continue
        word = word_at(buf, p, n)
        if not quoted:
            word |= _LOWER
        if e - p == 4 and (word & ((ONE << np.uint64(32)) - ONE)) == _TRUE:
            values[i] = 1
            status[i] = FINE
        elif e - p == 5 and (word & ((ONE << np.uint64(40)) - ONE)) == _FALSE:
            values[i] = 0
            status[i] = FINE
        else:
            status[i] = SLOW if e < 0 and not quoted else BAD_BOOLEAN
            odd += 1
    return odd


@helper
def all_digits(buf: Any, p: int, e: int, n: int) -> bool:
    """True if [p, e) is only digits."""
    while p < e:
        run = digit_run(word_at(buf, p, n))
        p += run
        if run < 8:
            break
    return p >= e


@kernel
def parse_integers(data: Any, starts: Any, ends: Any, high: int, values: Any, status: Any) -> int:
    """Parse whole numbers in [-high - 1, high], with an optional sign."""
    buf, n = view(data), len(data)
    odd = 0
    for i in range(len(starts)):
        p, e = wide(starts[i]), wide(ends[i])
        if p < 0:
            status[i] = NULL
            odd += 1
            continue
        if e < 0:
            status[i] = SLOW
            odd += 1
            continue
        c = byte_at(buf, p, n)
        negative = c == 45
        if p < e and (c == 45 or c == 43):
            p += 1
        if e - p > 19:
            while e - p > 1 and get8(buf, p) == 48:
                p += 1
        count = e - p
        if count < 1 or count > 19:
            status[i] = OUT_OF_RANGE if count > 19 and all_digits(buf, p, e, n) else BAD_INTEGER
            odd += 1
            continue
        value = np.uint64(0)
        good = True
        while count > 8:
            word = word_at(buf, p, n)
            good = good and digit_run(word) == 8
            value = value * np.uint64(100_000_000) + eight_digits(word)
            p += 8
            count -= 8
        word = word_at(buf, p, n)
        good = good and digit_run(word) >= count
        value = value * np.uint64(_POWERS[count]) + np.uint64(some_digits(word, count))
        if good and value <= np.uint64(high) + (ONE if negative else np.uint64(0)):
            values[i] = -np.int64(value) if negative else np.int64(value)
            status[i] = FINE
        else:
            status[i] = OUT_OF_RANGE if good else BAD_INTEGER
            odd += 1
    return odd


@helper
def scale_double(mantissa: Any, exponent: int) -> float:
    """mantissa * 10**exponent, correctly rounded; NaN if the Eisel-Lemire algorithm cannot decide.

    `mantissa` is not zero. Subnormal and overflowing results are NaN, too: the exact parser handles them.
    """
    if exponent < _LOWEST or exponent > _HIGHEST:
        return np.nan
    zeros = leading_zeros(mantissa)
    m = mantissa << np.uint64(zeros)
    at = exponent - _LOWEST
    high = high_product(m, _FIVES_HIGH[at])
    low = m * _FIVES_HIGH[at]
    if (high & np.uint64(0x1FF)) == np.uint64(0x1FF):
        more = high_product(m, _FIVES_LOW[at])
        summed = low + more
        if summed < low:
            high += ONE
        low = summed
        if (high & np.uint64(0x1FF)) == np.uint64(0x1FF) and low + ONE == 0:
            return np.nan
    top = np.int64(high >> np.uint64(63))
    kept = high >> np.uint64(top + 9)
    power = ((217706 * exponent) >> 16) + 63 + top - zeros + 1023
    if power <= 0 or power >= 2046:
        return np.nan
    # These bits look exactly half way. Rounding ties to even needs the exact product.
    if low <= ONE and (kept & ONE) == ONE and (kept << np.uint64(top + 9)) == high:
        return np.nan
    kept += kept & ONE
    kept >>= ONE
    if kept >= (ONE << np.uint64(53)):
        kept = ONE << np.uint64(52)
        power += 1
    return as_double((kept & ((ONE << np.uint64(52)) - ONE)) | (np.uint64(power) << np.uint64(52)))


@inlined
def read_digits(buf: Any, p: int, e: int, n: int, mantissa: Any) -> tuple[int, Any]:
    """Read digits from `p` on. Returns (position after them, `mantissa` extended by them, with wrap-around)."""
    while True:
        word = word_at(buf, p, n)
        run = min(digit_run(word), e - p)
        if run < 8:
            return p + run, mantissa * np.uint64(_POWERS[run]) + np.uint64(some_digits(word, run))
        mantissa = mantissa * np.uint64(100_000_000) + eight_digits(word)
        p += 8


@inlined
def short_double(word: Any, length: int) -> float:
    """The number of the first `length` (at most 8) bytes of a word, if they are digits with at most one point; else
    -1.0. Exact, because there are so few digits."""
    run = digit_run(word)
    if run >= length:
        return np.float64(some_digits(word, length)) if length > 0 else -1.0
    places = length - run - 1
    rest = word >> np.uint64(8 * run)
    if run == 0 or (rest & _BYTE) != 46 or digit_run(rest >> np.uint64(8)) < places:
        return -1.0
    low = (ONE << np.uint64(8 * run)) - ONE
    joined = (word & low) | ((word >> np.uint64(8)) & ~low)
    return np.float64(some_digits(joined, length - 1)) / _EXACT[places]


@helper
def special_double(buf: Any, p: int, e: int, n: int) -> float:
    """NaN or an infinity if [p, e) spells one, in upper or lower case; else 0.0."""
    c = byte_at(buf, p, n)
    signed = p < e and (c == 45 or c == 43)
    if signed:
        p += 1
    word = word_at(buf, p, n) | _LOWER
    if e - p == 3 and (word & _THREE) == _NAN and not signed:
        return np.nan
    if (e - p == 3 and (word & _THREE) == _INF) or (e - p == 8 and word == _INFINITY):
        return -np.inf if c == 45 else np.inf
    return 0.0


@kernel
def parse_doubles(data: Any, starts: Any, ends: Any, single: bool, strings: bool, values: Any, status: Any) -> int:
    """Parse decimal numbers, correctly rounded. With `single`, numbers that are not exact as float32 are SLOW.

    `strings`: a field may be a JSON string with NaN or an infinity.
    """
    buf, n = view(data), len(data)
    odd = 0
    for i in range(len(starts)):
        p, e = wide(starts[i]), wide(ends[i])
        if p < 0:
            status[i] = NULL
            odd += 1
            continue
        if e < 0:
            status[i] = SLOW
            odd += 1
            continue
        first = p
        c = byte_at(buf, p, n)
        if c >= 58 and p < e and special_double(buf, p, e, n) == 0.0:  # not a digit, sign, point or quote
            status[i] = BAD_NUMBER
            odd += 1
            continue
        negative = c == 45
        if p < e and (c == 45 or c == 43):
            p += 1
        if e - p <= 8 and not single:
            value = short_double(word_at(buf, p, n), e - p)
            if value >= 0.0:
                values[i] = -value if negative else value
                status[i] = FINE
                continue
        begin = p
        p, mantissa = read_digits(buf, p, e, n, np.uint64(0))
        digits = p - begin
        exponent = 0
        if p < e and get8(buf, p) == 46:
            q = p + 1
            p, mantissa = read_digits(buf, q, e, n, mantissa)
            exponent = q - p
            digits += p - q
        good = digits > 0
        if p < e and get8(buf, p) | 32 == 101:
            p += 1
            c = byte_at(buf, p, n)
            minus = c == 45
            if p < e and (c == 45 or c == 43):
                p += 1
            q, power = read_digits(buf, p, e, n, np.uint64(0))
            good = good and q > p
            if q - p > 8:
                digits = 20  # leave the exponent to the exact parser
            elif good:
                exponent += -np.int64(power) if minus else np.int64(power)
            p = q
        if not good or p != e:
            quoted = strings and e > first + 1 and get8(buf, first) == 34
            special = special_double(buf, first + 1, e - 1, n) if quoted else special_double(buf, first, e, n)
            values[i] = special
            status[i] = FINE
            if special == 0.0:
                status[i] = BAD_NUMBER
                odd += 1
            continue
        if digits > 19:
            status[i] = SLOW
            odd += 1
            continue
        value = 0.0
        if mantissa <= (ONE << np.uint64(53)) and -22 <= exponent <= 22:
            value = np.float64(mantissa)
            value = value / _EXACT[-exponent] if exponent < 0 else value * _EXACT[exponent]
        elif mantissa != 0:
            value = scale_double(mantissa, exponent)
        if single and not (mantissa <= (ONE << np.uint64(24)) and -10 <= exponent <= 10):
            value = np.nan
        if value == value:
            values[i] = -value if negative else value
            status[i] = FINE
        else:
            status[i] = SLOW
            odd += 1
    return odd


@helper
def exponent_fills(buf: Any, p: int, e: int, n: int) -> bool:
    """True if [p, e) is the exponent of a number."""
    if get8(buf, p) | 32 != 101:
        return False
    p += 1
    if p < e and (get8(buf, p) == 43 or get8(buf, p) == 45):
        p += 1
    return p < e and all_digits(buf, p, e, n)


@kernel
def parse_decimals(
    data: Any, starts: Any, ends: Any, precision: int, scale: int, strings: bool, wrong: int, values: Any, status: Any
) -> int:
    """Parse plain decimal numbers of at most 18 digits as unscaled int64. Extra fraction digits are rounded half up.

    `strings`: a field may be a JSON string with the number. `wrong`: the status of a field that is not a number.
    """
    buf, n = view(data), len(data)
    odd = 0
    for i in range(len(starts)):
        p, e = wide(starts[i]), wide(ends[i])
        if p < 0:
            status[i] = NULL
            odd += 1
            continue
        if e < 0:
            status[i] = SLOW
            odd += 1
            continue
        if strings and e > p + 1 and get8(buf, p) == 34:
            p += 1
            e -= 1
        c = byte_at(buf, p, n)
        negative = c == 45
        if p < e and (c == 45 or c == 43):
            p += 1
        begin = p
        p, mantissa = read_digits(buf, p, e, n, np.uint64(0))
        digits = whole = p - begin
        places = 0
        if p < e and get8(buf, p) == 46:
            q = p + 1
            p, mantissa = read_digits(buf, q, e, n, mantissa)
            places = p - q
            digits += places
        if p != e or digits == 0:
            status[i] = SLOW if digits > 0 and exponent_fills(buf, p, e, n) else wrong
            odd += 1
            continue
        if whole > precision - scale:
            while whole > 0 and get8(buf, begin) == 48:
                begin += 1
                whole -= 1
            if whole > precision - scale:
                status[i] = OUT_OF_RANGE
                odd += 1
                continue
        value = np.int64(mantissa)
        grow = scale - places
        fits = digits <= 18 and grow <= 18 - digits
        if fits and grow >= 0:
            value *= _POWERS[grow]
        elif fits:
            unit = _POWERS[-grow]
            value = value // unit + (1 if value % unit * 2 >= unit else 0)
        if digits == 19 and places == 0 and grow == 0 and precision > 18:
            fits = mantissa < (ONE << np.uint64(63))  # nanoseconds since 1970 have 19 digits, which fit into a word
        if fits and (precision > 18 or value < _POWERS[min(precision, 18)]):
            values[i] = -value if negative else value
            status[i] = FINE
        else:
            status[i] = OUT_OF_RANGE if fits else SLOW  # out of range because rounding added a digit
            odd += 1
    return odd
