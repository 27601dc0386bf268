"""Locates the fields of JSON lines, in one pass that also checks every byte of the structure.

The scanner expects each record to look like the previous one. For the j-th member it remembers the position of the text
from the comma to the value (`"key": ` with its white space), and compares whole words with it. Only if they differ does
it scan the key and look it up. A field is (start, end) of its text. A string starts at its quote; the end of a string
with escapes is stored as ~end. A missing field has start -1.
"""

# Numba needs plain comparisons and its own integer types, so some lints and type checks do not apply.
# mypy: disable-error-code="no-any-return,return-value,assignment"
from __future__ import annotations

from typing import Any

import numpy as np

from headrace.formats.kernels.jit import helper, inlined, kernel
from headrace.formats.kernels.json_strings import unescape
from headrace.formats.kernels.json_values import (
    MAX_DEPTH,
    scalar_end,
    short_number,
    skip_space,
    string_end,
    value_end,
)  # fmt: skip
from headrace.formats.kernels.simd import (
    ALL,
    ONE,
    byte_at,
    count_byte,
    find_byte,
    get8,
    get32,
    get64,
    put8,
    put32,
    put64,
    same_bytes,
    view,
    word_at,
)  # fmt: skip

# Verdicts on a record; formats.json maps them to reasons.
OK, BAD_JSON, NOT_AN_OBJECT, TOO_DEEP, TOO_LONG = 0, 1, 2, 3, 4
REMEMBERED = 2048  # members of a record whose text is remembered; the rest are looked up


@helper
def hash_bytes(buf: Any, p: int, end: int) -> int:
    """FNV-1a, cut to 31 bits."""
    h = np.uint64(0xCBF29CE484222325)
    for k in range(p, end):
        h = (h ^ np.uint64(get8(buf, k))) * np.uint64(0x100000001B3)
    return np.int64(h >> np.uint64(33))


@helper
def find_key(buf: Any, p: int, end: int, keys: Any, bounds: Any, table: Any, size: int) -> int:
    """The slot of the key [p, end), by the hash table over `keys`; -1 if it is not wanted."""
    at = hash_bytes(buf, p, end) & (size - 1)
    while get32(table, at) >= 0:
        slot = get32(table, at)
        begin = get32(bounds, slot)
        if get32(bounds, slot + 1) - begin == end - p:
            k = 0
            while k < end - p and get8(buf, p + k) == get8(keys, begin + k):
                k += 1
            if k == end - p:
                return slot
        at = (at + 1) & (size - 1)
    return -1


@helper
def key_slot(buf: Any, p: int, encoded: int, keys: Any, bounds: Any, table: Any, size: int) -> int:
    """The slot of the key whose string begins at `p`; `encoded` is its `string_end`."""
    end = encoded >> 1
    if encoded & 1 == 0:
        return find_key(buf, p + 1, end - 1, keys, bounds, table, size)
    plain = np.empty(end - p, np.uint8)
    length = unescape(buf, p + 1, end - 1, view(plain), 0)
    found = -1 if length < 0 else find_key(view(plain), 0, length, keys, bounds, table, size)
    return found if plain[0] >= 0 else -1  # using `plain` here keeps it alive until now


@inlined
def same_lead(buf: Any, p: int, n: int, memory: Any, leads: Any, j: int, length: int) -> bool:
    """True if the j-th member begins as in the previous record. The first eight bytes are compared as one word."""
    if (word_at(buf, p, n) & get64(leads, 2 * j + 1)) != get64(leads, 2 * j):
        return False
    return length <= 8 or same_bytes(buf, p + 8, get32(memory, 3 * j) + 8, length - 8, n)


