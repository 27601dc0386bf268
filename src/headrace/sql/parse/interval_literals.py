"""The grammar of interval literals."""

from __future__ import annotations

from headrace.errors import SyntaxProblem
from headrace.sql.parse.cursor import Cursor
from headrace.sql.parse.intervals import UNITS, parse_interval_parts, parse_range, spanned, unit_amount
from headrace.sql.parse.syntax import IntervalConstant


def parse_interval_literal(cursor: Cursor) -> IntervalConstant:
    """Parses INTERVAL 10 SECONDS, INTERVAL '1 hour 30 minutes' or INTERVAL '1 02:03' DAY TO MINUTE at the cursor, and
    moves the cursor past it."""
    start = cursor.advance().start
    months = micros = 0
    unit = ""
    units: set[str] = set()
    try:
        if cursor.token.kind == "string" and cursor.peek(2).upper == "TO":
            text, first = cursor.advance().text, cursor.advance().upper
            cursor.advance()
            last = cursor.advance().upper
            months, micros = parse_range(text, first, last)
            unit = f"{first} TO {last}"
        elif cursor.token.kind == "string" and cursor.peek().upper.lower() not in UNITS:
            months, micros, unit = parse_interval_parts(cursor.advance().text)
        else:
            while True:
                sign = -1 if cursor.accept("-") else 1
                amount = cursor.advance().text
                if cursor.token.upper.lower() not in UNITS:
                    raise ValueError(f"expected a unit after {amount}")
                units.add(cursor.token.text)
                part = unit_amount(amount, cursor.advance().text)
                months, micros = months + sign * part[0], micros + sign * part[1]
                if not (cursor.token.kind in ("number", "string") and cursor.peek().upper.lower() in UNITS):
                    break
    except ValueError as problem:
        raise SyntaxProblem(
            f"this is not an interval: {problem}",
            advice="Write INTERVAL 10 SECONDS or INTERVAL '1 hour 30 minutes'.",
            span=cursor.span((start, cursor.previous_end)),
            certain=True,
        ) from None
    return IntervalConstant((start, cursor.previous_end), months, micros, unit or spanned(units))
