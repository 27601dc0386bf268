"""Binds binary operators: casts the operands to their common type, and adds intervals to times."""

from __future__ import annotations

import decimal
from typing import TYPE_CHECKING

from headrace.model.schema import (
    BIGINT,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Array,
    Decimal,
    Map,
    Struct,
)
from headrace.sql.bind.interval_calls import bind_interval_arithmetic, unit_of
from headrace.sql.bind.time_differences import TIMES, bind_comparison, bind_difference, bind_difference_of_text
from headrace.sql.parse.syntax import TextRange
from headrace.sql.plan.expr import Expr, Literal, walk
from headrace.sql.plan.types import (
    INTEGRAL,
    INTERVAL_MICROS,
    INTERVAL_MONTHS,
    VOID,
    as_decimal,
    compared,
    is_numeric,
    wider,
)

if TYPE_CHECKING:
    from headrace.sql.bind.expression_binder import ExprBinder

ARITHMETIC = ("+", "-", "*", "/", "%", "div")
_DAY = 86_400_000_000


def bind_binary(binder: ExprBinder, name: str, left: Expr, right: Expr, at: TextRange) -> Expr:
    """Binds an arithmetic, comparison or bit operator. Raises TypeMismatch and UnsupportedOnShared."""
    intervals = (INTERVAL_MICROS, INTERVAL_MONTHS)
    if left.type in intervals and right.type in intervals and name not in ARITHMETIC:
        return bind_comparison(binder=binder, name=name, left=left, right=right, at=at)
    if right.type in intervals or left.type in intervals:
        computed = bind_interval_arithmetic(binder=binder, name=name, left=left, right=right, at=at)
        if computed is not None:
            return computed
        return _with_interval(binder=binder, name=name, left=left, right=right, at=at)
    if name == "+" and right.type == DATE and left.type in INTEGRAL:
        left, right = right, left
    if name in ("+", "-") and left.type == DATE and right.type in INTEGRAL:
        if right.type == BIGINT:
            binder.mismatch("the days are INT, this is BIGINT", "Cast them, as in CAST(days AS INT).", right.at)
        return binder.call(name, (left, binder.coerce(right, INT)), at)
    if name == "-" and left.type in TIMES and right.type in TIMES:
        return bind_difference(binder, left, right, at)
    if name == "-" and {left.type, right.type} <= {*TIMES, STRING, VOID} and {left.type, right.type} & {*TIMES}:
        return bind_difference_of_text(binder, left, right, at)
    if name in ARITHMETIC:
        return _arithmetic(binder=binder, name=name, left=left, right=right, at=at)
    left, right = binder.common([left, right], f"'{name}'", at, compared)
    return binder.call(name, (left, right), at)


def _arithmetic(binder: ExprBinder, name: str, left: Expr, right: Expr, at: TextRange) -> Expr:
    kind = wider(left.type, right.type)
    if kind is None or not (is_numeric(kind) or kind == VOID):
        if isinstance(left.type, Decimal) or isinstance(right.type, Decimal):
            binder.unsupported(f"{left.type} {name} {right.type}", "Cast to DOUBLE or a smaller DECIMAL.", at)
        if VOID in (left.type, right.type) and name == "+" and {left.type, right.type} & {*TIMES}:
            advice = "Cast NULL to the type that it stands for."
            binder.unsupported(f"{left.type} {name} {right.type}", advice, at)
        nested = any(isinstance(operand.type, Array | Map | Struct) for operand in (left, right))
        advice = "Take an element or a field of it." if nested else "Cast both to a number, as in CAST(... AS DOUBLE)."
        binder.mismatch(f"'{name}' needs numbers, not {left.type} and {right.type}", advice, at)
    if name == "div" and kind not in (*INTEGRAL, VOID) and not isinstance(kind, Decimal):
        advice = "Use floor(a / b), or cast both to BIGINT."
        binder.mismatch(f"DIV needs whole numbers, not {left.type} and {right.type}", advice, at)
    if name == "div" and not isinstance(kind, Decimal):
        return binder.call(name, (binder.coerce(left, BIGINT), binder.coerce(right, BIGINT)), at)
    if name == "/" and left.type == VOID and isinstance(kind, Decimal):
        return binder.call(name, (binder.coerce(left, DOUBLE), binder.coerce(right, DOUBLE)), at)
    if isinstance(kind, Decimal):
        left = binder.coerce(left, right.type) if left.type == VOID else left
        right = binder.coerce(right, left.type) if right.type == VOID else right
        return binder.call(name, (_decimal(binder, left), _decimal(binder, right)), at)
    # Spark reads a text beside a whole number as BIGINT, even where the operator then takes DOUBLE.
    left, right = (binder.coerce(side, kind) if side.type == STRING else side for side in (left, right))
    if name == "/" or kind == VOID:
        kind = DOUBLE
    return binder.call(name, (binder.coerce(left, kind), binder.coerce(right, kind)), at)


