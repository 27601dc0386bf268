"""histogram_numeric and bitmaps: against brute force, and independent of how rows are divided."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.exec.kernels import KERNELS
from headrace.exec.kernels.counts import merged_bins
from headrace.exec.kernels.kernel import KernelError


def naive(x: list[float], y: list[float], most: int) -> tuple[list[float], list[float]]:
    x, y = list(x), list(y)
    while len(x) > most:
        i = min(range(len(x) - 1), key=lambda k: x[k + 1] - x[k])
        size = y[i] + y[i + 1]
        x[i : i + 2], y[i : i + 2] = [(x[i] * y[i] + x[i + 1] * y[i + 1]) / size], [size]
    return x, y


@settings(deadline=None)
@given(st.dictionaries(st.integers(-60, 60), st.integers(1, 9), max_size=25), st.integers(2, 12))
def test_the_closest_bins_are_merged(counted: dict[int, int], most: int) -> None:
    x, y = sorted(map(float, counted)), [float(counted[k]) for k in sorted(counted)]
    found = merged_bins(np.array(x), np.array(y), most)
    assert (found[0].tolist(), found[1].tolist()) == naive(x, y, most)


def run(kernel: str, lists: list[list[Any]], kind: Any) -> list[bytes]:
    return KERNELS[kernel].function(pa.array(lists, pa.list_(kind))).to_pylist()  # type: ignore[return-value]


def test_bitmaps_have_a_bit_for_each_position() -> None:
    (made,) = run("hr_bitmap", [[0, 9, 32767, 9]], pa.int64())
    assert (len(made), made[0], made[1], made[4095]) == (4096, 1, 2, 128)
    either = run("hr_bitmap_or", [[b"\x01", b"\x02\x04"], []], pa.binary())
    assert [found[:3] for found in either] == [b"\x03\x04\x00", b"\x00\x00\x00"]
    both = run("hr_bitmap_and", [[b"\x03\xff", b"\x02"], []], pa.binary())
    assert [found[:2] for found in both] == [b"\x02\x00", b"\xff\xff"]
    with pytest.raises(KernelError):
        run("hr_bitmap", [[32768]], pa.int64())
