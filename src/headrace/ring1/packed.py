"""Keeps small blobs inside the header, so that a lane with little state costs one read and one write per epoch.

Every call to Spark's state store is a round trip between two processes, and most lanes are small. A large blob, or one
for which the header has no room, is stored under its own key. Then a change to it does not rewrite the others.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from headrace.ring1.lane_state import BlobKey, Store

INLINE_BLOB = 4 * 1024
INLINE_TOTAL = 16 * 1024
_HEAD = struct.Struct("<I")
_ENTRY = struct.Struct("<qqiI")


class PackedStore:
    """A `Store` on top of another one. Writes reach the inner store at once, or with `set_header`.

    A key that exists must be read or removed before it is written in the same epoch, as both kinds of lanes do. That is
    how this store knows, without another call, that a blob is outside the header. A blob that is outside stays there.
    """

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self._loaded: bytes | None = None
        self._inline: dict[BlobKey, bytes] = {}
        self._outside: set[BlobKey] = set()

    def header(self) -> bytes | None:
        self._loaded = self._inner.header()
        self._inline, self._outside = {}, set()
        if self._loaded is None:
            return None
        (length,) = _HEAD.unpack_from(self._loaded)
        at = _HEAD.size + length
        while at < len(self._loaded):
            *key, size = _ENTRY.unpack_from(self._loaded, at)
            at += _ENTRY.size
            self._inline[BlobKey(*key)] = self._loaded[at : at + size]
            at += size
        return self._loaded[_HEAD.size : _HEAD.size + length]

    def set_header(self, data: bytes) -> None:
        parts = [_HEAD.pack(len(data)), data]
        for key, blob in self._inline.items():
            parts += [_ENTRY.pack(*key, len(blob)), blob]
        packed = b"".join(parts)
        if packed != self._loaded:
            self._inner.set_header(packed)
            self._loaded = packed

    def get(self, key: BlobKey) -> bytes | None:
        found = self._inline.get(key)
        if found is None:
            found = self._inner.get(key)
            if found is not None:
                self._outside.add(key)
        return found

    def get_many(self, keys: Sequence[BlobKey]) -> list[bytes | None]:
        outside = [key for key in keys if key not in self._inline]
        found = dict(zip(outside, self._inner.get_many(outside), strict=True))
        self._outside.update(key for key, data in found.items() if data is not None)
        return [self._inline[key] if key in self._inline else found[key] for key in keys]

    def put(self, key: BlobKey, data: bytes) -> None:
        self.put_many([(key, data)])

    def put_many(self, blobs: Sequence[tuple[BlobKey, bytes]]) -> None:
        for key, _ in blobs:
            self._inline.pop(key, None)
        room = INLINE_TOTAL - sum(map(len, self._inline.values()))
        outside = []
        for key, data in blobs:
            if key not in self._outside and len(data) <= min(INLINE_BLOB, room):
                self._inline[key] = data
                room -= len(data)
            else:
                outside.append((key, data))
        self._inner.put_many(outside)
        self._outside.update(key for key, _ in outside)

    def remove(self, key: BlobKey) -> None:
        if self._inline.pop(key, None) is None:
            self._inner.remove(key)
            self._outside.discard(key)

    def clear(self) -> None:
        self._inline = {}
        self._loaded = None
        self._inner.clear()