def _decimal(binder: ExprBinder, expr: Expr) -> Expr:
    """The type of an operand of decimal arithmetic. A whole literal has only as many digits as it is written with."""
    if isinstance(expr, Literal) and expr.type in INTEGRAL and expr.value is not None:
        return Literal(Decimal(len(str(abs(expr.value))), 0), decimal.Decimal(expr.value), at=expr.at)
    target = as_decimal(expr.type)
    assert target is not None
    return binder.coerce(expr, target)


def _with_interval(binder: ExprBinder, name: str, left: Expr, right: Expr, at: TextRange) -> Expr:
    if name == "+" and left.type in (INTERVAL_MICROS, INTERVAL_MONTHS):
        left, right = right, left
    if name not in ("+", "-") or not isinstance(right, Literal):
        binder.mismatch(f"'{name}' does not take an interval here", "Write time + INTERVAL ...", at)
    if left.type == DATE and right.type == INTERVAL_MICROS:
        if right.value % _DAY or unit_of(right) not in ("DAY", ""):  # also 24 hours make a TIMESTAMP in Spark
            left = binder.coerce(left, TIMESTAMP)
        else:
            days = Literal(INT, right.value // _DAY, at=right.at)
            return binder.call(name, (left, days), at)
    if left.type in (STRING, VOID):
        binder.unsupported(f"an interval added to {left.type}", "Cast it to TIMESTAMP or DATE first.", at)
    if left.type not in (DATE, TIMESTAMP, TIMESTAMP_NTZ):
        binder.mismatch(f"an interval cannot be added to {left.type}", "Cast it to TIMESTAMP or DATE first.", at)
    amount = -right.value if name == "-" else right.value
    if right.type == INTERVAL_MONTHS:
        return binder.call("+", (left, Literal(INTERVAL_MONTHS, amount, at=right.at)), at)
    whole = abs(amount) // _DAY * _DAY * (1 if amount > 0 else -1)  # Spark adds calendar days before the rest.
    for part in (whole, amount - whole):
        if part or not amount:
            left = binder.call("+", (left, Literal(INTERVAL_MICROS, part, at=right.at)), at)
    return left


def bind_round(binder: ExprBinder, args: list[Expr], at: TextRange) -> Expr | None:
    """Binds round(x) and round(x, n). The result has the type of x; that of a decimal has fewer digits after the point.
    None where the table of overloads decides."""
    value, digits = args[0], args[1] if len(args) == 2 else Literal(INT, 0, at=at)
    known = digits.value if isinstance(digits, Literal) and digits.type in INTEGRAL else None
    if known is None:
        return None
    if value.type in INTEGRAL and known >= 0:
        return _keeping_null(binder, value)
    if value.type == FLOAT:
        rounded = binder.call("round", (binder.cast(value, DOUBLE, at, False), binder.coerce(digits, INT)), at)
        return binder.cast(rounded, FLOAT, at, False)
    if not isinstance(value.type, Decimal) or known < 0:
        return None
    scale = min(value.type.scale, known)
    precision = min(38, value.type.precision - value.type.scale + 1 + scale)
    return _keeping_null(binder, binder.cast(value, Decimal(precision, scale), at, False))


def _keeping_null(binder: ExprBinder, value: Expr) -> Expr:
    """`value`, if need be in a call. Spark's optimizer does not know that the round of a NULL is NULL, so that it
    evaluates what stands beside it."""
    if any(isinstance(part, Literal) and part.value is None for part in walk(value)):
        return binder.call("coalesce", (value,), value.at)
    return value
