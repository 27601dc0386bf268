"""Maps as lists of entries, where they enter DuckDB and where they leave it.

DuckDB checks the keys of every map that it reads from Arrow or makes, which takes 0.8 us for a map of three entries. As
a list they take 0.1 us (2026-11-17). So functions that only need the entries of a column read them from a second
column, `c3_entries` for `c3`, which shares the memory of the first. And a function that makes a map writes
`hr_map(...)` around entries that it has checked itself: a macro that makes DuckDB's map of them, but where such a call
is a whole output column, only its entries are computed, and their memory is taken for a map.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from headrace.model.schema import Map

_SUFFIX = "_entries"
_COLUMN = re.compile(r"c\d+")
_TOKEN = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|[()]")
_MADE = "hr_map"
MAKE_MAP = f"CREATE TEMP MACRO {_MADE}(entries) AS map_from_entries(entries)"
_READ = re.compile(rf"\b(c\d+){_SUFFIX}\b")


def entries_of(text: str) -> str:
    """The SQL of the entries of a map: those beside a column of Ring 0, else a call."""
    if _COLUMN.fullmatch(text):
        return f"{text}{_SUFFIX}"
    return made_of(text) or f"map_entries({text})"


def made_map(entries: str) -> str:
    """The SQL of a map of entries with the fields `key` and `value`. No key may be NULL or equal to another."""
    return f"{_MADE}({entries})"


def made_of(sql: str) -> str | None:
    """The entries of a text that is a whole `made_map`, else None."""
    if not sql.startswith(f"{_MADE}("):
        return None
    depth = 0
    for token in _TOKEN.finditer(sql):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        if depth == 0 and token[0] == ")":
            return sql[len(_MADE) + 1 : token.start()] if token.end() == len(sql) else None
    return None


def entries_type(kind: Map) -> str:
    """DuckDB's type of the entries of a map."""
    return f'STRUCT("key" {kind.key.duckdb}, "value" {kind.value.duckdb})[]'


def as_map(column: Any, kind: Any) -> Any:
    """A column of entries as one of maps: the same memory."""
    fields = pa.struct([pa.field("key", kind.key_type), pa.field("value", kind.item_type)])
    entries = column.cast(pa.list_(fields))
    return pa.chunked_array([chunk.view(kind) for chunk in entries.chunks], kind)


def with_entries(sql: str, table: pa.Table) -> pa.Table:
    """`table` with the columns of entries that `sql` reads."""
    if _SUFFIX not in sql:
        return table
    for name in dict.fromkeys(_READ.findall(sql)):
        if name in table.column_names and f"{name}{_SUFFIX}" not in table.column_names:
            kind: Any = table.schema.field(name).type
            entries = pa.list_(pa.struct([pa.field("key", kind.key_type), pa.field("value", kind.item_type)]))
            table = table.append_column(f"{name}{_SUFFIX}", table.column(name).cast(entries))
    return table
