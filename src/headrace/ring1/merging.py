"""Merges and finishes closed windows with kernels: from the bytes of the state to the output of each lane.

The rows are those that DuckDB gives (`headrace.exec.stacks`), in another order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.bridge.kernels import merges as k
from headrace.bridge.rows import MAGIC, join_rows, view_rows
from headrace.errors import InternalError
from headrace.ring1.merge_program import CannotMerge, MergeProgram

Counted = tuple[int, bytes]  # a blob, and the number of rows that it must have
# The rows of a merge are copied twice. DuckDB can write to disk what is larger.
MOST_BYTES = 128 << 20


def merge_blobs(
    program: MergeProgram, lanes: Sequence[Sequence[Counted]]
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Merge the rows of each lane to one per group. Returns them as one blob, ordered by lane, and the number of groups
    of each lane. Raises CannotMerge if the blobs are damaged or if a sum does not fit."""
    segments = [segment for lane in lanes for segment in lane]
    if sum([len(data) for _, data in segments]) > MOST_BYTES:
        raise CannotMerge("there are too many rows")
    layout = program.layout
    try:
        joined = join_rows([data for _, data in segments], layout)
    except InternalError as damage:
        raise CannotMerge("a blob is damaged") from damage
    if joined.counts.tolist() != [rows for rows, _ in segments]:
        raise CannotMerge("a blob has another number of rows than it should")
    rows, width = int(joined.counts.sum()), len(layout.widths)
    numbers = np.repeat(np.arange(len(lanes)), [len(lane) for lane in lanes])
    offsets = np.empty((program.keys, rows + 1), np.int64)
    table = np.full(1 << (2 * rows + 1).bit_length(), k.NO_GROUP, np.int32)
    groups, firsts = np.empty((2, rows), np.int32)
    sizes, texts = np.zeros(len(lanes), np.int64), np.zeros(width, np.int64)
    count = k.group_rows(
        joined.blob,
        rows,
        layout.widths,
        program.keys,
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
        program.keys,
        program.kinds,
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


def close_lanes(program: MergeProgram, lanes: Sequence[Sequence[Counted]]) -> list[pa.Table]:
    """The output of each lane, with columns `o0, o1, ...`. Raises CannotMerge."""
    out, sizes = merge_blobs(program, lanes)
    output = program.finish(view_rows(out, program.layout))
    ends = np.cumsum(sizes).tolist()
    return [output.slice(begin, end - begin) for begin, end in zip([0, *ends], ends, strict=False)]
