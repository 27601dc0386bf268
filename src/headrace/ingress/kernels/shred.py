"""The sequence shredder's inner loop: bitmaps, waiting buffers and the records they complete, all in arrays.

`headrace.ingress.shredder` owns the arrays and explains them. Positions are sequence numbers that never
wrap: position 0 stands for the beginning of the origin and counts as a buffer that ends with a delimiter.
"""

# Numba needs plain comparisons and its own integer types, so some lints and type checks do not apply.
# mypy: disable-error-code="no-any-return,return-value,assignment,arg-type"
from __future__ import annotations

from typing import Any

import numpy as np

from headrace.formats.kernels.jit import helper, kernel
from headrace.formats.kernels.simd import leading_zeros, trailing_zeros
from headrace.ingress.kernels.array_columns import (
    A_FIRST,
    A_FLAGS,
    A_LAST,
    A_LENGTH,
    A_ORIGIN,
    A_REF,
    A_SEQUENCE,
    BASE,
    DEFINITE,
    DUPLICATE,
    ENDED,
    ENDS,
    HEAD_DONE,
    OK,
    ORIGIN,
    OUT_OF_RANGE,
    OWNER,
    PASSED,
    POSITION,
    REF,
    REFUSED,
    REST,
    RING,
    SPANNING,
    T_FRAGMENTS,
    T_FREE_SLOTS,
    T_ORIGINS,
    T_UNITS,
    TAIL,
    TAIL_DONE,
    U_BYTES,
    U_FLAGS,
    U_FRAGMENTS,
    U_FROM,
    U_ORIGIN,
    U_TO,
    UNTERMINATED,
    VIRTUAL,
    ZERO,
)
from headrace.ingress.kernels.buffer_tables import (
    add_node,
    find_cell,
    find_node,
    find_origin,
    first_of,
    flag,
    last_of,
    length_of,
    mixed,
    release,
    remove_cell,
    set_flag,
)

ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
ONE = np.uint64(1)


@helper
def back_to_delimiter(delimiters: Any, used: Any, offset: int, mask: int, tail: int, position: int) -> int:
    """The nearest buffer before `position` that holds a delimiter, if all between arrived and hold none; else -1."""
    at = position - 1
    while at >= tail:
        word = offset + ((at >> 6) & mask)
        stops = (delimiters[word] | ~used[word]) & (ALL >> np.uint64(63 - (at & 63)))
        if stops != 0:
            bit = 63 - leading_zeros(stops)
            if (delimiters[word] >> np.uint64(bit)) & ONE == ONE:
                return (at >> 6 << 6) + bit
            return -1
        at = (at >> 6 << 6) - 1
    return -1


@helper
def on_to_delimiter(delimiters: Any, used: Any, offset: int, mask: int, tail: int, position: int) -> int:
    """The nearest buffer after `position` that holds a delimiter, if all between arrived and hold none; else -1."""
    at = position + 1
    stop = tail + ((mask + 1) << 6)
    while at < stop:
        word = offset + ((at >> 6) & mask)
        stops = (delimiters[word] | ~used[word]) & (ALL << np.uint64(at & 63))
        if stops != 0:
            bit = trailing_zeros(stops)
            if (delimiters[word] >> np.uint64(bit)) & ONE == ONE:
                return (at >> 6 << 6) + bit
            return -1
        at = (at >> 6 << 6) + 64
    return -1


@helper
def add_fragment(fragments: Any, totals: Any, ref: int, begin: int, end: int) -> int:
    """Append a fragment unless it is empty. Returns its bytes."""
    if end > begin:
        at = totals[T_FRAGMENTS]
        fragments[at, 0] = ref
        fragments[at, 1] = begin
        fragments[at, 2] = end
        totals[T_FRAGMENTS] += 1
    return end - begin


@helper
def add_unit(units: Any, totals: Any, origin: int, begin: int, end: int, fragments: int, size: int, flags: int) -> None:
    if size == 0 and flags & SPANNING == 0:
        return
    at = totals[T_UNITS]
    units[at, U_ORIGIN] = origin
    units[at, U_FROM] = begin
    units[at, U_TO] = end
    units[at, U_FRAGMENTS] = totals[T_FRAGMENTS] - fragments
    units[at, U_BYTES] = size
    units[at, U_FLAGS] = flags
    totals[T_UNITS] += 1


