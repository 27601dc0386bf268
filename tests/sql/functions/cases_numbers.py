"""Literals and further cases for mathematical functions, bits and the try_ family."""

from __future__ import annotations

from collections.abc import Iterator

CONSTANTS: dict[str, list[tuple[str, ...]]] = {"bround": [("0",), ("1",), ("2",), ("5",)]}

# Last digits may differ: both engines call a mathematics library of their own.
ULPS = {
    "sinh": 2, "cosh": 2, "tanh": 2, "asinh": 2, "acosh": 2, "atanh": 2, "cot": 2, "sec": 2, "csc": 2, "expm1": 2,
    "log1p": 2, "log": 2, "hypot": 2,
}  # fmt: skip

_SMALL = ("-3.5", "-1.0", "-0.999", "-0.3", "1e-10", "0.3", "0.999", "1.0", "1.5", "20.0", "700.0", "1e200")
_CONVERTED = (
    "'100', 2, 10", "'-10', 16, -10", "'-10', 16, 10", "'FFFFFFFFFFFFFFFF', 16, -10", "'18446744073709551615', 10, 16",
    "'zz', 36, 2", "'12a', 10, 16", "'', 10, 16", "' 7', 10, 2", "'9', 8, 10", "'1', 1, 10", "'1', 10, 37",
    "'-1', 10, 16", "'1.5', 10, 10", "'+5', 10, 10", "'9223372036854775808', 10, -16", "'-', 10, 10", "'é', 36, 10",
)  # fmt: skip


_FORMATS = (
    "999", "000", "9,999.99", "0,000.00", "S999.9", "99.9MI", "MI99", "999S", "$9,990.09", "99PR", "S$99", "9G999D9",
    "99.", "09", "90", "0.00", "99,000", "s9d9", "$99PR",
)  # fmt: skip
_NUMBERS = (
    "12", "012", "1", "1234", "1,234", "1,234.5", "1,234.56", "1,234.567", ",234", "12,34", "-12", "+12", "12-", "12+",
    "- 12", " 12 ", " -12", "12.", ".5", "12.5", "-12.5", "12.5-", "$12", "$1,234.5", "-$12", "$-12", "<12>", "<12",
    "12>", "<$12>", "$<12>", "", " ", "-", ".", "1 2", "1 . 5", "0.05", "00", "1,000", "x", "12x", "1,2,3", "--12",
)  # fmt: skip


def _cases() -> Iterator[tuple[str, tuple[str, ...], str, int]]:
    for name in ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "cot", "sec", "csc", "expm1", "log1p"):
        for number in _SMALL:
            yield f"{name}(DOUBLE)", ("BOOLEAN",), f"{name}(CASE WHEN a THEN {number}D ELSE 0D END)", 2
    for given in _CONVERTED:
        yield "conv(STRING, INT, INT)", ("BOOLEAN",), f"conv(CASE WHEN a THEN {given.replace(',', ' END,', 1)})", 0
    texts = ", ".join(f"'{number}'" for number in _NUMBERS)
    for form in _FORMATS:
        key = "try_to_number(STRING, STRING)"
        yield key, ("STRING",), f"transform(array({texts}, a), x -> try_to_number(x, '{form}'))", 0
    for number, form in (("1,234.5", "9,999.9"), ("1", "00"), ("-7", "S9"), ("7x", "9")):
        key = "to_number(STRING, STRING)"
        yield key, ("BOOLEAN",), f"to_number(CASE WHEN a THEN '{number}' END, '{form}')", 0
    for count in range(-1, 22):
        yield "factorial(INT)", ("SMALL INT",), f"factorial(a - a + {count})", 0
    for low, high in (("0.2D", "10.6D"), ("10D", "-10D"), ("1D", "1D"), ("double('NaN')", "5D"), ("0D", "1e308D")):
        key = "width_bucket(DOUBLE, DOUBLE, DOUBLE, BIGINT)"
        yield key, ("DOUBLE",), f"width_bucket(a, {low}, {high}, 5)", 0
    for shift in (0, 1, 31, 32, 33, 63, 64, -1):
        for name in ("shiftleft", "shiftright", "shiftrightunsigned"):
            yield f"{name}(INT, INT)", ("INT",), f"{name}(a, {shift})", 0
            yield f"{name}(BIGINT, INT)", ("BIGINT",), f"{name}(a, {shift})", 0
    for place in (-1, 0, 5, 7, 8, 31, 63, 64):
        for kind in ("TINYINT", "SMALLINT", "INT", "BIGINT"):
            yield f"bit_get({kind}, INT)", (kind,), f"bit_get(a, {place})", 0
    for place in (0, 1, 2, 32768, 32769, 65537, -1, -32768, -32769):
        for name in ("bitmap_bit_position", "bitmap_bucket_number"):
            yield f"{name}(BIGINT)", ("SMALL BIGINT",), f"{name}(a - a + {place})", 0
    yield "bround(INT)", ("INT",), "bround(a, 2)", 0
    for kind in ("INT", "BIGINT", "DOUBLE", "FLOAT", "DECIMAL(10,2)"):
        name = kind.partition("(")[0]
        yield f"coalesce({name}...)", (kind,), "zeroifnull(a)", 0
        yield f"=({name}, {name})", (kind,), "nullifzero(a)", 0
        yield f"<=>({name}, {name})", (kind, kind), "equal_null(a, b)", 0
        yield f"<=>({name}, {name})", (kind,), "equal_null(a, NULL)", 0
    for text in ("try_add(a, 1)", "try_subtract(a, 1)", "try_multiply(a, a)", "try_divide(a, a)", "try_mod(a, 0)"):
        for kind in ("INT", "BIGINT", "DOUBLE"):
            target = "DOUBLE" if "divide" in text else kind
            yield f"{text.partition('(')[0]}({target}, {target})", (kind,), text, 0
    yield "raise_error(STRING)", ("BOOLEAN",), "CASE WHEN a THEN 1 ELSE raise_error('bad') END", 0
    yield "raise_error(STRING)", ("INT", "STRING"), "coalesce(a, raise_error(b))", 0
    yield "assert_true(BOOLEAN)", ("BOOLEAN", "INT"), "coalesce(assert_true(a), b)", 0
    yield "assert_true(BOOLEAN, STRING)", ("BOOLEAN", "STRING"), "coalesce(assert_true(a, b), b)", 0


# The entry, the types of the columns a, b, ..., the expression, and the last digits that may differ.
CASES: list[tuple[str, tuple[str, ...], str, int]] = list(_cases())
