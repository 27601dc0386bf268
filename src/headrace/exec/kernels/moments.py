"""Kernels over central moments: of the rows of each group, and of states that are merged.

A row is a state of one row with itself as the mean, so both are the same computation. Distances are taken from the
common mean, which is found from the distances to the group's first value: the moments of a constant are exactly zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headrace.base.arrays import Ints
from headrace.exec.kernels.kernel import Kernel
from headrace.exec.kernels.lists import Doubles, flat, owners, structs

_POWERS = "STRUCT(n DOUBLE, m DOUBLE, s DOUBLE, c DOUBLE, q DOUBLE)"
_PAIRS = "STRUCT(n DOUBLE, x DOUBLE, y DOUBLE, xx DOUBLE, yy DOUBLE, xy DOUBLE)"


class _Groups:
    """Elements of lists of the given lengths, each with a weight `n`, and sums over them."""

    def __init__(self, lengths: Ints, n: Doubles) -> None:
        self.lengths, self.n = lengths, n
        self.owner = owners(lengths)
        self.valid = lengths > 0
        self.total = self.sums(n)

    def sums(self, values: Doubles) -> Doubles:
        found: Doubles = np.bincount(self.owner, weights=values, minlength=len(self.lengths)).astype(np.float64)
        return found

    def means(self, values: Doubles) -> tuple[Doubles, Doubles]:
        """The weighted mean of each list, and the distance of each element from it."""
        starts = (np.cumsum(self.lengths) - self.lengths)[self.valid]
        base = np.zeros(len(self.lengths))
        base[self.valid] = values[starts]
        with np.errstate(all="ignore"):
            away = self.sums(self.n * (values - base[self.owner])) / self.total
            mean = base + np.where(self.valid, away, 0.0)
            return mean, values - mean[self.owner]


def _powers(lengths: Ints, n: Doubles, m: Doubles, s: Doubles, c: Doubles, q: Doubles) -> pa.Array[Any]:
    groups = _Groups(lengths, n)
    mean, d = groups.means(m)
    with np.errstate(all="ignore"):
        columns = {
            "n": groups.total,
            "m": mean,
            "s": groups.sums(s + n * d * d),
            "c": groups.sums(c + 3 * d * s + n * d * d * d),
            "q": groups.sums(q + 4 * d * c + 6 * d * d * s + n * d * d * d * d),
        }
    return structs(columns, groups.valid)


def _pairs(lengths: Ints, n: Doubles, x: Doubles, y: Doubles, xx: Doubles, yy: Doubles, xy: Doubles) -> pa.Array[Any]:
    groups = _Groups(lengths, n)
    x_mean, dx = groups.means(x)
    y_mean, dy = groups.means(y)
    with np.errstate(all="ignore"):
        columns = {
            "n": groups.total,
            "x": x_mean,
            "y": y_mean,
            "xx": groups.sums(xx + n * dx * dx),
            "yy": groups.sums(yy + n * dy * dy),
            "xy": groups.sums(xy + n * dx * dy),
        }
    return structs(columns, groups.valid)


def _moments_of_rows(lists: pa.Array[Any]) -> pa.Array[Any]:
    values, lengths = flat(lists)
    x = values.to_numpy(zero_copy_only=False)
    zeros = np.zeros(len(x))
    return _powers(lengths, np.ones(len(x)), x, zeros, zeros, zeros)


def _pairs_of_rows(lists: pa.Array[Any]) -> pa.Array[Any]:
    values, lengths = flat(lists)
    x, y = _fields(values)
    zeros = np.zeros(len(x))
    return _pairs(lengths, np.ones(len(x)), x, y, zeros, zeros, zeros)


def _merge_moments(lists: pa.Array[Any]) -> pa.Array[Any]:
    values, lengths = flat(lists)
    return _powers(lengths, *_fields(values))


def _merge_pairs(lists: pa.Array[Any]) -> pa.Array[Any]:
    values, lengths = flat(lists)
    return _pairs(lengths, *_fields(values))


def _fields(values: Any) -> list[Doubles]:
    return [field.to_numpy(zero_copy_only=False) for field in values.flatten()]


KERNELS: tuple[Kernel, ...] = (
    Kernel("hr_moments", ("DOUBLE[]",), _POWERS, _moments_of_rows),
    Kernel("hr_merge_moments", (f"{_POWERS}[]",), _POWERS, _merge_moments),
    Kernel("hr_pairs", ("STRUCT(x DOUBLE, y DOUBLE)[]",), _PAIRS, _pairs_of_rows),
    Kernel("hr_merge_pairs", (f"{_PAIRS}[]",), _PAIRS, _merge_pairs),
)
