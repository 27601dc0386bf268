"""Turns typed expressions into DuckDB SQL.

DuckDB evaluates all operands on all rows, but a CASE branch only on the rows that reach it. Spark evaluates operands
one by one, and stops at one that decides the result. So an operand that may fail is inside a CASE: rows on which
Spark does not evaluate it never reach it. DuckDB may also reorder the parts of a conjunction; then a CASE keeps their
order. Expressions that cannot fail are written without any of this.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterator
from functools import reduce

from headrace.errors import InternalError
from headrace.exec.map_entries import entries_of, made_map, made_of
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
    Map,
    duck_name,
)
from headrace.sql.functions import find
from headrace.sql.functions.casts import cast_is_strict, render_cast
from headrace.sql.functions.evaluation_order import (
    begins_later,
    casts_inside,
    evaluated,
    is_dropped_beside,
    is_strict,
    skips,
    stops_at_null,
)
from headrace.sql.functions.fallibility import throws
from headrace.sql.functions.overload import Overload
from headrace.sql.plan.expr import (
    Call,
    CaseWhen,
    Cast,
    ColumnRef,
    Expr,
    FailingConstant,
    FieldOf,
    Lambda,
    LambdaVariable,
    Literal,
    conjuncts,
)
from headrace.sql.plan.limits import ExpressionTooLarge, check_time
from headrace.sql.plan.types import INTERVAL_MICROS, INTERVAL_MONTHS, VOID, function_type

ColumnText = Callable[[ColumnRef], str]

_DAY = 86_400_000_000
# Some functions repeat the text of an argument, so the text of nested calls grows exponentially.
LONGEST = 200_000


def ring0_column(column: ColumnRef) -> str:
    """The name of a stream column in Ring 0."""
    return f"c{column.index}"


def render(expr: Expr, column: ColumnText) -> str:
    """`expr` as DuckDB SQL. `column` writes the column references."""
    check_time()
    if isinstance(expr, ColumnRef):
        return column(expr)
    if isinstance(expr, Literal):
        return render_literal(expr)
    if isinstance(expr, Cast):
        return _cast(expr, render(expr.input, column))
    if isinstance(expr, CaseWhen):
        branches = "".join(f" WHEN {render(c, column)} THEN {render(v, column)}" for c, v in expr.branches)
        tail = f" ELSE {render(expr.otherwise, column)}" if expr.otherwise is not None else ""
        return f"CASE{branches}{tail} END"
    if isinstance(expr, FieldOf):
        return f"({render(expr.input, column)}).{duck_name(expr.name)}"
    if isinstance(expr, Call):
        return _render_call(expr, column)
    if isinstance(expr, FailingConstant):  # DuckDB would evaluate the call while it plans, and fail there
        return f"CAST(error({text_literal(expr.said)}) AS {expr.type.duckdb})"
    if isinstance(expr, LambdaVariable):
        return expr.text
    if isinstance(expr, Lambda):
        return f"lambda {', '.join(expr.params)}: ({render(expr.body, column)})"
    raise InternalError(f"{type(expr).__name__} cannot be rendered")


def _cast(expr: Cast, inner: str) -> str:
    text = render_cast(inner, expr.input.type, expr.type, expr.attempt)
    if text is None:
        raise InternalError(f"no cast from {expr.input.type} to {expr.type} was bound")
    return text


def render_filter(expr: Expr, column: ColumnText) -> str:
    """A condition of which only TRUE matters, as DuckDB SQL. Unlike an AND, a filter of Spark does not evaluate its
    next part after one that is NULL. DuckDB would drop rows by a later part before it evaluates one that may fail."""
    parts = list(conjuncts(expr))
    failing = [i for i, part in enumerate(parts) if throws(part)]
    if len(parts) == 1 or not failing:
        return render(expr, column)
    texts = [render(part, column) for part in parts]
    last = min(failing[-1] + 1, len(parts) - 1)
    before, rest = texts[:last], texts[last:]
    nested = f"({' AND '.join(rest)})"
    for text in reversed(before):
        nested = f"CASE WHEN {text} THEN {nested} ELSE FALSE END"
    return nested


def _render_call(expr: Call, column: ColumnText) -> str:
    if expr.name in ("and", "or"):
        return _render_chain(expr, column)
    if expr.name == "in" and any(throws(arg) for arg in expr.args[1:]):
        return _render_in(expr, column)
    if expr.name == "coalesce" and any(throws(arg) for arg in expr.args[1:]):
        return _render_coalesce(expr, column)
    overload = _overload(expr)
    operands = evaluated(overload, expr.args) if len(expr.args) > 1 and stops_at_null(overload) else []
    failing = [i for i, operand in enumerate(operands) if throws(operand)]
    guarded = operands[: len(operands) if casts_inside(overload) else failing[-1] if failing else 0]
    args = [_unguarded(a, column) if a in guarded else render(a, column) for a in expr.args]
    branches: dict[str, str] = {}
    for null, before in _guards(guarded, column):
        branches.setdefault(null, f" WHEN {null} THEN {before}")
    for i in _forced(expr, overload, operands):
        # Never true. Rows that come here evaluate the operand, although the function's own CASE may skip it.
        branches.setdefault(args[i], f" WHEN (({args[i]}) IS NULL) IS NULL THEN NULL")
    text = _written(expr, overload, args)
    if not branches:
        return _checked(text, expr)
    entries = made_of(text)
    whole = f"CASE{''.join(branches.values())} ELSE {text if entries is None else entries} END"
    return _checked(whole if entries is None else made_map(whole), expr)


def _forced(expr: Call, overload: Overload, operands: list[Expr]) -> Iterator[int]:
    """The operands that may fail and that the SQL of the function may leave unevaluated where Spark evaluates them."""
    if len(expr.args) < 2:
        return
    all_of_them, all_but_first = skips(overload, expr.args), begins_later(overload, expr.args)
    for i, operand in enumerate(expr.args):
        if not throws(operand) or isinstance(operand, Lambda):
            continue
        late = operand in operands and (
            _is_late(expr, overload, operands, i) or is_dropped_beside(overload, expr.args, i)
        )
        if all_of_them or (all_but_first and i) or late or _is_left_out(expr, overload, i):
            yield i


def _is_left_out(expr: Call, overload: Overload, place: int) -> bool:
    """True if the SQL of the function does not have this operand, because a literal decides the result."""
    marks = [render_literal(a) if isinstance(a, Literal) else f"mark{i}\0" for i, a in enumerate(expr.args)]
    return marks[place] not in _written(expr, overload, marks)


def _is_late(expr: Call, overload: Overload, operands: list[Expr], place: int) -> bool:
    """True if an operand that Spark evaluates later stands before this one in the SQL of the function. DuckDB does not
    evaluate the other operands of a call where all values of the first that it sees at once are NULL."""
    later = [
        i
        for operand in operands[operands.index(expr.args[place]) + 1 :]
        for i, arg in enumerate(expr.args)
        if arg is operand and not (isinstance(arg, Literal) and arg.value is not None)
    ]
    if not later:
        return False
    marks = [render_literal(a) if isinstance(a, Literal) else f"mark{i}\0" for i, a in enumerate(expr.args)]
    text = _written(expr, overload, marks)
    return any(-1 < text.find(marks[i]) < text.find(marks[place]) for i in later)


def _overload(expr: Call) -> Overload:
    kinds = [function_type(a.body.type, throws(a.body)) if isinstance(a, Lambda) else a.type for a in expr.args]
    overload = find(expr.name, kinds)
    if overload is None:
        raise InternalError(f"{expr.name} was bound without an overload")
    return overload


def _written(expr: Call, overload: Overload, args: list[str]) -> str:
    """The call over the texts of its arguments."""
    kinds = [function_type(a.body.type, throws(a.body)) if isinstance(a, Lambda) else a.type for a in expr.args]
    simple = overload.simple(expr.args)
    return overload.render(args, kinds, expr.type) if simple is None else simple.format(*args)


def _checked(text: str, expr: Expr) -> str:
    if len(text) > LONGEST:
        raise ExpressionTooLarge(f"an expression of more than {LONGEST} characters", expr.at)
    return text


def _guards(operands: list[Expr], column: ColumnText) -> Iterator[tuple[str, str]]:
    """When Spark stops at one of these operands, because it is NULL, and the NULL to return then. Conditions are asked
    in this order, so each may rely on the ones before it. The NULL of a later operand evaluates the earlier operands
    that may fail, since Spark has done so."""
    for i, operand in enumerate(operands):
        before = [_unguarded(earlier, column) for earlier in operands[:i] if throws(earlier)]
        for null, inner in _nulls(operand, column):
            checks = "".join(f" WHEN ({text}) IS NULL THEN NULL" for text in before)
            yield null, f"CASE{checks} ELSE {inner} END" if checks else inner


def _nulls(expr: Expr, column: ColumnText) -> Iterator[tuple[str, str]]:
    """The guards of one operand: those of its own operands, if they alone decide whether it is NULL."""
    if isinstance(expr, Literal) and expr.value is not None:
        return
    inner = _strict_operands(expr)
    if inner is not None:
        yield from _guards(inner, column)
    else:
        text = render(expr, column)
        yield f"({entries_of(text) if isinstance(expr.type, Map) else text}) IS NULL", "NULL"


def _strict_operands(expr: Expr) -> list[Expr] | None:
    """The operands in order of evaluation if `expr` is NULL only where one of them is, else None."""
    if isinstance(expr, Call):
        overload = find(expr.name, [a.type for a in expr.args])
        return evaluated(overload, expr.args) if overload is not None and is_strict(overload) else None
    if isinstance(expr, Cast) and not expr.attempt and cast_is_strict(expr.input.type, expr.type):
        return [expr.input]
    return None


def _unguarded(expr: Expr, column: ColumnText) -> str:
    """`expr` for rows that the guards of `expr` let pass: its own operands need no guards again."""
    if _strict_operands(expr) is None:
        return render(expr, column)
    if isinstance(expr, Cast):
        return _cast(expr, _unguarded(expr.input, column))
    assert isinstance(expr, Call)
    return _checked(_written(expr, _overload(expr), [_unguarded(a, column) for a in expr.args]), expr)


def _render_coalesce(expr: Call, column: ColumnText) -> str:
    """coalesce with values that may fail. DuckDB would move parts that two of them have in common out of it."""
    texts = [render(arg, column) for arg in expr.args]
    branches = "".join(f" WHEN ({text}) IS NOT NULL THEN {text}" for text in texts[:-1])
    return _checked(f"CASE{branches} ELSE {texts[-1]} END", expr)


def _render_in(expr: Call, column: ColumnText) -> str:
    """IN with values that may fail: Spark compares them one by one, and stops at the first that is equal."""
    value, *values = expr.args
    last = max(i for i, item in enumerate(values) if throws(item))
    equal = find("=", [value.type, value.type])
    overload = find("in", [value.type, value.type])
    assert equal is not None and overload is not None
    asked, texts = render(value, column), [render(item, column) for item in values]
    kinds = [value.type] * 2
    branches = "".join(f" WHEN {null} THEN {before}" for null, before in _nulls(value, column))
    branches += "".join(f" WHEN {equal.render([asked, t], kinds, BOOLEAN)} THEN TRUE" for t in texts[:last])
    whole = overload.render([asked, *texts], kinds, BOOLEAN)
    return _checked(f"CASE{branches} ELSE {whole} END" if branches else whole, expr)


def _render_chain(expr: Call, column: ColumnText) -> str:
    """A chain of ANDs or ORs. Each part is written at most twice, so the text grows linearly."""
    parts = _chain(expr, expr.name)
    texts = [render(part, column) for part in parts]
    joined = "(" + f" {expr.name.upper()} ".join(texts) + ")"
    if (known := _known_at(expr, parts)) and any(throws(part) for part in parts[:known]):
        # DuckDB would not evaluate any part beside a literal that decides.
        first = render(_joined(expr, parts[:known]), column)
        return f"CASE WHEN (({first}) IS NULL) IS NULL THEN NULL ELSE {'FALSE' if expr.name == 'and' else 'TRUE'} END"
    if not any(throws(part) for part in parts[1:]):
        return joined
    last = max(i for i, part in enumerate(parts) if throws(part))
    if expr.name == "and":
        decided = "".join(f" WHEN NOT {text} THEN FALSE" for text in texts[:last])
    else:
        decided = "".join(f" WHEN {text} THEN TRUE" for text in texts[:last])
    return f"CASE{decided} ELSE {joined} END"


def _known_at(expr: Call, parts: list[Expr]) -> int | None:
    """The place of the literal that decides a chain of ANDs or ORs, if there is one."""
    decisive = expr.name == "or"
    return next((i for i, part in enumerate(parts) if isinstance(part, Literal) and part.value is decisive), None)


def _joined(expr: Call, parts: list[Expr]) -> Expr:
    """A chain of the same operator over fewer parts."""
    return reduce(lambda left, right: expr.with_children((left, right)), parts)


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
