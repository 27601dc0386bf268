"""The grammar of `*`, `s.*` and `pos.meta.*`, in a select list and as an argument."""

from __future__ import annotations

from headrace.sql.parse.cursor import Cursor
from headrace.sql.parse.syntax import Name, Star


def star_follows(cursor: Cursor) -> bool:
    """True if the next tokens are a star with its qualifier."""
    place = 0
    while cursor.peek(place).kind in ("word", "quoted") and cursor.peek(place + 1).upper == ".":
        place += 2
    return cursor.peek(place).upper == "*" and cursor.peek(place).kind not in ("string", "quoted")


def parse_star(cursor: Cursor) -> Star:
    """The star at the cursor, with its EXCEPT."""
    start = cursor.token.start
    qualifier: list[str] = []
    while not cursor.at("*"):
        qualifier.append(cursor.advance().text)
        cursor.advance()
    cursor.advance()
    excluded: list[Name] = []
    if cursor.at("EXCEPT", "("):
        cursor.advance()
        cursor.advance()
        while True:
            at = (cursor.token.start, cursor.token.end)
            excluded.append(Name(at, (cursor.name("a column"),)))
            if not cursor.accept(","):
                break
        cursor.expect(")", "after the excluded columns")
    return Star((start, cursor.previous_end), tuple(qualifier), tuple(excluded))
