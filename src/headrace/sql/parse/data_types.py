"""Finds the text of a type inside a statement. `headrace.model.schema.parse_type` parses it."""

from __future__ import annotations

from headrace.base.unknown import keyword_advice
from headrace.errors import UnknownType
from headrace.model.schema import DataType, parse_type
from headrace.sql.parse.cursor import Cursor

_TYPES = [
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "DECIMAL",
    "STRING",
    "VARCHAR(n)",
    "CHAR(n)",
    "BINARY",
    "DATE",
    "TIMESTAMP",
    "TIMESTAMP_NTZ",
    "ARRAY",
    "MAP",
    "STRUCT",
]


def char_length(cursor: Cursor) -> int | None:
    """The length of the CHAR(n) that follows, or None if another type does."""
    if cursor.token.upper in ("CHAR", "CHARACTER") and cursor.peek().upper == "(" and cursor.peek(2).text.isdigit():
        return int(cursor.peek(2).text)
    return None


def parse_data_type(cursor: Cursor) -> DataType:
    """Parses the type at the cursor. Raises UnknownType at its position."""
    start = cursor.token.start
    depth = 0
    if cursor.token.kind != "word":
        cursor.fail("expected a type")
    first = cursor.advance()
    while cursor.token.upper in ("<", "(") or depth:
        token = cursor.advance()
        if token.kind == "end":
            cursor.fail("expected the end of the type")
        # `>>` is one token at the end of ARRAY<ARRAY<INT>>
        depth += {"<": 1, "(": 1, ">": -1, ")": -1, ">>": -2, "<>": 0}.get(token.upper, 0)
    place = (start, cursor.previous_end)
    try:
        return parse_type(cursor.text[slice(*place)])
    except UnknownType as problem:
        otherwise = problem.advice or "Types: " + ", ".join(_TYPES) + "."
        raise UnknownType(
            problem.message,
            advice=keyword_advice(first.text, _TYPES, otherwise),
            span=cursor.span(place),
            **problem.params,
        ) from None
