"""DuckDB as a library: one private, single-threaded connection per process and SQL meaning.

Both rings run their SQL here. DuckDB uses one thread, so that a re-run of an epoch gives the same rows in the same
order. It has a memory limit, because a Spark task shares its machine, and a temporary directory of its own, which it
creates when it spills.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any

import duckdb
import pyarrow as pa

from headrace.exec.kernels import install
from headrace.exec.kernels.session_zone import reading_of
from headrace.exec.map_entries import as_map, entries_type, made_of, with_entries
from headrace.exec.prepared import PreparedStatements
from headrace.model.program import Expression, Meaning
from headrace.model.schema import DataType, Map

# DuckDB may spill, so the limit only has to be large enough to be reached rarely. 64 lanes of 100,000 groups fit.
MEMORY_LIMIT = "512MB"
# By default DuckDB measures the free space once, at its first spill. Above nine tenths of that it reports a lack of
# memory, for as long as the process lives. No task reaches this limit, so a full disk is an error of the disk.
SPILL_LIMIT = "1TiB"

_connections: dict[tuple[int, Meaning], PreparedStatements] = {}


def connection(meaning: Meaning) -> duckdb.DuckDBPyConnection:
    """This process's connection for `meaning`, opened on first use. Not for use by two threads at once."""
    return _statements(meaning).connection


def _statements(meaning: Meaning) -> PreparedStatements:
    key = (os.getpid(), meaning)
    found = _connections.get(key)
    if found is None:
        # Spark kills its workers with a signal, so nothing can be cleaned up at exit. DuckDB creates the directory only
        # when it spills, and removes it after use.
        spill = os.path.join(tempfile.gettempdir(), f"headrace-duck-{os.getpid()}-{secrets.token_hex(4)}")
        opened = duckdb.connect(
            ":memory:", config={"threads": 1, "memory_limit": MEMORY_LIMIT, "temp_directory": spill}
        )
        opened.execute(f"SET max_temp_directory_size = {quoted(SPILL_LIMIT)}")  # ignored in `config`
        opened.execute(f"SET TimeZone = {quoted(meaning.time_zone)}")
        # This optimizer removes `i + 1 IS NULL` if i is never NULL, and with it the overflow that Spark reports.
        opened.execute("SET disabled_optimizers = 'statistics_propagation'")
        install(opened, meaning.time_zone)
        _connections[key] = found = PreparedStatements(opened)
    return found


def set_clock(meanings: Iterable[Meaning], now: int | None) -> None:
    """Make `now`, the epoch's clock in microseconds, the current timestamp of this process's next statements. What the
    session's clock shows then is a second variable, so that no row has to convert it."""
    for meaning in meanings:
        shown = None if now is None else reading_of(now, meaning.time_zone)
        for variable, micros in (("hr_now", now), ("hr_now_reading", shown)):
            connection(meaning).execute(f"SET VARIABLE {variable} = {'NULL' if micros is None else micros}::BIGINT")


def run(meaning: Meaning, sql: str, relations: Mapping[str, pa.Table]) -> pa.Table:
    """The rows of `sql` over `relations`, which have their names for this call only."""
    return _statements(meaning).run(sql, {name: with_entries(sql, table) for name, table in relations.items()})


def quoted(text: str) -> str:
    """`text` as an SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def select_list(expressions: Iterable[Expression]) -> str:
    """`CAST(sql AS type) AS "name"` for each expression. The cast enforces Spark's type."""
    return ", ".join(f'{typed(e.type, e.sql)} AS "{e.name.replace(chr(34), chr(34) * 2)}"' for e in expressions)


def typed(kind: DataType, sql: str) -> str:
    """The SQL of an output column. A map that a function makes is a list of its entries: `conform` makes it a map."""
    if isinstance(kind, Map) and (entries := made_of(sql)) is not None:
        return f"CAST(({entries}) AS {entries_type(kind)})"
    return f"CAST(({sql}) AS {kind.duckdb})"


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """`table` with exactly the Arrow types of `schema`. DuckDB may return string views, large strings or another name
    of the time zone, and lists of entries for maps. The order of the columns must already be the same."""

    def conformed(column: Any, kind: Any) -> Any:
        if column.type == kind:
            return column
        return as_map(column, kind) if pa.types.is_map(kind) and pa.types.is_list(column.type) else column.cast(kind)

    columns = [conformed(column, field.type) for column, field in zip(table.columns, schema, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)
