"""Events of many lanes in one message, compressed if they are many."""

from __future__ import annotations

import random

import pytest

from headrace.bridge.packs import COMPRESSED_FROM, PACK_BYTES, PackEntry, packs, unpack
from headrace.errors import InternalError


def entries(count: int, size: int) -> list[PackEntry]:
    chances = random.Random(count * size)
    return [
        PackEntry(lane, start=-lane, end=2**40, rows=lane * 3, payload=chances.randbytes(size // 2) + bytes(size // 2))
        for lane in range(count)
    ]


@pytest.mark.parametrize("size", [0, 8, COMPRESSED_FROM // 10 - 2, COMPRESSED_FROM // 10 + 2, COMPRESSED_FROM, 1 << 20])
def test_entries_come_back_from_small_and_large_packs(size: int) -> None:
    given = entries(10, size)
    messages = list(packs(given))
    found = [entry for message in messages for entry in unpack(message)]
    assert found == given
    assert all(type(entry.payload) is bytes for entry in found)  # what decodes rows needs their address
    assert len(messages) == -(-10 * max(size, 1) // PACK_BYTES)


def test_large_packs_are_compressed() -> None:
    small, large = entries(1, COMPRESSED_FROM - 2), entries(1, 2 * COMPRESSED_FROM)
    assert len(b"".join(packs(small))) > COMPRESSED_FROM - 2
    assert len(b"".join(packs(large))) < 1.2 * COMPRESSED_FROM


def test_the_same_entries_are_the_same_bytes() -> None:
    """A re-run of an epoch sends the same messages again."""
    given = entries(10, COMPRESSED_FROM)
    assert list(packs(given)) == list(packs(list(given)))


@pytest.mark.parametrize("size", [8, COMPRESSED_FROM])
def test_other_bytes_are_refused(size: int) -> None:
    (message,) = packs(entries(2, size))
    for wrong in (message[:-1], message[:20], b"HRPX" + message[4:], message + bytes(8)):
        with pytest.raises(InternalError):
            list(unpack(wrong))
