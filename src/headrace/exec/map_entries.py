"""MAP columns as lists of entries, beside the columns themselves.

DuckDB checks the keys of every map that it reads from Arrow, which takes 0.8 us for a map of three entries. As a list
they take 0.1 us (2026-11-17). So functions that only need the entries of a column read them from a second column,
`c3_entries` for `c3`, which shares the memory of the first.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

_SUFFIX = "_entries"
_COLUMN = re.compile(r"c\d+")
_READ = re.compile(rf"\b(c\d+){_SUFFIX}\b")


def entries_of(text: str) -> str:
    """The SQL of the entries of a map: those beside a column of Ring 0, else a call."""
    return f"{text}{_SUFFIX}" if _COLUMN.fullmatch(text) else f"map_entries({text})"


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