@helper
def scan_members(
    buf: Any, p: int, n: int, row: int, keys: Any, bounds: Any, table: Any, size: int, starts: Any, ends: Any,
    slots: int, rows: int, seen: Any, memory: Any, leads: Any, stack: Any, specials: bool,
) -> int:  # fmt: skip
    """Scan the object whose `{` is at `p` into row `row`. Returns the position after it, or minus the verdict.

    `starts` and `ends` have `rows` entries for each of `slots`. `seen[slot]` is the last row that had the slot. The
    lead of a member is its text up to the value. `memory[3 * j:]` is (position, length, slot) of the j-th member's lead
    in the previous record, `leads[2 * j:]` its first word and the mask of that. All are views; `size` is the table's
    size.
    """
    filled = 0
    p += 1
    q = skip_space(buf, p, n)
    if byte_at(buf, q, n) == 125:
        p = q + 1
    else:
        j = 0
        while True:
            known = j < REMEMBERED
            length = get32(memory, 3 * j + 1) if known else 0
            if length > 0 and p + length < n and same_lead(buf, p, n, memory, leads, j, length):
                slot = get32(memory, 3 * j + 2)
                p += length
            else:
                lead = p
                p = skip_space(buf, p, n)
                if byte_at(buf, p, n) != 34:
                    return -BAD_JSON
                e = string_end(buf, p, n)
                if e < 0:
                    return -BAD_JSON
                slot = key_slot(buf, p, e, keys, bounds, table, size)
                p = skip_space(buf, e >> 1, n)
                if byte_at(buf, p, n) != 58:
                    return -BAD_JSON
                p = skip_space(buf, p + 1, n)
                if known:
                    put32(memory, 3 * j, lead)
                    put32(memory, 3 * j + 1, p - lead)
                    put32(memory, 3 * j + 2, slot)
                    mask = (ONE << np.uint64(8 * (p - lead))) - ONE if p - lead < 8 else ALL
                    put64(leads, 2 * j, word_at(buf, lead, n) & mask)
                    put64(leads, 2 * j + 1, mask)
            j += 1
            c = byte_at(buf, p, n)
            if c <= 32:
                p = skip_space(buf, p, n)
                c = byte_at(buf, p, n)
            e = -1
            if c <= 57 and c != 34:
                e = 2 * short_number(buf, p, n)
            if e < 0:
                nested = c == 123 or c == 91
                e = value_end(buf, p, n, stack, specials) if nested else scalar_end(buf, p, n, c, specials)
            if e < 0:
                return -BAD_JSON if e == -1 else -TOO_DEEP
            end = e >> 1
            if slot >= 0:
                if get32(seen, slot) != row:
                    put32(seen, slot, row)
                    filled += 1
                put32(starts, slot * rows + row, -1 if c == 110 else p)
                put32(ends, slot * rows + row, end if e & 1 == 0 else ~end)
            p = end
            c = byte_at(buf, p, n)
            if c <= 32:
                p = skip_space(buf, p, n)
                c = byte_at(buf, p, n)
            p += 1
            if c == 44:
                continue
            if c == 125:
                break
            return -BAD_JSON
    if filled < slots:
        for slot in range(slots):
            if get32(seen, slot) != row:
                put32(starts, slot * rows + row, -1)
    return p


@helper
def keep_alive(one: Any, two: Any, three: Any, four: Any) -> None:
    """Use arrays whose views were taken, so that they are not freed earlier."""
    one[0] = 0
    two[0] = 0
    three[0] = 0
    four[0] = 0


@kernel
def count_lines(buf: Any, delimiter: int) -> int:
    """An upper bound for the number of records in a buffer."""
    return count_byte(view(buf), len(buf), delimiter) + 1


@kernel
def scan_lines(
    data: Any,
    longest: int,
    specials: bool,
    keys: Any,
    bounds: Any,
    table: Any,
    starts: Any,
    ends: Any,
    begins: Any,
    stops: Any,
    bad: Any,
) -> tuple[int, int]:
    """Scan every line. Returns (rows, bad records).

    Row r is the line [begins[r], stops[r]). bad[k] is (begin, stop, verdict). Lines that are only white space are
    neither rows nor bad. With `specials`, NaN and Infinity are values.
    """
    n = len(data)
    buf = view(data)
    slots, room = starts.shape
    seen = np.full(slots + 1, -1, np.int32)
    memory = np.zeros(3 * REMEMBERED, np.int32)
    leads = np.empty(2 * REMEMBERED, np.uint64)
    stack = np.empty(MAX_DEPTH, np.uint8)
    # Taking a view costs reference counts, so it is done once. `keep_alive` below keeps the local arrays until the end.
    key_bytes, key_bounds, slot_table, first, last = view(keys), view(bounds), view(table), view(starts), view(ends)
    seen_at, known, words, levels = view(seen), view(memory), view(leads), view(stack)
    rows = 0
    wrong = 0
    begin = 0
    while begin < n:
        p = skip_space(buf, begin, n)
        c = byte_at(buf, p, n)
        verdict = OK
        if c == 123:
            p = scan_members(
                buf, p, n, rows, key_bytes, key_bounds, slot_table, len(table), first, last, slots, room, seen_at,
                known, words, levels, specials,
            )  # fmt: skip
            if p < 0:
                verdict = -p
                stop = find_byte(buf, begin, n, 10)
            else:
                stop = p
                if byte_at(buf, p, n) != 10:
                    stop = skip_space(buf, p, n)
                    if byte_at(buf, stop, n) != 10:
                        verdict = BAD_JSON
                        stop = find_byte(buf, stop, n, 10)
        elif c == 10:
            stop = p
            if stop - begin <= longest:
                begin = stop + 1
                continue
        else:
            stop = find_byte(buf, begin, n, 10)
            e = value_end(buf, p, n, levels, specials)
            verdict = NOT_AN_OBJECT if e >= 0 and skip_space(buf, e >> 1, n) == stop else BAD_JSON
        if stop - begin > longest:
            verdict = TOO_LONG
        if verdict == OK:
            begins[rows] = begin
            stops[rows] = stop
            rows += 1
        else:
            bad[wrong, 0] = begin
            bad[wrong, 1] = stop
            bad[wrong, 2] = verdict
            wrong += 1
            seen[:] = -1
        begin = stop + 1
    keep_alive(seen, memory, leads, stack)
    return rows, wrong


