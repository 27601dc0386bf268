"""Merges and finishes the closed windows of many lanes in one statement, because planning and calling DuckDB takes most
of the time of a small one.

Lanes whose programs have the same merges and the same output expressions form a *stack*: their partials are one table
with the number of the lane as one more key. The names of their output columns may differ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.base.arrays import Ints
from headrace.base.identity import kept_by_identity
from headrace.exec import duck
from headrace.exec.aggregates import BOUNDS, merged_columns, schema_of, where
from headrace.exec.sizing import fits
from headrace.model.program import Meaning, Ring1Program
from headrace.model.schema import Array

LANE = "_lane"
KEPT = 4096


@dataclass(frozen=True, slots=True)
class Stack:
    """What the programs of a stack have in common: the SQL, and the Arrow schemas of partials and of the output."""

    program: Ring1Program
    sql: str
    partials: pa.Schema
    output: pa.Schema

    def run(self, meaning: Meaning, parts: pa.Table, lanes: Ints) -> list[pa.Table] | None:
        """The output of each lane, by its number. `lanes` has the number of the lane for each row of `parts`. None if
        the lanes may make more bytes than a pass is allowed to: then each has to run by itself."""
        if not fits(self.program.growth, parts):
            return None
        stacked = parts.append_column(LANE, pa.array(lanes))
        found = duck.run(meaning, self.sql, {"parts": stacked})
        order = np.argsort(found.column(LANE).to_numpy(), kind="stable")
        ordered = duck.conform(found.drop_columns([LANE]), self.output).take(order)
        ends = np.cumsum(np.bincount(found.column(LANE).to_numpy(), minlength=int(lanes.max()) + 1)).tolist()
        return [ordered.slice(begin, end - begin) for begin, end in zip([0, *ends], ends, strict=False)]


@kept_by_identity(KEPT)
def stack_of(program: Ring1Program) -> Stack | None:
    """The stack of this program object; None if it must run alone: lists have a limit per group, ranks are over all
    groups of a lane, and a program may make more bytes than can be known before."""
    listed = any(isinstance(p.type, Array) for p in program.partials)
    alone = program.growth.columns is None or listed or bool(program.ranks)
    return None if alone else _built(program)


def _built(program: Ring1Program) -> Stack:
    keys = [LANE, *BOUNDS, *(f"k{i}" for i in range(len(program.keys)))]
    merged = f"SELECT {', '.join([*keys, *merged_columns(program)])} FROM parts GROUP BY {', '.join(keys)}"
    outputs = [f"CAST(({o.sql}) AS {o.type.duckdb}) AS o{i}" for i, o in enumerate(program.outputs)]
    sql = f"SELECT {', '.join([LANE, *outputs])} FROM ({merged}) AS groups{where(program.having)}"
    output = pa.schema([pa.field(f"o{i}", o.type.arrow) for i, o in enumerate(program.outputs)])
    return Stack(program, sql, schema_of(program), output)


def named(program: Ring1Program, output: pa.Table) -> pa.Table:
    """The output of a stack with the names of one program."""
    return output.rename_columns([o.name for o in program.outputs])
