"""The SQL of aggregation for both rings: rows to partial aggregates, partials to merged partials, groups to output.

All three are functions of a program and Arrow tables that return an Arrow table. DuckDB does the work. A table of
partials has the columns window_start and window_end (if the program has a window), k0.., p0..: see
`headrace.model.program`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from headrace.exec import duck
from headrace.exec.failing_groups import explained
from headrace.exec.sizing import fits, in_pieces, require_list_limit, require_memory
from headrace.model.program import Expression, Meaning, Partial, Ring0Program, Ring1Program, Window
from headrace.model.schema import DOUBLE, FLOAT, Array, DataType

BOUNDS = ("window_start", "window_end")
NEWEST = "_newest"
OVERLAPPING = ("hop", "cumulate")


def partial_schema(window: Window | None, keys: Sequence[DataType], partials: Sequence[Partial]) -> pa.Schema:
    """The Arrow schema of a table of partials.

    If windows overlap, it also has `NEWEST`: the number of rows of the group for which this window is the last to
    close. `NEWEST` counts every row once, while the presence count counts it in each of its windows.
    """
    fields: list[pa.Field[Any]] = [pa.field(name, pa.int64()) for name in BOUNDS] if window else []
    fields += [pa.field(f"k{i}", kind.arrow) for i, kind in enumerate(keys)]
    fields += [pa.field(p.name, p.type.arrow) for p in partials]
    fields += [pa.field(NEWEST, pa.int64())] if window and window.kind in OVERLAPPING else []
    return pa.schema(fields)


def schema_of(program: Ring0Program | Ring1Program) -> pa.Schema:
    """The schema of the partials of `program`."""
    return partial_schema(program.window, [k.type for k in program.keys], program.partials)


@dataclass(frozen=True, slots=True)
class Aggregated:
    """The partials of one batch, and how many rows are late: all windows they belong to have closed."""

    partials: pa.Table
    late: int


def where(*conditions: str | None) -> str:
    """A WHERE clause of the given conditions, or an empty string."""
    kept = [f"({c})" for c in conditions if c]
    return " WHERE " + " AND ".join(kept) if kept else ""


def aggregate_rows(program: Ring0Program, meaning: Meaning, rows: pa.Table, watermark: int | None) -> Aggregated:
    """Aggregate `rows` into partials, without the rows that are late at `watermark`.

    A row is late if all its windows have closed. A row that is in time for some of its windows is left out of the
    closed ones only, and does not count as late.
    """
    schema = schema_of(program)
    if program.window is None:
        sql = plain_sql(program, f"(SELECT * FROM rows{where(program.filter)})", _partials(program))
        return Aggregated(_run(meaning, sql, rows, schema), 0)
    if program.window.kind == "session":
        return _sessions(program, program.window, meaning, rows, watermark=watermark)
    columns = _partials(program)
    columns += [f"count(*) FILTER (_newest_row) AS {NEWEST}"] if NEWEST in schema.names else []
    sql = windows_sql(program, program.window, f"(SELECT * FROM rows{where(program.filter)})", columns)
    return Aggregated(*split_closed(_run(meaning, sql, rows, schema), watermark))


def aggregate_nothing(program: Ring0Program, meaning: Meaning, nothing: pa.Table) -> pa.Table:
    """The partial of a global aggregate over no rows. Merging it with others does not change them."""
    sql = f"SELECT {', '.join(_partials(program))} FROM rows"
    return _run(meaning, sql, nothing, schema_of(program))


def split_closed(partials: pa.Table, limit: int | None) -> tuple[pa.Table, int]:
    """The partials of windows that end after `limit`, and how many rows belong only to the other windows."""
    if limit is None or partials.num_rows == 0:
        return partials, 0
    closed = pc.less_equal(partials.column("window_end"), pa.scalar(limit))
    late = pc.sum(partials.filter(closed).column(NEWEST if NEWEST in partials.column_names else "p0")).as_py()
    return partials.filter(pc.invert(closed)), int(late or 0)


def merge(
    program: Ring1Program | Ring0Program, meaning: Meaning, tables: Sequence[pa.Table], max_values: int | None = None
) -> pa.Table:
    """Merge partials to one per group. Sessions that touch become one. Raises TooManyValues when a list of a group has
    more than `max_values`."""
    schema = schema_of(program)
    table = _parts(schema, tables)
    if table.num_rows == 0:
        return table
    merged = duck.conform(duck.run(meaning, _merge_sql(program), {"parts": table}), schema)
    require_list_limit(merged, max_values)
    return merged


def finish(program: Ring1Program, meaning: Meaning, groups: pa.Table) -> pa.Table:
    """The output rows of merged `groups`: HAVING, then the select list. Raises ValueTooLarge or OutOfMemory."""
    if program.ranks:  # over all groups of a window, before they are cut into pieces
        sql = f"SELECT * FROM {_ranked(program, 'groups')}{where(program.qualify)}"
        groups = duck.run(meaning, sql, {"groups": groups})
    sql = f"SELECT {duck.select_list(program.outputs)} FROM groups" if program.ranks else _finish_sql(program, "groups")
    made, total = list[pa.Table](), 0
    for piece in in_pieces(program.growth, meaning, "groups", groups):
        try:
            rows = duck.run(meaning, sql, {"groups": piece})
        except duckdb.Error as problem:
            raise explained(problem, program, meaning, groups=piece) from problem
        made.append(duck.conform(rows, _output(program)))
        total += made[-1].nbytes
        require_memory("the output of the windows and groups takes", total)
    return pa.concat_tables(made)


def merge_and_finish(
    program: Ring1Program, meaning: Meaning, tables: Sequence[pa.Table], max_values: int | None = None
) -> pa.Table:
    """`merge`, then `finish`, in one query, because planning is most of a small query's time. A merged row is not
    larger than the rows it is merged from, so if the parts fit, the merged groups fit too."""
    parts = _parts(schema_of(program), tables)
    listed = max_values is not None and any(isinstance(p.type, Array) for p in program.partials)
    if listed or not fits(program.growth, parts):
        return finish(program, meaning, merge(program, meaning, tables, max_values))
    sql = _finish_sql(program, f"({_merge_sql(program)}) AS groups")
    try:
        rows = duck.run(meaning, sql, {"parts": parts})
    except duckdb.Error:
        return finish(program, meaning, merge(program, meaning, tables, max_values))  # fails with the guilty group
    return duck.conform(rows, _output(program))


def _parts(schema: pa.Schema, tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables([t.cast(schema) if t.schema != schema else t for t in tables])


def merged_columns(program: Ring1Program | Ring0Program) -> list[str]:
    """The SQL of the merged partials."""
    merged = [f"CAST({p.merge} AS {p.type.duckdb}) AS {p.name}" for p in program.partials]
    overlapping = program.window is not None and program.window.kind in OVERLAPPING
    return [*merged, f"CAST(sum({NEWEST}) AS BIGINT) AS {NEWEST}"] if overlapping else merged


def _merge_sql(program: Ring1Program | Ring0Program) -> str:
    keys = [f"k{i}" for i in range(len(program.keys))]
    merged = merged_columns(program)
    if program.window is not None and program.window.kind == "session":
        columns = ["min(window_start) AS window_start", "max(window_end) AS window_end", *keys, *merged]
        return f"SELECT {', '.join(columns)} FROM {_islands('parts', keys)} GROUP BY {', '.join([*keys, '_island'])}"
    group = [*(BOUNDS if program.window else ()), *keys]
    return f"SELECT {', '.join([*group, *merged])} FROM parts" + (f" GROUP BY {', '.join(group)}" if group else "")


def _finish_sql(program: Ring1Program, groups: str) -> str:
    if program.ranks:
        return f"SELECT {duck.select_list(program.outputs)} FROM {_ranked(program, groups)}{where(program.qualify)}"
    return f"SELECT {duck.select_list(program.outputs)} FROM {groups}{where(program.having)}"


def _ranked(program: Ring1Program, groups: str) -> str:
    """The groups that HAVING keeps, with their ranks."""
    return f"(SELECT *, {duck.select_list(program.ranks)} FROM {groups}{where(program.having)}) AS groups"


def _output(program: Ring1Program) -> pa.Schema:
    return pa.schema([pa.field(o.name, o.type.arrow) for o in program.outputs])


def project_rows(outputs: Sequence[Expression], filter_sql: str | None, meaning: Meaning, rows: pa.Table) -> pa.Table:
    """The output rows of a stateless pipeline: filter, then the select list."""
    schema = pa.schema([pa.field(o.name, o.type.arrow) for o in outputs])
    sql = f"SELECT {duck.select_list(outputs)} FROM rows{where(filter_sql)}"
    return duck.conform(duck.run(meaning, sql, {"rows": rows}), schema)


def _run(meaning: Meaning, sql: str, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return duck.conform(duck.run(meaning, sql, {"rows": rows}), schema)


def _keys(program: Ring0Program) -> list[str]:
    return [f"{_key(k)} AS k{i}" for i, k in enumerate(program.keys)]


def _key(key: Expression) -> str:
    """The SQL of a key's value. DuckDB groups -0.0 with 0.0 but returns the first one it saw. Adding zero makes both
    0.0, as in Spark."""
    value = f"CAST(({key.sql}) AS {key.type.duckdb})"
    return f"({value} + CAST(0 AS {key.type.duckdb}))" if key.type in (FLOAT, DOUBLE) else value


def _partials(program: Ring0Program) -> list[str]:
    return [f"CAST({p.sql} AS {p.type.duckdb}) AS {p.name}" for p in program.partials]


def plain_sql(program: Ring0Program, source: str, columns: Sequence[str]) -> str:
    """The SQL without a window. HAVING drops the row of a global aggregate over no input: an empty epoch sends
    nothing."""
    keys = [f"k{i}" for i in range(len(program.keys))]
    group = f" GROUP BY {', '.join(keys)}" if keys else ""
    keyed = f"(SELECT *, {', '.join(_keys(program))} FROM {source})" if keys else source
    return f"SELECT {', '.join([*keys, *columns])} FROM {keyed}{group} HAVING count(*) > 0"


def windows_sql(program: Ring0Program, window: Window, source: str, columns: Sequence[str]) -> str:
    """The SQL of tumbling, hopping and cumulating windows: each row once per window it is in, then one GROUP BY."""
    keys = [f"k{i}" for i in range(len(program.keys))]
    base = _aligned("_t", window.size if window.kind == "cumulate" else window.slide, window.offset)
    with_base = ", ".join([f"{base} AS _base", *_keys(program)])
    spread = f"(SELECT *, {with_base} FROM {source} WHERE _t IS NOT NULL)"
    if window.kind == "tumble":
        start, end, newest = "_base", f"_base + {window.size}", "true"
        each = spread
    else:
        count = -(-window.size // window.slide)
        each = f"(SELECT *, unnest(range({count})) AS _i FROM {spread})"
        if window.kind == "hop":
            start, end = f"_base - _i * {window.slide}", f"_base - _i * {window.slide} + {window.size}"
            newest = "_i = 0"
        else:
            start, end = "_base", f"_base + least((_i + 1) * {window.slide}, {window.size})"
            newest = f"_i = {count - 1}"
    windowed = (
        f"(SELECT *, {start} AS window_start, {end} AS window_end, {newest} AS _newest_row "
        f"FROM {each} WHERE {end} > _t)"
    )
    group = ", ".join([*BOUNDS, *keys])
    return f"SELECT {', '.join([*BOUNDS, *keys, *columns])} FROM {windowed} GROUP BY {group}"


def _aligned(time: str, step: int, offset: int) -> str:
    """The SQL of the largest multiple of `step`, shifted by `offset`, that is not after `time`. Also works before
    1970."""
    return f"({time} - (({time} - {offset}) % {step} + {step}) % {step})"


def _sessions(
    program: Ring0Program, window: Window, meaning: Meaning, rows: pa.Table, watermark: int | None
) -> Aggregated:
    """The partial sessions of one batch. Late rows are removed before the others become sessions."""
    gap, late = window.size, 0
    in_time = "true"
    if watermark is not None:
        in_time = f"NOT {_session_closed(f'_t + {gap}', watermark)}"
        sql = f"SELECT count(*) AS n FROM rows{where(program.filter, '_t IS NOT NULL', f'NOT ({in_time})')}"
        late = duck.run(meaning, sql, {"rows": rows}).column(0)[0].as_py()
    keys = [f"k{i}" for i in range(len(program.keys))]
    timed = f"_t AS window_start, _t + {gap} AS window_end"
    source = (
        f"(SELECT *, {', '.join([timed, *_keys(program)])} FROM rows{where(program.filter, '_t IS NOT NULL', in_time)})"
    )
    columns = ["min(window_start) AS window_start", "max(window_end) AS window_end", *keys, *_partials(program)]
    sql = f"SELECT {', '.join(columns)} FROM {_islands(source, keys)} GROUP BY {', '.join([*keys, '_island'])}"
    return Aggregated(_run(meaning, sql, rows, schema_of(program)), late)


def late_rows(
    outputs: Sequence[Expression], program: Ring0Program, meaning: Meaning, rows: pa.Table, watermark: int
) -> pa.Table:
    """The rows that `aggregate_rows` counts as late: those whose last window has closed."""
    window = program.window
    assert window is not None
    if window.kind == "session":
        late = _session_closed(f"_t + {window.size}", watermark)
    else:
        step = window.size if window.kind == "cumulate" else window.slide
        late = f"({_aligned('_t', step, window.offset)} + {window.size} <= {watermark})"
    filter_sql = " AND ".join(f"({c})" for c in (program.filter, late) if c)
    return project_rows(outputs, filter_sql, meaning, rows)


def _session_closed(end: str, watermark: int) -> str:
    """The SQL of the rule for sessions. A row exactly at the end still joins, so the watermark must be after the
    end."""
    return f"({end} < {watermark})"


def _islands(source: str, keys: Sequence[str]) -> str:
    """`source` with the column `_island`: the earliest start among the rows of a key whose [window_start, window_end]
    touch each other. The second pass uses RANGE, not ROWS, because DuckDB may order rows with equal bounds differently
    in each pass."""
    partition = f"PARTITION BY {', '.join(keys)} " if keys else ""
    order = f"{partition}ORDER BY window_start, window_end"
    before = f"max(window_end) OVER ({order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    opened = "CASE WHEN _before IS NULL OR window_start > _before THEN window_start END"
    return (
        f"(SELECT *, max({opened}) OVER ({partition}ORDER BY window_start RANGE UNBOUNDED PRECEDING) AS _island "
        f"FROM (SELECT *, {before} AS _before FROM {source}))"
    )


def is_closed(window: Window, end: int, watermark: int | None) -> bool:
    """True if a window with this end is closed at `watermark`: no more rows can join it. The same rule as
    `closed_among`, for one end, without the 0.1 ms that Arrow takes for a single number."""
    return watermark is not None and (end < watermark if window.kind == "session" else end <= watermark)


def closed_among(window: Window, ends: pa.Array[Any] | pa.ChunkedArray[Any], watermark: int) -> pa.BooleanArray:
    """Marks the ends of closed windows. A row exactly at the end of a session still joins it, so the watermark must be
    after the end. The end of any other window is the first moment after it."""
    compare = pc.less if window.kind == "session" else pc.less_equal
    return compare(ends, pa.scalar(watermark))
