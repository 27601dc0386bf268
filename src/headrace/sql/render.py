"""Typed expressions to DuckDB text.

Short circuits: where the right side of AND or OR may fail, CASE keeps it away from the rows that the left side already
decides; DuckDB evaluates CASE branches only on their rows, but is free to reorder the parts of a conjunction.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable

from headrace.errors import InternalError
from headrace.schema import BINARY, BOOLEAN, DATE, DOUBLE, FLOAT, STRING, TIMESTAMP, TIMESTAMP_NTZ, Decimal, duck_name
from headrace.sql.expr import Call, CaseWhen, Cast, Column, Expr, FieldOf, Literal
from headrace.sql.functions import find
from headrace.sql.functions.casts import cast_throws, render_cast
from headrace.sql.types import INTERVAL_MICROS, INTERVAL_MONTHS, VOID

ColumnText = Callable[[Column], str]

_DAY = 86_400_000_000


def ring0_column(column: Column) -> str:
    """How Ring 0 calls a column of the stream."""
    return f"c{column.index}"


def throws(expr: Expr) -> bool:
    """Whether evaluating `expr` may fail on some row."""
    if isinstance(expr, Call):
        overload = find(expr.name, [a.type for a in expr.args])
        if overload is None or (overload.throws and overload.simple(expr.args) is None):
            return True
    if isinstance(expr, Cast) and not expr.attempt and cast_throws(expr.input.type, expr.type):
        return True
    return any(throws(child) for child in expr.children)


def render(expr: Expr, column: ColumnText) -> str:
    """`expr` as DuckDB text over columns written by `column`."""
    if isinstance(expr, Column):
        return column(expr)
    if isinstance(expr, Literal):
        return render_literal(expr)
    if isinstance(expr, Cast):
        text = render_cast(render(expr.input, column), expr.input.type, expr.type, expr.attempt)
        if text is None:
            raise InternalError(f"no cast from {expr.input.type} to {expr.type} was bound")
        return text
    if isinstance(expr, CaseWhen):
        branches = "".join(f" WHEN {render(c, column)} THEN {render(v, column)}" for c, v in expr.branches)
        tail = f" ELSE {render(expr.otherwise, column)}" if expr.otherwise is not None else ""
        return f"CASE{branches}{tail} END"
    if isinstance(expr, FieldOf):
        return f"({render(expr.input, column)}).{duck_name(expr.name)}"
    if isinstance(expr, Call):
        return _render_call(expr, column)
    raise InternalError(f"{type(expr).__name__} cannot be rendered")


def _render_call(expr: Call, column: ColumnText) -> str:
    args = [render(a, column) for a in expr.args]
    if expr.name == "and" and throws(expr.args[1]):
        return f"CASE WHEN NOT {args[0]} THEN FALSE ELSE ({args[0]} AND {args[1]}) END"
    if expr.name == "or" and throws(expr.args[1]):
        return f"CASE WHEN {args[0]} THEN TRUE ELSE ({args[0]} OR {args[1]}) END"
    kinds = [a.type for a in expr.args]
    overload = find(expr.name, kinds)
    if overload is None:
        raise InternalError(f"{expr.name} was bound without an overload")
    simple = overload.simple(expr.args)
    return overload.render(args, kinds, expr.type) if simple is None else simple.format(*args)


def text_literal(text: str) -> str:
    """A DuckDB string literal; characters below blank by their code, which no client strips or ends at."""
    return "'" + text.replace("'", "''") + "'"


def render_literal(literal: Literal) -> str:
    """A value as DuckDB text with exactly its type."""
    value, kind = literal.value, literal.type
    if kind == VOID:
        return "NULL"
    if value is None:
        return f"CAST(NULL AS {kind.duckdb})"
    if kind == BOOLEAN:
        return "TRUE" if value else "FALSE"
    if kind == STRING:
        return text_literal(value)
    if kind == BINARY:
        assert isinstance(value, bytes)
        return "'" + "".join(f"\\x{b:02X}" for b in value) + "'::BLOB"
    if kind == DATE:
        assert isinstance(value, datetime.date)
        return f"DATE '{value.isoformat()}'"
    if kind == TIMESTAMP:
        return f"make_timestamptz({value}::BIGINT)"
    if kind == TIMESTAMP_NTZ:
        return f"make_timestamp({value}::BIGINT)"
    if kind == INTERVAL_MONTHS:
        return f"to_months({value})"
    if kind == INTERVAL_MICROS:
        days, rest = int(value / _DAY), value - int(value / _DAY) * _DAY
        parts = ([f"to_days({days})"] if days else []) + ([f"to_microseconds({rest})"] if rest or not days else [])
        return "(" + " + ".join(parts) + ")"
    if kind in (FLOAT, DOUBLE):
        return f"'{value!r}'::{kind.duckdb}"
    if isinstance(kind, Decimal):
        assert isinstance(value, decimal.Decimal)
        return f"'{value:f}'::{kind.duckdb}"
    return f"{value}::{kind.duckdb}" if value >= 0 else f"({value})::{kind.duckdb}"
