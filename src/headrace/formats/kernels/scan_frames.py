"""Locates length-prefixed records."""

# Numba needs plain comparisons and its own integer types, so some lints and type checks do not apply.
# mypy: disable-error-code="no-any-return,return-value,assignment"
from __future__ import annotations

from typing import Any

import numpy as np

from headrace.formats.kernels.jit import kernel
from headrace.formats.kernels.simd import get8, view


@kernel
def scan_frames(data: Any, width: int, big: bool, longest: int, begins: Any, stops: Any) -> tuple[int, int, int]:
    """Find whole records. Returns (number of records, their size, length of the next record or -1 if it is unknown).

    Stops at a record longer than `longest`. Record r is [begins[r], stops[r]). With empty arrays it only counts.
    """
    buf, n = view(data), len(data)
    keep = len(begins) > 0
    rows = 0
    at = 0
    while at + width <= n:
        length = np.uint64(0)
        for k in range(width):
            place = k if big else width - 1 - k
            length = length << np.uint64(8) | np.uint64(get8(buf, at + place))
        size = np.int64(min(length, np.uint64(1 << 62)))
        if size > longest or size > n - at - width:
            return rows, at, size
        if keep:
            begins[rows] = at + width
            stops[rows] = at + width + size
        rows += 1
        at += width + size
    return rows, at, -1