@helper
def emit_span(
    nodes: Any, index: Any, free: Any, totals: Any, units: Any, fragments: Any, origin: int, slot: int,
    begin: int, end: int, inner: bool,
) -> None:  # fmt: skip
    """The record that begins in `begin` and ends in `end`; with `inner`, also the whole records of `end` after it."""
    before = totals[T_FRAGMENTS]
    size = 0
    for position in range(begin, end):
        cell = find_cell(nodes, index, slot, position)
        if cell < 0:
            continue  # position 0
        node = (index[cell] & 0xFFFFFFFF) - 1
        start = last_of(nodes, node) if position == begin else 0
        size += add_fragment(fragments, totals, nodes[node, REF], start, length_of(nodes, node))
        set_flag(nodes, node, TAIL_DONE if position == begin else HEAD_DONE | TAIL_DONE)
        release(nodes, index, free, totals, cell)
    cell = find_cell(nodes, index, slot, end)
    node = (index[cell] & 0xFFFFFFFF) - 1
    stop = last_of(nodes, node) if inner else first_of(nodes, node)
    size += add_fragment(fragments, totals, nodes[node, REF], 0, stop)
    cut = flag(nodes, node, VIRTUAL) and stop == length_of(nodes, node)
    set_flag(nodes, node, HEAD_DONE)
    release(nodes, index, free, totals, cell)
    add_unit(units, totals, origin, begin, end, before, size, SPANNING | (UNTERMINATED if cut else 0))


@helper
def take(
    heads: Any, delimiters: Any, used: Any, offset: int, mask: int, nodes: Any, index: Any, free: Any, totals: Any,
    units: Any, fragments: Any, slot: int, node: int, yes: bool,
) -> None:  # fmt: skip
    """A buffer whose delimiters are known enters the bitmaps; emits what it completes."""
    origin, position = heads[slot, ORIGIN], nodes[node, POSITION]
    word, bit = offset + ((position >> 6) & mask), ONE << np.uint64(position & 63)
    set_flag(nodes, node, DEFINITE)
    back = back_to_delimiter(delimiters, used, offset, mask, heads[slot, TAIL], position)
    on = on_to_delimiter(delimiters, used, offset, mask, heads[slot, TAIL], position)
    if not yes:
        used[word] |= bit
        if back >= 0 and on >= 0:
            emit_span(nodes, index, free, totals, units, fragments, origin, slot, back, on, False)
    else:
        delimiters[word] |= bit
        if back >= 0:
            emit_span(nodes, index, free, totals, units, fragments, origin, slot, back, position, True)
        else:
            before = totals[T_FRAGMENTS]
            stop = last_of(nodes, node)
            size = add_fragment(fragments, totals, nodes[node, REF], first_of(nodes, node), stop)
            cut = flag(nodes, node, VIRTUAL) and stop == length_of(nodes, node)
            add_unit(units, totals, origin, position, position, before, size, UNTERMINATED if cut else 0)
        if on >= 0:
            used[word] |= bit
            emit_span(nodes, index, free, totals, units, fragments, origin, slot, position, on, False)
    if back >= 0 and (yes or on >= 0):
        used[offset + ((back >> 6) & mask)] |= ONE << np.uint64(back & 63)
        tail = heads[slot, TAIL]
        word = offset + ((tail >> 6) & mask)
        while used[word] == ALL:
            used[word] = 0
            delimiters[word] = 0
            tail += 64
            word = offset + ((tail >> 6) & mask)
        heads[slot, TAIL] = tail


@helper
def hand_on(
    heads: Any, delimiters: Any, used: Any, offset: int, mask: int, nodes: Any, index: Any, free: Any, totals: Any,
    units: Any, fragments: Any, maybe: Any, slot: int, position: int, state: int,
) -> None:  # fmt: skip
    """A buffer's end state is known: pass it to the next one, which may resolve that one, and so on."""
    while True:
        cell = find_cell(nodes, index, slot, position)
        node = find_node(nodes, index, slot, position + 1)
        after = position + 1
        word, bit = offset + ((after >> 6) & mask), ONE << np.uint64(after & 63)
        seen = node >= 0 or after < heads[slot, TAIL] or (delimiters[word] | used[word]) & bit != 0
        if seen and cell >= 0:
            set_flag(nodes, (index[cell] & 0xFFFFFFFF) - 1, PASSED)
            release(nodes, index, free, totals, cell)
        if node < 0:
            return
        was_ended = flag(nodes, node, ENDED)
        next_state = nodes[node, REST] & 255
        if not was_ended:
            next_state = maybe[node, state, 2]
            nodes[node, REST] = (nodes[node, REST] & ~np.int64(255)) | next_state
            set_flag(nodes, node, ENDED)
        if not flag(nodes, node, DEFINITE):
            nodes[node, ENDS] = (np.int64(max(maybe[node, state, 0], 0)) << 32) | np.int64(
                max(maybe[node, state, 1], 0)
            )
            take(
                heads, delimiters, used, offset, mask, nodes, index, free, totals, units, fragments, slot, node,
                maybe[node, state, 0] >= 0,
            )  # fmt: skip
        if was_ended:
            return  # the next one was resolved before
        position += 1
        state = next_state


