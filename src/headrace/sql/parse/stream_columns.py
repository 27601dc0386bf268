"""The columns of CREATE STREAM: types, computed columns, metadata, and the watermark among them."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.errors import DuplicateName, Span
from headrace.model.schema import Field, Schema
from headrace.sql.parse.cursor import Cursor
from headrace.sql.parse.data_types import char_length, parse_data_type
from headrace.sql.parse.dialect import Token
from headrace.sql.parse.expression_parser import parse_expression
from headrace.sql.parse.syntax import Node
from headrace.sql.parse.watermarks import parse_watermark


@dataclass(slots=True)
class DeclaredColumns:
    """The columns between the parentheses. The dictionaries are by index: expressions of computed columns, lengths of
    CHAR columns, and keys of metadata columns with their place. `watermark` is its column and the delay."""

    fields: list[Field] = field(default_factory=list)
    computed: dict[int, Node] = field(default_factory=dict)
    padded: dict[int, int] = field(default_factory=dict)
    metadata: dict[int, tuple[str, Span]] = field(default_factory=dict)
    watermark: tuple[Token, int] | None = None

    @property
    def schema(self) -> Schema:
        return Schema(tuple(self.fields))


def parse_columns(cursor: Cursor) -> DeclaredColumns:
    """Parses `(column, ..., WATERMARK FOR ...)`."""
    cursor.expect("(", "before the columns")
    declared, names = DeclaredColumns(), set[str]()
    while True:
        if cursor.at("WATERMARK", "FOR"):
            declared.watermark = parse_watermark(cursor)
        else:
            _parse_column(cursor, declared, names)
        if not cursor.accept(","):
            break
    cursor.expect(")", "after the columns")
    if not declared.fields:
        cursor.fail("a stream needs at least one column")
    return declared


def _parse_column(cursor: Cursor, declared: DeclaredColumns, names: set[str]) -> None:
    """Adds one column. `names` are those of the columns before it, in lower case."""
    token, index = cursor.token, len(declared.fields)
    column = cursor.word("a column name")
    if column.lower() in names:
        raise DuplicateName(
            f"column '{column}' is declared twice",
            advice="Names ignore case. Rename one of the columns.",
            span=cursor.span((token.start, token.end)),
            name=column,
        )
    names.add(column.lower())
    if cursor.at("AS"):
        cursor.fail("expected a type", advice=f"Write the type, too: {column} TIMESTAMP AS ...")
    length = char_length(cursor)
    if length is not None:
        declared.padded[index] = length
    declared.fields.append(Field(column, parse_data_type(cursor)))
    skip_comment(cursor)
    if cursor.accept("AS") or cursor.accept("GENERATED", "ALWAYS", "AS"):
        declared.computed[index] = parse_expression(cursor)
    elif cursor.at("METADATA"):
        declared.metadata[index] = _parse_metadata(cursor, column)
    skip_comment(cursor)


def _parse_metadata(cursor: Cursor, column: str) -> tuple[str, Span]:
    """`METADATA`, `METADATA FROM 'key'`, each with or without VIRTUAL: the key, which is the column's name if it is
    not given."""
    start, key = cursor.advance().start, column
    if cursor.accept("FROM"):
        if cursor.token.kind != "string":
            cursor.fail("expected the name of the metadata, as a string", advice="Write METADATA FROM 'timestamp'.")
        key = cursor.advance().text
    cursor.accept("VIRTUAL")  # Flink writes it for columns that sinks do not take; here no sink takes any
    return key.lower(), cursor.span((start, cursor.previous_end))


def skip_comment(cursor: Cursor) -> None:
    """Skips the COMMENT of a column or a view, if there is one."""
    if cursor.at("COMMENT") and cursor.peek().kind == "string":
        cursor.advance()
        cursor.advance()
