"""One hash table of groups during one epoch: read in chunks, changed in memory, written once at the end.

How large a chunk is follows from how the table is used. A call to the state store costs as much as merging a few
hundred groups, so a table of which an epoch touches much is cut into few large chunks; one of which it touches little
is cut into many small ones, because what is touched is rewritten whole. The table is cut anew when it grows or when its
use changes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.bridge.buckets import hashes
from headrace.bridge.rows import decode_counted, encode_runs
from headrace.errors import InternalError, StateDamaged
from headrace.exec.aggregates import closed_among, schema_of
from headrace.model.program import Ring1Program, Window
from headrace.ring1.state import NO_END, BlobKey, Store, TableEntry

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

SMALL_CHUNK = 32  # groups
LARGE_CHUNK = 8192
LARGE_CHUNK_BYTES = 1 << 20
# A state call (two per touched chunk, 0.1 ms each) costs what reading, merging and writing some 250 groups does. The
# gap between the bounds keeps a table from being cut anew at every turn.
SPARSE, DENSE = 256, 64


class Chunks:
    """The chunks of the table at `bounds`. Nothing reaches the store before `settle`.

    `_rows` are all rows that were read or made, `_places` the chunk of each; a chunk that is `_held` has no others.
    """

    def __init__(self, program: Ring1Program, store: Store, bounds: tuple[int, int], entry: TableEntry) -> None:
        self.program, self.store, self.bounds, self.entry = program, store, bounds, entry
        self._session = program.window is not None and program.window.kind == "session"
        self._schema = schema_of(program)
        self._rows = self._schema.empty_table()
        self._places: Ints = np.zeros(0, np.int64)
        self._held, self._changed = np.zeros((2, len(entry.rows)), np.bool_)
        self._stored: dict[int, int] = {}  # bytes in the store of the chunks that were read
        self._touched = 0

    def take(self, delta: pa.Table) -> pa.Table:
        """Take out the groups that `delta` has rows of, and perhaps others: what becomes of them has to be `put` back.
        Only the chunks that they fall in are read. There are no others if `exact`."""
        self._touched += delta.num_rows
        count = len(self.entry.rows)
        if delta.num_rows >= 8 * count:  # no chunk is left out, or next to none
            touched = np.ones(count, np.bool_)
        else:
            touched = np.zeros(count, np.bool_)
            touched[self._places_of(delta, count)] = True
        self._read(touched)
        return self._out(touched[self._places] & self._among(delta))

    @property
    def exact(self) -> bool:
        """Whether a group's key is told apart by looking at each column by itself."""
        kinds = [key.type.arrow for key in self.program.keys]
        return len(kinds) <= 1 and not any(map(pa.types.is_nested, kinds))

    def put(self, table: pa.Table) -> None:
        """Add rows of groups that are not there; their chunks were read before."""
        places = self._places_of(table, len(self.entry.rows))
        self._rows = pa.concat_tables([self._rows, table])
        self._places = np.concatenate([self._places, places])
        self._changed[places] = True

    def take_closed(self, window: Window, watermark: int) -> pa.Table:
        """Take out the sessions that are closed at `watermark`; chunks without one are not read."""
        self._count()
        due = closed_among(window, pa.array(self.entry.ends), watermark).to_numpy(zero_copy_only=False)
        if not due.any():
            return self._schema.empty_table()
        self._read(due)
        over = closed_among(window, self._rows.column("window_end"), watermark)
        return self._out(due[self._places] & over.to_numpy(zero_copy_only=False))

    def drop(self) -> None:
        """Forget the whole table."""
        for chunk in np.flatnonzero(self.entry.rows).tolist():
            self.store.remove(BlobKey(*self.bounds, chunk))

    def settle(self) -> None:
        """Cut the table anew if it should be, and write what changed."""
        self._count()
        if self._touched:
            self.entry.note_touched(self._touched)
        count = fitting(self.entry)
        if count != len(self.entry.rows):
            self._recut(count)
        self._write()

    def _read(self, chunks: Flags) -> None:
        """Have the rows of these chunks."""
        unread = np.flatnonzero(chunks & ~self._held & (self.entry.rows > 0))
        self._held |= chunks
        if not len(unread):
            return
        keys = [BlobKey(*self.bounds, chunk) for chunk in unread.tolist()]
        blobs: list[bytes] = []
        for key, data in zip(keys, self.store.get_many(keys), strict=True):
            if data is None:
                raise StateDamaged(f"the chunk {tuple(key)} of a table is missing", key=tuple(key))
            self._stored[key.part] = len(data)
            blobs.append(data)
        try:
            rows, counts = decode_counted(blobs, self._schema)
        except InternalError as problem:
            raise StateDamaged(f"a chunk of the table {self.bounds} is damaged: {problem.message}") from problem
        if (counts != self.entry.rows[unread]).any():
            raise StateDamaged(f"chunks of the table {self.bounds} do not have the rows that they should")
        self._rows = pa.concat_tables([self._rows, rows])
        self._places = np.concatenate([self._places, np.repeat(unread, counts)])

    def _out(self, rows: Flags) -> pa.Table:
        """Take out rows."""
        self._changed[self._places[rows]] = True
        taken = self._rows.filter(pa.array(rows))
        self._rows, self._places = self._rows.filter(pa.array(~rows)), self._places[~rows]
        return taken

    def _among(self, delta: pa.Table) -> Flags:
        """Of the rows, at least those whose key is in `delta`: each column is looked at by itself. Arrow tells one NaN
        from another, and 0.0 from -0.0, which Ring 0 does not send."""
        found = np.ones(self._rows.num_rows, np.bool_)
        for i in range(len(self.program.keys)):
            column = self._rows.column(f"k{i}")
            if not pa.types.is_nested(column.type):
                wanted: Any = delta.column(f"k{i}").combine_chunks()
                among: Any = pc.is_in(column, value_set=wanted)
                if pa.types.is_floating(column.type) and pc.any(pc.is_nan(wanted)).as_py():
                    nan: Any = pc.coalesce(pc.is_nan(column), pa.scalar(False))
                    among = pc.or_(among, nan)
                found &= among.to_numpy()
        return found

    def _count(self) -> None:
        """Note in the entry what changed: rows and earliest ends."""
        changed = self._changed
        self.entry.rows[changed] = np.bincount(self._places, minlength=len(changed))[changed]
        if self._session:
            self.entry.ends[changed] = NO_END
            mine = changed[self._places]
            np.minimum.at(self.entry.ends, self._places[mine], self._rows.column("window_end").to_numpy()[mine])

    def _write(self) -> None:
        changed = set(np.flatnonzero(self._changed).tolist())
        if not changed:
            return
        mine = self._changed[self._places]
        places = self._places[mine]
        order = np.argsort(places, kind="stable")
        table = self._rows.take(np.flatnonzero(mine)[order])
        chunks, starts = np.unique(places[order], return_index=True)
        blobs = encode_runs(table, np.append(starts, len(places)).astype(np.int64))
        keys = [BlobKey(*self.bounds, chunk) for chunk in chunks.tolist()]
        for chunk in changed.difference(chunks.tolist()) & self._stored.keys():
            self.store.remove(BlobKey(*self.bounds, chunk))
        self.entry.bytes += sum(map(len, blobs)) - sum(self._stored.get(chunk, 0) for chunk in changed)
        self.store.put_many(list(zip(keys, blobs, strict=True)))

    def _recut(self, count: int) -> None:
        """Into `count` chunks. A group is moved twice on average while its table grows."""
        self._read(np.ones(len(self.entry.rows), np.bool_))
        for chunk in [c for c in self._stored if c >= count]:
            self.store.remove(BlobKey(*self.bounds, chunk))
            self.entry.bytes -= self._stored.pop(chunk)
        self.entry.cut(count, self._session)
        self._places = self._places_of(self._rows, count)
        self._held, self._changed = np.ones((2, count), np.bool_)
        self._count()

    def _places_of(self, table: pa.Table, count: int) -> Ints:
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
