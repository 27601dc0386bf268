"""The shredder's tables: origins by their number, and the buffers that wait by origin and position."""

# Numba needs plain comparisons and its own integer types, so some lints and type checks do not apply.
# mypy: disable-error-code="no-any-return,return-value,assignment,arg-type"
from __future__ import annotations

from typing import Any

import numpy as np

from headrace.formats.kernels.jit import helper, inlined, kernel
from headrace.ingress.kernels.array_columns import (
    ENDS,
    HEAD_DONE,
    OWNER,
    PASSED,
    POSITION,
    REST,
    T_FREE_NODES,
    TAIL_DONE,
)


@inlined
def mixed(value: int) -> int:
    x = np.uint64(value) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((x ^ (x >> np.uint64(29))) & np.uint64(0x7FFFFFFFFFFFFFFF))


@helper
def find_origin(keys: Any, origin: int) -> int:
    """The place of `origin` in the map, or the free place for it."""
    mask = len(keys) - 1
    at = mixed(origin) & mask
    while keys[at] != -1 and keys[at] != origin:
        at = (at + 1) & mask
    return at


@inlined
def node_hash(slot: int, position: int) -> int:
    """31 bits. Eight neighbours share a cache line of the index: what a record spans is looked up together."""
    return (mixed((position >> 3) * 0x100000001B3 + slot) << 3 | (position + slot & 7)) & 0x7FFFFFFF


# A cell of the index is (hash << 32 | row + 1), 0 for none: the hash avoids reading rows of other buffers.


@helper
def find_cell(nodes: Any, index: Any, slot: int, position: int) -> int:
    """The cell of the waiting buffer at a position, or -1."""
    mask = len(index) - 1
    code = node_hash(slot, position)
    at = code & mask
    while index[at] != 0:
        if index[at] >> 32 == code:
            node = (index[at] & 0xFFFFFFFF) - 1
            if nodes[node, POSITION] == position and nodes[node, OWNER] == slot + 1:
                return at
        at = (at + 1) & mask
    return -1


@helper
def find_node(nodes: Any, index: Any, slot: int, position: int) -> int:
    """The waiting buffer at a position, or -1."""
    cell = find_cell(nodes, index, slot, position)
    return -1 if cell < 0 else (index[cell] & 0xFFFFFFFF) - 1


@helper
def enter(index: Any, code: int, node: int) -> None:
    """Add a cell for a buffer that has none."""
    mask = len(index) - 1
    at = code & mask
    while index[at] != 0:
        at = (at + 1) & mask
    index[at] = np.int64(code) << 32 | np.int64(node + 1)


@helper
def add_node(nodes: Any, index: Any, free: Any, totals: Any, slot: int, position: int) -> int:
    """Add a row for the buffer at a position that has none."""
    totals[T_FREE_NODES] -= 1
    node = free[totals[T_FREE_NODES]]
    nodes[node, OWNER] = slot + 1
    nodes[node, POSITION] = position
    enter(index, node_hash(slot, position), node)
    return node


@helper
def remove_cell(nodes: Any, index: Any, free: Any, totals: Any, at: int) -> None:
    """Free a cell and the row of its buffer."""
    mask = len(index) - 1
    node = (index[at] & 0xFFFFFFFF) - 1
    # Close the gap: entries that may be stored here move up, so that no search stops too early.
    hole = at
    while True:
        at = (at + 1) & mask
        other = index[at]
        if other == 0:
            break
        if ((at - (other >> 32)) & mask) >= ((at - hole) & mask):
            index[hole] = other
            hole = at
    index[hole] = 0
    nodes[node, OWNER] = 0
    free[totals[T_FREE_NODES]] = node
    totals[T_FREE_NODES] += 1


@inlined
def flag(nodes: Any, node: int, bit: int) -> bool:
    return (nodes[node, REST] >> 8) & bit != 0


@inlined
def set_flag(nodes: Any, node: int, bit: int) -> None:
    nodes[node, REST] |= bit << 8


@inlined
def first_of(nodes: Any, node: int) -> int:
    return nodes[node, ENDS] >> 32


@inlined
def last_of(nodes: Any, node: int) -> int:
    return nodes[node, ENDS] & 0xFFFFFFFF


@inlined
def length_of(nodes: Any, node: int) -> int:
    return nodes[node, REST] >> 16


@helper
def release(nodes: Any, index: Any, free: Any, totals: Any, cell: int) -> None:
    """Free a buffer that no record needs any more."""
    needed = HEAD_DONE | TAIL_DONE | PASSED
    if (nodes[(index[cell] & 0xFFFFFFFF) - 1, REST] >> 8) & needed == needed:
        remove_cell(nodes, index, free, totals, cell)


@kernel
def reindex(nodes: Any, index: Any) -> None:
    """Enter every waiting buffer into an empty index."""
    for node in range(len(nodes)):
        if nodes[node, OWNER] > 0:
            enter(index, node_hash(nodes[node, OWNER] - 1, nodes[node, POSITION]), node)


@kernel
def remap(keys: Any, slots: Any, new_keys: Any, new_slots: Any) -> None:
    """Enter every origin into an empty map."""
    for i in range(len(keys)):
        if keys[i] != -1:
            at = find_origin(new_keys, keys[i])
            new_keys[at] = keys[i]
            new_slots[at] = slots[i]
