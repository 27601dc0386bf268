"""Two small executors, to compare plans by their rows.

`run_plan` executes a logical plan as it stands, node by node. `run_program` executes a compiled program the way the
runtime does, but cut at random: rows into tasks, partial states merged in a random tree, sessions merged as they meet.
"""

from __future__ import annotations

import datetime as dt
import functools
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa

from headrace.exec.generate import made_rows, over_made_rows
from headrace.exec.kernels import install
from headrace.model.program import Meaning, PipelineProgram, Window
from headrace.model.schema import BIGINT, TIMESTAMP, Schema
from headrace.sql.functions.aggregate_functions import find_aggregate
from headrace.sql.functions.aggregate_states import PartialState, SplitAggregate
from headrace.sql.plan.expr import AggCall, ColumnRef, RankCall
from headrace.sql.plan.logical import Aggregate, AssignWindow, Filter, Generate, Plan, Project, Rank, StreamScan, Union
from headrace.sql.render.duckdb import render

Row = tuple[Any, ...]


@functools.cache
def connect(meaning: Meaning) -> duckdb.DuckDBPyConnection:
    """DuckDB as the runtime sets it up; one connection serves all tests."""
    connection = duckdb.connect(":memory:")
    connection.execute(f"SET threads=1; SET preserve_insertion_order=true; SET TimeZone='{meaning.time_zone}'")
    install(connection, meaning.time_zone)
    return connection


# --- logical plans ------------------------------------------------------------------------------


def run_plan(plan: Plan, rows: pa.Table, meaning: Meaning) -> list[Row]:
    """The rows of a logical plan over the stream's rows."""
    connection = connect(meaning)
    connection.register("rows", rows)
    columns = ", ".join(f"CAST(o{i} AS {f.type.duckdb})" for i, f in enumerate(plan.schema))
    return _fetch(connection, f"SELECT {columns} FROM ({_sql(plan)})", plan.schema)


def _column(column: ColumnRef) -> str:
    return f"o{column.index}"


def _sql(plan: Plan) -> str:
    """A query whose columns are o0, o1, ... and the event time `_t`."""
    if isinstance(plan, StreamScan):
        columns = ", ".join(f"c{i} AS o{i}" for i in range(len(plan.schema)))
        return f"SELECT {columns}, _t FROM rows"
    if isinstance(plan, Filter):
        return f"SELECT * FROM ({_sql(plan.input)}) WHERE {render(plan.predicate, _column)}"
    if isinstance(plan, Project):
        outputs = ", ".join(f"{render(o.expr, _column)} AS o{i}" for i, o in enumerate(plan.outputs))
        time = "" if _aggregated(plan.input) else ", _t"
        return f"SELECT {outputs}{time} FROM ({_sql(plan.input)})"
    if isinstance(plan, AssignWindow):
        return _assigned(plan)
    if isinstance(plan, Generate):
        return _generated(plan)
    if isinstance(plan, Rank):
        ranks = "".join(f", {_ranked(call)} AS o{plan.width + i}" for i, call in enumerate(plan.calls))
        return f"SELECT *{ranks} FROM ({_sql(plan.input)})"
    if isinstance(plan, Union):
        return " UNION ALL ".join(f"({_sql(part)})" for part in plan.parts)
    assert isinstance(plan, Aggregate)
    return _aggregate(plan)


def _ranked(call: RankCall) -> str:
    order = [
        f"{render(key, _column)} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"
        for key, (descending, first) in zip(call.order, call.directions, strict=True)
    ]
    by = ", ".join(render(part, _column) for part in call.partition)
    return f"{call.name}() OVER (PARTITION BY {by} ORDER BY {', '.join(order)})"


def _aggregated(plan: Plan) -> bool:
    return isinstance(plan, Aggregate) or any(_aggregated(child) for child in plan.inputs)


