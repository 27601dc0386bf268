"""One hash table of groups during one epoch: read in chunks, changed in memory, written once at the end.

The size of the chunks depends on how the table is used. A call to the state store costs as much as merging a few
hundred groups, so a table of which epochs touch a large part has few large chunks. A table of which they touch a small
part has many small chunks, because a touched chunk is rewritten as a whole. The table is cut again when it grows or
when its use changes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.base.arrays import Ints
from headrace.bridge.buckets import hashes
from headrace.bridge.rows import decode_counted, encode_runs
from headrace.errors import InternalError, StateDamaged
from headrace.exec.aggregates import closed_among, schema_of
from headrace.model.program import Ring1Program, Window
from headrace.ring1.lane_state import NO_END, BlobKey, Store, TableEntry

Flags = npt.NDArray[np.bool_]

SMALL_CHUNK = 32  # groups
LARGE_CHUNK = 8192
LARGE_CHUNK_BYTES = 1 << 20
# A state call takes 0.1 ms, as long as reading, merging and writing about 250 groups; a touched chunk needs two. A
# table becomes sparse at one bound and dense at the other, so that it is not cut again in every epoch.
SPARSE, DENSE = 256, 64


class Chunks:
    """The chunks of the table at `bounds`. Nothing is written to the store before `settle`.

    `_rows` are all rows that were read or added, and `_places` the chunk of each row. If a chunk is `_held`, all its
    rows are in memory.
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
        """Remove and return the groups that have rows in `delta`, and maybe others; none if `exact`. Reads only the
        chunks that these groups fall in. The caller has to `put` the groups back."""
        self._touched += delta.num_rows
        count = len(self.entry.rows)
        if delta.num_rows >= 8 * count:  # (almost) every chunk is touched
            touched = np.ones(count, np.bool_)
        else:
            touched = np.zeros(count, np.bool_)
            touched[self._places_of(delta, count)] = True
        self._read(touched)
        return self._out(touched[self._places] & self._among(delta))

    @property
    def exact(self) -> bool:
        """True if `take` returns no other groups: the key has at most one column, and that can be compared."""
        kinds = [key.type.arrow for key in self.program.keys]
        return len(kinds) <= 1 and not any(map(pa.types.is_nested, kinds))

    def put(self, table: pa.Table) -> None:
        """Add groups that are not in the table. Their chunks must have been read."""
        places = self._places_of(table, len(self.entry.rows))
        self._rows = pa.concat_tables([self._rows, table])
        self._places = np.concatenate([self._places, places])
        self._changed[places] = True

    def take_closed(self, window: Window, watermark: int) -> pa.Table:
        """Remove and return the sessions that are closed at `watermark`. Reads only chunks that have one."""
        self._count()
        due = closed_among(window, pa.array(self.entry.ends), watermark).to_numpy(zero_copy_only=False)
        if not due.any():
            return self._schema.empty_table()
        self._read(due)
        over = closed_among(window, self._rows.column("window_end"), watermark)
        return self._out(due[self._places] & over.to_numpy(zero_copy_only=False))

    def drop(self) -> None:
        """Delete the whole table."""
        for chunk in np.flatnonzero(self.entry.rows).tolist():
            self.store.remove(BlobKey(*self.bounds, chunk))

    def settle(self) -> None:
        """Cut the table again if its use has changed, and write the changed chunks."""
        self._count()
        if self._touched:
            self.entry.note_touched(self._touched)
        count = fitting(self.entry)
        if count != len(self.entry.rows):
            self._recut(count)
        self._write()

    def _read(self, chunks: Flags) -> None:
        """Read the rows of these chunks, except those that are held."""
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
            raise StateDamaged(f"chunks of the table {self.bounds} have another number of rows than the header says")
        self._rows = pa.concat_tables([self._rows, rows])
        self._places = np.concatenate([self._places, np.repeat(unread, counts)])

    def _out(self, rows: Flags) -> pa.Table:
        """Remove and return rows."""
        self._changed[self._places[rows]] = True
        taken = self._rows.filter(pa.array(rows))
        self._rows, self._places = self._rows.filter(pa.array(~rows)), self._places[~rows]
        return taken

    def _among(self, delta: pa.Table) -> Flags:
        """Marks at least the rows whose key is in `delta`. Compares each key column by itself, so it may mark others.
        In Arrow a NaN is not equal to another one, so NaNs are compared separately. 0.0 and -0.0 also differ, but Ring
        0 never sends -0.0."""
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
        """Update the entry for the changed chunks: the number of rows and the earliest end."""
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
        """Cut the table into `count` chunks. A group is moved twice on average while its table grows."""
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
        # The low bits have chosen the bucket, so they are the same for all groups here. Use the high bits.
        return ((hashes(keys, table.num_rows) >> np.uint64(32)) % np.uint64(count)).astype(np.int64)


def fitting(entry: TableEntry) -> int:
    """The number of chunks that a table should have. It stays as it is unless it is far from what its use asks for."""
    count, groups = len(entry.rows), entry.groups
    small = groups < SPARSE * count  # it has small chunks now
    sparse = groups > entry.touched * (DENSE if small and count > 1 else SPARSE)
    each = max(1, entry.bytes // groups) if groups and entry.bytes else 64
    size = SMALL_CHUNK if sparse else max(SMALL_CHUNK, min(LARGE_CHUNK, LARGE_CHUNK_BYTES // each))
    wanted = 1 << max(0, -(-groups // size) - 1).bit_length()
    return count if wanted <= 2 * count and count <= 4 * wanted else wanted
