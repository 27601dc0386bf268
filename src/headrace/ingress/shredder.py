"""The sequence shredder: takes buffers in any order and finds each record exactly once.

Buffers of an *origin* have sequence numbers 1, 2, 3, ... They may arrive in any order and from any thread. The shredder
knows where the first and the last delimiter of a buffer end, but never its bytes. A record that begins in one buffer
and ends in another (*spanning*) is complete when both and all buffers between them have arrived. The last of these
arrivals emits it.

**Guarantee.** Every byte up to the last delimiter of the gap-free part of an origin is in exactly one unit. Proof: a
buffer has two bits, *delimiter* and *used*. A buffer without a delimiter is used at once. A buffer with one is used
when the record that begins in it is complete. An arrival searches backward and forward from its position, over buffers
that are used and have no delimiter, for one that has. If it finds one on both sides, the record is complete. It was not
complete before this arrival set its bit, so no other arrival emits it. A bitmap of 64 used buffers leaves the ring.

**Uncertain delimiters.** The position of a delimiter may depend on earlier bytes: a delimiter of several bytes may be
split, and a newline may be inside quotes. The delimiter finder of the format (`headrace.ingress.delimiting`) is then an
automaton, and a buffer has one outcome (first, last, end state) for each state that it may begin in. Outcomes that
agree count at once. A buffer that only *may* have a delimiter waits outside the bitmaps until the end state of the
buffer before it is known.

All state is in arrays. An origin takes 128 bytes of bitmaps, 32 of header and 16 in the map, and each waiting buffer
takes 40. A ring covers 8 x 64 buffers at first. A number beyond the ring is refused without effect. After `GROW_AFTER`
refusals the ring doubles, up to `MAX_WINDOW`. Numbers wrap from `highest` to 1."""

from __future__ import annotations

import math
import mmap
import threading
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.base.arrays import Ints
from headrace.errors import BadSequence
from headrace.ingress.kernels import array_columns as k
from headrace.ingress.kernels import buffer_tables, shred

HIGHEST = 2**62
GROW_AFTER = 8
MAX_WINDOW = 1 << 22  # buffers of one origin between the oldest that waits and the newest; 1 MB of bitmaps
_NO_OUTCOMES = np.empty((0, 1, 3), np.int32)

_REASONS = {k.OK: "", k.OUT_OF_RANGE: "", k.DUPLICATE: "duplicate", k.ZERO: "not_a_sequence_number"}


@dataclass(frozen=True, slots=True)
class Shredded:
    """The units that arrivals completed. A row of `units` is (origin, first position, last position, fragments, bytes,
    flags). `fragments` has their fragments in the same order, as rows of (reference, begin, end). A unit with the flag
    SPANNING begins before the buffer in which it ends. A unit with UNTERMINATED ends without a delimiter.

    `accepted` arrivals took effect. `refused` is the reason why the next one did not, or empty: `out_of_range` (offer
    it again), `too_far` (its ring cannot grow further), `duplicate` or `not_a_sequence_number`."""

    units: Ints
    fragments: Ints
    accepted: int
    refused: str = ""