@kernel
def shred(
    keys: Any, slots: Any, heads: Any, free_slots: Any, base_delimiters: Any, base_used: Any, big_delimiters: Any,
    big_used: Any, nodes: Any, index: Any, free: Any, maybe: Any, totals: Any, highest: int, arrivals: Any,
    outcomes: Any, begin: int, units: Any, fragments: Any,
) -> tuple[int, int]:  # fmt: skip
    """Process arrivals from `begin` on: (the next one, why it was refused). Stops at the first that is refused."""
    states = outcomes.shape[1]
    for i in range(begin, len(arrivals)):
        sequence = arrivals[i, A_SEQUENCE]
        if sequence < 1 or sequence > highest:
            return i, ZERO
        origin = arrivals[i, A_ORIGIN]
        place = find_origin(keys, origin)
        if keys[place] == -1:
            totals[T_FREE_SLOTS] -= 1
            slot = free_slots[totals[T_FREE_SLOTS]]
            keys[place] = origin
            slots[place] = slot
            totals[T_ORIGINS] += 1
            heads[slot, TAIL] = 0
            heads[slot, RING] = (np.int64(slot) << 3 << 8) | BASE
            heads[slot, REFUSED] = 0
            heads[slot, ORIGIN] = origin
            base_delimiters[slot * 8] = ONE
        slot = slots[place]
        ring = heads[slot, RING]
        big = ring & 255 != BASE
        delimiters = big_delimiters if big else base_delimiters
        used = big_used if big else base_used
        offset, mask = ring >> 8, (1 << (ring & 255)) - 1
        tail = heads[slot, TAIL]
        # The distance from the tail, around the wrap; position p has the sequence number (p - 1) % highest + 1.
        ahead = (sequence - 1 - ((tail - 1) % highest)) % highest
        if ahead >= (mask + 1) << 6 or tail + ahead == 0:
            if ahead > highest // 2:
                return i, DUPLICATE  # before the tail
            heads[slot, REFUSED] += 1
            return i, OUT_OF_RANGE
        position = tail + ahead
        word, bit = offset + ((position >> 6) & mask), ONE << np.uint64(position & 63)
        if (delimiters[word] | used[word]) & bit != 0:
            return i, DUPLICATE
        if states > 1 and find_node(nodes, index, slot, position) >= 0:
            return i, DUPLICATE
        node = add_node(nodes, index, free, totals, slot, position)
        nodes[node, REF] = arrivals[i, A_REF]
        length, flags = arrivals[i, A_LENGTH], arrivals[i, A_FLAGS]
        if states == 1:
            first, last = arrivals[i, A_FIRST], arrivals[i, A_LAST]
            nodes[node, ENDS] = (max(first, 0) << 32) | max(last, 0)
            nodes[node, REST] = (length << 16) | ((PASSED | ENDED | (VIRTUAL if flags & 1 else 0)) << 8)
            take(
                heads, delimiters, used, offset, mask, nodes, index, free, totals, units, fragments, slot, node,
                first >= 0,
            )  # fmt: skip
            continue
        same, same_end = True, True
        for s in range(states):
            for k in range(3):
                maybe[node, s, k] = outcomes[i, s, k]
            same = same and outcomes[i, s, 0] == outcomes[i, 0, 0] and outcomes[i, s, 1] == outcomes[i, 0, 1]
            same_end = same_end and outcomes[i, s, 2] == outcomes[i, 0, 2]
        nodes[node, REST] = (length << 16) | ((VIRTUAL if flags & 1 else 0) << 8)
        if same_end:
            nodes[node, REST] |= outcomes[i, 0, 2]
            set_flag(nodes, node, ENDED)
        if same:
            nodes[node, ENDS] = (np.int64(max(outcomes[i, 0, 0], 0)) << 32) | np.int64(max(outcomes[i, 0, 1], 0))
            take(
                heads, delimiters, used, offset, mask, nodes, index, free, totals, units, fragments, slot, node,
                outcomes[i, 0, 0] >= 0,
            )  # fmt: skip
        if same_end:
            hand_on(
                heads, delimiters, used, offset, mask, nodes, index, free, totals, units, fragments, maybe, slot,
                position, np.int64(outcomes[i, 0, 2]),
            )  # fmt: skip
        if position == 1:
            hand_on(
                heads, delimiters, used, offset, mask, nodes, index, free, totals, units, fragments, maybe, slot, 0, 0
            )  # fmt: skip
        else:
            before = find_node(nodes, index, slot, position - 1)
            if before >= 0 and flag(nodes, before, ENDED):
                hand_on(
                    heads, delimiters, used, offset, mask, nodes, index, free, totals, units, fragments, maybe, slot,
                    position - 1, nodes[before, REST] & 255,
                )  # fmt: skip
    return len(arrivals), OK


