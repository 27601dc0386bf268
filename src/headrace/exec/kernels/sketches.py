"""Kernels over sketches that count distinct values (HyperLogLog).

A sketch is a blob: the precision p, its form, and its values. While there are at most 2^p / 8 distinct values, the
values are their 64-bit hashes, sorted, and the count is exact. Beyond that they are 2^p registers of one byte. The
first p bits of a hash are its register, which keeps the largest position of the first one among the other bits. The
bytes of a sketch depend only on the set of values: merging is associative, and a re-run gives the same bytes.

The estimate is the one of Ertl ("New cardinality estimation algorithms for HyperLogLog sketches", 2017), which needs no
tables and has the same error over the whole range: 1.04 / sqrt(2^p).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.base.arrays import Ints
from headrace.exec.kernels.kernel import Kernel
from headrace.exec.kernels.lists import flat, owners

ValueHashes = npt.NDArray[np.uint64]
Registers = npt.NDArray[np.uint8]
_HASH = 8  # bytes of a hash
_HEAD = 2  # bytes before the values: the precision, and 1 for registers or 0 for hashes


def _mix(values: ValueHashes) -> ValueHashes:
    """The finaliser of splitmix64: spreads every bit over all others."""
    with np.errstate(over="ignore"):
        z = values + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def _of_numbers(lists: pa.Array[Any], precision: pa.Array[Any]) -> pa.Array[Any]:
    """The sketch of the numbers of each list. NULL for NULL."""
    elements, lengths = flat(lists)
    hashes = _mix(elements.to_numpy(zero_copy_only=False).view(np.uint64))
    return _sketches(hashes, lengths, _precision(precision))


def _of_doubles(lists: pa.Array[Any], precision: pa.Array[Any]) -> pa.Array[Any]:
    """Like `_of_numbers`. -0.0 is 0.0, and every NaN is one value."""
    elements, lengths = flat(lists)
    values = elements.to_numpy(zero_copy_only=False) + 0.0
    values[np.isnan(values)] = np.nan
    return _sketches(_mix(values.view(np.uint64)), lengths, _precision(precision))


def _precision(argument: pa.Array[Any]) -> int:
    return int(argument[0].as_py()) if len(argument) else 0


def _sketches(hashes: ValueHashes, lengths: Ints, p: int) -> pa.Array[Any]:
    return _build(p, hashes, owners(lengths), len(lengths), {})


def _build(p: int, hashes: ValueHashes, owner: Ints, count: int, dense: dict[int, Registers]) -> pa.Array[Any]:
    """The sketches of `count` groups: of hashes, each with the group that owns it, and of registers of some groups.
    NULL for a group without values. Only groups with registers are looped over."""
    hashes, owner = _distinct(hashes, owner)
    lengths = np.bincount(owner, minlength=count)
    starts = np.cumsum(lengths) - lengths
    registers = lengths > _sparse(p)
    registers[list(dense)] = True
    sizes = np.where(registers, _HEAD + (1 << p), np.where(lengths > 0, _HEAD + _HASH * lengths, 0))
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    out = np.zeros(int(offsets[-1]), np.uint8)
    begins = offsets[:-1]
    valid = sizes > 0
    out[begins[valid]] = p
    out[begins[valid] + 1] = registers[valid]
    few = ~registers[owner]
    rank = np.arange(len(hashes)) - starts[owner]
    places = (begins[owner] + _HEAD + _HASH * rank)[few]
    out[places[:, None] + np.arange(_HASH)] = hashes[few].astype("<u8").view(np.uint8).reshape(-1, _HASH)
    for group in np.flatnonzero(registers).tolist():
        mine = _registers(p, hashes[starts[group] : starts[group] + lengths[group]])
        found = np.maximum(mine, dense[group]) if group in dense else mine
        out[begins[group] + _HEAD : begins[group] + _HEAD + len(found)] = found
    parts: list[Any] = [np.packbits(valid, bitorder="little"), offsets.astype(np.int32), out]
    return pa.Array.from_buffers(pa.binary(), count, [pa.py_buffer(part) for part in parts])


def _distinct(hashes: ValueHashes, owner: Ints) -> tuple[ValueHashes, Ints]:
    """The different hashes of each owner, sorted, with their owners."""
    order = np.lexsort((hashes, owner))
    hashes, owner = hashes[order], owner[order]
    new = np.ones(len(hashes), np.bool_)
    new[1:] = (owner[1:] != owner[:-1]) | (hashes[1:] != hashes[:-1])
    return hashes[new], owner[new]


def _sparse(p: int) -> int:
    """How many hashes a sketch holds before it becomes registers. They take as many bytes."""
    return (1 << p) // _HASH


def _registers(p: int, hashes: ValueHashes) -> Registers:
    found = np.zeros(1 << p, np.uint8)
    rest = hashes << np.uint64(p)
    position = np.minimum(64 - _bit_length(rest), 64 - p) + 1  # of the first one among 64 - p bits
    np.maximum.at(found, (hashes >> np.uint64(64 - p)).astype(np.int64), position.astype(np.uint8))
    return found


def _bit_length(values: ValueHashes) -> Ints:
    high = (values >> np.uint64(32)).astype(np.float64)
    low = (values & np.uint64(0xFFFFFFFF)).astype(np.float64)
    return np.where(high > 0, 32 + np.frexp(high)[1], np.frexp(low)[1]).astype(np.int64)


class _SketchBlobs:
    """The bytes of an array of sketches: where each one begins and ends, and whether it has registers."""

    def __init__(self, blobs: Any) -> None:
        offsets = np.frombuffer(blobs.buffers()[1], np.int32)[blobs.offset : blobs.offset + len(blobs) + 1]
        self.data = np.frombuffer(blobs.buffers()[2] or b"", np.uint8)
        self.begins, self.ends = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
        self.sizes = self.ends - self.begins
        self.dense = np.zeros(len(self.sizes), np.bool_)
        known = self.sizes > 0
        self.dense[known] = self.data[self.begins[known] + 1] == 1
        self.lengths = np.where(known & ~self.dense, (self.sizes - _HEAD) // _HASH, 0)

    def body(self, i: int) -> Registers:
        return self.data[self.begins[i] + _HEAD : self.ends[i]]

    def hashes(self) -> ValueHashes:
        """All hashes of the sketches that have no registers."""
        rank = np.arange(self.lengths.sum()) - np.repeat(np.cumsum(self.lengths) - self.lengths, self.lengths)
        places = np.repeat(self.begins + _HEAD, self.lengths) + _HASH * rank
        return np.ascontiguousarray(self.data[places[:, None] + np.arange(_HASH)]).view("<u8").reshape(-1)


def _merge(lists: pa.Array[Any]) -> pa.Array[Any]:
    """One sketch for the sketches of each list. They have the same precision."""
    elements, lengths = flat(lists)
    if not len(elements):
        return pa.nulls(len(lengths), pa.binary())
    blobs, owner = _SketchBlobs(elements), owners(lengths)
    p = int(blobs.data[blobs.begins[0]])
    dense: dict[int, Registers] = {}
    for i in np.flatnonzero(blobs.dense).tolist():
        group = int(owner[i])
        dense[group] = np.maximum(dense[group], blobs.body(i)) if group in dense else blobs.body(i)
    return _build(p, blobs.hashes(), np.repeat(owner, blobs.lengths), len(lengths), dense)


def _estimates(sketches: pa.Array[Any]) -> pa.Array[Any]:
    """The number of distinct values; 0 for NULL."""
    if sketches.null_count == len(sketches):
        return pa.array(np.zeros(len(sketches), np.int64))
    blobs = _SketchBlobs(sketches)
    found = blobs.lengths.copy()
    for i in np.flatnonzero(blobs.dense).tolist():
        found[i] = _estimate(blobs.body(i))
    return pa.array(found)


def _estimate(registers: Registers) -> int:
    m = len(registers)
    q = 64 - (m.bit_length() - 1)
    counts = np.bincount(registers, minlength=q + 2).tolist()
    z = m * _tau(1 - counts[q + 1] / m)
    for k in range(q, 0, -1):
        z = 0.5 * (z + counts[k])
    z += m * _sigma(counts[0] / m)
    return round(m * m / (2 * math.log(2) * z))


def _sigma(x: float) -> float:
    if x == 1:
        return math.inf
    y, z, before = 1.0, x, -1.0
    while z != before:
        before = z
        x *= x
        z += x * y
        y += y
    return z


def _tau(x: float) -> float:
    if x in (0.0, 1.0):
        return 0.0
    y, z, before = 1.0, 1 - x, -1.0
    while z != before:
        before = z
        x = math.sqrt(x)
        y *= 0.5
        z -= (1 - x) ** 2 * y
    return z / 3


KERNELS: tuple[Kernel, ...] = (
    Kernel("hr_sketch_numbers", ("BIGINT[]", "INTEGER"), "BLOB", _of_numbers),
    Kernel("hr_sketch_doubles", ("DOUBLE[]", "INTEGER"), "BLOB", _of_doubles),
    Kernel("hr_merge_sketches", ("BLOB[]",), "BLOB", _merge),
    Kernel("hr_distinct", ("BLOB",), "BIGINT", _estimates),
)
