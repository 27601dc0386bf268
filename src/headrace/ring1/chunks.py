"""One hash table of groups during one epoch: read in chunks, changed in memory, written once at the end.

How large a chunk is follows from how the table is used. A call to the state store costs as much as merging a few
hundred groups, so a table of which an epoch touches much is cut into few large chunks; one of which it touches little
is cut into many small ones, because what is touched is rewritten whole. The table is cut anew when it grows or when its
use changes.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.aggregates import closed_among, schema_of
from headrace.bridge.buckets import hashes
from headrace.bridge.messages import decode_table, encode_table
from headrace.errors import StateDamaged
from headrace.program import Ring1Program, Window
from headrace.ring1.split import by_number
from headrace.ring1.state import NO_END, BlobKey, Store, TableEntry

SMALL_CHUNK = 32  # groups
LARGE_CHUNK = 8192
LARGE_CHUNK_BYTES = 1 << 20
# A state call (two per touched chunk, 0.1 ms each) costs what reading, merging and writing some 250 groups does. The
# gap between the bounds keeps a table from being cut anew at every turn.
SPARSE, DENSE = 256, 64


class Chunks:
    """The chunks of the table at `bounds`. Nothing reaches the store before `settle`."""

    def __init__(self, program: Ring1Program, store: Store, bounds: tuple[int, int], entry: TableEntry) -> None:
        self.program, self.store, self.bounds, self.entry = program, store, bounds, entry
        self._session = program.window is not None and program.window.kind == "session"
        self._held: dict[int, pa.Table] = {}
        self._changed: set[int] = set()
        self._stored: dict[int, int] = {}  # bytes in the store of the chunks that were read
        self._touched = 0

    def touched_by(self, delta: pa.Table) -> list[int]:
        """The chunks that the groups of `delta` fall in."""
        self._touched += delta.num_rows
        count = len(self.entry.rows)
        if delta.num_rows >= 8 * count:  # none is left out, or next to none
            return list(range(count))
        found: list[int] = np.unique(self._places(delta, count)).tolist()
        return found

    def read(self, chunks: Iterable[int]) -> list[pa.Table]:
        """The tables of those chunks that have rows."""
        wanted = [c for c in chunks if self.entry.rows[c]]
        unread = [c for c in wanted if c not in self._held]
        keys = [BlobKey(*self.bounds, c) for c in unread]
        for chunk, key, data in zip(unread, keys, self.store.get_many(keys), strict=True):
            if data is None:
                raise StateDamaged(f"the chunk {tuple(key)} of a table is missing", key=tuple(key))
            self._stored[chunk] = len(data)
            self._held[chunk] = decode_table(data)
        return [self._held[c] for c in wanted]

    def replace(self, chunks: Iterable[int], table: pa.Table) -> None:
        """The rows of `table` are from now on all that is in `chunks`, which were read before."""
        parts = dict(by_number(table, self._places(table, len(self.entry.rows))))
        for chunk in chunks:
            self._put(chunk, parts.get(chunk, table.slice(0, 0)))

    def take_closed(self, window: Window, watermark: int) -> list[pa.Table]:
        """Take out the sessions that are closed at `watermark`; chunks without one are not read."""
        taken = []
        chunks: list[int] = np.flatnonzero(closed_among(window, pa.array(self.entry.ends), watermark)).tolist()
        for chunk, table in zip(chunks, self.read(chunks), strict=True):
            over = closed_among(window, table.column("window_end"), watermark)
            taken.append(table.filter(over))
            self._put(chunk, table.filter(pc.invert(over)))
        return taken

    def drop(self) -> None:
        """Forget the whole table."""
        for chunk in np.flatnonzero(self.entry.rows).tolist():
            self.store.remove(BlobKey(*self.bounds, chunk))

    def settle(self) -> None:
        """Cut the table anew if it should be, and write what changed."""
        if self._touched:
            self.entry.note_touched(self._touched)
        count = fitting(self.entry)
        if count != len(self.entry.rows):
            self._recut(count)
        self._write(sorted(self._changed))

    def _put(self, chunk: int, table: pa.Table) -> None:
        self._held[chunk] = table
        self._changed.add(chunk)
        self.entry.rows[chunk] = table.num_rows
        if self._session:
            self.entry.ends[chunk] = pc.min(table.column("window_end")).as_py() if table.num_rows else NO_END

    def _write(self, chunks: list[int]) -> None:
        full: list[tuple[BlobKey, bytes]] = []
        for chunk in chunks:
            key, table, before = BlobKey(*self.bounds, chunk), self._held[chunk], self._stored.pop(chunk, 0)
            data = encode_table(table) if table.num_rows else b""
            if data:
                full.append((key, data))
            elif before:
                self.store.remove(key)
            self.entry.bytes += len(data) - before
        self.store.put_many(full)

    def _recut(self, count: int) -> None:
        """Into `count` chunks. A group is moved twice on average while its table grows."""
        old = len(self.entry.rows)
        everything = pa.concat_tables([schema_of(self.program).empty_table(), *self.read(range(old))])
        stored = set(self._stored)
        self.entry.cut(count, self._session)
        self._held.clear()
        self._changed = {c for c in stored if c >= count}
        self._held.update(dict.fromkeys(self._changed, everything.slice(0, 0)))
        self.replace(range(count), everything)

    def _places(self, table: pa.Table, count: int) -> npt.NDArray[np.int64]:
        if count == 1:
            return np.zeros(table.num_rows, np.int64)
        keys = [table.column(f"k{i}") for i in range(len(self.program.keys))]
        # The low bits chose the bucket, so they are alike here: use high ones.
        return ((hashes(keys, table.num_rows) >> np.uint64(32)) % np.uint64(count)).astype(np.int64)


def fitting(entry: TableEntry) -> int:
    """Into how many chunks a table should be cut: as it is, unless that is far from what its use asks for."""
    count, groups = len(entry.rows), entry.groups
    small = groups < SPARSE * count  # its chunks are small now
    sparse = groups > entry.touched * (DENSE if small and count > 1 else SPARSE)
    each = max(1, entry.bytes // groups) if groups and entry.bytes else 64
    size = SMALL_CHUNK if sparse else max(SMALL_CHUNK, min(LARGE_CHUNK, LARGE_CHUNK_BYTES // each))
    wanted = 1 << max(0, -(-groups // size) - 1).bit_length()
    return count if wanted <= 2 * count and count <= 4 * wanted else wanted