@kernel
def move_ring(heads: Any, slot: int, old_d: Any, old_u: Any, new_d: Any, new_u: Any, offset: int, log: int) -> None:
    """Copy an origin's bitmaps into a ring of 2**log at `offset` of the new arrays, and clear the old ones."""
    ring = heads[slot, RING]
    start, mask = ring >> 8, (1 << (ring & 255)) - 1
    tail = heads[slot, TAIL] >> 6
    for k in range(mask + 1):
        source, target = start + ((tail + k) & mask), offset + ((tail + k) & ((1 << log) - 1))
        new_d[target] = old_d[source]
        new_u[target] = old_u[source]
        old_d[source] = 0
        old_u[source] = 0
    heads[slot, RING] = (np.int64(offset) << 8) | log
    heads[slot, REFUSED] = 0


@kernel
def drop_origin(
    keys: Any, slots: Any, heads: Any, free_slots: Any, base_delimiters: Any, base_used: Any, big_delimiters: Any,
    big_used: Any, nodes: Any, index: Any, free: Any, totals: Any, states: int, origin: int, keep_waiting: bool,
) -> tuple[int, int, int]:  # fmt: skip
    """Forget an origin: (its ring, the bytes of it that are in no record, the buffers that wait for others); ring -1 if
    it is unknown. With `keep_waiting` nothing changes when buffers still wait for missing ones."""
    place = find_origin(keys, origin)
    if keys[place] == -1:
        return -1, 0, 0
    slot = slots[place]
    ring = heads[slot, RING]
    big = ring & 255 != BASE
    delimiters = big_delimiters if big else base_delimiters
    used = big_used if big else base_used
    offset, mask = ring >> 8, (1 << (ring & 255)) - 1
    tail = heads[slot, TAIL]
    open_bytes, waiting, missing = 0, 0, False
    for position in range(max(tail, 1), tail + ((mask + 1) << 6)):
        word, bit = offset + ((position >> 6) & mask), ONE << np.uint64(position & 63)
        node = find_node(nodes, index, slot, position)
        if node < 0:
            missing = missing or (delimiters[word] | used[word]) & bit == 0
            continue
        waiting += 1 if missing else 0
        if not flag(nodes, node, DEFINITE) or (delimiters[word] & bit) == 0:
            open_bytes += length_of(nodes, node)
            continue
        if not flag(nodes, node, HEAD_DONE):
            open_bytes += first_of(nodes, node)
        if not flag(nodes, node, TAIL_DONE):
            open_bytes += length_of(nodes, node) - last_of(nodes, node)
    if keep_waiting and waiting > 0:
        return ring, open_bytes, waiting
    for position in range(max(tail, 1), tail + ((mask + 1) << 6)):
        cell = find_cell(nodes, index, slot, position)
        if cell >= 0:
            remove_cell(nodes, index, free, totals, cell)
    if states > 1:  # used up, but still waiting for the state they begin in
        for node in range(len(nodes)):
            if nodes[node, OWNER] == slot + 1:
                remove_cell(nodes, index, free, totals, find_cell(nodes, index, slot, nodes[node, POSITION]))
    for k in range(mask + 1):
        delimiters[offset + k] = 0
        used[offset + k] = 0
    # The map closes its gap as the index of nodes does.
    size = len(keys) - 1
    hole = place
    at = place
    while True:
        at = (at + 1) & size
        if keys[at] == -1:
            break
        home = mixed(keys[at]) & size
        if ((at - home) & size) >= ((at - hole) & size):
            keys[hole] = keys[at]
            slots[hole] = slots[at]
            hole = at
    keys[hole] = -1
    free_slots[totals[T_FREE_SLOTS]] = slot
    totals[T_FREE_SLOTS] += 1
    totals[T_ORIGINS] -= 1
    return ring, open_bytes, waiting
