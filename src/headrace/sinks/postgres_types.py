"""How rows become rows of PostgreSQL: the types of columns, and values that PostgreSQL cannot store.

| SQL type | column type | notes |
|---|---|---|
| BOOLEAN | boolean | |
| TINYINT, SMALLINT | smallint | |
| INT | integer | |
| BIGINT | bigint | |
| FLOAT | real | NaN and infinities are kept |
| DOUBLE | double precision | NaN and infinities are kept |
| DECIMAL(p, s) | numeric(p, s) | |
| STRING | text | the character U+0000, which PostgreSQL cannot store, becomes U+FFFD |
| BINARY | bytea | |
| DATE | date | |
| TIMESTAMP | timestamp with time zone | an instant, in microseconds |
| TIMESTAMP_NTZ | timestamp without time zone | |
| ARRAY of one of these | an array | |
| STRUCT, MAP, nested ARRAY | jsonb | as the jsonl sink writes it |
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.exec.duck import run
from headrace.model.program import Meaning
from headrace.model.schema import Array, DataType, Decimal, Scalar
from headrace.sinks.jsonl import json_text

_SCALARS = {
    "BOOLEAN": "boolean",
    "TINYINT": "smallint",
    "SMALLINT": "smallint",
    "INT": "integer",
    "BIGINT": "bigint",
    "FLOAT": "real",
    "DOUBLE": "double precision",
    "STRING": "text",
    "BINARY": "bytea",
    "DATE": "date",
    "TIMESTAMP": "timestamp with time zone",
    "TIMESTAMP_NTZ": "timestamp without time zone",
}
JSON = "jsonb"


def column_type(kind: DataType) -> str:
    """The type of a column of PostgreSQL that holds every value of `kind`."""
    if isinstance(kind, Scalar):
        return _SCALARS[kind.name]
    if isinstance(kind, Decimal):
        return f"numeric({kind.precision},{kind.scale})"
    if isinstance(kind, Array) and isinstance(kind.element, Scalar | Decimal):
        return f"{column_type(kind.element)}[]"
    return JSON


def sent_type(kind: DataType) -> str:
    """The type in which values of `kind` are sent. PostgreSQL converts texts of JSON itself."""
    made = column_type(kind)
    return "text" if made == JSON else made


def accepts(column: str, kind: DataType) -> bool:
    """True if a column with this type, without its modifiers, takes values of `kind` as they are sent."""
    sent = re.sub(r"\(.*?\)", "", sent_type(kind))
    return column == sent or (sent == "text" and column == "character varying")


def prepared(table: pa.Table) -> pa.Table:
    """The rows as they are staged: nested values as JSON text, no character U+0000 in a text."""
    arrays: list[Any] = []
    for column in table.columns:
        if becomes_json(column.type):
            sql = f"SELECT {json_text('c', column.type)} AS c FROM rows"
            found = run(Meaning(), sql, {"rows": pa.table([column], names=["c"])}).column(0).cast(pa.string())
            arrays.append(pc.replace_substring(found, "\\u0000", "\\ufffd"))
        else:
            arrays.append(_without_nul(column))
    return pa.table(arrays, names=table.column_names)


def becomes_json(kind: pa.DataType) -> bool:
    """True if values of this Arrow type are staged and sent as JSON text."""
    return pa.types.is_nested(kind) and not (pa.types.is_list(kind) and not pa.types.is_nested(kind.value_type))


def _without_nul(column: Any) -> Any:
    if pa.types.is_list(column.type) and pa.types.is_string(column.type.value_type):
        if not pc.any(pc.match_substring(pc.list_flatten(column), "\0")).as_py():
            return column
        cleaned = [
            [None if v is None else v.replace("\0", "\ufffd") for v in row] if row is not None else None
            for row in column.to_pylist()
        ]
        return pa.array(cleaned, column.type)
    if pa.types.is_string(column.type) and pc.any(pc.match_substring(column, "\0")).as_py():
        return pc.replace_substring(column, "\0", "\ufffd")
    return column
