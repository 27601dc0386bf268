"""DuckDB as a library: one private, single-threaded connection per process and SQL meaning.

Rings 0 and 1 run their SQL here. One thread, so a re-run of an epoch gives the same rows in the same order; a memory
limit, because a Spark task shares its machine; a temporary directory of its own, which DuckDB makes when it spills.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterable, Mapping

import duckdb
import pyarrow as pa

from headrace.model.program import Expression, Meaning

# A task may spill, so the limit only has to be large enough to be rarely reached; 64 lanes of 100,000 groups fit.
MEMORY_LIMIT = "512MB"

_connections: dict[tuple[int, Meaning], duckdb.DuckDBPyConnection] = {}


def connection(meaning: Meaning) -> duckdb.DuckDBPyConnection:
    """This process's connection for `meaning`; made on first use. Not for use by two threads at once."""
    key = (os.getpid(), meaning)
    found = _connections.get(key)
    if found is None:
        # Spark ends its workers with a signal, so nothing can be tidied at exit: the directory must not be there unless
        # it is needed, and DuckDB removes it after use.
        spill = os.path.join(tempfile.gettempdir(), f"headrace-duck-{os.getpid()}-{secrets.token_hex(4)}")
        found = duckdb.connect(":memory:", config={"threads": 1, "memory_limit": MEMORY_LIMIT, "temp_directory": spill})
        found.execute(f"SET TimeZone = {quoted(meaning.time_zone)}")
        _connections[key] = found
    return found


def run(meaning: Meaning, sql: str, relations: Mapping[str, pa.Table]) -> pa.Table:
    """The rows of `sql` over `relations`, which are visible by name for this call only."""
    con = connection(meaning)
    for name, table in relations.items():
        con.register(name, table)
    try:
        found: pa.Table = con.sql(sql).to_arrow_table()
        return found
    finally:
        for name in relations:
            con.unregister(name)


def quoted(text: str) -> str:
    """`text` as an SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def select_list(expressions: Iterable[Expression]) -> str:
    """`CAST(sql AS type) AS "name"` for each expression; the cast is where Spark's type is enforced."""
    return ", ".join(
        f'CAST(({e.sql}) AS {e.type.duckdb}) AS "{e.name.replace(chr(34), chr(34) * 2)}"' for e in expressions
    )


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """`table` with exactly the Arrow types of `schema` (DuckDB may return views, large strings or another time zone
    label); column order and names must already agree."""
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)
