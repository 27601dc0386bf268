"""Kernels over numbers: functions that DuckDB lacks, and that NumPy computes as Java does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.exec.kernels.kernel import ArrowColumn, Kernel, KernelError, per_row

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ALL_BITS = 2**64 - 1


def _values(column: ArrowColumn) -> npt.NDArray[Any]:
    found: npt.NDArray[Any] = column.fill_null(0).to_numpy(zero_copy_only=False)
    return found


def _of(function: Callable[..., npt.NDArray[Any]]) -> Callable[..., ArrowColumn]:
    """A function of NumPy arrays as one of Arrow arrays, which is NULL where an argument is."""

    def run(*columns: ArrowColumn) -> ArrowColumn:
        with np.errstate(all="ignore"):
            found = function(*map(_values, columns))
        if not any(column.null_count for column in columns):
            return pa.array(found)
        missing = np.zeros(len(columns[0]), bool)
        for column in columns:
            missing |= column.is_null().to_numpy(zero_copy_only=False)
        return pa.array(found, mask=missing)

    return run


def _distance(values: npt.NDArray[Any], by: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Java uses only the lowest bits of the distance."""
    return (by & (values.itemsize * 8 - 1)).astype(values.dtype)


def _left(values: npt.NDArray[Any], by: npt.NDArray[Any]) -> npt.NDArray[Any]:
    found: npt.NDArray[Any] = np.left_shift(values, _distance(values, by))
    return found


def _right(values: npt.NDArray[Any], by: npt.NDArray[Any]) -> npt.NDArray[Any]:
    found: npt.NDArray[Any] = np.right_shift(values, _distance(values, by))
    return found


def _unsigned_right(values: npt.NDArray[Any], by: npt.NDArray[Any]) -> npt.NDArray[Any]:
    unsigned = values.view(f"u{values.itemsize}")
    found: npt.NDArray[Any] = np.right_shift(unsigned, _distance(unsigned, by)).view(values.dtype)
    return found


def _converted(text: str, source: int, target: int) -> str | None:
    """conv: the longest prefix of digits as an unsigned number of 64 bits. A negative base asks for a sign."""
    if not (2 <= source <= 36 and 2 <= abs(target) <= 36):
        return None
    text = text.strip(" ")
    if not text:
        return None
    negative = text.startswith("-")
    digits = text[1:] if negative else text
    value = 0
    for char in digits:
        digit = _DIGITS.find(char.upper()) if char.isascii() else -1
        if digit < 0 or digit >= source:
            break
        value = value * source + digit
        if value > _ALL_BITS:
            raise KernelError("ARITHMETIC_OVERFLOW")
    if negative and target > 0:
        value = -value & _ALL_BITS if value < 2**63 else _ALL_BITS
    if target < 0 and not negative and value >= 2**63:
        value, negative = 2**64 - value, True
    found = ""
    while value:
        value, digit = divmod(value, abs(target))
        found = _DIGITS[digit] + found
    found = found or "0"
    return "-" + found if negative and target < 0 else found


def _kernels() -> list[Kernel]:
    double = ("DOUBLE",)
    found = [
        Kernel("hr_log1p", double, "DOUBLE", _of(np.log1p)),
        Kernel("hr_expm1", double, "DOUBLE", _of(np.expm1)),
        Kernel("hr_hypot", ("DOUBLE", "DOUBLE"), "DOUBLE", _of(np.hypot)),
        Kernel("hr_conv", ("VARCHAR", "INTEGER", "INTEGER"), "VARCHAR", per_row(pa.string(), _converted), slow=True),
    ]
    for kind, name in (("INTEGER", "int"), ("BIGINT", "long")):
        found += [
            Kernel(f"hr_shift_left_{name}", (kind, "INTEGER"), kind, _of(_left)),
            Kernel(f"hr_shift_right_{name}", (kind, "INTEGER"), kind, _of(_right)),
            Kernel(f"hr_shift_unsigned_{name}", (kind, "INTEGER"), kind, _of(_unsigned_right)),
        ]
    return found


KERNELS: tuple[Kernel, ...] = tuple(_kernels())
