"""Splits a table of partial aggregates by window, without a Python loop over rows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa


def by_window(table: pa.Table) -> Iterator[tuple[tuple[int, int], pa.Table]]:
    """Each (window_start, window_end) with its rows, ordered by start and end. Rows of a window keep their order."""
    if table.num_rows == 0:
        return
    starts = table.column("window_start").to_numpy()
    ends = table.column("window_end").to_numpy()
    order = np.lexsort((ends, starts))
    starts, ends = starts[order], ends[order]
    changes = (np.diff(starts) != 0) | (np.diff(ends) != 0)
    cuts = [0, *(np.flatnonzero(changes) + 1).tolist(), table.num_rows]
    ordered = table if len(cuts) == 2 else table.take(order)
    for a, b in pairwise(cuts):
        yield (int(starts[a]), int(ends[a])), ordered.slice(a, b - a)