def _assigned(plan: AssignWindow) -> str:
    make = "make_timestamptz" if plan.time_type == TIMESTAMP else "make_timestamp"
    width = plan.width
    ends = f"{make}(window_start)", f"{make}(window_end)"
    if plan.flat:
        added = f"{ends[0]} AS o{width}, {ends[1]} AS o{width + 1}"
    else:
        added = f'struct_pack("start" := {ends[0]}, "end" := {ends[1]}) AS o{width}'
    inner = f"({_sql(plan.input)})"
    kept = ", ".join(f"o{i}" for i in range(width))
    if plan.window.kind == "session":
        raise NotImplementedError("sessions depend on the group")
    return f"SELECT {kept}, _t, {added} FROM ({windowed(inner, plan.window)})"


def _generated(plan: Generate) -> str:
    """By a join with the numbers of the elements, not by the runtime's way."""
    lists = [render(n.expr, _column) for n in plan.lists]
    count = f"greatest(coalesce(len({lists[0]}), 0), {1 if plan.outer else 0})"
    elements = ", ".join(f"({text})[place + 1] AS o{plan.width + i}" for i, text in enumerate(lists))
    numbered = f"SELECT *, unnest(range({count})) AS place FROM ({_sql(plan.input)})"
    kept = ", ".join(f"o{i}" for i in range(plan.width))
    return f"SELECT {kept + ', ' if kept else ''}_t, {elements} FROM ({numbered})"


def _aggregate(plan: Aggregate) -> str:
    splits = []
    for call in plan.calls:
        where = None if call.where is None else render(call.where, _column)
        splits.append(split_call(call, [render(a, _column) for a in call.args], where))
    keys = [f"{render(k.expr, _column)} AS o{i}" for i, k in enumerate(plan.keys)]
    states = [
        f"CAST({s.sql} AS {s.type.duckdb}) AS s{i}_{j}" for i, c in enumerate(splits) for j, s in enumerate(c.states)
    ]
    grouped = "" if not keys else " GROUP BY " + ", ".join(str(i + 1) for i in range(len(keys)))
    inner = f"SELECT {', '.join([*keys, *states, 'count(*) AS present'])} FROM ({_sql(plan.input)}){grouped}"
    outer = [f"o{i}" for i in range(len(keys))]
    for i, split in enumerate(splits):
        names = [f"s{i}_{j}" for j in range(len(split.states))]
        outer.append(f"{split.result.format(*names)} AS o{len(keys) + i}")
    # the runtime emits nothing for a group without rows, not even for the one group of a global aggregate
    return f"SELECT {', '.join(outer)} FROM ({inner}) WHERE present > 0"


def split_call(call: AggCall, args: list[str], where: str | None) -> SplitAggregate:
    """An aggregate as states, with its FILTER."""
    if call.name == "count" and not call.args:
        return SplitAggregate(
            (PartialState(BIGINT, f"count(CASE WHEN {where or 'TRUE'} THEN 1 END)", "sum({p})"),), "{0}"
        )
    kinds = [a.type for a in call.args]
    function = find_aggregate(call.name, kinds)
    assert function is not None
    args = args if function.time == "unused" else [*args, "_t"]
    guarded = args if where is None else [f"CASE WHEN {where} THEN {arg} END" for arg in args]
    return function.states(guarded, kinds, call.type, call.constants)


