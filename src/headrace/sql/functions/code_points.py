"""Sets of code points, as sorted ranges, and those that Java's regular expressions have names for."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

LAST = 0x10FFFF
Ranges = tuple[tuple[int, int], ...]


def union(*sets: Ranges) -> Ranges:
    """All code points of the sets, as sorted ranges that do not touch."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(r for ranges in sets for r in ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def complement(ranges: Ranges) -> Ranges:
    """All other code points."""
    found, at = [], 0
    for low, high in ranges:
        if low > at:
            found.append((at, low - 1))
        at = high + 1
    if at <= LAST:
        found.append((at, LAST))
    return tuple(found)


def intersection(a: Ranges, b: Ranges) -> Ranges:
    """The code points that are in both sets."""
    return complement(union(complement(a), complement(b)))


def code_points_of(text: str) -> Ranges:
    """The characters of a text."""
    return union(tuple((ord(c), ord(c)) for c in text))


LINE_ENDS = code_points_of("\n\r\x85\u2028\u2029")
_DIGIT: Ranges = ((48, 57),)
_UPPER: Ranges = ((65, 90),)
_LOWER: Ranges = ((97, 122),)
_WORD = union(_DIGIT, _UPPER, _LOWER, code_points_of("_"))
_SPACE = code_points_of(" \t\n\x0b\f\r")
_HORIZONTAL = union(code_points_of(" \t\xa0\u1680\u180e\u202f\u205f\u3000"), ((0x2000, 0x200A),))
VERTICAL = code_points_of("\n\x0b\f\r\x85\u2028\u2029")
_PUNCTUATION = code_points_of("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
CLASSES = {"d": _DIGIT, "w": _WORD, "s": _SPACE, "h": _HORIZONTAL, "v": VERTICAL}
POSIX: dict[str, Ranges] = {
    "Lower": _LOWER,
    "Upper": _UPPER,
    "ASCII": ((0, 127),),
    "Alpha": union(_LOWER, _UPPER),
    "Digit": _DIGIT,
    "Alnum": union(_LOWER, _UPPER, _DIGIT),
    "Punct": _PUNCTUATION,
    "Graph": ((33, 126),),
    "Print": ((32, 126),),
    "Blank": code_points_of(" \t"),
    "Cntrl": ((0, 31), (127, 127)),
    "XDigit": union(_DIGIT, ((65, 70), (97, 102))),
    "Space": _SPACE,
}
CATEGORIES = ("L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N", "Nd", "Nl", "No", "P", "Pc", "Pd", "Ps",
               "Pe", "Pi", "Pf", "Po", "S", "Sm", "Sc", "Sk", "So", "Z", "Zs", "Zl", "Zp")  # fmt: skip


@lru_cache(maxsize=64)
def category(name: str) -> Ranges:
    """A general category of Unicode, or all that begin with this letter."""
    points = [i for i in range(LAST + 1) if unicodedata.category(chr(i)).startswith(name)]
    return union(tuple((p, p) for p in points))


def without_case(ranges: Ranges) -> Ranges:
    """The set without regard to the case of ASCII letters."""
    upper = [(max(low, 97) - 32, min(high, 122) - 32) for low, high in ranges if low <= 122 and high >= 97]
    lower = [(max(low, 65) + 32, min(high, 90) + 32) for low, high in ranges if low <= 90 and high >= 65]
    return union(ranges, tuple(upper), tuple(lower))
