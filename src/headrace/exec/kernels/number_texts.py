"""Kernels that write numbers as text, in Java's spelling."""

from __future__ import annotations

import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from headrace.exec.kernels.kernel import ArrowColumn, Kernel, KernelError

pc: Any = pyarrow.compute
_HEX = r"(?i)^[+-]?0x([0-9a-f]+\.?|[0-9a-f]*\.[0-9a-f]+)p[+-]?[0-9]+[df]?$"


def _scientific(texts: ArrowColumn, numbers: ArrowColumn) -> ArrowColumn:
    """The shortest digits of a number as `d.dddE±n`, Java's form below 0.001 and from 10 million on. `texts` are
    DuckDB's or Arrow's spelling of `numbers`, which are finite and not 0."""
    parts = pc.extract_regex(
        texts, r"^(?P<sign>-?)(?P<whole>[0-9]+)(?:\.(?P<part>[0-9]*))?(?:e(?P<exponent>[+-]?[0-9]+))?$"
    )
    whole, part = parts.field("whole"), pc.coalesce(parts.field("part"), "")
    exponent = pc.if_else(pc.equal(parts.field("exponent"), ""), "0", pc.ascii_ltrim(parts.field("exponent"), "+"))
    digits = pc.binary_join_element_wise(whole, part, "")
    significant = pc.ascii_ltrim(digits, "0")
    zeros = pc.subtract(pc.binary_length(digits), pc.binary_length(significant))
    power = pc.subtract(pc.subtract(pc.binary_length(whole), zeros), 1)
    power = pc.add(pc.cast(power, pa.int64()), pc.cast(exponent, pa.int64()))
    significant = pc.ascii_rtrim(significant, "0")
    tail = pc.utf8_slice_codeunits(significant, 1)
    tail = pc.if_else(pc.equal(tail, ""), "0", tail)
    head = pc.utf8_slice_codeunits(significant, 0, 1)
    found = pc.binary_join_element_wise(parts.field("sign"), head, ".", tail, "E", pc.cast(power, pa.string()), "")
    return _smallest(found, numbers)


def _smallest(texts: ArrowColumn, numbers: ArrowColumn) -> ArrowColumn:
    """Java writes at least two digits, and of all such texts the nearest. That matters for numbers near the smallest
    one: 4.9E-324, not 5.0E-324."""
    limit = 1e-322 if numbers.type == pa.float64() else 1e-43
    tiny = np.flatnonzero(np.abs(np.asarray(numbers)) < limit)
    if not len(tiny):
        return texts
    found = texts.to_pylist()
    for i in tiny:
        if found[i] is not None and ".0E" in found[i]:
            head, _, power = f"{decimal.Decimal(numbers[i].as_py()):.1E}".partition("E")
            found[i] = f"{head}E{int(power)}"
    return pa.array(found, pa.string())


def _float_text(numbers: ArrowColumn) -> ArrowColumn:
    return _scientific(pc.cast(numbers, pa.string()), numbers)


def _hex_number(texts: ArrowColumn, attempt: ArrowColumn) -> ArrowColumn:
    """Texts such as 0x1.8p1, which hardly occur."""
    found: list[float | None] = []
    matched = pc.match_substring_regex(texts, _HEX)
    for text, matches, tried in zip(texts.to_pylist(), matched.to_pylist(), attempt.to_pylist(), strict=True):
        if text is None or (not matches and tried):
            found.append(None)
        elif not matches:
            raise KernelError("CAST_INVALID_INPUT")
        else:
            found.append(_from_hex(text.rstrip("dDfF") if text[-1] in "dDfF" else text))
    return pa.array(found, pa.float64())


def _from_hex(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return float("-inf") if text.startswith("-") else float("inf")


KERNELS: tuple[Kernel, ...] = (
    Kernel("hr_double_text", ("DOUBLE",), "VARCHAR", _float_text),
    Kernel("hr_float_text", ("FLOAT",), "VARCHAR", _float_text),
    Kernel("hr_hex_number", ("VARCHAR", "BOOLEAN"), "DOUBLE", _hex_number),
)