def windowed(relation: str, window: Window) -> str:
    """Each row once per window, with window_start and window_end. Rows without a time are in no window."""
    count, slide, size = -(-window.size // window.slide), window.slide, window.size
    if window.kind == "cumulate":
        return (
            f"SELECT *, base AS window_start, base + (step + 1) * {slide} AS window_end FROM "
            f"(SELECT *, {_floor(window.offset, size)} AS base, unnest(range({count})) AS step "
            f"FROM {relation} WHERE _t IS NOT NULL) WHERE _t < base + (step + 1) * {slide}"
        )
    start = f"{_floor(window.offset, slide)} - step * {slide}"
    return (
        f"SELECT *, {start} AS window_start, {start} + {size} AS window_end "
        f"FROM (SELECT *, unnest(range({count})) AS step FROM {relation} WHERE _t IS NOT NULL) "
        f"WHERE _t < {start} + {size}"
    )


def _floor(offset: int, length: int) -> str:
    """The start of the slice of `length` that `_t` is in, also before 1970."""
    return f"(_t - ((_t - {offset}) % {length} + {length}) % {length})"


# --- programs -----------------------------------------------------------------------------------


def run_program(program: PipelineProgram, rows: pa.Table, chance: random.Random | None = None) -> list[Row]:
    """The rows of a program over the stream's rows, cut at random when `chance` is given."""
    connection = connect(program.meaning)
    if program.ring0.generators:
        made = [m for piece in _cut(rows, chance) for m in made_rows(program.ring0, program.meaning, piece)]
        return run_program(replace(program, ring0=over_made_rows(program.ring0)), pa.concat_tables(made), chance)
    connection.register("rows", rows)
    where = f" WHERE {program.ring0.filter}" if program.ring0.filter else ""
    if program.ring1 is None:
        outputs = ", ".join(f"CAST({o.sql} AS {o.type.duckdb})" for o in program.ring0.outputs)
        return _fetch(connection, f"SELECT {outputs} FROM rows{where}", program.output)
    parts = [_partial(connection, program, piece) for piece in _cut(rows, chance)]
    merged = _merge(connection, program, [p for p in parts if p.num_rows], chance)
    if merged is None:
        return []
    connection.register("groups", merged)
    having = f" WHERE {program.ring1.having}" if program.ring1.having else ""
    outputs = ", ".join(f"CAST({o.sql} AS {o.type.duckdb})" for o in program.ring1.outputs)
    ranks = "".join(f", {r.sql} AS {r.name}" for r in program.ring1.ranks)
    qualify = f" WHERE {program.ring1.qualify}" if program.ring1.qualify else ""
    return _fetch(
        connection, f"SELECT {outputs} FROM (SELECT *{ranks} FROM groups{having}) AS groups{qualify}", program.output
    )


def _cut(rows: pa.Table, chance: random.Random | None) -> list[pa.Table]:
    if chance is None or not rows.num_rows:
        return [rows]
    cuts = sorted(chance.randrange(rows.num_rows + 1) for _ in range(chance.randrange(5)))
    return [rows.slice(a, b - a) for a, b in zip([0, *cuts], [*cuts, rows.num_rows], strict=True)]


def _group_names(program: PipelineProgram) -> list[str]:
    window = ["window_start", "window_end"] if program.ring0.window is not None else []
    return [*window, *(k.name for k in program.ring0.keys)]


def _partial(connection: duckdb.DuckDBPyConnection, program: PipelineProgram, piece: pa.Table) -> pa.Table:
    ring0 = program.ring0
    connection.register("piece", piece)
    where = f" WHERE {ring0.filter}" if ring0.filter else ""
    keys = [f"CAST({k.sql} AS {k.type.duckdb}) AS {k.name}" for k in ring0.keys]
    partials = [f"CAST({p.sql} AS {p.type.duckdb}) AS {p.name}" for p in ring0.partials]
    relation = f"(SELECT * FROM piece{where})"
    if ring0.window is not None and ring0.window.kind == "session":
        relation = f"({_sessions(relation, keys, [k.name for k in ring0.keys], ring0.window.size)})"
        keys = [k.name for k in ring0.keys]
    elif ring0.window is not None:
        relation = f"({windowed(relation, ring0.window)})"
    window = ["window_start", "window_end"] if ring0.window is not None else []
    groups = ", ".join(str(i + 1) for i in range(len(window) + len(keys)))
    grouped = f" GROUP BY {groups}" if groups else " HAVING count(*) > 0"
    found: pa.Table = connection.sql(
        f"SELECT {', '.join([*window, *keys, *partials])} FROM {relation}{grouped}"
    ).to_arrow_table()
    return found


def _sessions(relation: str, keys: list[str], names: list[str], gap: int) -> str:
    """Each row with the session of its group that it is in; a row exactly `gap` after the last one joins it."""
    by = f"PARTITION BY {', '.join(names)}" if names else ""
    chosen = "".join(f", {k}" for k in keys)
    return (
        f"SELECT *, min(_t) OVER w2 AS window_start, max(_t) OVER w2 + {gap} AS window_end FROM ("
        f"SELECT *, sum(fresh) OVER ({by} ORDER BY _t) AS session FROM ("
        f"SELECT *, CASE WHEN _t - lag(_t) OVER ({by} ORDER BY _t) <= {gap} THEN 0 ELSE 1 END AS fresh FROM ("
        f"SELECT *{chosen} FROM {relation} WHERE _t IS NOT NULL))) "
        f"WINDOW w2 AS (PARTITION BY {', '.join([*names, 'session'])})"
    )


def _merge(
    connection: duckdb.DuckDBPyConnection, program: PipelineProgram, parts: list[pa.Table], chance: random.Random | None
) -> pa.Table | None:
    """Merges two random tables at a time until one is left, so that every merge meets merged states."""
    while len(parts) > 1:
        first = parts.pop(chance.randrange(len(parts)) if chance else 0)
        second = parts.pop(chance.randrange(len(parts)) if chance else 0)
        together = pa.concat_tables([first, second])
        if program.ring0.window is not None and program.ring0.window.kind == "session":
            together = _join_sessions(together, [k.name for k in program.ring0.keys])
        parts.append(_merge_once(connection, program, together))
    return parts[0] if parts else None


def _merge_once(connection: duckdb.DuckDBPyConnection, program: PipelineProgram, together: pa.Table) -> pa.Table:
    connection.register("together", together)
    names = _group_names(program)
    merges = [f"CAST({p.merge} AS {p.type.duckdb}) AS {p.name}" for p in program.ring0.partials]
    grouped = f" GROUP BY {', '.join(names)}" if names else ""
    # the merged columns have the names of the states, which DuckDB would otherwise take inside the aggregates
    inner = ", ".join([*names, *(f"{m.rpartition(' AS ')[0]} AS m{i}" for i, m in enumerate(merges))])
    outer = ", ".join([*names, *(f"m{i} AS {p.name}" for i, p in enumerate(program.ring0.partials))])
    found: pa.Table = connection.sql(f"SELECT {outer} FROM (SELECT {inner} FROM together{grouped})").to_arrow_table()
    return found


def _join_sessions(table: pa.Table, keys: list[str]) -> pa.Table:
    """Gives overlapping sessions of a group the same ends."""
    records = table.to_pylist()
    order = sorted(range(len(records)), key=lambda i: (repr([records[i][k] for k in keys]), records[i]["window_start"]))
    open_group: list[int] = []
    end = -math.inf
    previous: str | None = None

    def close() -> None:
        if open_group:
            low = min(records[i]["window_start"] for i in open_group)
            high = max(records[i]["window_end"] for i in open_group)
            for i in open_group:
                records[i]["window_start"], records[i]["window_end"] = low, high

    for i in order:
        group = repr([records[i][k] for k in keys])
        if group != previous or records[i]["window_start"] > end:
            close()
            open_group, end, previous = [], -math.inf, group
        open_group.append(i)
        end = max(end, records[i]["window_end"])
    close()
    return pa.Table.from_pylist(records, table.schema)


# --- comparing ----------------------------------------------------------------------------------


def _fetch(connection: duckdb.DuckDBPyConnection, query: str, schema: Schema) -> list[Row]:
    del schema
    return [tuple(plain(v) for v in row) for row in connection.execute(query).fetchall()]


def plain(value: Any) -> Any:
    """A value that compares: floats to nine digits, NaN as a word, nested values as tuples, instants in UTC."""
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC).replace(tzinfo=None)
    if isinstance(value, float):
        # sums depend on their order in the last digits; NaN must equal itself
        return "nan" if math.isnan(value) else 0.0 if value == 0 else float(f"{value:.9g}")
    if isinstance(value, dict):
        return tuple((k, plain(v)) for k, v in sorted(value.items()))
    return tuple(plain(v) for v in value) if isinstance(value, list) else value


def bag(rows: Sequence[Row]) -> list[str]:
    """Rows without their order, in a comparable form."""
    return sorted(map(repr, rows))
