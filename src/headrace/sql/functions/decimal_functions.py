"""Arithmetic of decimals. Results have Spark's precision and scale, and are rounded half up.

DuckDB computes in 128 bits where the exact result fits 38 digits. A kernel computes the others, row by row.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence

from headrace.model.schema import BIGINT, DataType, Decimal
from headrace.sql.functions.overload import Overload, same
from headrace.sql.plan.types import decimal_result, decimal_type

_ZERO = "error('DIVIDE_BY_ZERO')"
_TWO = ("DECIMAL", "DECIMAL")
_EXACT = decimal.Context(prec=40)
_LONG_DIGITS = 18  # fit 64 bits


def _both(kinds: Sequence[DataType]) -> tuple[Decimal, Decimal]:
    a, b = kinds
    assert isinstance(a, Decimal) and isinstance(b, Decimal)
    return a, b


def _by_kernel(operator: str, args: Sequence[str], kind: DataType) -> str:
    assert isinstance(kind, Decimal)
    texts = ", ".join(f"CAST({a} AS VARCHAR)" for a in args)
    return f"CAST(hr_decimal('{operator}', {texts}, {kind.precision}, {kind.scale}) AS {kind.duckdb})"


def _sum_or_product(operator: str) -> Overload:
    def result(kinds: Sequence[DataType]) -> DataType | None:
        return decimal_type(operator, *_both(kinds))

    def too_long(kinds: Sequence[DataType]) -> bool:
        return decimal_result(operator, *_both(kinds))[0] > 38

    def sql(args: Sequence[str], kinds: Sequence[DataType], kind: DataType) -> str:
        if too_long(kinds):
            return _by_kernel(operator, args, kind)
        if operator == "*":
            assert isinstance(kind, Decimal)
            # Widened first: DuckDB multiplies two short decimals in 64 bits and would overflow.
            wide = f"CAST({args[0]} AS DECIMAL({kind.precision},{_both(kinds)[0].scale}))"
            return f"CAST({wide} * {args[1]} AS {kind.duckdb})"
        return f"CAST(CAST({args[0]} AS {kind.duckdb}) {operator} CAST({args[1]} AS {kind.duckdb}) AS {kind.duckdb})"

    return Overload(operator, _TWO, result, sql, throws_for=too_long, slow_for=too_long)


def _checked(args: Sequence[str], value: str) -> str:
    return f"CASE WHEN {args[1]} = 0 AND {args[0]} IS NOT NULL THEN {_ZERO} ELSE {value} END"


def _division() -> Overload:
    """In whole numbers where the digits fit 128 bits."""

    def result(kinds: Sequence[DataType]) -> DataType | None:
        return decimal_type("/", *_both(kinds))

    def shift(kinds: Sequence[DataType]) -> int:
        """How many digits the first operand needs before it is divided."""
        (a, b), kind = _both(kinds), result(kinds)
        assert isinstance(kind, Decimal)
        return kind.scale - a.scale + b.scale

    def too_long(kinds: Sequence[DataType]) -> bool:
        a, b = _both(kinds)
        exact = decimal_result("/", a, b)[0] <= 38
        return not exact or shift(kinds) < 0 or a.precision + shift(kinds) > 37 or not (_short(a) and _short(b))

    def sql(args: Sequence[str], kinds: Sequence[DataType], kind: DataType) -> str:
        a, b = _both(kinds)
        assert isinstance(kind, Decimal)
        if too_long(kinds):
            return _by_kernel("/", args, kind)
        if (steps := _in_two_steps(a, b, shift(kinds))) is not None:
            return _checked(args, from_whole_digits(_quotient(args, (a, b), steps), kind))
        above = f"({whole_digits(args[0], a)} * {10 ** shift(kinds)}::HUGEINT)"
        below = whole_digits(args[1], b)
        if b.precision < 38:
            # One division instead of two: 128 bits are slow. Twice the divisor fits HUGEINT.
            rounded = f"((abs({above}) * 2 + abs({below})) // (abs({below}) * 2))"
        else:
            rounded = (
                f"(abs({above}) // abs({below})"
                f" + CASE WHEN (abs({above}) % abs({below})) * 2 >= abs({below}) THEN 1 ELSE 0 END)"
            )
        signed = f"{rounded} * CASE WHEN ({args[0]} < 0) <> ({args[1]} < 0) THEN -1 ELSE 1 END"
        return _checked(args, from_whole_digits(f"({signed})", kind))

    return Overload("/", _TWO, result, sql, throws=True, slow_for=too_long)


def _in_two_steps(a: Decimal, b: Decimal, shift: int) -> tuple[int, int] | None:
    """How many of the `shift` digits each of two divisions of 64 bits makes. They take a tenth of the time of one with
    128 bits. None if they do not fit."""
    first = max(0, min(shift, _LONG_DIGITS - a.precision))
    fits = a.precision <= _LONG_DIGITS and b.precision + shift - first <= _LONG_DIGITS
    return (first, shift - first) if fits else None


def _quotient(args: Sequence[str], kinds: tuple[Decimal, Decimal], steps: tuple[int, int]) -> str:
    """The digits of a quotient, rounded half up: those of the first step, then those of its remainder."""
    above, below = (f"abs({whole_digits(text, kind, 'BIGINT')})" for text, kind in zip(args, kinds, strict=True))
    shifted, second = f"({above} * {10 ** steps[0]})", 10 ** steps[1]
    rest = f"((({shifted} % {below}) * {2 * second} + {below}) // ({below} * 2))"
    sign = f"CASE WHEN ({args[0]} < 0) <> ({args[1]} < 0) THEN -1 ELSE 1 END"
    return f"((({shifted} // {below})::HUGEINT * {second} + {rest}) * {sign})"


def _short(kind: Decimal) -> bool:
    """True if `whole_digits` can be written."""
    return kind.precision + kind.scale < 38


def _aligned(args: Sequence[str], kinds: Sequence[DataType]) -> tuple[str, str] | None:
    """The digits of both operands with the same number of digits after the point. None if they do not fit."""
    a, b = _both(kinds)
    scale = max(a.scale, b.scale)
    wide = [Decimal(min(38, k.precision + scale - k.scale), scale) for k in (a, b)]
    if any(k.precision + scale - k.scale > 38 or not _short(w) for k, w in zip((a, b), wide, strict=True)):
        return None
    left, right = (whole_digits(f"CAST({text} AS {w.duckdb})", w) for text, w in zip(args, wide, strict=True))
    return left, right


def _remainder() -> Overload:
    def result(kinds: Sequence[DataType]) -> DataType | None:
        return decimal_type("%", *_both(kinds))

    def too_long(kinds: Sequence[DataType]) -> bool:
        kind = result(kinds)
        assert isinstance(kind, Decimal)
        return _aligned(("", ""), kinds) is None or kind.scale != max(k.scale for k in _both(kinds))

    def sql(args: Sequence[str], kinds: Sequence[DataType], kind: DataType) -> str:
        digits = _aligned(args, kinds)
        assert isinstance(kind, Decimal)
        if digits is None or too_long(kinds):
            return _by_kernel("%", args, kind)
        return _checked(args, from_whole_digits(f"({digits[0]} % {digits[1]})", kind))

    return Overload("%", _TWO, result, sql, throws=True, slow_for=too_long)


def _whole_quotient() -> Overload:
    """DIV, where the quotient always fits BIGINT."""

    def result(kinds: Sequence[DataType]) -> DataType | None:
        a, b = _both(kinds)
        return BIGINT if a.precision - a.scale + b.scale <= 18 and _aligned(("", ""), kinds) is not None else None

    def sql(args: Sequence[str], kinds: Sequence[DataType], kind: DataType) -> str:
        digits = _aligned(args, kinds)
        assert digits is not None
        return _checked(args, f"CAST({digits[0]} // {digits[1]} AS BIGINT)")

    return Overload("div", _TWO, result, sql, throws=True)


def _with_sign(name: str, changed: str) -> Overload:
    """The sign change of Spark rounds to 34 digits, half to even. Few values have more."""

    def long(kinds: Sequence[DataType]) -> bool:
        (kind,) = kinds
        assert isinstance(kind, Decimal)
        return kind.precision > 34

    def sql(args: Sequence[str], kinds: Sequence[DataType], kind: DataType) -> str:
        (x,), (source,) = args, kinds
        assert isinstance(source, Decimal)
        if not long(kinds):
            return changed.format(x)
        limit = f"'{_EXACT.scaleb(1, 34 - source.scale):f}'::{source.duckdb}"
        short = f"{x} IS NULL OR {x} > -{limit}" + (f" AND {x} < {limit}" if name == "negative" else "")
        return f"CASE WHEN {short} THEN {changed.format(x)} ELSE {_by_kernel('sign', (x, x), source)} END"

    return Overload(name, ("DECIMAL",), same(0), sql, throws_for=long, slow_for=long)


def whole_digits(text: str, kind: Decimal, whole: str = "HUGEINT") -> str:
    """A decimal without its point, as a whole number: 1.25 becomes 125."""
    # Widened first: DuckDB multiplies short decimals in 64 bits.
    wide = Decimal(min(38, kind.precision + kind.scale + 1), kind.scale)
    return f"CAST(CAST({text} AS {wide.duckdb}) * {10**kind.scale}::DECIMAL({kind.scale + 1},0) AS {whole})"


def from_whole_digits(text: str, kind: Decimal) -> str:
    """The inverse of `whole_digits`: puts the point back."""
    if kind.scale == 0:
        return f"CAST({text} AS {kind.duckdb})"
    unit = f"'{10**-kind.scale:.{kind.scale}f}'::DECIMAL({kind.scale},{kind.scale})"
    return f"CAST(CAST({text} AS DECIMAL({min(38, kind.precision + kind.scale)},0)) * {unit} AS {kind.duckdb})"


OVERLOADS: tuple[Overload, ...] = (
    *(_sum_or_product(operator) for operator in ("+", "-", "*")),
    _division(),
    _remainder(),
    _whole_quotient(),
    _with_sign("negative", "(-{0})"),
    _with_sign("abs", "abs({0})"),
)
