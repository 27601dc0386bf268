"""Keeps the state of a pool: all lanes of one bucket. An epoch reads and writes the small state of all of them at once.

Every call to Spark's state store is a round trip between two processes, and most lanes are small. The pool has one
*directory*: the header of every lane, and where its small blobs are. The small blobs that an epoch writes, of all
lanes, are one *pack*. A large blob, or one for which its lane has no room, is stored under its own key, so that a
change to it does not rewrite others. A pack is deleted when nothing in it is needed any more, and packs that are mostly
garbage are written again.

A lane's changes are kept aside until the lane has succeeded. A lane that fails leaves its state as it was.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import chain

from headrace.errors import StateDamaged
from headrace.ring1.lane_state import BlobKey, LaneHeader, Store

INLINE_BLOB = 4 * 1024
INLINE_TOTAL = 16 * 1024
# Packs are written again when three quarters of their bytes are garbage, and it is more than this.
GARBAGE = 1 << 20
VERSION = 1
_HEAD = struct.Struct("<IIIqq")  # version, packs, lanes, next pack, next space
_PACK = struct.Struct("<qqq")  # number, bytes, bytes in use
_LANE = struct.Struct("<qIII")  # lane, bytes of the header, small blobs, spaces
_SMALL = struct.Struct("<qqiqII")  # start, end, part, pack, offset, size
_SPACE = struct.Struct("<qqq")  # start, end, number
PACKS, SPACES = 0, 1  # the second part of the key of a pack, and of a large blob

BlobPlace = tuple[int, int, int]  # pack, offset, size
PlainKey = tuple[int, int, int]  # a `BlobKey`, which takes longer to make


class PooledLane:
    """The `Store` of one lane of a pool. Nothing reaches the pool before `PoolStore.settle`, and nothing ever does
    without `set_header` or `clear`.

    `_raw` are the small blobs as the directory lists them, parsed when one of them is needed. A blob that is neither
    there nor in `_new` may be in a *space*: a number that stands for (lane, start, end) in the key of a large blob. A
    blob that exists must be read or removed before it is written in the same epoch, as both kinds of lanes do.
    """

    __slots__ = (
        "_fetched",
        "_header",
        "_held",
        "_new",
        "_parsed",
        "_pool",
        "_raw",
        "_spaces",
        "changed",
        "freed",
        "gone",
        "large",
    )

    def __init__(self, pool: PoolStore, header: bytes | None, raw: bytes, spaces: dict[tuple[int, int], int]) -> None:
        self._pool, self._header, self._raw, self._spaces = pool, header, raw, spaces
        self._parsed: dict[PlainKey, BlobPlace] | None = None
        self._new: dict[PlainKey, bytes] = {}
        self._held = sum([place[5] for place in _SMALL.iter_unpack(raw)]) if raw else 0
        self._fetched: set[BlobKey] = set()  # large blobs that were read
        self.large: dict[PlainKey, bytes] = {}
        self.gone: set[PlainKey] = set()
        self.freed: list[BlobPlace] = []
        self.changed = False

    def header(self) -> bytes | None:
        return self._header

    def set_header(self, data: bytes) -> None:
        self.changed = self.changed or data != self._header or bool(self._new or self.large or self.gone or self.freed)
        self._header = data

    def get(self, key: BlobKey) -> bytes | None:
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[BlobKey]) -> list[bytes | None]:
        small = self._small()
        found: dict[BlobKey, bytes | None] = {}
        packed = {key: small[key] for key in keys if key in small}
        self._pool.read_packs(packed.values())
        outside = []
        for key in keys:
            if key in self._new or key in self.large:
                found[key] = self._new.get(key, self.large.get(key))
            elif key in packed:
                found[key] = self._pool.cut(packed[key])
            elif key in self.gone or (key.start, key.end) not in self._spaces:
                found[key] = None
            else:
                outside.append(key)
        if outside:
            found |= zip(outside, self._pool.inner.get_many([self.outside(key) for key in outside]), strict=True)
            self._fetched.update(outside)
        return [found[key] for key in keys]

    def put(self, key: BlobKey, data: bytes) -> None:
        self.put_many([(key, data)])

    def put_many(self, blobs: Sequence[tuple[BlobKey, bytes]]) -> None:
        for key, data in blobs:
            # A small blob that exists was read or removed before, so if none was parsed, there is none to forget.
            if self._parsed is not None or key in self._new or key in self.large:
                self._forget(key)
            if key not in self._fetched and len(data) <= min(INLINE_BLOB, INLINE_TOTAL - self._held):
                self._new[key] = data
                self._held += len(data)
            else:
                if (key.start, key.end) not in self._spaces:
                    self._spaces = {**self._spaces, (key.start, key.end): self._pool.next_space()}
                self.large[key] = data
                self.gone.discard(key)

    def remove(self, key: BlobKey) -> None:
        if not self._forget(key) and (key.start, key.end) in self._spaces:
            self.gone.add(key)
            self._fetched.discard(key)

    def clear(self) -> None:
        """Delete the lane's state. A header that cannot be read does not say where the large blobs are: they stay in
        the store, and nothing refers to them."""
        try:
            known = LaneHeader.decode(self._header)
        except (StateDamaged, ValueError, TypeError):
            known = LaneHeader()
        for key in list(known.blobs()):
            self.remove(key)
        for small in [*self._new, *self._small()]:
            self._forget(small)
        self._header, self.large, self._spaces, self.changed = None, {}, dict(self._spaces), True

    def _forget(self, key: PlainKey) -> bool:
        """Forget a blob that is small, or that this epoch has written. True if there was one."""
        made = self._new.pop(key, None)
        if made is not None:
            self._held -= len(made)
            return True
        if self.large.pop(key, None) is not None:
            self.gone.add(key)  # it may be in the store, too
            return True
        place = self._small().pop(key, None)
        if place is None:
            return False
        self._held -= place[2]
        self.freed.append(place)
        return True

    def _small(self) -> dict[PlainKey, BlobPlace]:
        if self._parsed is None:
            self._parsed = {found[:3]: found[3:] for found in _SMALL.iter_unpack(self._raw)}
        return self._parsed

    def outside(self, key: PlainKey) -> BlobKey:
        """The key of a large blob in the store of the pool."""
        start, end, part = key
        return BlobKey(self._spaces[start, end], SPACES, part)

    def places(self) -> list[BlobPlace]:
        """Where the small blobs are that were written in earlier epochs."""
        return list(self._small().values())

    def move(self) -> None:
        """Write the small blobs of earlier epochs again, with those of this epoch."""
        small = self._small()
        self._pool.read_packs(small.values())
        self._new = {key: self._pool.cut(place) for key, place in small.items()} | self._new
        self.freed += small.values()
        small.clear()
        self.changed = True

    def encode(self, lane: int, pack: int, at: int, out: list[bytes]) -> tuple[list[bytes], int]:
        """The lane's part of the directory, after its new small blobs were put into a pack from byte `at` on. Adds
        these blobs to `out`."""
        raw = self._raw if self._parsed is None else b"".join(_SMALL.pack(*k, *v) for k, v in self._parsed.items())
        fresh = []
        for key, data in self._new.items():
            fresh.append(_SMALL.pack(*key, pack, at, len(data)))
            out.append(data)
            at += len(data)
        raw += b"".join(fresh)
        header = self._header or b""
        count = len(raw) // _SMALL.size
        spaces = [_SPACE.pack(*bounds, number) for bounds, number in self._used_spaces().items()]
        return [_LANE.pack(lane, len(header), count, len(spaces)), header, raw, *spaces], at

    def _used_spaces(self) -> dict[tuple[int, int], int]:
        """The spaces that the header still refers to."""
        if not self._spaces or self._header is None:
            return {}
        if not self.changed or not self.gone:  # a space ends with its last large blob
            return self._spaces
        known = LaneHeader.decode(self._header)
        return {b: number for b, number in self._spaces.items() if b in known.logs or b in known.tables}

    @property
    def empty(self) -> bool:
        return self._header is None


class PoolStore:
    """The state of one pool in `inner`. One caller at a time, for one epoch: `load`, then lanes, then `settle`."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self._lanes: dict[int, PooledLane] = {}
        self._open: dict[int, PooledLane] = {}
        self._packs: dict[int, list[int]] = {}  # bytes, and bytes in use, of each pack
        self._read: dict[int, bytes] = {}
        self._next_pack = self._next_space = 0
        self._loaded: bytes | None = None

    def load(self) -> None:
        """Read the directory. Raises StateDamaged."""
        data = self._loaded = self.inner.header()
        if data is None:
            return
        try:
            self._parse(data)
        except (struct.error, ValueError) as problem:
            raise StateDamaged(f"the directory of a pool is damaged: {problem}") from problem

    def _parse(self, data: bytes) -> None:
        version, packs, lanes, self._next_pack, self._next_space = _HEAD.unpack_from(data)
        if version != VERSION:
            raise StateDamaged(
                f"the state of a pool has version {version}, but this release reads version {VERSION}", version=version
            )
        at = _HEAD.size + packs * _PACK.size
        self._packs = {n: [size, used] for n, size, used in _PACK.iter_unpack(data[_HEAD.size : at])}
        for _ in range(lanes):
            lane, header, small, spaces = _LANE.unpack_from(data, at)
            one = at + _LANE.size
            two = one + header
            three = two + small * _SMALL.size
            at = three + spaces * _SPACE.size
            if at > len(data):
                raise ValueError("it was truncated")
            named = {(s, e): number for s, e, number in _SPACE.iter_unpack(data[three:at])}
            self._lanes[lane] = PooledLane(self, data[one:two], data[two:three], named)

    @property
    def lanes(self) -> set[int]:
        """The lanes that had state when the directory was read."""
        return set(self._lanes)

    def lane(self, lane: int) -> PooledLane:
        """The store of one lane in this epoch."""
        if lane not in self._open:
            self._open[lane] = self._lanes.get(lane) or PooledLane(self, None, b"", {})
        return self._open[lane]

    def give_up(self, lane: int) -> None:
        """The lane has failed: its state stays as it was before this epoch."""
        if self._open.pop(lane, None) is not None and lane in self._lanes and self._loaded is not None:
            before = PoolStore(self.inner)
            before._parse(self._loaded)
            found = before._lanes[lane]
            found._pool = self
            self._lanes[lane] = found

    def next_space(self) -> int:
        self._next_space += 1
        return self._next_space

    def read_packs(self, places: Iterable[BlobPlace]) -> None:
        """Read the packs of these places that were not read yet in this epoch. A blob without bytes needs none."""
        unread = sorted({pack for pack, _, size in places if size and pack not in self._read})
        if unread:
            for pack, data in zip(unread, self.inner.get_many([_key(p) for p in unread]), strict=True):
                if data is None or len(data) != self._packs.get(pack, [0])[0]:
                    raise StateDamaged(f"the pack {pack} of a pool is missing or damaged", key=(pack,))
                self._read[pack] = data

    def cut(self, place: BlobPlace) -> bytes:
        """A small blob of a pack that was read."""
        pack, at, size = place
        return self._read[pack][at : at + size] if size else b""

    def settle(self) -> None:
        """Write what the lanes have changed."""
        lanes = self._lanes | {number: lane for number, lane in self._open.items() if lane.changed}
        self._release(lanes.values())
        if self._wasteful():
            for lane in lanes.values():
                lane.move()
            self._release(lanes.values())
        small: list[bytes] = []
        listed: list[bytes] = []
        pack, at = self._next_pack + 1, 0
        large = [(lane.outside(key), data) for lane in lanes.values() for key, data in lane.large.items()]
        for gone in [lane.outside(key) for lane in lanes.values() for key in lane.gone]:
            self.inner.remove(gone)
        kept = {number: lane for number, lane in lanes.items() if not lane.empty}
        if not kept:
            if self._loaded is not None:
                self.inner.clear()
            return
        for number, lane in kept.items():
            entry, at = lane.encode(number, pack, at, small)
            listed += entry
        if at:
            self._next_pack, self._packs[pack] = pack, [at, at]
            large.append((_key(pack), b"".join(small)))
        self.inner.put_many(large)
        packs = [_PACK.pack(number, *sizes) for number, sizes in self._packs.items()]
        head = _HEAD.pack(VERSION, len(packs), len(kept), self._next_pack, self._next_space)
        data = b"".join(chain((head,), packs, listed))
        if data != self._loaded:
            self.inner.set_header(data)

    def _release(self, lanes: Iterable[PooledLane]) -> None:
        """Count the small blobs that are not needed any more, and delete packs without any other."""
        for lane in lanes:
            for pack, _, size in lane.freed:
                if size:
                    self._packs[pack][1] -= size
            lane.freed = []
        for pack in [number for number, (_, used) in self._packs.items() if used == 0]:
            del self._packs[pack]
            self.inner.remove(_key(pack))

    def _wasteful(self) -> bool:
        size, used = (sum(sizes) for sizes in zip(*self._packs.values(), strict=True)) if self._packs else (0, 0)
        return size - used > max(GARBAGE, 3 * used)


def _key(pack: int) -> BlobKey:
    return BlobKey(pack, PACKS, 0)
