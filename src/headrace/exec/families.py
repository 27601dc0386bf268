"""Aggregates a batch for all pipelines of a family in one pass: one GROUP BY, with a filter per aggregate."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.exec import duck
from headrace.exec.aggregates import BOUNDS, NEWEST, Aggregated, plain_sql, schema_of, where, windows_sql
from headrace.model.program import MEMBER, Meaning, Ring0Program

GroupFlags = npt.NDArray[np.bool_]
KEPT = 512


@dataclass(frozen=True, slots=True)
class FamilyPass:
    """The pass of a family: its SQL, the schema of its result, and for each member its columns there and the schema of
    its partials."""

    members: tuple[Ring0Program, ...]
    sql: str
    schema: pa.Schema
    shares: tuple[tuple[list[str], pa.Schema], ...]

    def run(self, meaning: Meaning, rows: pa.Table) -> pa.Table:
        """The groups of all members: window, keys, then the partials of each member."""
        return duck.conform(duck.run(meaning, self.sql, {"rows": rows}), self.schema)

    def closed(self, table: pa.Table, watermark: int | None) -> GroupFlags | None:
        """Marks the groups of `table` whose windows have closed; None if there are none."""
        if watermark is None or self.members[0].window is None:
            return None
        found: GroupFlags = table.column("window_end").to_numpy() <= watermark
        return found if found.any() else None

    def share(self, table: pa.Table, i: int, closed: GroupFlags | None) -> tuple[Aggregated, GroupFlags]:
        """What `headrace.exec.aggregates.aggregate_rows` would return for member `i`, and which groups of `table` are
        in it: those in which the member has rows, by its presence count. Selects the member's columns before it
        filters, because the table is as wide as the family is large."""
        names, schema = self.shares[i]
        present: GroupFlags = table.column(f"m{i}_p0").to_numpy() > 0
        late = 0
        if closed is not None:
            counted = table.column(f"m{i}_{NEWEST if schema.names[-1] == NEWEST else 'p0'}").to_numpy()
            late = int(counted[closed & present].sum())
            present = present & ~closed
        mine = table.select(names)
        if not present.all():
            mine = mine.filter(pa.array(present))
        return Aggregated(pa.Table.from_arrays(mine.columns, schema=schema), late), present


_passes: dict[tuple[int, ...], FamilyPass] = {}


def family_pass(members: Sequence[Ring0Program]) -> FamilyPass:
    """The pass of these members, which are of one family (`PipelineProgram.family`). Built once per process: writing
    the SQL of 300 members takes as long as running it."""
    key = tuple(map(id, members))
    found = _passes.get(key)
    if found is None or any(a is not b for a, b in zip(found.members, members, strict=True)):
        while len(_passes) >= KEPT:
            del _passes[next(iter(_passes))]
        found = _passes[key] = _built(tuple(members))
    return found


def _built(members: tuple[Ring0Program, ...]) -> FamilyPass:
    """Equal filters are evaluated once."""
    first = members[0]
    flags = {text: f"_f{i}" for i, text in enumerate(dict.fromkeys(m.filter for m in members if m.filter is not None))}
    flagged = ", ".join(["*", *(f"({text}) AS {flag}" for text, flag in flags.items())])
    wanted = None if any(m.filter is None for m in members) else " OR ".join(flags.values())
    source = f"(SELECT * FROM (SELECT {flagged} FROM rows){where(wanted)})"
    columns: list[str] = []
    fields = [f for f in schema_of(first) if _common(f.name)]
    shares = []
    for i, member in enumerate(members):
        flag = "true" if member.filter is None else flags[member.filter]
        columns += [f"CAST({_flagged(p.filtered, flag)} AS {p.type.duckdb}) AS m{i}_{p.name}" for p in member.partials]
        schema = schema_of(member)
        own = [f for f in schema if not _common(f.name)]
        if own[-1].name == NEWEST:
            columns.append(f"count(CASE WHEN {flag} AND _newest_row THEN 1 END) AS m{i}_{NEWEST}")
        fields += [f.with_name(f"m{i}_{f.name}") for f in own]
        shares.append(([n if _common(n) else f"m{i}_{n}" for n in schema.names], schema))
    if first.window is None:
        sql = plain_sql(first, source, columns)
    else:
        sql = windows_sql(first, first.window, source, columns)
    return FamilyPass(members, sql, pa.schema(fields), tuple(shares))


def _common(name: str) -> bool:
    """True if a column of partials is the same for all members."""
    return name in BOUNDS or name.startswith("k")


_MEMBER_OR_QUOTED = re.compile(rf"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\b{MEMBER}\b""")


def _flagged(sql: str, flag: str) -> str:
    """`sql` with `flag` in place of `MEMBER`, except inside quotes."""
    return _MEMBER_OR_QUOTED.sub(lambda found: flag if found[0] == MEMBER else found[0], sql)
