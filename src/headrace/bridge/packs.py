"""The events of many lanes in one message to their pool.

With hundreds of pipelines an epoch has hundreds of small tables of partial aggregates for each bucket. As messages of
their own they would cost more than their rows. A pack is the number of entries, the facts of each, and then their
payloads, one after the other.

A large pack does not travel through Spark, if all tasks run on one machine: it is a file in the staging directory of
the stream, and the message names the file, with a checksum. Elsewhere, or when the disk is almost full, the facts and
payloads of a large pack are compressed. A file belongs to one attempt of a task. The driver deletes it after the epoch,
with all other staged files (`headrace.bridge.spark_rows`).

Windows that emit on close keep their state in the form of these payloads. Ring 0 cuts their rows by window, so that
Ring 1 can store a payload without reading it.
"""

from __future__ import annotations

import os
import struct
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.base.durable import private_opener, state_errors
from headrace.errors import InternalError, StateUnavailable

# Beyond this many bytes of payloads a task sends several packs to a pool.
PACK_BYTES = 8 * 1024 * 1024
# A pack of so many bytes is written to a file or compressed. Spark takes about 8 ms of CPU to carry a megabyte from a
# task to a pool. A file takes about 1 ms. LZ4 takes 1 to 2 ms for both directions, and leaves a half to a quarter.
LARGE_FROM = 32 * 1024
# Files leave this much room on the disk of the state directory. Otherwise the packs of an epoch could take the room
# that the state and the progress of the same epoch need, and every run of the epoch would fill the disk again.
FREE_BYTES = 256 * 1024 * 1024
_CODEC: Literal["lz4_raw"] = "lz4_raw"
_COUNT = struct.Struct("<II")
_ENTRY = struct.Struct("<qqqII")
_SIZE = struct.Struct("<Q")  # in a compressed pack: the bytes after it when they are not compressed
_FILE = struct.Struct("<QQ")  # in a message that names a file: its bytes, and their `_sum`
_MAGIC = int.from_bytes(b"HRP1", "little")
_COMPRESSED = int.from_bytes(b"HRP2", "little")
_IN_FILE = int.from_bytes(b"HRP3", "little")


class PackEntry(NamedTuple):
    """The `rows` rows of one lane in a payload, as `headrace.bridge.rows` encodes them. All are of the window from
    `start` to `end`, or both are 0: then they may be of any."""

    lane: int
    start: int
    end: int
    rows: int
    payload: bytes


def packs(entries: Sequence[PackEntry], directory: str = "") -> Iterator[bytes]:
    """The entries in messages of about PACK_BYTES. Large packs are written to files in `directory`, which all tasks
    must see; "" for no files."""
    begin, size = 0, 0
    for i, entry in enumerate(entries):
        if size and size + len(entry.payload) > PACK_BYTES:
            yield _pack(entries[begin:i], directory)
            begin, size = i, 0
        size += len(entry.payload)
    if begin < len(entries):
        yield _pack(entries[begin:], directory)


def _pack(entries: Sequence[PackEntry], directory: str) -> bytes:
    facts = b"".join([_ENTRY.pack(*entry[:4], len(entry.payload)) for entry in entries])
    payloads = [entry.payload for entry in entries]
    pack = b"".join((_COUNT.pack(_MAGIC, len(entries)), facts, *payloads))
    if sum(map(len, payloads)) < LARGE_FROM:
        return pack
    return (_in_file(pack, directory) if directory else None) or _compressed(pack, len(entries))


def _in_file(pack: bytes, directory: str) -> bytes | None:
    """A message that names a file with the pack; None if there is no room for the file, or it cannot be written."""
    path = os.path.join(directory, f"{uuid.uuid4().hex}.pack")
    try:
        disk = os.statvfs(directory)
        if disk.f_bavail * disk.f_frsize < FREE_BYTES + len(pack):
            return None
        with open(path, "xb", buffering=0, opener=private_opener) as file:
            written = file.write(pack)
        if written == len(pack):
            return b"".join((_COUNT.pack(_IN_FILE, 0), _FILE.pack(len(pack), _sum(pack)), os.fsencode(path)))
    except OSError:
        pass
    with suppress(OSError):
        os.unlink(path)
    return None


def _sum(data: bytes) -> int:
    """A checksum: the sum of all words of eight bytes. It takes 0.02 ms for a megabyte, and a CRC ten times that. It
    differs if a bit is flipped or a page is zero."""
    words = len(data) // 8
    rest = int.from_bytes(data[words * 8 :], "little")
    return (int(np.frombuffer(data, np.uint64, words).sum(dtype=np.uint64)) + rest) % (1 << 64)


def _compressed(pack: bytes, count: int) -> bytes:
    body = pa.py_buffer(pack).slice(_COUNT.size)
    compressed = pa.compress(body, codec=_CODEC, asbytes=True)
    return b"".join((_COUNT.pack(_COMPRESSED, count), _SIZE.pack(body.size), compressed))


def unpack(message: bytes) -> Iterator[PackEntry]:
    """The entries of one message. Raises InternalError if it is none, and StateUnavailable if its file cannot be read
    or is damaged."""
    if _COUNT.unpack_from(message)[0] == _IN_FILE:
        message = _read(message)
    magic, count = _COUNT.unpack_from(message)
    body, begin = (_decompressed(message), 0) if magic == _COMPRESSED else (message, _COUNT.size)
    at = begin + count * _ENTRY.size
    if magic not in (_MAGIC, _COMPRESSED) or at > len(body):
        raise InternalError(f"{len(message)} bytes are not a pack of events")
    for lane, start, end, rows, size in _ENTRY.iter_unpack(body[begin:at]):
        yield PackEntry._make((lane, start, end, rows, body[at : at + size]))
        at += size
    if at != len(body):
        raise InternalError(f"a pack of events has {len(body)} bytes instead of {at}")


def _read(message: bytes) -> bytes:
    facts = _FILE.unpack_from(message, _COUNT.size)
    path = Path(os.fsdecode(message[_COUNT.size + _FILE.size :]))
    with state_errors(path.parent):
        pack = path.read_bytes()
    if facts != (len(pack), _sum(pack)):
        raise StateUnavailable(
            f"{path} does not have the rows that a task wrote to it",
            advice="Check its disk. The epoch is run again and writes its rows to other files.",
            path=str(path),
        )
    return pack


def _decompressed(message: bytes) -> bytes:
    (size,) = _SIZE.unpack_from(message, _COUNT.size)
    compressed = pa.py_buffer(message).slice(_COUNT.size + _SIZE.size)
    try:
        body: bytes = pa.decompress(compressed, decompressed_size=size, codec=_CODEC, asbytes=True)
    except (OSError, ValueError) as problem:  # Arrow's errors are both
        raise InternalError(f"{len(message)} bytes are not a compressed pack of events: {problem}") from problem
    return body
