"""Merges the rows of one blob that belong to the same group. `headrace.bridge.merging` calls these kernels.

A row is a partial aggregate: first the columns that name its group, then one column per partial. `headrace.bridge.rows`
describes the form of a blob. Groups are numbered in the order in which they appear, so the groups of a lane stay
together.
"""

# Numba wants plain comparisons and its own integers, so some lints and checks do not apply.
# mypy: disable-error-code="no-any-return,return-value,assignment,arg-type,no-untyped-call"
from __future__ import annotations

from typing import Any

import numpy as np

from headrace.bridge.kernels.blobs import BYTES, PREFIX, column_starts
from headrace.formats.kernels.jit import helper, inlined, kernel

NO_GROUP = -1
DAMAGED = -1
# How two values of a partial become one.
SUM_INTS, SUM_LONGS, SUM_DOUBLES, KAHAN, MIN_INTS, MAX_INTS, MIN_DOUBLES, MAX_DOUBLES = range(8)
# A sum whose upper word is not between these may have more than 38 digits: 10^38 is 5421010862427522170.7 times 2^64.
_MOST = 5421010862427522169
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_PRIME = np.uint64(0x100000001B3)


@inlined
def _mixed(code: int, value: int) -> int:
    code = (code ^ value) * _GOLDEN
    return code ^ (code >> np.uint64(32))


@helper
def text_offsets(lengths: Any, first: int, rows: int, held: int, offsets: Any) -> bool:
    """Fills `offsets` with the end of each string. False if the lengths do not add up to `held` bytes."""
    at = 0
    for i in range(rows):
        size = lengths[first + i]
        if size < 0:
            return False
        offsets[i] = at
        at += size
    offsets[rows] = at
    return at == held


@helper
def _same(blob: Any, widths: Any, keys: int, flags: int, starts: Any, offsets: Any, a: int, b: int) -> bool:
    """True if two rows name the same group. The bytes under a NULL do not count."""
    for c in range(keys):
        if flags >> c & 1:
            known = blob[starts[c, 0] + a]
            if known != blob[starts[c, 0] + b]:
                return False
            if known == 0:
                continue
        x, y, size = starts[c, 2] + widths[c] * a, starts[c, 2] + widths[c] * b, widths[c]
        if widths[c] == BYTES:
            size = offsets[c, a + 1] - offsets[c, a]
            if size != offsets[c, b + 1] - offsets[c, b]:
                return False
            x, y = starts[c, 2] + offsets[c, a], starts[c, 2] + offsets[c, b]
        for i in range(size):
            if blob[x + i] != blob[y + i]:
                return False
    return True


@kernel
def group_rows(
    blob: Any,
    rows: int,
    widths: Any,
    keys: int,
    flags: int,
    held: Any,
    counts: Any,
    lanes: Any,
    offsets: Any,
    table: Any,
    groups: Any,
    firsts: Any,
    sizes: Any,
    texts: Any,
) -> int:
    """Number the groups of `rows` rows, whose first `keys` columns name a group. Returns how many there are, or
    `DAMAGED` if the strings do not have the lengths that they should.

    The rows are runs of `counts[i]` rows of the lane `lanes[i]`, ordered by lane. Fills `groups` with the number of
    each row's group, `firsts` with the first row of each, `sizes` with the number of groups of each lane, `texts` with
    the bytes of each column of strings over all groups, and `offsets` with those of the strings. `table` has a power of
    two of entries of `NO_GROUP`, at least twice as many as there are rows.
    """
    starts = np.empty((len(widths), 3), np.int64)
    column_starts(widths, flags, rows, held, starts)
    words, lengths = blob.view(np.int64), blob.view(np.int32)
    codes = np.empty(rows, np.uint64)
    at = 0
    for i in range(len(counts)):
        for j in range(at, at + counts[i]):
            codes[j] = np.uint64(lanes[i])
            groups[j] = lanes[i]  # until the group is known
        at += counts[i]
    for c in range(keys):
        base = starts[c, 2]
        if widths[c] == BYTES and not text_offsets(lengths, starts[c, 1] >> 2, rows, held[c], offsets[c]):
            return DAMAGED
        for j in range(rows):
            if flags >> c & 1 and blob[starts[c, 0] + j] == 0:
                codes[j] = _mixed(codes[j], np.uint64(1))
            elif widths[c] == 8:
                codes[j] = _mixed(codes[j], np.uint64(words[(base >> 3) + j]))
            else:
                begin, end = base + widths[c] * j, base + widths[c] * (j + 1)
                if widths[c] == BYTES:
                    begin, end = base + offsets[c, j], base + offsets[c, j + 1]
                code = np.uint64(end - begin)
                for b in range(begin, end):
                    code = (code ^ np.uint64(blob[b])) * _PRIME
                codes[j] = _mixed(codes[j], code)
    found, last = 0, len(table) - 1
    of_lane = np.empty(rows, np.int32)
    for j in range(rows):
        lane = groups[j]
        at = np.int64(codes[j] >> np.uint64(8)) & last
        while table[at] != NO_GROUP:
            first = firsts[table[at]]
            if (
                codes[first] == codes[j]
                and of_lane[table[at]] == lane
                and _same(blob, widths, keys, flags, starts, offsets, first, j)
            ):
                break
            at = (at + 1) & last
        if table[at] == NO_GROUP:
            table[at] = found
            firsts[found] = j
            of_lane[found] = lane
            sizes[lane] += 1
            for c in range(keys):
                if widths[c] == BYTES and (flags >> c & 1 == 0 or blob[starts[c, 0] + j] != 0):
                    texts[c] += offsets[c, j + 1] - offsets[c, j]
            found += 1
        groups[j] = table[at]
    return found


