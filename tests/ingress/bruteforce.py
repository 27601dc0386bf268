"""What a shredder must say, worked out the slow way: join the bytes, split them, count where each record lies."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headrace.ingress.delimiting import Delimiting
from headrace.ingress.kernels.array_columns import SPANNING
from headrace.ingress.shredder import Shredded


@dataclass(frozen=True)
class Span:
    """A record that begins in one buffer and ends in another; position 0 is the beginning of the origin."""

    origin: int
    begin: int
    end: int


def spans(origin: int, buffers: Sequence[bytes], ends: Sequence[int]) -> set[Span]:
    """The spanning records of an origin whose records end at the places `ends`, counted over all buffers."""
    borders = np.cumsum([0, *map(len, buffers)])
    # The buffer (from 1) in which a record ends: the one that holds its last byte.
    holders = [0, *(int(np.searchsorted(borders, end, side="left")) for end in ends)]
    return {Span(origin, a, b) for a, b in itertools.pairwise(holders) if a != b}


def record_ends(data: bytes, delimiter: bytes) -> list[int]:
    """Where records end, by Python's own search from the left."""
    found, at = [], 0
    while (at := data.find(delimiter, at)) >= 0:
        at += len(delimiter)
        found.append(at)
    return found


def arrival(
    finder: Delimiting, origin: int, sequence: int, ref: int, data: bytes
) -> tuple[list[int], npt.NDArray[np.int32]]:
    """A buffer as the shredder gets it."""
    outcome = finder.outcomes(data)
    return [origin, sequence, ref, int(outcome[0, 0]), int(outcome[0, 1]), len(data), 0], outcome


class Collector:
    """Puts the units of many calls together again."""

    def __init__(self, buffers: dict[int, bytes]) -> None:
        self.buffers = buffers  # by reference
        self.texts: list[tuple[int, int, int, bytes]] = []  # (origin, first position, last position, bytes)
        self.spans: list[Span] = []

    def add(self, found: Shredded) -> None:
        at = 0
        for origin, begin, end, count, size, flags in found.units.tolist():
            parts = [self.buffers[r][a:b] for r, a, b in found.fragments[at : at + count].tolist()]
            at += count
            text = b"".join(parts)
            assert len(text) == size
            self.texts.append((origin, begin, end, text))
            if flags & SPANNING:
                self.spans.append(Span(origin, begin, end))
        assert at == len(found.fragments)

    def text(self, origin: int) -> bytes:
        """All bytes of an origin that came out, in the order of their positions."""
        return b"".join(text for o, _, _, text in sorted(self.texts) if o == origin)
