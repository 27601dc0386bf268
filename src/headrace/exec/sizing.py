"""Limits the memory that a program needs for a batch, before it runs: cuts the batch into pieces that fit, and refuses
values that are too large.

DuckDB's memory limit covers neither the strings of the rows that it works on, nor the Arrow table that it returns. One
pipeline with `repeat(x, 1000000)` made a worker use gigabytes. A program therefore has a
`headrace.model.program.Growth`, which says how many bytes its rows will take.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import OutOfMemory, TooManyValues, ValueTooLarge
from headrace.exec import duck
from headrace.exec.trying import ROW, tried
from headrace.model.program import Growth, Meaning, Ring0Program

# docs/sql.md states these limits: bytes of one value, and of all values of one row.
MAX_VALUE = 16 * 1024 * 1024
MAX_ROW = 64 * 1024 * 1024
# Bytes that a pass may produce from a batch, which itself has up to 32 MiB. A pass that produces 64 MiB of strings
# takes 100 to 160 MB, one that produces 128 MiB up to 290 MB, half of it outside DuckDB's limit.
PASS_BYTES = 64 * 1024 * 1024
# The sizes themselves are computed for so many bytes at a time: a bound may need a list of all words of a text, and an
# element of a list takes 16 bytes.
SIZED_BYTES = 4 * 1024 * 1024
# Bytes of partial aggregates that one pipeline may hold in a task, and of output that a lane may produce in an epoch.
HELD_BYTES = 512 * 1024 * 1024


def fits(growth: Growth, table: pa.Table) -> bool:
    """True if a pass over all of `table` produces at most PASS_BYTES, whatever the values are."""
    if growth.columns is None:
        return False
    bound = growth.fixed * table.num_rows
    for name, times in growth.columns.items():
        bound += times * table.column(name).nbytes
    return bound <= PASS_BYTES and not (growth.values and bound > MAX_VALUE)


def in_pieces(
    growth: Growth, meaning: Meaning, relation: str, table: pa.Table, size_of: Callable[[str], str] = str
) -> list[pa.Table]:
    """Cut `table` into pieces for one pass each, in order. Raises ValueTooLarge for a row that would be too large. A
    size is evaluated as `size_of` returns it. One that fails raises duckdb.Error."""
    if table.num_rows == 0 or fits(growth, table):
        return [table]
    columns = [*(v.sql for v in growth.values), growth.plain]
    selected = ", ".join(f"CAST({size_of(sql)} AS DOUBLE) AS s{i}" for i, sql in enumerate(columns))
    found = pa.concat_tables(
        duck.run(meaning, f"SELECT {selected} FROM {relation}", {relation: part}) for part in _parts(table)
    )
    sizes = [np.nan_to_num(column.to_numpy(), nan=0.0) for column in found.columns]
    for value, size in zip(growth.values, sizes, strict=False):
        if (largest := float(size.max())) > MAX_VALUE:
            raise ValueTooLarge(
                f"{value.expression} would make a value of {largest:.0f} bytes; at most {MAX_VALUE} are allowed",
                advice="Filter such rows out, or make the value shorter. Then CREATE OR REPLACE the pipeline.",
                expression=value.expression,
                bytes=int(min(largest, 2**62)),
                limit=MAX_VALUE,
            )
    rows: npt.NDArray[np.float64] = np.sum(sizes, axis=0)
    if (largest := float(rows.max())) > MAX_ROW:
        names = ", ".join(v.expression for v in growth.values) or "the select list"
        raise ValueTooLarge(
            f"a row would take {largest:.0f} bytes in {names}; at most {MAX_ROW} are allowed",
            advice="Filter such rows out, or select fewer columns. Then CREATE OR REPLACE the pipeline.",
            expression=names,
            bytes=int(min(largest, 2**62)),
            limit=MAX_ROW,
        )
    return _cut(table, rows)


def pieces_of(program: Ring0Program, meaning: Meaning, rows: pa.Table) -> list[pa.Table]:
    """`rows` in the pieces over which the first step of `program` runs. What evaluates a part of it runs over them,
    too."""
    return in_pieces(_first_growth(program), meaning, "rows", rows)


def pieces_to_search(program: Ring0Program, meaning: Meaning, rows: pa.Table) -> list[pa.Table]:
    """As `pieces_of`, although the size of a row may fail, like the step over it. Then it counts as nothing. Raises
    ValueTooLarge, and duckdb.Error if DuckDB cannot try it."""
    numbered = rows.append_column(ROW, pa.array(np.arange(rows.num_rows)))  # for `tried`
    pieces = in_pieces(_first_growth(program), meaning, "rows", numbered, size_of=tried)
    return [piece.drop_columns([ROW]) for piece in pieces]


def _first_growth(program: Ring0Program) -> Growth:
    return program.generators[0].growth if program.generators else program.growth


def _parts(table: pa.Table) -> list[pa.Table]:
    """Rows of about SIZED_BYTES each."""
    rows = max(1, int(table.num_rows * SIZED_BYTES / max(SIZED_BYTES, table.nbytes)))
    return [table.slice(at, rows) for at in range(0, table.num_rows, rows)]


def _cut(table: pa.Table, sizes: npt.NDArray[np.float64]) -> list[pa.Table]:
    """Runs of rows that take at most PASS_BYTES together, or single rows that take more."""
    ends = np.cumsum(sizes)
    pieces, at = [], 0
    while at < len(ends):
        before = ends[at - 1] if at else 0.0
        until = max(at + 1, int(np.searchsorted(ends, before + PASS_BYTES, side="right")))
        pieces.append(table.slice(at, until - at))
        at = until
    return pieces


def require_list_limit(partials: pa.Table, limit: int | None) -> None:
    """Raise TooManyValues when a group keeps more values in a list than its pipeline allows."""
    for field in partials.schema:
        if limit is None or not field.name.startswith("p") or not pa.types.is_list(field.type):
            continue
        column = partials.column(field.name)
        longest = pc.max(pc.list_value_length(column)).as_py() or 0
        if longest > limit:
            raise TooManyValues(
                f"a group keeps {longest} values in a list, but the pipeline's max_group_values is {limit}",
                advice="Use a shorter window, round the values, count with approx_count_distinct, or raise "
                "max_group_values. Then start the pipeline again. It starts with empty state.",
                values=longest,
                limit=limit,
            )


def require_memory(what: str, size: int) -> None:
    """Raise OutOfMemory when a pipeline holds more than HELD_BYTES in a task or lane. `what` begins the message."""
    if size > HELD_BYTES:
        raise OutOfMemory(
            f"{what} {size} bytes in one task; at most {HELD_BYTES} are allowed",
            advice="Group by fewer or shorter values, use shorter windows, or reduce max_epoch_bytes of the stream. "
            "Then start the pipeline again.",
            bytes=size,
            limit=HELD_BYTES,
        )
