"""Turns typed expressions into DuckDB SQL.

DuckDB may reorder the parts of a conjunction, but evaluates a CASE branch only on the rows that reach it. So a chain of
ANDs or ORs with a part that may fail becomes a CASE: rows that an earlier part decides never reach the failing part.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable

from headrace.errors import InternalError
from headrace.model.schema import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Decimal,
    duck_name,
)
from headrace.sql.functions import find
from headrace.sql.functions.casts import cast_throws, render_cast
from headrace.sql.plan.expr import Call, CaseWhen, Cast, ColumnRef, Expr, FieldOf, Lambda, LambdaVariable, Literal
from headrace.sql.plan.limits import ExpressionTooLarge, check_time
from headrace.sql.plan.types import INTERVAL_MICROS, INTERVAL_MONTHS, VOID, function_type

ColumnText = Callable[[ColumnRef], str]

_DAY = 86_400_000_000
# Some functions repeat the text of an argument, so the text of nested calls grows exponentially.
LONGEST = 200_000


def ring0_column(column: ColumnRef) -> str:
    """The name of a stream column in Ring 0."""
    return f"c{column.index}"


def throws(expr: Expr) -> bool:
    """True if evaluating `expr` may fail on some row."""
    check_time()
    if isinstance(expr, Call):
        overload = find(expr.name, [a.type for a in expr.args])
        if overload is None or (overload.throws and overload.simple(expr.args) is None):
            return True
    if isinstance(expr, Cast) and not expr.attempt and cast_throws(expr.input.type, expr.type):
        return True
    return any(throws(child) for child in expr.children)


def render(expr: Expr, column: ColumnText) -> str:
    """`expr` as DuckDB SQL. `column` writes the column references."""
    check_time()
    if isinstance(expr, ColumnRef):
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
    if isinstance(expr, LambdaVariable):
        return expr.text
    if isinstance(expr, Lambda):
        return f"lambda {', '.join(expr.params)}: ({render(expr.body, column)})"
    raise InternalError(f"{type(expr).__name__} cannot be rendered")


def _render_call(expr: Call, column: ColumnText) -> str:
    if expr.name in ("and", "or"):
        return _render_chain(expr, column)
    args = [render(a, column) for a in expr.args]
    kinds = [function_type(a.body.type, throws(a.body)) if isinstance(a, Lambda) else a.type for a in expr.args]
    overload = find(expr.name, kinds)
    if overload is None:
        raise InternalError(f"{expr.name} was bound without an overload")
    simple = overload.simple(expr.args)
    text = overload.render(args, kinds, expr.type) if simple is None else simple.format(*args)
    if len(text) > LONGEST:
        raise ExpressionTooLarge(f"an expression of more than {LONGEST} characters", expr.at)
    return text


def _render_chain(expr: Call, column: ColumnText) -> str:
    """A chain of ANDs or ORs. Each part is written at most twice, so the text grows linearly."""
    parts = _chain(expr, expr.name)
    texts = [render(part, column) for part in parts]
    joined = "(" + f" {expr.name.upper()} ".join(texts) + ")"
    if not any(throws(part) for part in parts[1:]):
        return joined
    last = max(i for i, part in enumerate(parts) if throws(part))
    if expr.name == "and":
        decided = "".join(f" WHEN NOT {text} THEN FALSE" for text in texts[:last])
    else:
        decided = "".join(f" WHEN {text} THEN TRUE" for text in texts[:last])
    return f"CASE{decided} ELSE {joined} END"


def _chain(expr: Expr, name: str) -> list[Expr]:
    """The operands of a chain of the same operator, from left to right."""
    if isinstance(expr, Call) and expr.name == name:
        return [part for arg in expr.args for part in _chain(arg, name)]
    return [expr]


def text_literal(text: str) -> str:
    """A DuckDB string literal. Only the quote needs escaping."""
    return "'" + text.replace("'", "''") + "'"


def render_literal(literal: Literal) -> str:
    """A value as a DuckDB literal of exactly its type."""
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
        days = abs(value) // _DAY * (1 if value > 0 else -1)
        rest = value - days * _DAY
        parts = ([f"to_days({days})"] if days else []) + ([f"to_microseconds({rest})"] if rest or not days else [])
        return "(" + " + ".join(parts) + ")"
    if kind in (FLOAT, DOUBLE):
        return f"'{value!r}'::{kind.duckdb}"
    if isinstance(kind, Decimal):
        assert isinstance(value, decimal.Decimal)
        return f"'{value:f}'::{kind.duckdb}"
    return f"{value}::{kind.duckdb}" if value >= 0 else f"({value})::{kind.duckdb}"