@helper
def _copy_key(
    blob: Any, out: Any, width: int, masked: bool, here: Any, there: Any, offsets: Any, firsts: Any, count: int
) -> None:
    """Copy a key column of the first row of each group, from the offsets `here` to the offsets `there`."""
    lengths, end = out.view(np.int32), there[2]
    for g in range(count):
        row = firsts[g]
        known = True
        if masked:
            known = blob[here[0] + row] != 0
            out[there[0] + g] = known
        if width == BYTES:
            size = offsets[row + 1] - offsets[row] if known else 0
            source = here[2] + offsets[row]
            for b in range(size):
                out[end + b] = blob[source + b]
            lengths[(there[1] >> 2) + g] = size
            end += size
        elif known:
            for b in range(width):
                out[there[2] + width * g + b] = blob[here[2] + width * row + b]


@inlined
def _less(a: float, b: float) -> bool:
    """NaN is the largest double."""
    return a < b or (b != b and a == a)


@helper
def _extreme(source: Any, first: int, out: Any, begin: int, most: bool, mask: Any, groups: Any, seen: Any) -> None:
    """Fold the smallest or largest whole number of each group."""
    for i in range(len(groups)):
        g = groups[i]
        if len(mask) and mask[i] == 0:
            continue
        value, held = source[first + i], out[begin + g]
        if seen[g] == 0 or (value > held if most else value < held):
            out[begin + g] = value
        seen[g] = 1


@helper
def _fold(kind: int, width: int, blob: Any, here: int, out: Any, there: int, mask: Any, groups: Any, seen: Any) -> bool:
    """Fold the values of a column that begins at `here` into the groups. `seen` has a byte per group: whether there was
    a value. False if a sum does not fit."""
    if kind in (MIN_INTS, MAX_INTS):
        most = kind == MAX_INTS
        if width == 8:
            _extreme(blob.view(np.int64), here >> 3, out.view(np.int64), there >> 3, most, mask, groups, seen)
        elif width == 4:
            _extreme(blob.view(np.int32), here >> 2, out.view(np.int32), there >> 2, most, mask, groups, seen)
        elif width == 2:
            _extreme(blob.view(np.int16), here >> 1, out.view(np.int16), there >> 1, most, mask, groups, seen)
        else:
            _extreme(blob.view(np.int8), here, out.view(np.int8), there, most, mask, groups, seen)
        return True
    words, slots = blob.view(np.int64), out.view(np.int64)
    doubles, numbers = blob.view(np.float64), out.view(np.float64)
    first, begin = here >> 3, there >> 3
    errors = np.zeros(len(seen) if kind == KAHAN else 0, np.float64)
    for i in range(len(groups)):
        g = groups[i]
        if len(mask) and mask[i] == 0:
            continue
        if kind == SUM_INTS:
            value = words[first + i]
            total = slots[begin + g] + value
            if (total ^ slots[begin + g]) & (total ^ value) < 0:
                return False
            slots[begin + g] = total
        elif kind == SUM_LONGS:
            low = np.uint64(words[first + 2 * i])
            total = np.uint64(slots[begin + 2 * g]) + low
            high = slots[begin + 2 * g + 1] + words[first + 2 * i + 1] + np.int64(total < low)
            if high > _MOST or high < -_MOST:
                return False
            slots[begin + 2 * g] = np.int64(total)
            slots[begin + 2 * g + 1] = high
        elif kind == SUM_DOUBLES:
            numbers[begin + g] += doubles[first + i]
        elif kind == KAHAN:
            wanted = doubles[first + i] - errors[g]
            summed = numbers[begin + g] + wanted
            errors[g] = (summed - numbers[begin + g]) - wanted
            numbers[begin + g] = summed
        elif kind == MIN_DOUBLES:
            if seen[g] == 0 or _less(doubles[first + i], numbers[begin + g]):
                numbers[begin + g] = doubles[first + i]
        elif seen[g] == 0 or _less(numbers[begin + g], doubles[first + i]):
            numbers[begin + g] = doubles[first + i]
        seen[g] = 1
    return True


@kernel
def merge_rows(
    blob: Any,
    rows: int,
    widths: Any,
    keys: int,
    kinds: Any,
    flags: int,
    held: Any,
    offsets: Any,
    groups: Any,
    firsts: Any,
    count: int,
    texts: Any,
    magic: int,
    layout: int,
    out: Any,
) -> bool:
    """Write one row per group as a blob into `out`, which has zeros and the size that `blob_size` says. False if a sum
    does not fit."""
    here, there = np.empty((len(widths), 3), np.int64), np.empty((len(widths), 3), np.int64)
    column_starts(widths, flags, rows, held, here)
    column_starts(widths, flags, count, texts, there)
    words = out.view(np.int64)
    words[0], words[1], words[2] = magic | count << 32, layout ^ count, flags
    string = PREFIX >> 3
    seen = np.empty(count, np.uint8)
    for c in range(keys):
        if widths[c] == BYTES:
            words[string] = texts[c]
            string += 1
        _copy_key(blob, out, widths[c], flags >> c & 1 == 1, here[c], there[c], offsets[c], firsts, count)
    for c in range(keys, len(widths)):
        masked = flags >> c & 1 == 1
        mask = blob[here[c, 0] : here[c, 0] + (rows if masked else 0)]
        seen[:] = 0
        if not _fold(kinds[c - keys], widths[c], blob, here[c, 2], out, there[c, 2], mask, groups[:rows], seen):
            return False
        if masked:
            out[there[c, 0] : there[c, 0] + count] = seen
    return True


@kernel
def blob_size(widths: Any, flags: int, rows: int, held: Any) -> int:
    """The size of a blob with `rows` rows whose columns of strings have `held` bytes."""
    return column_starts(widths, flags, rows, held, np.empty((len(widths), 3), np.int64))
