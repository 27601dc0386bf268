"""Groups the rows of a batch, folds values into groups, and writes the groups of many pipelines as blobs.

`headrace.ring0.folding` calls these kernels, and `headrace.bridge.rows` describes the form of a blob. Groups are
numbered in the order in which they are sent. Accumulators are rows of one array of 64-bit words, `slots`: a double is
kept as its bits, and what needs 128 bits or a correction has two of them.
"""

# Numba wants plain comparisons and its own integers, so some lints and checks do not apply.
# mypy: disable-error-code="no-any-return,return-value,assignment,arg-type,no-untyped-call"
from __future__ import annotations

from typing import Any

import numpy as np

from headrace.bridge.kernels.blobs import OF_ONE_WINDOW
from headrace.formats.kernels.jit import helper, inlined, kernel

NO_GROUP = -1
# Kinds of operations. Column 0 of `ops`; then the number of the value, of its mask (-1 for none), and of the slot.
COUNT, SUM_INTS, SUM_DOUBLES, KAHAN, MIN_INTS, MAX_INTS, MIN_DOUBLES, MAX_DOUBLES = range(8)
# Kinds of columns in a blob. Column 0 of `columns`; then the number of the key or slot, and the bytes of a value.
WINDOW_START, WINDOW_END, FIXED_KEY, TEXT_KEY, SLOT = range(5)
PREFIX = 24
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MOST, LEAST = 2**63 - 1, -(2**63)


@kernel
def group_direct(marks: Any, table: Any, groups: Any, firsts: Any) -> int:
    """Number equal `marks` from 0 on, in the order in which they appear, and return how many there are. `table` has an
    entry of `NO_GROUP` for every possible mark. Fills `groups` with the number of each row, `NO_GROUP` for a negative
    mark, and `firsts` with the first row of each group."""
    found = 0
    for i in range(len(marks)):
        mark = marks[i]
        if mark < 0:
            groups[i] = NO_GROUP
            continue
        if table[mark] == NO_GROUP:
            table[mark] = found
            firsts[found] = i
            found += 1
        groups[i] = table[mark]
    return found


@kernel
def group_hashed(marks: Any, table: Any, groups: Any, firsts: Any) -> int:
    """As `group_direct`, for marks of any size. `table` has a power of two of entries, at least twice as many as there
    are rows."""
    found, last = 0, len(table) - 1
    for i in range(len(marks)):
        mark = marks[i]
        if mark < 0:
            groups[i] = NO_GROUP
            continue
        at = np.int64((np.uint64(mark) * _GOLDEN) >> np.uint64(20)) & last
        while table[at] != NO_GROUP and marks[firsts[table[at]]] != mark:
            at = (at + 1) & last
        if table[at] == NO_GROUP:
            table[at] = found
            firsts[found] = i
            found += 1
        groups[i] = table[at]
    return found


@helper
def _select(groups: Any, flags: Any, flag: int, rows: Any, chosen: Any) -> int:
    """The rows of a member: those that have a group, and whose bit in a row of `flags` is set (-1 for all)."""
    found = 0
    if flag < 0:
        for i in range(len(groups)):
            rows[found] = i
            chosen[found] = groups[i]
            found += groups[i] >= 0
        return found
    bits = flags[flag]
    for i in range(len(groups)):
        rows[found] = i
        chosen[found] = groups[i]
        found += (groups[i] >= 0) & (bits[i >> 3] >> (i & 7) & 1)
    return found


@inlined
def _less(a: float, b: float) -> bool:
    """NaN is the largest double."""
    return a < b or (b != b and a == a)


@helper
def _valued(rows: Any, chosen: Any, count: int, bits: Any, some: Any, theirs: Any, was: Any) -> int:
    """Those of the `count` rows that have a value, with their groups, into `some` and `theirs`. Marks the groups."""
    found = 0
    for j in range(count):
        i, g = rows[j], chosen[j]
        some[found] = i
        theirs[found] = g
        if bits[i >> 3] >> (i & 7) & 1:
            was[g] = 1
            found += 1
    return found


