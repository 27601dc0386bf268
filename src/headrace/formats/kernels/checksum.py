"""CRC-32C, the checksum of snappy's framing format."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.formats.kernels.jit import kernel


def _table() -> Any:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1).astype(np.uint32)
    return table


_TABLE = _table()


@kernel
def _crc32c(data: Any) -> Any:
    crc = np.uint32(0xFFFFFFFF)
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> np.uint32(8))
    return crc


def crc32c(data: Any) -> int:
    """The CRC-32C of an array of bytes."""
    return int(_crc32c(data)) ^ 0xFFFFFFFF
