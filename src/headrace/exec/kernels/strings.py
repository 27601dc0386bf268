"""Kernels over strings. ASCII texts take a vectorised path in all that are not marked as slow."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.exec.kernels.kernel import Kernel, per_row

Strings: TypeAlias = "pa.Array[Any]"

# Spark's case mapping is that of ICU with Unicode 17. For these letters Arrow's is another one. For Σ and the letters
# whose other case has several letters, Arrow knows no rule at all.
_LOWER_BY_PYTHON = (
    "[\u0130\u03a3\ua7dd\ua7e2\uab6c\uab6d\U0001df40\U0001df48\U0001df4a\U0001df4d\U0001df51\U0001df68\U0001df6a"
    "\U0001df6c\U0001df6e\U0001df72\U0001df74\U0001df76\U0001df78\U0001df7a\U0001df7c\U0001df7e]"
)
_UPPER_BY_PYTHON = (
    "[\u00df\u0149\u01f0\u0277\u027c\u0390\u03b0\u0587\u1e96-\u1e9a\u1f50\u1f52\u1f54\u1f56\u1f80-\u1faf\u1fb2-\u1fb4"
    "\u1fb6\u1fb7\u1fbc\u1fc2-\u1fc4\u1fc6\u1fc7\u1fcc\u1fd2\u1fd3\u1fd6\u1fd7\u1fe2-\u1fe4\u1fe6\u1fe7\u1ff2-\u1ff4"
    "\u1ff6\u1ff7\u1ffc\uab4b\uab4c\ufb00-\ufb06\ufb13-\ufb17\U0001df41\U0001df49\U0001df4b\U0001df4e\U0001df52"
    "\U0001df69\U0001df6b\U0001df6d\U0001df6f\U0001df73\U0001df75\U0001df77\U0001df79\U0001df7b\U0001df7d\U0001df7f]"
)
# Letters that Unicode got after the version of the oldest Python that runs this: capital to small.
_NEW_PAIRS = {
    0x1C89: 0x1C8A, 0xA7CB: 0x264, 0xA7CC: 0xA7CD, 0xA7CE: 0xA7CF, 0xA7D2: 0xA7D3, 0xA7D4: 0xA7D5, 0xA7DA: 0xA7DB,
    0xA7DC: 0x19B, **{c: c + 32 for c in range(0x10D50, 0x10D66)}, **{c: c + 27 for c in range(0x16EA0, 0x16EB9)},
}  # fmt: skip
_NEW_CAPITALS = {small: capital for capital, small in _NEW_PAIRS.items()}


def lowered(text: str) -> str:
    """The small letters of `text`, as in Spark."""
    return text.translate(_NEW_PAIRS).lower()


def _uppered(text: str) -> str:
    return text.translate(_NEW_CAPITALS).upper()


def _titled(text: str) -> str:
    """Every word begins with a title letter. Only the space ends a word."""

    def titled(word: str) -> str:
        first = word[:1]
        return first.translate(_NEW_CAPITALS).title() + lowered(word)[len(lowered(first)) :]

    return " ".join(map(titled, text.split(" ")))


def is_ascii(text: Strings) -> bool:
    """True if no row has another character."""
    data = text.buffers()[2]
    return data is None or not (np.frombuffer(memoryview(data), np.uint8) & 0x80).any()


def patched(text: Strings, fast: Strings, where: Strings, function: Callable[[str], str]) -> Strings:
    """`fast`, with the rows at `where` computed from `text` one by one."""
    rows = np.flatnonzero(where.fill_null(False).to_numpy(zero_copy_only=False))
    if not len(rows):
        return fast
    values = pa.array([function(text[int(i)].as_py()) for i in rows], pa.string())
    mask = pa.array(np.isin(np.arange(len(text)), rows))
    found: Strings = pc.replace_with_mask(fast, mask, values)
    return found


def _lower(text: Strings) -> Strings:
    if is_ascii(text):
        return pc.ascii_lower(text)
    return patched(text, pc.utf8_lower(text), pc.match_substring_regex(text, _LOWER_BY_PYTHON), lowered)


def _upper(text: Strings) -> Strings:
    if is_ascii(text):
        return pc.ascii_upper(text)
    return patched(text, pc.utf8_upper(text), pc.match_substring_regex(text, _UPPER_BY_PYTHON), _uppered)


def _same_lengths(text: Strings, data: npt.NDArray[np.uint8]) -> Strings:
    """`text` with other bytes."""
    validity, offsets, _ = text.buffers()
    return pa.Array.from_buffers(
        pa.string(),
        len(text),
        [validity, offsets, pa.py_buffer(data.tobytes())],
        offset=text.offset,
        null_count=text.null_count,
    )


def _bytes(text: Strings) -> npt.NDArray[np.uint8]:
    data = text.buffers()[2]
    return np.zeros(0, np.uint8) if data is None else np.frombuffer(memoryview(data), np.uint8)


def _starts(text: Strings) -> npt.NDArray[np.int32]:
    """Where rows begin, and where the last one ends."""
    offsets = text.buffers()[1]
    assert offsets is not None
    return np.frombuffer(memoryview(offsets), np.int32)[text.offset : text.offset + len(text) + 1]


def _initcap(text: Strings) -> Strings:
    if not is_ascii(text):
        fast = _initcap(pc.if_else(pc.string_is_ascii(text), text, ""))
        return patched(text, fast, pc.invert(pc.string_is_ascii(text)), _titled)
    data = _bytes(pc.ascii_lower(text)).copy()
    if len(data):
        first = np.zeros(len(data), bool)
        first[1:] = data[:-1] == 32
        starts = _starts(text)[:-1]
        first[starts[starts < len(data)]] = True
        data[first & (data >= 97) & (data <= 122)] -= 32
    return _same_lengths(text, data)


def _reverse(text: Strings) -> Strings:
    """By code points, as Java does. DuckDB reverses by graphemes."""
    return pc.utf8_reverse(text)


def _mask(text: Strings, upper: Strings, lower: Strings, digit: Strings, other: Strings) -> Strings:
    """Replaces capitals, small letters, digits and the rest by one character each; those that are NULL stay."""
    new: list[Any] = [column[0].as_py() if len(column) else None for column in (upper, lower, digit, other)]

    def kind(char: str) -> int:
        return 0 if char.isupper() else 1 if char.islower() else 2 if char.isdecimal() else 3

    def masked(row: str) -> str:
        return "".join([c if new[kind(c)] is None else new[kind(c)] for c in row])

    if all(n is None or n.isascii() for n in new):
        table = np.arange(256, dtype=np.uint8)
        for code in range(128):
            replacement = new[kind(chr(code))]
            table[code] = code if replacement is None else ord(replacement)
        ascii_rows = pc.string_is_ascii(text)
        plain = text if is_ascii(text) else pc.if_else(ascii_rows, text, "")
        fast = _same_lengths(plain, table[_bytes(plain)])
        return fast if plain is text else patched(text, fast, pc.invert(ascii_rows), masked)
    return per_row(pa.string(), masked)(text)


_CODES = {c: d for d, letters in enumerate(("BFPV", "CGJKQSXZ", "DT", "L", "MN", "R"), 1) for c in letters}


def _soundex(row: str) -> str:
    """H and W do not separate letters of the same code; any other character does."""
    first = row[:1]
    if not ("a" <= first <= "z" or "A" <= first <= "Z"):
        return row
    found, last = [first.upper()], _CODES.get(first.upper(), 0)
    for char in row[1:]:
        letter = char.upper() if char.isascii() else char
        if letter in ("H", "W"):
            continue
        code = _CODES.get(letter, 0)
        if code and code != last:
            found.append(str(code))
            if len(found) == 4:
                break
        last = code
    return "".join(found).ljust(4, "0")


def _levenshtein(left: Strings, right: Strings) -> pa.Array[Any]:
    """The distance in code points, row by row of the matrix, for all pairs at once."""
    pairs: list[tuple[Any, Any]] = list(zip(left.to_pylist(), right.to_pylist(), strict=True))
    known = [i for i, (a, b) in enumerate(pairs) if a is not None and b is not None]
    out: list[int | None] = [None] * len(pairs)
    for i in known:
        a, b = pairs[i]
        line = np.arange(len(b) + 1)
        points = np.frombuffer(b.encode("utf-32-le"), np.uint32)
        for j, char in enumerate(a, 1):
            best = np.minimum(line[1:] + 1, line[:-1] + (points != ord(char)))
            # A chain of insertions: the minimum over all places to the left, plus the distance.
            reach = np.concatenate(([j], best)) - np.arange(len(b) + 1)
            line = np.minimum.accumulate(reach) + np.arange(len(b) + 1)
        out[i] = int(line[-1])
    return pa.array(out, pa.int32())


def _luhn(row: str) -> bool:
    if not row or not row.isdecimal() or max(row) > "\uffff":  # Java's digits of all scripts, by UTF-16 unit
        return False
    digits = [int(c) for c in reversed(row)]
    return (sum(digits[::2]) + sum(d * 2 - 9 * (d > 4) for d in digits[1::2])) % 10 == 0


_WIDE = Context(prec=1200, rounding=ROUND_HALF_UP)


def _grouped(value: float, digits: int) -> str:
    """As DecimalFormat: the shortest digits of the DOUBLE, rounded half to even. Its exact value decides a tie."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "∞" if value > 0 else "-∞"
    unit, shortest = Decimal(1).scaleb(-digits), Decimal(repr(value))
    rounded = shortest.quantize(unit, ROUND_HALF_EVEN, _WIDE)
    if abs(shortest - rounded) * 2 == unit:
        rounded = Decimal(value).quantize(unit, ROUND_HALF_EVEN, _WIDE)
    return f"{rounded:,f}"


