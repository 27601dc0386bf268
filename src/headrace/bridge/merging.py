"""Merges partial aggregates with kernels, from blob to blob: one row per group. The rows are those that DuckDB gives
(`headrace.exec.aggregates`), in another order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.base.arrays import Ints
from headrace.bridge.kernels import merges as k
from headrace.bridge.rows import MAGIC, BlobLayout, encode_rows, join_rows, layout_of
from headrace.errors import InternalError

Counted = tuple[int, bytes]  # a blob, and the number of rows that it must have
# The rows of a merge are copied twice. DuckDB can write to disk what is larger.
MOST_BYTES = 128 << 20


class CannotMerge(Exception):
    """The kernels cannot merge or finish these rows, so DuckDB has to."""


def merge_blobs(
    layout: BlobLayout, keys: int, kinds: Ints, lanes: Sequence[Sequence[Counted]]
) -> tuple[npt.NDArray[np.uint8], Ints]:
    """Merge the rows of each lane to one per group. The first `keys` columns name the group, and `kinds` says how each
    other column is merged. Returns the groups as one blob, ordered by lane, and the number of groups of each lane.
    Raises CannotMerge if the blobs are damaged or if a sum does not fit."""
    segments = [segment for lane in lanes for segment in lane]
    if sum([len(data) for _, data in segments]) > MOST_BYTES:
        raise CannotMerge("there are too many rows")
    try:
        joined = join_rows([data for _, data in segments], layout)
    except InternalError as damage:
        raise CannotMerge("a blob is damaged") from damage
    if joined.counts.tolist() != [rows for rows, _ in segments]:
        raise CannotMerge("a blob has another number of rows than it should")
    rows, width = int(joined.counts.sum()), len(layout.widths)
    numbers = np.repeat(np.arange(len(lanes)), [len(lane) for lane in lanes])
    offsets = np.empty((keys, rows + 1), np.int64)
    table = np.full(1 << (2 * rows + 1).bit_length(), k.NO_GROUP, np.int32)
    groups, firsts = np.empty((2, rows), np.int32)
    sizes, texts = np.zeros(len(lanes), np.int64), np.zeros(width, np.int64)
    count = k.group_rows(
        joined.blob,
        rows,
        layout.widths,
        keys,
        joined.flags,
        joined.held,
        joined.counts,
        numbers,
        offsets,
        table,
        groups,
        firsts,
        sizes,
        texts,
    )
    if count == k.DAMAGED:
        raise CannotMerge("the strings of a blob are damaged")
    out = np.zeros(k.blob_size(layout.widths, joined.flags, count, texts), np.uint8)
    fits = k.merge_rows(
        joined.blob,
        rows,
        layout.widths,
        keys,
        kinds,
        joined.flags,
        joined.held,
        offsets,
        groups,
        firsts,
        count,
        texts,
        MAGIC,
        layout.digest,
        out,
    )
    if not fits:
        raise CannotMerge("a sum does not fit")
    return out, sizes


def warm() -> None:
    """Compile or load the kernels that merge."""
    table = pa.table({"k0": ["a"], "p0": [1.0]})
    layout = layout_of(table.schema)
    assert layout is not None
    merge_blobs(layout, 1, np.array([k.SUM_DOUBLES]), [[(1, encode_rows(table))]])
