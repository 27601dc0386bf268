"""Kernels over bitmaps of 32,768 bits, one per group: Spark's bitmap_construct_agg, bitmap_or_agg and bitmap_and_agg.

Bit n of a bitmap is bit n % 8, from the lowest, of byte n // 8.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headrace.exec.kernels.kernel import Kernel, KernelError
from headrace.exec.kernels.lists import flat, owners

BYTES = 4096
BITS = 8 * BYTES


def _construct(lists: pa.Array[Any]) -> pa.Array[Any]:
    """The bitmap of the positions in each list."""
    elements, lengths = flat(lists)
    positions = elements.to_numpy(zero_copy_only=False)
    if len(positions) and (positions.min() < 0 or positions.max() >= BITS):
        raise KernelError("INVALID_BITMAP_POSITION")
    made = np.zeros((len(lengths), BYTES), np.uint8)
    np.bitwise_or.at(made, (owners(lengths), positions // 8), (1 << (positions % 8)).astype(np.uint8))
    return pa.array([row.tobytes() for row in made], pa.binary())


def _either(lists: pa.Array[Any]) -> pa.Array[Any]:
    """The bits that are set in some bitmap of each list. A short bitmap has zeros at its end."""
    return pa.array([_folded(some or [], np.bitwise_or, 0) for some in lists.to_pylist()], pa.binary())


def _both(lists: pa.Array[Any]) -> pa.Array[Any]:
    """The bits that are set in all bitmaps of each list. A short bitmap has zeros at its end."""
    return pa.array([_folded(some or [], np.bitwise_and, 255) for some in lists.to_pylist()], pa.binary())


def _folded(bitmaps: list[bytes], fold: Any, start: int) -> bytes:
    made = np.full(BYTES, start, np.uint8)
    for bitmap in bitmaps:
        fold(made, np.frombuffer(bitmap[:BYTES].ljust(BYTES, b"\0"), np.uint8), out=made)
    return made.tobytes()


KERNELS: tuple[Kernel, ...] = (
    Kernel("hr_bitmap", ("BIGINT[]",), "BLOB", _construct),
    Kernel("hr_bitmap_or", ("BLOB[]",), "BLOB", _either),
    Kernel("hr_bitmap_and", ("BLOB[]",), "BLOB", _both),
)
