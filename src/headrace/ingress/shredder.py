"""The sequence shredder: buffers in any order in, records exactly once out.

Buffers of an *origin* carry sequence numbers 1, 2, 3, ... and may come in any order and from any thread. Of each the
shredder learns where its first and its last delimiter end, never its bytes. A record that begins in one buffer and ends
in another (*spanning*) is complete when both and all between them are here; the arrival that completes it gets it.

**The promise.** Every byte up to the last delimiter of the part that is here without a gap is in exactly one unit.
The argument: a buffer has two bits, *delimiter* and *used*. One without a delimiter is used at once; one with a
delimiter is used when the record that begins in it is complete. An arrival looks back and on from its place over
buffers that are used and hold no delimiter, up to one that does. If it reaches one on both sides, the record is
complete, and it was not before this arrival set its bit: nobody else finds it. A bitmap of 64 used buffers is done
with and leaves the ring.

**Yes, no, maybe.** Where a delimiter is may depend on what came before: a delimiter of several bytes may be cut in
two, a newline may stand inside quotes. The format's delimiter finder (`headrace.ingress.delimiting`) is then an
automaton, and a buffer brings one outcome (first, last, end state) for each state that it may begin in. Outcomes that
agree count at once; a buffer that only *may* hold a delimiter waits outside of the bitmaps until the buffer before it
knows its end state.

All state is in arrays: 128 bytes of bitmaps and 32 of header for an origin, 16 for its place in the map, 40 for each
buffer that still waits. A ring holds 8 x 64 buffers at first. A number beyond it is refused without effect;
`GROW_AFTER` refusals double the ring, up to `MAX_WINDOW`. Numbers wrap from `highest` to 1."""

from __future__ import annotations

import math
import mmap
import threading
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import BadSequence
from headrace.ingress.kernels import layout as k
from headrace.ingress.kernels import shred, tables

Ints = npt.NDArray[np.int64]

HIGHEST = 2**62
GROW_AFTER = 8
MAX_WINDOW = 1 << 22  # buffers of one origin between the oldest that waits and the newest; 1 MB of bitmaps
_NO_OUTCOMES = np.empty((0, 1, 3), np.int32)

_REASONS = {k.OK: "", k.OUT_OF_RANGE: "", k.DUPLICATE: "duplicate", k.ZERO: "not_a_sequence_number"}


@dataclass(frozen=True, slots=True)
class Shredded:
    """What arrivals completed. A row of `units` is (origin, first position, last position, fragments, bytes, flags);
    their fragments, rows of (reference, begin, end), follow each other in `fragments`. Units with the flag SPANNING
    begin before the buffer that they end in; those with UNTERMINATED end without a delimiter.

    `accepted` arrivals took effect; `refused` says why the next one did not, or is empty: `out_of_range` (offer it
    again), `too_far` (its ring may not grow any more), `duplicate` or `not_a_sequence_number`."""

    units: Ints
    fragments: Ints
    accepted: int
    refused: str = ""


class SequenceShredder:
    """See the module. `states` is the number of states of the delimiter finder. Any thread may call anything."""

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
        up to the first that is refused; that one had no effect, and may be offered again if it was out of range.

        `first` and `last` are the places after the first and the last delimiter, -1 for none. With several states they
        come from `outcomes`, rows of (first, last, end state) for each state. Flag 1: the buffer's end ends its last
        record, so `last` is its length in every outcome.
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
        """Process arrivals in order, offering again what is out of range until its ring has grown. What comes out
        depends only on the order of all arrivals, not on how they are cut into calls. `refused` is never set: a
        sequence number that cannot be is the error BAD_SEQUENCE, and those before it have taken effect."""
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
        """Forget an origin; how many of its bytes are in no record and are given up. An unknown one has none."""
        with self._lock:
            ring, lost, _ = self._drop(origin, False)
            self._give_back(ring)
            return lost

    def close_if_complete(self, origin: int) -> int | None:
        """As `close`, unless buffers of the origin still wait for missing ones: then None, and nothing happens."""
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
        """How many origins are known."""
        return int(self._totals[k.T_ORIGINS])

    @property
    def waiting(self) -> int:
        """How many buffers are kept because a record in them is not complete."""
        return len(self._free) - int(self._totals[k.T_FREE_NODES])

    def window(self, origin: int) -> int:
        """How many consecutive buffers the ring of a known origin covers."""
        return 64 << (int(self._heads[self._slot(origin), k.RING]) & 255)

    def _slot(self, origin: int) -> int:
        return int(self._slots[tables.find_origin(self._keys, origin)])

    def waiting_below(self, ref: int) -> Ints:
        """(origin, reference, begin, end) of what is kept of the buffers whose reference is below `ref`: for owners
        who want to move it."""
        with self._lock:
            nodes = self._nodes
            found = np.flatnonzero((nodes[:, k.OWNER] > 0) & (nodes[:, k.REF] < ref))
            begin = np.where((nodes[found, k.REST] >> 8) & k.HEAD_DONE, nodes[found, k.ENDS] & 0xFFFFFFFF, 0)
            origins = self._heads[nodes[found, k.OWNER] - 1, k.ORIGIN]
            return np.stack([origins, nodes[found, k.REF], begin, nodes[found, k.REST] >> 16], axis=1)

    def lowest(self) -> int | None:
        """The lowest reference that is still kept."""
        with self._lock:
            live = self._nodes[self._nodes[:, k.OWNER] > 0, k.REF]
            return int(live.min()) if len(live) else None

    def move(self, old: Ints, new: Ints, shift: Ints) -> None:
        """Buffers with the references `old` are now kept under `new`, without their first `shift` bytes."""
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
                tables.reindex(self._nodes, self._index)
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
            tables.remap(self._keys, self._slots, keys, places)
            self._keys, self._slots = keys, places

    def _refuse(self, origin: int) -> str:
        """An origin's number was beyond its ring: double the ring if that happened often enough."""
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
    """Make ready every kernel that a shredder takes: compiling them takes many seconds on a new machine."""
    shredder = SequenceShredder()
    opened = 64 << k.BASE  # the buffers of a ring: the record that is open here makes it grow
    long = [(0, i + 1, i, 1 if i == 0 else -1, 1 if i == 0 else -1, 2, 0) for i in range(opened + 64)]
    others = [(origin, 1, origin, 2, 2, 2, 0) for origin in range(1, 64)]  # so many that the map of origins grows
    shredder.arrive(np.array(long + others, np.int64))
    shredder.close(0)


def bad_sequence(arrival: Any, why: str) -> BadSequence:
    """The error for a buffer whose sequence number cannot be."""
    origin, sequence = int(arrival[k.A_ORIGIN]), int(arrival[k.A_SEQUENCE])
    return BadSequence(
        f"buffer {sequence} of origin {origin}: {why.replace('_', ' ')}",
        advice="Every buffer of an origin has a sequence number of its own: 1, 2, 3, ... in the order of its bytes.",
        origin=origin,
        sequence=sequence,
        why=why,
    )


def _extended(array: Any, length: int) -> Any:
    """A copy with more rows, which are zero and take no memory until they are used."""
    grown = _zeros((length, *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown


def _zeros(shape: tuple[int, ...], kind: Any) -> Any:
    """Zeros. Large arrays get pages of their own, which go back to the system when the array has grown: malloc would
    keep up to 32 MB of each."""
    count = math.prod(shape)
    if count * np.dtype(kind).itemsize < 1 << 20:
        return np.zeros(shape, kind)
    return np.frombuffer(mmap.mmap(-1, count * np.dtype(kind).itemsize), kind).reshape(shape)
