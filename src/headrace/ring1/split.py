"""Cutting a table of partials by window or by hash chunk, without a Python loop over rows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def by_window(table: pa.Table) -> Iterator[tuple[tuple[int, int], pa.Table]]:
    """Each (window_start, window_end) with its rows, in order of start and end; rows keep their order."""
    starts = table.column("window_start").to_numpy()
    ends = table.column("window_end").to_numpy()
    order = np.lexsort((ends, starts))
    starts, ends = starts[order], ends[order]
    yield from (
        ((int(starts[a]), int(ends[a])), part)
        for a, part in _runs(table, order, (np.diff(starts) != 0) | (np.diff(ends) != 0))
    )


def by_number(table: pa.Table, numbers: npt.NDArray[np.int64]) -> Iterator[tuple[int, pa.Table]]:
    """Each distinct number with its rows, in order of the number; rows keep their order."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    yield from ((int(ordered[a]), part) for a, part in _runs(table, order, np.diff(ordered) != 0))


def _runs(
    table: pa.Table, order: npt.NDArray[np.int64], changes: npt.NDArray[np.bool_]
) -> Iterator[tuple[int, pa.Table]]:
    if table.num_rows == 0:
        return
    cuts = [0, *(np.flatnonzero(changes) + 1).tolist(), table.num_rows]
    if len(cuts) == 2:
        yield 0, table
        return
    ordered = table.take(order)
    for a, b in pairwise(cuts):
        yield a, ordered.slice(a, b - a)
