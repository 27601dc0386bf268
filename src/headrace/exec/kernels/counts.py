"""Kernels over counted values: sorted lists of (value, number of rows), one per group, and percentiles of them."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.arrays import Ints
from headrace.exec.kernels.kernel import Kernel
from headrace.exec.kernels.lists import Doubles, flat, lists_of, owners

_COUNTS = "STRUCT(v DOUBLE, n BIGINT)[]"


def _counts(lists: pa.Array[Any]) -> pa.Array[Any]:
    """Sorts each list by value and adds the counts of equal values. NaN is the largest value, and equal to itself.
    Values that are counted zero times are left out."""
    elements, lengths = flat(lists)
    values, counts = elements.flatten()
    v, n = values.to_numpy(zero_copy_only=False) + 0.0, counts.to_numpy(zero_copy_only=False)
    owner = owners(lengths)
    kept = n != 0
    v, n, owner = v[kept], n[kept], owner[kept]
    order = np.lexsort((v, owner))
    v, n, owner = v[order], n[order], owner[order]
    new = np.ones(len(v), np.bool_)
    equal = (v[1:] == v[:-1]) | (np.isnan(v[1:]) & np.isnan(v[:-1]))
    new[1:] = (owner[1:] != owner[:-1]) | ~equal
    starts = np.flatnonzero(new)
    sums = np.add.reduceat(n, starts) if len(starts) else n
    found = pa.StructArray.from_arrays([pa.array(v[starts]), pa.array(sums)], ["v", "n"])
    ends = np.cumsum(np.bincount(owner[starts], minlength=len(lengths)))
    return lists_of(found, ends, pc.is_null(lists))


class _Ranks:
    """Finds the values at given ranks of sorted, counted lists. Ranks begin at 0."""

    def __init__(self, lists: pa.Array[Any]) -> None:
        elements, lengths = flat(lists)
        values, counts = elements.flatten()
        self.values: Doubles = values.to_numpy(zero_copy_only=False)
        self.ends: Ints = np.cumsum(counts.to_numpy(zero_copy_only=False))
        last = np.cumsum(lengths)
        before = np.concatenate([[0], self.ends])
        self.bases, self.totals = before[last - lengths], before[last] - before[last - lengths]

    def at(self, owner: Ints, rank: Doubles, descending: bool) -> Doubles:
        """The value at each rank of the list of each owner, from the end if `descending`. Lists must not be empty."""
        ranks = rank.astype(np.int64)
        if descending:
            ranks = self.totals[owner] - 1 - ranks
        found: Doubles = self.values[np.searchsorted(self.ends, self.bases[owner] + ranks, side="right")]
        return found


def _percentiles(lists: pa.Array[Any], fractions: pa.Array[Any], descending: pa.Array[Any]) -> pa.Array[Any]:
    """Interpolated percentiles: one for each fraction, NULL for a list without values."""
    ranks = _Ranks(lists)
    owner, wanted, lengths = _asked(ranks, fractions)
    place = (ranks.totals[owner] - 1) * wanted
    low, high, backwards = np.floor(place), np.ceil(place), _flag(descending)
    below, above = ranks.at(owner, low, backwards), ranks.at(owner, high, backwards)
    with np.errstate(all="ignore"):
        between = below + (above - below) * (place - low)
    same = (low == high) | (below == above) | (np.isnan(below) & np.isnan(above))
    return _lists(np.where(same, below, between), lengths, ranks)


def _discrete_percentiles(lists: pa.Array[Any], fractions: pa.Array[Any], descending: pa.Array[Any]) -> pa.Array[Any]:
    """The first value whose share of the rows, together with the values before it, reaches each fraction."""
    ranks = _Ranks(lists)
    owner, wanted, lengths = _asked(ranks, fractions)
    place = np.maximum(np.ceil(ranks.totals[owner] * wanted) - 1, 0)
    return _lists(ranks.at(owner, place, _flag(descending)), lengths, ranks)


def _asked(ranks: _Ranks, fractions: pa.Array[Any]) -> tuple[Ints, Doubles, Ints]:
    """The list and the fraction of each value to find, and how many of them each list has."""
    wanted, lengths = flat(fractions)
    asked = np.where(ranks.totals > 0, lengths, 0)
    kept = np.repeat(ranks.totals > 0, lengths)
    return owners(asked), wanted.to_numpy(zero_copy_only=False)[kept], asked


def _lists(values: Doubles, lengths: Ints, ranks: _Ranks) -> pa.Array[Any]:
    return lists_of(pa.array(values), np.cumsum(lengths), pa.array(ranks.totals == 0))


def _histograms(lists: pa.Array[Any], bins: pa.Array[Any]) -> pa.Array[Any]:
    """At most `bins` (centre, rows) for each list: the two closest centres become one until there are so few."""
    elements, lengths = flat(lists)
    values, counts = elements.flatten()
    x = values.to_numpy(zero_copy_only=False)
    y = counts.to_numpy(zero_copy_only=False).astype(np.float64)
    most, ends = int(bins[0].as_py()) if len(bins) else 0, np.cumsum(lengths)
    if (lengths > most).any():
        parts = [merged_bins(x[e - n : e], y[e - n : e], most) for n, e in zip(lengths, ends, strict=True)]
        x, y = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        ends = np.cumsum([len(part[0]) for part in parts])
    found = pa.StructArray.from_arrays([pa.array(x), pa.array(y)], ["x", "y"])
    return lists_of(found, ends, pa.array(lengths == 0))


def merged_bins(x: Doubles, y: Doubles, most: int) -> tuple[Doubles, Doubles]:
    """Sorted bins, with the closest neighbours merged until there are at most `most`. Of equal distances the leftmost
    goes first."""
    centres, sizes, count = x.tolist(), y.tolist(), len(x)
    if count <= most:
        return x, y
    following = list(range(1, count + 1))
    before = list(range(-1, count - 1))
    version = [0] * count  # of a bin's centre: an entry of the heap with an older one is void
    heap = [(centres[i + 1] - centres[i], i, 0, 0) for i in range(count - 1)]
    heapq.heapify(heap)
    alive = [True] * count
    while count > most:
        _, i, mine, other = heapq.heappop(heap)
        j = following[i]
        if not alive[i] or j >= len(centres) or version[i] != mine or version[j] != other:
            continue
        size = sizes[i] + sizes[j]
        centres[i] = (centres[i] * sizes[i] + centres[j] * sizes[j]) / size
        sizes[i], alive[j], following[i] = size, False, following[j]
        version[i] += 1
        count -= 1
        if following[i] < len(centres):
            before[following[i]] = i
            after = following[i]
            heapq.heappush(heap, (centres[after] - centres[i], i, version[i], version[after]))
        if before[i] >= 0:
            left = before[i]
            heapq.heappush(heap, (centres[i] - centres[left], left, version[left], version[i]))
    kept = [i for i, living in enumerate(alive) if living]
    return np.array([centres[i] for i in kept]), np.array([sizes[i] for i in kept])


def _flag(flags: pa.Array[Any]) -> bool:
    """The value of an argument that is the same for all rows."""
    return bool(len(flags) and flags[0].as_py())


KERNELS: tuple[Kernel, ...] = (
    Kernel("hr_counts", (_COUNTS,), _COUNTS, _counts),
    Kernel("hr_percentiles", (_COUNTS, "DOUBLE[]", "BOOLEAN"), "DOUBLE[]", _percentiles),
    Kernel("hr_histogram", (_COUNTS, "INTEGER"), "STRUCT(x DOUBLE, y DOUBLE)[]", _histograms),
    Kernel("hr_discrete_percentiles", (_COUNTS, "DOUBLE[]", "BOOLEAN"), "DOUBLE[]", _discrete_percentiles),
)
