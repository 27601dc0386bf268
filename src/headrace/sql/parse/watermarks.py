"""The WATERMARK clause: which column is the event time, and how late its rows may come."""

from __future__ import annotations

from headrace.base.unknown import unknown
from headrace.errors import BadWatermark, UnknownColumn
from headrace.model.schema import TIMESTAMP, TIMESTAMP_NTZ, Schema
from headrace.sql.parse.cursor import Cursor
from headrace.sql.parse.dialect import Token
from headrace.sql.parse.expression_parser import parse_expression
from headrace.sql.parse.statements import DerivedWatermark
from headrace.sql.parse.syntax import Apply, IntervalConstant, Name


def parse_watermark(cursor: Cursor) -> tuple[Token, int]:
    """`WATERMARK FOR ts AS ts - INTERVAL ...` or `WATERMARK FOR ts AS ts`: the column and the delay."""
    cursor.advance()
    cursor.advance()
    token = cursor.token
    column = cursor.name("the event-time column")
    cursor.expect("AS", "after the event-time column")
    node = parse_expression(cursor)
    place = cursor.span(node.at)
    delay = 0
    if isinstance(node, Apply) and node.name == "-" and isinstance(node.args[1], IntervalConstant):
        interval = node.args[1]
        node, delay = node.args[0], interval.micros
        if interval.months or delay < 0:
            raise BadWatermark(
                "the delay of a watermark must be zero or more, in days or smaller units",
                advice="Write WATERMARK FOR ts AS ts - INTERVAL 10 SECONDS.",
                span=place,
            )
    if not (isinstance(node, Name) and len(node.parts) == 1 and node.parts[0].lower() == column.lower()):
        raise BadWatermark(
            "a watermark must be its column minus an interval",
            advice=f"Write WATERMARK FOR {column} AS {column} - INTERVAL 10 SECONDS.",
            span=place,
        )
    return token, delay


def resolve_watermark(
    cursor: Cursor, name: str, schema: Schema, mark: tuple[Token, int] | None
) -> tuple[int | None, int]:
    """The index of the event-time column of stream `name`, and the delay. Raises UnknownColumn and BadWatermark."""
    if mark is None:
        return None, 0
    token, delay = mark
    span = cursor.span((token.start, token.end))
    index = schema.index(token.text)
    if index is None:
        owner = f"stream '{name}'"
        raise unknown(UnknownColumn, "column", token.text, schema.names, of=owner, span=span, stream=name)
    if schema[index].type not in (TIMESTAMP, TIMESTAMP_NTZ):
        raise BadWatermark(
            f"column '{token.text}' is {schema[index].type}; event time must be TIMESTAMP or TIMESTAMP_NTZ",
            advice="Declare it TIMESTAMP. Epoch numbers and ISO 8601 texts are parsed as timestamps, too.",
            span=span,
        )
    return index, delay


def parse_derived_watermark(cursor: Cursor) -> DerivedWatermark | None:
    """`(WATERMARK FOR column AS ...)` of a stream that a pipeline feeds, if it is there."""
    if not cursor.accept("("):
        return None
    if not cursor.at("WATERMARK", "FOR"):
        cursor.fail(
            "expected WATERMARK FOR",
            advice="The columns of the stream are those of the pipeline's output. Only its event time is declared.",
        )
    token, delay = parse_watermark(cursor)
    cursor.expect(")", "after the watermark")
    return DerivedWatermark(token.text, delay, cursor.span((token.start, token.end)))