@helper
def _fold(kind: int, rows: Any, groups: Any, ints: Any, doubles: Any, slots: Any, slot: int) -> None:
    """Fold the values of `rows` into their groups. Every kind has a loop of its own, because the compiler makes faster
    code of a loop that does one thing."""
    numbers = slots.view(np.float64)
    if kind == COUNT:
        out = slots[slot]
        for j in range(len(rows)):
            out[groups[j]] += 1
    elif kind == SUM_INTS:
        lows, highs = slots[slot], slots[slot + 1]
        for j in range(len(rows)):
            v, g = ints[rows[j]], groups[j]
            low = np.uint64(lows[g]) + np.uint64(v)
            highs[g] += (v >> 63) + np.int64(low < np.uint64(v))
            lows[g] = np.int64(low)
    elif kind == SUM_DOUBLES:
        sums = numbers[slot]
        for j in range(len(rows)):
            sums[groups[j]] += doubles[rows[j]]
    elif kind == KAHAN:
        sums, errors = numbers[slot], numbers[slot + 1]
        for j in range(len(rows)):
            g = groups[j]
            wanted = doubles[rows[j]] - errors[g]
            total = sums[g] + wanted
            errors[g] = (total - sums[g]) - wanted
            sums[g] = total
    elif kind == MIN_INTS:
        out = slots[slot]
        out[:] = MOST
        for j in range(len(rows)):
            out[groups[j]] = min(out[groups[j]], ints[rows[j]])
    elif kind == MAX_INTS:
        out = slots[slot]
        out[:] = LEAST
        for j in range(len(rows)):
            out[groups[j]] = max(out[groups[j]], ints[rows[j]])
    elif kind == MIN_DOUBLES:
        sums = numbers[slot]
        sums[:] = np.nan
        for j in range(len(rows)):
            v, g = doubles[rows[j]], groups[j]
            if _less(v, sums[g]):
                sums[g] = v
    else:
        sums = numbers[slot]
        sums[:] = -np.inf
        for j in range(len(rows)):
            v, g = doubles[rows[j]], groups[j]
            if _less(sums[g], v):
                sums[g] = v


@kernel
def accumulate(
    groups: Any, flags: Any, ints: Any, doubles: Any, masks: Any, members: Any, ops: Any, slots: Any, seen: Any
) -> None:
    """Fold the rows of each member. `members` has the flag, the first operation and the end of the operations of each.
    `flags` and `masks` have a bit per row. `slots` begin with zeros. `seen` has a byte per operation and group: whether
    there was a value, if the operation has a mask."""
    rows, chosen = np.empty(len(groups) + 1, np.int32), np.empty(len(groups) + 1, np.int32)
    some, theirs = np.empty(len(groups) + 1, np.int32), np.empty(len(groups) + 1, np.int32)
    for m in range(len(members)):
        count = _select(groups, flags, members[m, 0], rows, chosen)
        for o in range(members[m, 1], members[m, 2]):
            kind, value, mask, slot = ops[o, 0], ops[o, 1], ops[o, 2], ops[o, 3]
            whole, real = min(value, len(ints) - 1), min(value, len(doubles) - 1)  # the value is in one of both
            if mask < 0:
                _fold(kind, rows[:count], chosen[:count], ints[whole], doubles[real], slots, slot)
            else:
                found = _valued(rows, chosen, count, masks[mask], some, theirs, seen[o])
                _fold(kind, some[:found], theirs[:found], ints[whole], doubles[real], slots, slot)


@inlined
def _padded(size: int) -> int:
    return (size + 7) & -8


@kernel
def measure_shares(
    bounds: Any,
    windowed: bool,
    presence: Any,
    slots: Any,
    columns: Any,
    shares: Any,
    lengths: Any,
    counts: Any,
    sizes: Any,
) -> None:
    """The rows and the bytes of each member's blob for each piece: the groups bounds[j] to bounds[j + 1] in which it
    has rows, and which are of one window if `windowed`. `presence` has the slot with each member's presence counts.
    `columns` are described below, `shares` has the first column and the end of the columns of each member, and
    `lengths` the bytes of each text key."""
    for m in range(len(presence)):
        present = slots[presence[m]]
        for j in range(len(bounds) - 1):
            rows = 0
            for g in range(bounds[j], bounds[j + 1]):
                rows += present[g] > 0
            counts[m, j] = rows
            size = PREFIX
            for c in range(shares[m, 0], shares[m, 1]):
                if columns[c, 3] >= 0:
                    size += _padded(rows)
                if columns[c, 0] == TEXT_KEY:
                    held = 0
                    for g in range(bounds[j], bounds[j + 1]):
                        if present[g] > 0:
                            held += lengths[columns[c, 1], g]
                    size += 8 + _padded(4 * rows) + _padded(held)
                elif windowed and columns[c, 0] <= WINDOW_END:
                    size += 8
                else:
                    size += _padded(columns[c, 2] * rows)
            sizes[m, j] = size if rows else 0


