"""Compression: whole files as streams, and single buffers.

None of these can be cut at any byte, so a compressed file is read in order by one task. gzip, zstd, lz4 (frames) and
bzip2 may be several streams one after the other; snappy is its framing format (`.sz`), or one raw block as a buffer.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from headrace.errors import DamagedStream
from headrace.formats.kernels.checksum import crc32c

CODECS = ("gzip", "zstd", "lz4", "snappy", "bzip2")
_SUFFIXES = {
    ".gz": "gzip", ".gzip": "gzip", ".zst": "zstd", ".zstd": "zstd", ".lz4": "lz4", ".sz": "snappy",
    ".snappy": "snappy", ".bz2": "bzip2",
}  # fmt: skip
_ARROW = {"gzip": "gzip", "zstd": "zstd", "lz4": "lz4", "bzip2": "bz2"}
_SNAPPY_HEADER = b"\xff\x06\x00\x00sNaPpY"
_MOST = 1 << 31  # no single buffer is larger
_PIECE = 1 << 20  # asked for at a time: the library makes room for all that it is asked for


def codec_of(path: str) -> str:
    """The codec that a file's name announces; empty for none."""
    return next((codec for suffix, codec in _SUFFIXES.items() if path.lower().endswith(suffix)), "")


def damaged(origin: str, offset: int, why: object) -> DamagedStream:
    """The error for bytes that do not decompress."""
    return DamagedStream(
        f"{origin} is damaged near byte {offset}: {why}",
        advice="Replace the file by a good copy under another name, or remove it from the directory.",
        origin=origin,
        offset=offset,
    )


class Decompressor:
    """Reads a compressed file from its beginning. Raises DamagedStream that names the file and the offset in it."""

    def __init__(self, file: BinaryIO, codec: str, origin: str) -> None:
        self.origin = origin
        self.file = file
        self._read = _snappy_stream(file) if codec == "snappy" else self._arrow_stream(codec)

    def _arrow_stream(self, codec: str) -> Callable[[int], bytes]:
        raw: Any = self.file
        name: Any = _ARROW[codec]
        stream = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), name)

        def read(size: int) -> bytes:
            return bytes(stream.read(size))

        return read

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end."""
        parts: list[bytes] = []
        missing = size
        while missing > 0:
            try:
                part = self._read(min(missing, _PIECE))
            except (OSError, ValueError, EOFError) as problem:
                if isinstance(problem, OSError) and problem.errno is not None:
                    raise  # the disk, not the bytes: it may pass
                raise damaged(self.origin, self.file.tell(), problem) from problem
            if not part:
                break
            parts.append(part)
            missing -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


class TooLong(Exception):
    """A buffer would become longer than it may."""


def decompress(data: bytes, codec: str, origin: str = "buffer", most: int = _MOST) -> bytes:
    """One compressed buffer, whole. Raises DamagedStream, and TooLong before more than `most` bytes are made."""
    try:
        if codec == "snappy" and not data.startswith(_SNAPPY_HEADER):
            if _snappy_size(data) > most:
                raise TooLong
            return _snappy_block(data)
        found = Decompressor(io.BytesIO(data), codec, origin).read(most + 1)
    except (OSError, ValueError) as problem:
        raise damaged(origin, 0, problem) from problem
    if len(found) > most:
        raise TooLong
    return found


def _snappy_size(data: bytes) -> int:
    """How long a block says that it becomes."""
    size, shift = 0, 0
    for byte in data[:5]:
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return size
    raise ValueError("no snappy block")


def _snappy_block(data: bytes) -> bytes:
    size = _snappy_size(data)
    if size > _MOST:
        raise ValueError("a snappy block of impossible size")
    codec: Any = pa.Codec("snappy")
    return bytes(codec.decompress(data, size, asbytes=True))


def _snappy_stream(file: BinaryIO) -> Callable[[int], bytes]:
    """The snappy framing format: chunks of a type, a length, and a masked CRC-32C of what they hold."""
    left = bytearray()
    started = False

    def chunk() -> bytes | None:
        nonlocal started
        head = file.read(4)
        if not head:
            return None
        length = int.from_bytes(head[1:4], "little")
        body = file.read(length)
        if len(head) < 4 or len(body) < length:
            raise ValueError("the stream ends in the middle of a chunk")
        if head[0] == 0xFF:
            if head + body != _SNAPPY_HEADER:
                raise ValueError("no snappy stream")
            started = True
            return b""
        if not started or 2 <= head[0] < 0x80:
            raise ValueError("no snappy stream")
        if head[0] >= 0x80:
            return b""
        text = _snappy_block(body[4:]) if head[0] == 0 else body[4:]
        found = crc32c(np.frombuffer(text, np.uint8))
        masked = ((found >> 15 | found << 17) + 0xA282EAD8) & 0xFFFFFFFF
        if masked != int.from_bytes(body[:4], "little"):
            raise ValueError("a checksum is wrong")
        return text

    def read(size: int) -> bytes:
        while len(left) < size:
            part = chunk()
            if part is None:
                break
            left.extend(part)
        out = bytes(left[:size])
        del left[:size]
        return out

    return read