def _grouped_decimal(value: str, digits: int) -> str:
    rounded = Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_EVEN, _WIDE)
    return f"{rounded:,f}"


def _fixed(value: float, digits: int, grouped: int) -> str:
    """As %.nf in Java: the shortest decimal form, rounded half up."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return format(
        Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, _WIDE), ",f" if grouped else "f"
    )


_V, _I = "VARCHAR", "INTEGER"
KERNELS: tuple[Kernel, ...] = (
    Kernel("hr_reverse", (_V,), _V, _reverse),
    Kernel("hr_lower", (_V,), _V, _lower),
    Kernel("hr_upper", (_V,), _V, _upper),
    Kernel("hr_initcap", (_V,), _V, _initcap),
    Kernel("hr_mask", (_V, _V, _V, _V, _V), _V, _mask),
    Kernel("hr_soundex", (_V,), _V, per_row(pa.string(), _soundex), slow=True),
    Kernel("hr_levenshtein", (_V, _V), _I, _levenshtein, slow=True),
    Kernel("hr_luhn", (_V,), "BOOLEAN", per_row(pa.bool_(), _luhn), slow=True),
    Kernel("hr_grouped", ("DOUBLE", _I), _V, per_row(pa.string(), _grouped), slow=True),
    Kernel("hr_grouped_decimal", (_V, _I), _V, per_row(pa.string(), _grouped_decimal), slow=True),
    Kernel("hr_fixed", ("DOUBLE", _I, _I), _V, per_row(pa.string(), _fixed), slow=True),
)
