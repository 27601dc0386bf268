"""Arithmetic of decimals whose exact result has more than 38 digits, which DuckDB cannot hold."""

from __future__ import annotations

from decimal import ROUND_DOWN, ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal

import pyarrow as pa

from headrace.exec.kernels.kernel import Kernel, KernelError, per_row

_EXACT = Context(prec=200)
_SIGNED = Context(prec=34, rounding=ROUND_HALF_EVEN)  # Java's DECIMAL128
_QUOTIENT = Context(prec=77, rounding=ROUND_DOWN)  # as Spark's


def _apply(operator: str, left: str, right: str, precision: int, scale: int) -> str:
    """The exact result, rounded half up to `scale` digits after the point. An error beyond `precision` digits."""
    a, b = Decimal(left), Decimal(right)
    if operator in ("/", "%") and not b:
        raise KernelError("DIVIDE_BY_ZERO")
    if operator == "+":
        found = _EXACT.add(a, b)
    elif operator == "-":
        found = _EXACT.subtract(a, b)
    elif operator == "*":
        found = _EXACT.multiply(a, b)
    elif operator == "sign":
        found = _SIGNED.minus(a)
    elif operator == "/":
        found = _QUOTIENT.divide(a, b)
    else:
        found = _EXACT.remainder(a, b)
    rounded = found.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _EXACT)
    if rounded and rounded.adjusted() >= precision - scale:
        raise KernelError("NUMERIC_VALUE_OUT_OF_RANGE")
    return format(rounded if rounded else abs(rounded), "f")


_V, _I = "VARCHAR", "INTEGER"
KERNELS: tuple[Kernel, ...] = (Kernel("hr_decimal", (_V, _V, _V, _I, _I), _V, per_row(pa.string(), _apply), slow=True),)
