"""Bounds what a program makes of a batch, before it is made: batches are cut into pieces that fit, values that are too
large are refused.

DuckDB's memory limit does not cover the strings of the rows that it works on, nor the Arrow table that it hands over.
One pipeline with `repeat(x, 1000000)` took a worker to gigabytes. So programs bring
`headrace.model.program.Growth`: how many bytes their rows will take.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import OutOfMemory, ValueTooLarge
from headrace.exec import duck
from headrace.model.program import Growth, Meaning

# Limits that docs/sql.md states: bytes of one value, and of all values that one row becomes.
MAX_VALUE = 16 * 1024 * 1024
MAX_ROW = 64 * 1024 * 1024
# Bytes that a pass may make of a batch, which itself has up to 32 MiB. A pass that makes 64 MiB of strings takes 100 to
# 160 MB, one of 128 MiB up to 290 MB, half of it outside of DuckDB's limit.
PASS_BYTES = 64 * 1024 * 1024
# Bytes of partials that one pipeline may hold in a task, and of output that one lane may make in an epoch.
HELD_BYTES = 512 * 1024 * 1024


def fits(growth: Growth, table: pa.Table) -> bool:
    """Whether a pass over all of `table` stays within its bytes, whatever the rows hold."""
    if growth.columns is None:
        return False
    bound = growth.fixed * table.num_rows
    for name, times in growth.columns.items():
        bound += times * table.column(name).nbytes
    return bound <= PASS_BYTES and not (growth.values and bound > MAX_VALUE)


def in_pieces(growth: Growth, meaning: Meaning, relation: str, table: pa.Table) -> list[pa.Table]:
    """`table` in pieces for one pass each, in order. Raises ValueTooLarge for a row that becomes too large."""
    if table.num_rows == 0 or fits(growth, table):
        return [table]
    columns = [*(v.sql for v in growth.values), growth.plain]
    selected = ", ".join(f"CAST({sql} AS DOUBLE) AS s{i}" for i, sql in enumerate(columns))
    found = duck.run(meaning, f"SELECT {selected} FROM {relation}", {relation: table})
    sizes = [np.nan_to_num(column.to_numpy(), nan=0.0) for column in found.columns]
    for value, size in zip(growth.values, sizes, strict=False):
        if (largest := float(size.max())) > MAX_VALUE:
            raise ValueTooLarge(
                f"{value.expression} would make a value of {largest:.0f} bytes; at most {MAX_VALUE} are allowed",
                advice="Filter such rows out, or make the value shorter, then create the pipeline again.",
                expression=value.expression,
                bytes=int(min(largest, 2**62)),
                limit=MAX_VALUE,
            )
    rows: npt.NDArray[np.float64] = np.sum(sizes, axis=0)
    if (largest := float(rows.max())) > MAX_ROW:
        names = ", ".join(v.expression for v in growth.values) or "the select list"
        raise ValueTooLarge(
            f"a row would take {largest:.0f} bytes in {names}; at most {MAX_ROW} are allowed",
            advice="Filter such rows out, or select less, then create the pipeline again.",
            expression=names,
            bytes=int(min(largest, 2**62)),
            limit=MAX_ROW,
        )
    return _cut(table, rows)


def _cut(table: pa.Table, sizes: npt.NDArray[np.float64]) -> list[pa.Table]:
    """Stretches of rows that take at most PASS_BYTES together, or one row."""
    ends = np.cumsum(sizes)
    pieces, at = [], 0
    while at < len(ends):
        before = ends[at - 1] if at else 0.0
        until = max(at + 1, int(np.searchsorted(ends, before + PASS_BYTES, side="right")))
        pieces.append(table.slice(at, until - at))
        at = until
    return pieces


def require_memory(what: str, size: int) -> None:
    """Raise OutOfMemory when what a pipeline holds in a task or lane is more than a worker can bear."""
    if size > HELD_BYTES:
        raise OutOfMemory(
            f"{what} {size} bytes in one task; at most {HELD_BYTES} are allowed",
            advice="Group by fewer or shorter values, use shorter windows, or make max_epoch_bytes of the stream "
            "smaller, then start it again.",
            bytes=size,
            limit=HELD_BYTES,
        )