@kernel
def scan_objects(
    data: Any, places: Any, keys: Any, bounds: Any, table: Any, starts: Any, ends: Any, status: Any, wrong: int
) -> None:
    """Scan the objects that begin at `places` (-1: none), one row each. `status` is `wrong` where there is no object.

    `scan_lines` has checked the text before.
    """
    buf, n = view(data), len(data)
    slots, room = starts.shape
    seen = np.full(slots + 1, -1, np.int32)
    memory = np.zeros(3 * REMEMBERED, np.int32)
    leads = np.empty(2 * REMEMBERED, np.uint64)
    stack = np.empty(MAX_DEPTH, np.uint8)
    key_bytes, key_bounds, slot_table, first, last = view(keys), view(bounds), view(table), view(starts), view(ends)
    seen_at, known, words, levels = view(seen), view(memory), view(leads), view(stack)
    for row in range(len(places)):
        p = places[row]
        if p >= 0 and get8(buf, p) == 123:
            scan_members(
                buf, p, n, row, key_bytes, key_bounds, slot_table, len(table), first, last, slots, room, seen_at,
                known, words, levels, True,
            )  # fmt: skip
            continue
        if p >= 0:
            status[row] = wrong
        for slot in range(slots):
            starts[slot, row] = -1
    keep_alive(seen, memory, leads, stack)


@kernel
def scan_items(
    data: Any, places: Any, opening: int, counts: Any, starts: Any, ends: Any, key_starts: Any, key_ends: Any,
    status: Any, wrong: int,
) -> int:  # fmt: skip
    """Locate the items of the arrays, or the members of the objects, at `places`. `opening` is [ or {. Returns how many
    there are in all.

    With empty `starts` it only counts. `counts[row]` is the number of items of a row.
    """
    buf, n = view(data), len(data)
    stack = np.empty(MAX_DEPTH, np.uint8)
    levels = view(stack)
    keep = len(starts) > 0
    total = 0
    for row in range(len(places)):
        counts[row] = 0
        p = places[row]
        if p < 0:
            continue
        if get8(buf, p) != opening:
            status[row] = wrong
            continue
        first = total
        p = skip_space(buf, p + 1, n)
        while get8(buf, p) != opening + 2:
            if opening == 123:
                e = string_end(buf, p, n)
                if keep:
                    key_starts[total] = p
                    key_ends[total] = e >> 1 if e & 1 == 0 else ~(e >> 1)
                p = skip_space(buf, e >> 1, n) + 1
                p = skip_space(buf, p, n)
            e = value_end(buf, p, n, levels, True)
            if keep:
                starts[total] = -1 if get8(buf, p) == 110 else p
                ends[total] = e >> 1 if e & 1 == 0 else ~(e >> 1)
            total += 1
            p = skip_space(buf, e >> 1, n)
            if get8(buf, p) == 44:
                p = skip_space(buf, p + 1, n)
        counts[row] = total - first
    keep_alive(stack, stack, stack, stack)
    return total


@kernel
def count_items(data: Any, members: bool) -> int:
    """The number of items of all arrays in JSON lines, or a few more. With `members` those of objects count, too."""
    buf, n = view(data), len(data)
    stack = np.empty(MAX_DEPTH, np.uint8)
    levels = view(stack)
    p = found = depth = inner = 0  # `inner` is the innermost open bracket, 0 outside of all
    while p < n:
        c = get8(buf, p)
        if c == 34:
            e = string_end(buf, p, n)
            p = p + 1 if e < 0 else e >> 1
            continue
        if c == 44:
            if members or inner != 123:
                found += 1
        elif c == 91 or c == 123:
            if members or c == 91:
                found += 1
            if depth < MAX_DEPTH:
                put8(levels, depth, inner)
                depth += 1
                inner = c
        elif c == 93 or c == 125:
            depth -= 1 if depth else 0
            inner = get8(levels, depth) if depth else 0
        elif c == 10:
            depth = inner = 0
        p += 1
    keep_alive(stack, stack, stack, stack)
    return found