@helper
def _write_text(
    out: Any, texts: Any, at: int, groups: Any, rows: int, codes: Any, offsets: Any, first: int, known: int, data: Any
) -> int:
    """Write the lengths and the bytes of a text key, whose `known` texts are at offsets[first:] in `data`. Returns how
    many bytes there are. A code without a text is NULL."""
    begin = at + _padded(4 * rows)
    end = begin
    for r in range(rows):
        code = codes[groups[r]]
        size = 0
        if code < known:
            source = offsets[first + code]
            size = offsets[first + code + 1] - source
            for b in range(size):
                out[end + b] = data[source + b]
        texts[(at >> 2) + r] = size
        end += size
    return end - begin


@kernel
def write_shares(
    out: Any,
    first: int,
    end: int,
    bounds: Any,
    windowed: bool,
    presence: Any,
    slots: Any,
    columns: Any,
    shares: Any,
    digests: Any,
    magic: int,
    times: Any,
    codes: Any,
    valid: Any,
    fixed: Any,
    offsets: Any,
    data: Any,
    seen: Any,
    sizes: Any,
) -> None:
    """Write the blobs of the members `first` to `end`, one after the other, into zeroed memory. If `windowed`, each has
    the rows of one window, and the bounds of the window once.

    A row of `columns` is: the kind, the number of the key or slot, the bytes of a value, the row of its mask in `valid`
    (keys) or `seen` (slots) or -1, and for a text key the first of its `offsets` into `data`, and how many texts it
    has. `times` are the bounds of the windows, `codes` the codes of each group's keys, and `fixed` the values of keys
    of fixed width.
    """
    words, texts = out.view(np.int64), out.view(np.int32)
    groups = np.empty(len(times[0]), np.int32)
    begin = 0
    for m in range(first, end):
        present = slots[presence[m]]
        for j in range(len(bounds) - 1):
            if sizes[m, j] == 0:
                continue
            rows = 0
            for g in range(bounds[j], bounds[j + 1]):
                if present[g] > 0:
                    groups[rows] = g
                    rows += 1
            strings, flags = 0, 0
            for c in range(shares[m, 0], shares[m, 1]):
                strings += columns[c, 0] == TEXT_KEY
                if columns[c, 3] >= 0:
                    flags |= 1 << (c - shares[m, 0])
            words[begin >> 3] = (OF_ONE_WINDOW if windowed else magic) | rows << 32
            words[(begin >> 3) + 1] = digests[m] ^ rows ^ (OF_ONE_WINDOW << 32 if windowed else 0)
            words[(begin >> 3) + 2] = flags
            at, string = begin + PREFIX + 8 * strings, (begin + PREFIX) >> 3
            for c in range(shares[m, 0], shares[m, 1]):
                kind, number, width, mask = columns[c, 0], columns[c, 1], columns[c, 2], columns[c, 3]
                if mask >= 0:
                    flagged = seen[mask] if kind == SLOT else valid[mask]
                    for r in range(rows):
                        out[at + r] = flagged[groups[r]]
                    at += _padded(rows)
                if kind == TEXT_KEY:
                    held = _write_text(
                        out, texts, at, groups, rows, codes[number], offsets, columns[c, 4], columns[c, 5], data
                    )
                    words[string] = held
                    string += 1
                    at += _padded(4 * rows) + _padded(held)
                    continue
                if windowed and kind <= WINDOW_END:
                    words[at >> 3] = times[kind, bounds[j]]
                    at += 8
                    continue
                if width == 8:
                    source = slots[number] if kind == SLOT else times[kind] if kind <= WINDOW_END else fixed[number]
                    for r in range(rows):
                        words[(at >> 3) + r] = source[groups[r]]
                elif width == 16:
                    for r in range(rows):
                        words[(at >> 3) + 2 * r] = slots[number, groups[r]]
                        words[(at >> 3) + 2 * r + 1] = slots[number + 1, groups[r]]
                else:
                    source = slots[number] if kind == SLOT else fixed[number]
                    for r in range(rows):
                        value = source[groups[r]]
                        for b in range(width):
                            out[at + width * r + b] = (value >> (8 * b)) & 0xFF
                at += _padded(width * rows)
            begin += sizes[m, j]
