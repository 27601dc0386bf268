"""Keeps prepared statements, because planning takes most of the time of a small query.

A pipeline runs the same statements in every epoch, over tables of the same schema. DuckDB 2.0 takes 7 ms for a small
aggregation when its text is planned each time, and 0.7 ms when it is prepared. A prepared statement reads *slots*:
registered objects that hand out the table of the current call. Registering the table itself would change the catalog,
and DuckDB would plan again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb
import pyarrow as pa

StatementKey = tuple[str, tuple[tuple[str, pa.Schema], ...]]  # the text, and the schema of each relation

# A task of 300 pipelines has about 400 statements of both rings.
KEPT = 1024
SEEN = 4096
# A variable is replaced by its value when a statement is planned, so a statement that reads one is never kept.
VARIABLE = "getvariable("
_ROWS_PER_BATCH = 1_000_000


class Slot:
    """A relation whose rows change from call to call. Its schema never does."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.table: pa.Table | None = None

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        table: Any = self.schema.empty_table() if self.table is None else self.table
        stream: object = table.__arrow_c_stream__(requested_schema)
        return stream


class PreparedStatements:
    """The statements of one connection. A text that comes a second time, over relations of the same schemas, is
    prepared and kept. Others are planned for one call: many have a number in them that is never the same again."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection
        self._connection: Any = connection  # `_submit` has no type
        self._kept: dict[StatementKey, tuple[str, tuple[Slot, ...]]] = {}
        self._seen: dict[int, None] = {}
        self._slots: dict[tuple[int, pa.Schema], tuple[str, Slot]] = {}
        self._made = 0

    def run(self, sql: str, relations: Mapping[str, pa.Table]) -> pa.Table:
        """The rows of `sql` over `relations`, which have their names for this call only."""
        key = (sql, tuple((name, table.schema) for name, table in relations.items()))
        held = self._kept.get(key)
        if held is None:
            if VARIABLE in sql or not self._seen_before(hash(key)):
                return self._once(sql, relations)
            held = self._prepare(key)
        name, slots = held
        try:
            for slot, table in zip(slots, relations.values(), strict=True):
                slot.table = table
            return self._fetch(f"EXECUTE {name}")
        finally:
            for slot in slots:
                slot.table = None

    def _fetch(self, sql: str) -> pa.Table:
        """The rows of a statement. DuckDB's own relations call `_submit`; making a relation first takes 1 ms more."""
        con = self._connection
        if hasattr(con, "_submit"):
            found: pa.Table = con._submit(sql, None, "arrow", _ROWS_PER_BATCH).arrow_table()
        else:
            found = con.sql(sql).to_arrow_table()
        return found

    def _once(self, sql: str, relations: Mapping[str, pa.Table]) -> pa.Table:
        for name, table in relations.items():
            self._connection.register(name, table)
        try:
            return self._fetch(sql)
        finally:
            for name in relations:
                self._connection.unregister(name)

    def _seen_before(self, mark: int) -> bool:
        if mark in self._seen:
            return True
        while len(self._seen) >= SEEN:
            del self._seen[next(iter(self._seen))]
        self._seen[mark] = None
        return False

    def _prepare(self, key: StatementKey) -> tuple[str, tuple[Slot, ...]]:
        sql, relations = key
        if len(self._kept) >= KEPT or len(self._slots) >= KEPT:
            self._forget()
        named = [(name, *self._slot(i, schema)) for i, (name, schema) in enumerate(relations)]
        sources = ", ".join(f"{name} AS NOT MATERIALIZED (FROM {view})" for name, view, _ in named)
        self._made += 1
        statement = f"hr_statement_{self._made}"
        self._connection.execute(f"PREPARE {statement} AS WITH {sources} {sql}")
        self._kept[key] = held = statement, tuple(slot for _, _, slot in named)
        return held

    def _forget(self) -> None:
        """Drop all statements. Pipelines that have left would keep theirs forever."""
        for statement, _ in self._kept.values():
            self._connection.execute(f"DEALLOCATE {statement}")
        for view, _ in self._slots.values():
            self._connection.unregister(view)
        self._kept, self._slots = {}, {}

    def _slot(self, position: int, schema: pa.Schema) -> tuple[str, Slot]:
        """The view and the slot for the relation at this position of a statement."""
        found = self._slots.get((position, schema))
        if found is None:
            found = self._slots[position, schema] = f"hr_slot_{len(self._slots)}", Slot(schema)
            self._connection.register(*found)
        return found