class SequenceShredder:
    """The shredder; see the module. `states` is the number of states of the delimiter finder. Thread-safe."""

    def __init__(self, states: int = 1, highest: int = HIGHEST) -> None:
        if highest < 4 * (64 << k.BASE):
            raise ValueError("sequence numbers must reach further than a ring")
        self.states, self.highest = states, highest
        self._lock = threading.Lock()
        self._keys, self._slots = np.full(64, -1, np.int64), np.zeros(64, np.int32)
        self._heads = np.zeros((0, k.HEAD_COLUMNS), np.int64)
        self._free_slots = np.empty(0, np.int32)
        self._base = (np.zeros(0, np.uint64), np.zeros(0, np.uint64))
        self._big = (np.zeros(0, np.uint64), np.zeros(0, np.uint64))
        self._big_end = 0
        self._big_free: defaultdict[int, list[int]] = defaultdict(list)
        self._nodes = np.zeros((0, k.NODE_COLUMNS), np.int64)
        self._index = np.zeros(16, np.int64)
        self._free = np.empty(0, np.int32)
        self._maybe = np.empty((0 if states > 1 else 1, states, 3), np.int32)
        self._totals = np.zeros(k.TOTALS, np.int64)

    # --- arrivals ---------------------------------------------------------------------------------

    def offer(self, arrivals: Ints, outcomes: npt.NDArray[np.int32] | None = None, begin: int = 0) -> Shredded:
        """Process arrivals (rows of origin, sequence, reference, first, last, length, flags) in order, from `begin` on,
        up to the first refused one. That one has no effect. If it was out of range, it may be offered again.

        `first` and `last` are the positions after the first and the last delimiter, -1 for none. With several states
        they come from `outcomes`, rows of (first, last, end state) per state. Flag 1: the end of the buffer ends its
        last record, so `last` is its length in every outcome.
        """
        found = _NO_OUTCOMES if outcomes is None else outcomes
        with self._lock:
            count = len(arrivals) - begin
            self._make_room(count)
            waiting = len(self._free) - int(self._totals[k.T_FREE_NODES]) + count
            units = np.empty((2 * waiting, k.UNIT_COLUMNS), np.int64)
            fragments = np.empty((3 * waiting, 3), np.int64)
            self._totals[[k.T_UNITS, k.T_FRAGMENTS]] = 0
            at, why = shred.shred(
                self._keys, self._slots, self._heads, self._free_slots, *self._base, *self._big, self._nodes,
                self._index, self._free, self._maybe, self._totals, self.highest, arrivals, found, begin, units,
                fragments,
            )  # fmt: skip
            refused = _REASONS[why]
            if why == k.OUT_OF_RANGE:
                refused = self._refuse(int(arrivals[at, k.A_ORIGIN]))
            return Shredded(units[: self._totals[k.T_UNITS]], fragments[: self._totals[k.T_FRAGMENTS]], at, refused)

    def arrive(self, arrivals: Ints, outcomes: npt.NDArray[np.int32] | None = None) -> Shredded:
        """Process arrivals in order. Repeats arrivals that are out of range until the ring has grown. The result
        depends only on the order of all arrivals, not on their division into calls. `refused` is never set: an
        impossible sequence number raises BadSequence, after the arrivals before it took effect."""
        parts: list[Shredded] = []
        at = 0
        while True:
            part = self.offer(arrivals, outcomes, at)
            parts.append(part)
            at = part.accepted
            if at == len(arrivals):
                break
            if part.refused != "out_of_range":
                raise bad_sequence(arrivals[at], part.refused)
        if len(parts) == 1:
            return parts[0]
        units = np.concatenate([p.units for p in parts])
        return Shredded(units, np.concatenate([p.fragments for p in parts]), at)

    # --- ends -------------------------------------------------------------------------------------

    def close(self, origin: int) -> int:
        """Forget an origin. Returns the number of its bytes that are in no record and are discarded."""
        with self._lock:
            ring, lost, _ = self._drop(origin, False)
            self._give_back(ring)
            return lost

    def close_if_complete(self, origin: int) -> int | None:
        """As `close`. But if buffers of the origin still wait for missing ones, does nothing and returns None."""
        with self._lock:
            ring, lost, waiting = self._drop(origin, True)
            if waiting:
                return None
            self._give_back(ring)
            return lost

    def _drop(self, origin: int, keep_waiting: bool) -> tuple[int, int, int]:
        return shred.drop_origin(
            self._keys, self._slots, self._heads, self._free_slots, *self._base, *self._big, self._nodes, self._index,
            self._free, self._totals, self.states, origin, keep_waiting,
        )  # fmt: skip

    def _give_back(self, ring: int) -> None:
        if ring >= 0 and ring & 255 != k.BASE:
            self._big_free[ring & 255].append(ring >> 8)

    # --- facts ------------------------------------------------------------------------------------

    @property
    def origins(self) -> int:
        """The number of known origins."""
        return int(self._totals[k.T_ORIGINS])

    @property
    def waiting(self) -> int:
        """The number of buffers with an incomplete record."""
        return len(self._free) - int(self._totals[k.T_FREE_NODES])

    def window(self, origin: int) -> int:
        """How many consecutive buffers the ring of a known origin covers."""
        return 64 << (int(self._heads[self._slot(origin), k.RING]) & 255)

    def _slot(self, origin: int) -> int:
        return int(self._slots[buffer_tables.find_origin(self._keys, origin)])

    def waiting_below(self, ref: int) -> Ints:
        """(origin, reference, begin, end) of the kept parts of buffers with a reference below `ref`, for owners that
        move them."""
        with self._lock:
            nodes = self._nodes
            found = np.flatnonzero((nodes[:, k.OWNER] > 0) & (nodes[:, k.REF] < ref))
            begin = np.where((nodes[found, k.REST] >> 8) & k.HEAD_DONE, nodes[found, k.ENDS] & 0xFFFFFFFF, 0)
            origins = self._heads[nodes[found, k.OWNER] - 1, k.ORIGIN]
            return np.stack([origins, nodes[found, k.REF], begin, nodes[found, k.REST] >> 16], axis=1)

    def lowest(self) -> int | None:
        """The lowest reference of a kept buffer."""
        with self._lock:
            live = self._nodes[self._nodes[:, k.OWNER] > 0, k.REF]
            return int(live.min()) if len(live) else None

    def move(self, old: Ints, new: Ints, shift: Ints) -> None:
        """Change the references of buffers from `old` to `new`, without their first `shift` bytes."""
        with self._lock:
            order = np.argsort(old)
            nodes = self._nodes
            rows = np.flatnonzero((nodes[:, k.OWNER] > 0) & np.isin(nodes[:, k.REF], old))
            at = order[np.searchsorted(old, nodes[rows, k.REF], sorter=order)]
            nodes[rows, k.REF] = new[at]
            nodes[rows, k.ENDS] -= shift[at]
            nodes[rows, k.REST] -= shift[at] << 16

    # --- room -------------------------------------------------------------------------------------

    def _make_room(self, count: int) -> None:
        """Arrays large enough for `count` arrivals, each from a new origin."""
        free = int(self._totals[k.T_FREE_NODES])
        if free < count:
            old = len(self._nodes)
            new = max(1024, old + max(old // 2, count - free))
            self._nodes = _extended(self._nodes, new)
            self._free = _extended(self._free, new)
            self._free[free : free + new - old] = np.arange(new - 1, old - 1, -1)
            self._totals[k.T_FREE_NODES] += new - old
            if self.states > 1:
                self._maybe = _extended(self._maybe, new)
            if 4 * new > 3 * len(self._index):
                self._index = _zeros((1 << (4 * new // 3).bit_length(),), np.int64)
                buffer_tables.reindex(self._nodes, self._index)
        slots = int(self._totals[k.T_FREE_SLOTS])
        if slots < count:
            old = len(self._heads)
            new = max(64, old + max(old // 2, count - slots))
            self._heads = _extended(self._heads, new)
            self._base = (_extended(self._base[0], new << 3), _extended(self._base[1], new << 3))
            self._free_slots = _extended(self._free_slots, new)
            self._free_slots[slots : slots + new - old] = np.arange(new - 1, old - 1, -1)
            self._totals[k.T_FREE_SLOTS] += new - old
        if 4 * (self.origins + count) > 3 * len(self._keys):
            size = 1 << (4 * (self.origins + count) // 3).bit_length()
            keys, places = _zeros((size,), np.int64), _zeros((size,), np.int32)
            keys[:] = -1
            buffer_tables.remap(self._keys, self._slots, keys, places)
            self._keys, self._slots = keys, places

    def _refuse(self, origin: int) -> str:
        """Handle a sequence number beyond the ring of its origin: double the ring if that happened often enough."""
        if 2 * self.window(origin) > min(MAX_WINDOW, self.highest // 4):
            return "too_far"
        slot = self._slot(origin)
        if self._heads[slot, k.REFUSED] >= GROW_AFTER:
            self._grow(slot)
        return "out_of_range"

    def _grow(self, slot: int) -> None:
        ring = int(self._heads[slot, k.RING])
        log = (ring & 255) + 1
        if self._big_free[log]:
            offset = self._big_free[log].pop()
        else:
            offset, self._big_end = self._big_end, self._big_end + (1 << log)
            if self._big_end > len(self._big[0]):
                size = max(self._big_end, 3 * len(self._big[0]) // 2)
                self._big = (_extended(self._big[0], size), _extended(self._big[1], size))
        old = self._base if ring & 255 == k.BASE else self._big
        shred.move_ring(self._heads, slot, *old, *self._big, offset, log)
        self._give_back(ring)


def warm() -> None:
    """Compile every kernel of the shredder, which takes many seconds on a new machine."""
    shredder = SequenceShredder()
    opened = 64 << k.BASE  # the buffers of a ring: this unfinished record makes it grow
    long = [(0, i + 1, i, 1 if i == 0 else -1, 1 if i == 0 else -1, 2, 0) for i in range(opened + 64)]
    others = [(origin, 1, origin, 2, 2, 2, 0) for origin in range(1, 64)]  # so many that the map of origins grows
    shredder.arrive(np.array(long + others, np.int64))
    shredder.close(0)


def bad_sequence(arrival: Any, why: str) -> BadSequence:
    """The error for a buffer with an impossible sequence number."""
    origin, sequence = int(arrival[k.A_ORIGIN]), int(arrival[k.A_SEQUENCE])
    return BadSequence(
        f"buffer {sequence} of origin {origin}: {why.replace('_', ' ')}",
        advice="Number the buffers of an origin 1, 2, 3, ... in the order of their bytes, each number once.",
        origin=origin,
        sequence=sequence,
        why=why,
    )


def _extended(array: Any, length: int) -> Any:
    """A copy with more rows. The new rows are zero and take no memory until they are used."""
    grown = _zeros((length, *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown


def _zeros(shape: tuple[int, ...], kind: Any) -> Any:
    """An array of zeros. Large arrays get their own pages, which return to the system when the array is replaced:
    malloc would keep up to 32 MB of each."""
    count = math.prod(shape)
    if count * np.dtype(kind).itemsize < 1 << 20:
        return np.zeros(shape, kind)
    return np.frombuffer(mmap.mmap(-1, count * np.dtype(kind).itemsize), kind).reshape(shape)
