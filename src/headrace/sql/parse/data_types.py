"""Finds the text of a type inside a statement. `headrace.model.schema.parse_type` parses it."""

from __future__ import annotations

import re

from headrace.base.unknown import keyword_advice
from headrace.errors import UnknownType
from headrace.model.schema import DataType, parse_type
from headrace.sql.parse.cursor import Cursor
from headrace.sql.parse.intervals import DAY_TO_SECOND
from headrace.sql.parse.syntax import CastTo, IntervalCast, Node, TextRange

_YEAR_TO_MONTH = ("YEAR", "MONTH")
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


# Types that only Spark has.
_OF_SPARK = ("VARIANT",)
# Names of types that CREATE STREAM takes and Spark does not.
_OWN_NAMES = {"BOOL": "BOOLEAN", "TEXT": "STRING"}
_TYPE_NAME = re.compile(r"(?:^|[<,:\s])(\w+)\s*(?=$|[>,])")


def _refuse_other_names(cursor: Cursor, place: TextRange) -> None:
    for name in _TYPE_NAME.findall(cursor.text[slice(*place)].upper()):
        if name in _OF_SPARK:
            cursor.refuse(f"a cast to {name}", "See docs/functions.md for the list of casts.", place)
        if name in _OWN_NAMES:
            raise UnknownType(f"there is no type {name}", advice=f"Write {_OWN_NAMES[name]}.", name=name)


def char_length(cursor: Cursor) -> int | None:
    """The length of the CHAR(n) that follows, or None if another type does."""
    if cursor.token.upper in ("CHAR", "CHARACTER") and cursor.peek().upper == "(" and cursor.peek(2).text.isdigit():
        return int(cursor.peek(2).text)
    return None


def parse_cast(cursor: Cursor, start: int, value: Node, attempt: bool = False) -> Node:
    """The cast of `value` to the type at the cursor. INTERVAL DAY and the like are no types of columns."""
    if cursor.token.upper != "INTERVAL":
        kind = parse_data_type(cursor, of_spark=True)
        return CastTo((start, cursor.previous_end), value, kind, attempt)
    cursor.advance()
    if cursor.token.upper not in (*DAY_TO_SECOND, *_YEAR_TO_MONTH):
        return IntervalCast((start, cursor.previous_end), value, "", attempt)
    unit = cursor.advance().upper
    if cursor.accept("TO"):
        units = DAY_TO_SECOND if unit in DAY_TO_SECOND else _YEAR_TO_MONTH
        unit += " TO " + cursor.one_of("a smaller unit after TO", *units[units.index(unit) + 1 :])
    return IntervalCast((start, cursor.previous_end), value, unit, attempt)


def parse_data_type(cursor: Cursor, of_spark: bool = False) -> DataType:
    """Parses the type at the cursor. Raises UnknownType at its position. With `of_spark`, the names of types that only
    the columns of streams may have are unknown."""
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
        if of_spark:
            _refuse_other_names(cursor, place)
        return parse_type(cursor.text[slice(*place)])
    except UnknownType as problem:
        otherwise = problem.advice or "Types: " + ", ".join(_TYPES) + "."
        raise UnknownType(
            problem.message,
            advice=keyword_advice(first.text, _TYPES, otherwise),
            span=cursor.span(place),
            **problem.params,
        ) from None
