"""The hashes of texts and bytes as compiled loops over all rows, for batches. They are compiled when first called, so a
process that only plans does not load the compiler; `hashes` computes short columns without them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.base.cache import cache_directory

Loop = Callable[..., None]
FEWEST_ROWS = 256  # below that NumPy is fast enough, and constants are folded while planning


def _murmur(data: Any, starts: Any, lengths: Any, states: Any) -> None:
    """Spark mixes the last one to three bytes as if each were a word. `states` has the seeds, and gets the hashes."""
    c1, c2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
    for row in range(len(starts)):
        at, length, state = starts[row], lengths[row], states[row]
        for i in range(at, at + length // 4 * 4, 4):
            word = (
                np.uint32(data[i])
                | np.uint32(data[i + 1]) << np.uint32(8)
                | np.uint32(data[i + 2]) << np.uint32(16)
                | np.uint32(data[i + 3]) << np.uint32(24)
            )
            word = np.uint32(word * c1)
            word = np.uint32(np.uint32(word << np.uint32(15)) | (word >> np.uint32(17)))
            state = np.uint32(state ^ np.uint32(word * c2))
            state = np.uint32(np.uint32(state << np.uint32(13)) | (state >> np.uint32(19)))
            state = np.uint32(state * np.uint32(5) + np.uint32(0xE6546B64))
        for i in range(at + length // 4 * 4, at + length):
            word = np.uint32(data[i])
            if word >= np.uint32(128):
                word = np.uint32(word | np.uint32(0xFFFFFF00))
            word = np.uint32(word * c1)
            word = np.uint32(np.uint32(word << np.uint32(15)) | (word >> np.uint32(17)))
            state = np.uint32(state ^ np.uint32(word * c2))
            state = np.uint32(np.uint32(state << np.uint32(13)) | (state >> np.uint32(19)))
            state = np.uint32(state * np.uint32(5) + np.uint32(0xE6546B64))
        state = np.uint32(state ^ np.uint32(length))
        state = np.uint32((state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B))
        state = np.uint32((state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35))
        states[row] = state ^ (state >> np.uint32(16))


def _xxh(data: Any, starts: Any, lengths: Any, states: Any) -> None:
    """XXH64. `states` has the seeds, and gets the hashes."""
    p1, p2, p3 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9)
    p4, p5 = np.uint64(0x85EBCA77C2B2AE63), np.uint64(0x27D4EB2F165667C5)
    lanes, turns = np.zeros(4, np.uint64), np.array([1, 7, 12, 18], np.uint64)
    for row in range(len(starts)):
        at, seed = starts[row], states[row]
        end, state = at + lengths[row], seed + p5
        if lengths[row] >= 32:
            lanes[0], lanes[1], lanes[2], lanes[3] = seed + p1 + p2, seed + p2, seed, seed - p1
            while at + 32 <= end:
                for lane in range(4):
                    word = np.uint64(0)
                    for i in range(8):
                        word |= np.uint64(data[at + i]) << np.uint64(8 * i)
                    mixed = lanes[lane] + word * p2
                    lanes[lane] = ((mixed << np.uint64(31)) | (mixed >> np.uint64(33))) * p1
                    at += 8
            state = np.uint64(0)
            for lane in range(4):
                state += (lanes[lane] << turns[lane]) | (lanes[lane] >> (np.uint64(64) - turns[lane]))
            for lane in range(4):
                mixed = lanes[lane] * p2
                state = (state ^ (((mixed << np.uint64(31)) | (mixed >> np.uint64(33))) * p1)) * p1 + p4
        state += np.uint64(lengths[row])
        while at + 8 <= end:
            word = np.uint64(0)
            for i in range(8):
                word |= np.uint64(data[at + i]) << np.uint64(8 * i)
            mixed = word * p2
            state ^= ((mixed << np.uint64(31)) | (mixed >> np.uint64(33))) * p1
            state = ((state << np.uint64(27)) | (state >> np.uint64(37))) * p1 + p4
            at += 8
        if at + 4 <= end:
            word = np.uint64(0)
            for i in range(4):
                word |= np.uint64(data[at + i]) << np.uint64(8 * i)
            state ^= word * p1
            state = ((state << np.uint64(23)) | (state >> np.uint64(41))) * p2 + p3
            at += 4
        while at < end:
            state ^= np.uint64(data[at]) * p5
            state = ((state << np.uint64(11)) | (state >> np.uint64(53))) * p1
            at += 1
        state = (state ^ (state >> np.uint64(33))) * p2
        state = (state ^ (state >> np.uint64(29))) * p3
        states[row] = state ^ (state >> np.uint64(32))


@cache
def _compiled(function: Loop) -> Loop:
    import numba

    settings: Any = numba.config
    settings.CACHE_DIR = settings.CACHE_DIR or str(cache_directory() / "loops")
    found: Loop = numba.njit(nogil=True, cache=True)(function)
    return found


def murmur(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    seeds: npt.NDArray[np.uint32],
) -> npt.NDArray[np.uint32]:
    """Spark's Murmur3 of the rows of `data`."""
    states = seeds.copy()
    _compiled(_murmur)(data, starts, lengths, states)
    return states


def xxh(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    seeds: npt.NDArray[np.uint64],
) -> npt.NDArray[np.uint64]:
    """XXH64 of the rows of `data`."""
    states = seeds.copy()
    _compiled(_xxh)(data, starts, lengths, states)
    return states
