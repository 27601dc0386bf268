"""Rule: evaluate constant expressions, and simplify conditions that constants decide."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
from collections.abc import Iterator
from typing import Any

import duckdb

from headrace.exec.failures import said
from headrace.model.schema import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Array,
    Map,
    Struct,
)
from headrace.sql.functions import find
from headrace.sql.functions.evaluate import evaluate
from headrace.sql.functions.evaluation_order import (
    cast_is_never_null,
    element_is_never_null,
    is_never_null,
    is_null_beside_null,
    is_strict,
    try_cast_is_never_null,
)
from headrace.sql.functions.fallibility import throws
from headrace.sql.plan.context import PlanContext
from headrace.sql.plan.expr import AggCall, Call, CaseWhen, Cast, ColumnRef, Expr, FailingConstant, Literal
from headrace.sql.plan.limits import check_time
from headrace.sql.plan.logical import Aggregate, Filter, Generate, Named, Plan, Project, rewrite
from headrace.sql.plan.types import INTEGRAL, Hidden
from headrace.sql.render.duckdb import render
from headrace.sql.render.sizes import growth_of
from headrace.sql.rules.constant_terms import constant_last

# Larger values stay calls: the plan travels to every task.
FOLDED_BYTES = 8192
# Names of one expression of Spark.
_SAME_FUNCTION = {"make_timestamp_ltz": "make_timestamp", "try_make_timestamp_ltz": "try_make_timestamp"}


def fold_constants(plan: Plan, ctx: PlanContext) -> Plan:
    """Replaces constant expressions by their values. An expression that fails stays: like in Spark, it fails at run
    time if a row reaches it. Returns `plan` itself when nothing folds."""
    return rewrite(plan, lambda node: _fold_node(node, ctx))


def _fold_node(node: Plan, ctx: PlanContext) -> Plan:
    if isinstance(node, Filter):
        predicate = fold(node.predicate, ctx)
        if isinstance(predicate, Literal) and predicate.value is True:
            return node.input
        return node if predicate is node.predicate else dataclasses.replace(node, predicate=predicate)
    if isinstance(node, Project):
        outputs = tuple(_fold_named(o, ctx) for o in node.outputs)
        return node if _same(outputs, node.outputs) else dataclasses.replace(node, outputs=outputs)
    if isinstance(node, Generate):
        lists = tuple(_fold_named(n, ctx) for n in node.lists)
        return node if _same(lists, node.lists) else dataclasses.replace(node, lists=lists)
    if isinstance(node, Aggregate):
        keys = tuple(_fold_named(k, ctx) for k in node.keys)
        calls = tuple(fold(c, ctx) for c in node.calls)
        if _same(keys, node.keys) and _same(calls, node.calls):
            return node
        return dataclasses.replace(node, keys=keys, calls=tuple(c for c in calls if isinstance(c, AggCall)))
    return node


def _same(new: tuple[object, ...], old: tuple[object, ...]) -> bool:
    return all(a is b for a, b in zip(new, old, strict=True))


def _fold_named(named: Named, ctx: PlanContext) -> Named:
    expr = fold(named.expr, ctx)
    return named if expr is named.expr else Named(named.name, expr)


def fold(expr: Expr, ctx: PlanContext) -> Expr:
    """`expr` with its constant parts evaluated. Returns the same object when there are none."""
    check_time()
    children = expr.children
    if not children:
        return expr
    if isinstance(expr, Call):
        decided = _decided(expr)
        if decided is not expr:
            return decided
    if isinstance(expr, Call) and expr.name == "<=>" and any(map(_is_written_null, children)):
        other = children[1] if _is_written_null(children[0]) else children[0]
        return fold(Call(BOOLEAN, "isnull", (other,), at=expr.at), ctx)
    if isinstance(expr, CaseWhen) and _has_one_value(expr):
        value = expr.branches[0][1]
        return Literal(expr.type, None, at=expr.at) if _is_written_null(value) else fold(value, ctx)
    split = constant_last(expr) if isinstance(expr, Call) else None
    if isinstance(expr, Call) and split is not None and split != expr.args:
        expr = expr.with_children((split[0], fold(split[1], ctx)))
        children = expr.children
    new = tuple(fold(child, ctx) for child in children)
    if not _same(new, children):
        expr = expr.with_children(new)
    if isinstance(expr, Cast) and _is_rounded_between(expr):
        return fold(Cast(expr.type, expr.children[0].children[0], expr.attempt, at=expr.at), ctx)
    if isinstance(expr, Call) and expr.name in ("and", "or", "not"):
        return _logic(expr)
    if isinstance(expr, CaseWhen):
        return _case(expr)
    if isinstance(expr, Call | Cast) and all(isinstance(c, Literal) for c in expr.children):
        return _evaluate(expr, ctx)
    if isinstance(expr, Call) and _is_null_for_duckdb(expr):
        return Literal(expr.type, None, at=expr.at)
    return expr


def _decided(expr: Expr) -> Expr:
    """The value of a call that Spark's optimizer knows without evaluating an operand, or `expr` itself."""
    if not isinstance(expr, Call):
        return expr
    if _is_written_null(expr):
        return Literal(expr.type, None, at=expr.at)
    if _is_compared_with_itself(expr):
        return Literal(BOOLEAN, expr.name in ("<=>", "=", "<=", ">="), at=expr.at)
    if expr.name in ("isnull", "isnotnull") and _is_never_null(expr.args[0]):
        return Literal(BOOLEAN, expr.name == "isnotnull", at=expr.at)
    if expr.name in ("and", "or"):
        decisive = expr.name == "or"
        if any(isinstance(part, Literal) and part.value is decisive for part in _chain(expr, expr.name)):
            return Literal(BOOLEAN, decisive, at=expr.at)
    return expr


def _chain(expr: Expr, name: str) -> Iterator[Expr]:
    """The operands of a chain of ANDs or ORs."""
    open_parts = [expr]
    while open_parts:
        part = open_parts.pop()
        if isinstance(part, Call) and part.name == name:
            open_parts += part.args
        else:
            yield part


def _is_compared_with_itself(expr: Call) -> bool:
    """True for a comparison of an expression with itself that Spark's optimizer decides without evaluating it: by
    `<=>`, or by another operator if the value is never NULL."""
    if expr.name not in ("<=>", "=", "!=", "<", "<=", ">", ">=") or not _is_same_expression(*expr.args):
        return False
    return expr.name == "<=>" or _is_never_null(expr.args[0])


def _has_one_value(expr: CaseWhen) -> bool:
    """True if all branches have the same value. Like Spark's optimizer, the planner drops the conditions then."""
    otherwise = expr.otherwise if expr.otherwise is not None else Literal(expr.type, None, at=expr.at)
    values = [value for _, value in expr.branches] + [otherwise]
    return all(map(_is_written_null, values)) or all(_is_same_expression(v, values[0]) for v in values[1:])


def _is_same_expression(left: Expr, right: Expr) -> bool:
    """True if both are the same for Spark. 0.0 and -0.0 are equal, but not the same."""
    return _alike(left) == _alike(right) and list(_fractions(left)) == list(_fractions(right))


def _fractions(expr: Expr) -> Iterator[str]:
    if isinstance(expr, Literal) and expr.type in (FLOAT, DOUBLE):
        yield repr(expr.value)
    for child in expr.children:
        yield from _fractions(child)


def _alike(expr: Expr) -> Expr:
    """`expr` under the name that Spark has for functions with several names."""
    inside = expr.children
    new = tuple(_alike(child) for child in inside)
    if not _same(new, inside):
        expr = expr.with_children(new)
    if isinstance(expr, Call) and expr.name in _SAME_FUNCTION:
        return dataclasses.replace(expr, name=_SAME_FUNCTION[expr.name])
    return expr


def _is_null_for_duckdb(expr: Call) -> bool:
    """True if DuckDB's optimizer knows that the call is NULL, so that it drops the operands beside it. The planner must
    know it, too: `headrace.sql.render.duckdb` keeps the operands that Spark evaluates beside a literal NULL."""
    if expr.name in ("try_divide", "try_mod"):  # Spark does not evaluate the dividend
        divisor = expr.args[1]
        return isinstance(divisor, Literal) and divisor.value is not None and divisor.value == 0
    nulls = [i for i, arg in enumerate(expr.args) if isinstance(arg, Literal) and arg.value is None]
    overload = find(expr.name, [a.type for a in expr.args]) if nulls else None
    if overload is None or not (is_strict(overload) or is_null_beside_null(overload, nulls)):
        return False
    return not any(map(throws, expr.args))


def _is_rounded_between(expr: Cast) -> bool:
    """True for a whole number as FLOAT as DOUBLE. Spark's optimizer drops the FLOAT, and with it the rounding."""
    inner = expr.input
    return expr.type == DOUBLE and isinstance(inner, Cast) and inner.type == FLOAT and inner.input.type in INTEGRAL


def _is_written_null(expr: Expr) -> bool:
    """True if the expression is NULL because NULL is written in it. Like in Spark, its other operands are not
    evaluated. A constant that happens to be NULL, as in nullif(1, 1), does not count."""
    if isinstance(expr, Literal):
        return expr.value is None
    if isinstance(expr, Cast):
        return _is_written_null(expr.input)
    if isinstance(expr, CaseWhen):
        if _has_one_value(expr):
            return _is_written_null(expr.branches[0][1])
        known = tuple((_decided(c), v) for c, v in expr.branches)
        taken = _case(dataclasses.replace(expr, branches=known))
        return not isinstance(taken, CaseWhen) and _is_written_null(taken)
    if not isinstance(expr, Call):
        return False
    nulls = [i for i, arg in enumerate(expr.args) if _is_written_null(arg)]
    overload = find(expr.name, [a.type for a in expr.args]) if nulls else None
    return overload is not None and is_null_beside_null(overload, nulls)


def _is_never_null(expr: Expr) -> bool:
    """True if Spark knows that the value is never NULL."""
    if isinstance(expr, Literal):
        return expr.value is not None
    if isinstance(expr, Cast):
        keeps = try_cast_is_never_null if expr.attempt else cast_is_never_null
        return keeps(expr.input.type, expr.type) and _is_never_null(expr.input)
    if isinstance(expr, CaseWhen):
        values = [value for _, value in expr.branches]
        return expr.otherwise is not None and all(map(_is_never_null, [*values, expr.otherwise]))
    if not isinstance(expr, Call):
        return False
    overload = find(expr.name, [a.type for a in expr.args])
    if overload is None:
        return False
    inside = [_is_never_null(a) for a in expr.args]
    if overload.name == "map_from_entries":
        return all(inside) and _has_no_null(expr.args[0])
    return is_never_null(overload, inside)


def _has_no_null(expr: Expr) -> bool:
    """True if Spark knows that no element of an array is NULL."""
    overload = find(expr.name, [a.type for a in expr.args]) if isinstance(expr, Call) else None
    return overload is not None and element_is_never_null(overload, [_is_never_null(a) for a in expr.children])


def _logic(expr: Call) -> Expr:
    """Three-valued logic with a constant on one side. A side that may fail is not removed beside a constant that is
    computed; `_decided` has removed it beside a literal, like Spark."""
    if expr.name == "not":
        inner = expr.args[0]
        if isinstance(inner, Literal):
            return Literal(BOOLEAN, None if inner.value is None else not inner.value, at=expr.at)
        return inner.args[0] if isinstance(inner, Call) and inner.name == "not" else expr
    decisive = expr.name == "or"
    left, right = expr.args
    if isinstance(left, Literal) and left.value is not None:
        return Literal(BOOLEAN, decisive, at=expr.at) if left.value is decisive else right
    if isinstance(right, Literal) and right.value is not None and right.value is not decisive:
        return left
    return expr


def _case(expr: CaseWhen) -> Expr:
    """Drops branches that are never taken, and all branches after one that is always taken."""
    branches: list[tuple[Expr, Expr]] = []
    for condition, value in expr.branches:
        if isinstance(condition, Literal):
            if condition.value is not True:
                continue
            if not branches:
                return value
            return dataclasses.replace(expr, branches=tuple(branches), otherwise=value)
        branches.append((condition, value))
    if not branches:
        return expr.otherwise if expr.otherwise is not None else Literal(expr.type, None, at=expr.at)
    return expr if len(branches) == len(expr.branches) else dataclasses.replace(expr, branches=tuple(branches))


def _evaluate(expr: Expr, ctx: PlanContext) -> Expr:
    """The value as a literal, computed by DuckDB like at run time. A long value stays a call. Raises ValueTooLarge when
    it would exceed the limit for values."""
    if isinstance(expr.type, Hidden):
        return expr
    made = growth_of(outputs=(), others=(expr,), where=None, column=_no_column, names=lambda column: (), span=ctx.span)
    if made.fixed > FOLDED_BYTES:
        return expr
    nested = isinstance(expr.type, Array | Map | Struct)
    text = f"CAST({render(expr, _no_column)} AS {expr.type.duckdb})"
    try:
        raw = evaluate(f"({text}) IS NULL" if nested else text, ctx.meaning.time_zone)
    except duckdb.Error as problem:
        return FailingConstant(expr.type, expr, said(problem), at=expr.at)
    if nested:  # DuckDB drops the operands beside a NULL, so it must be known
        return Literal(expr.type, None, at=expr.at) if raw else expr
    value = _from_wire(expr, raw)
    return expr if value is NotImplemented else Literal(expr.type, value, at=expr.at)


def _no_column(column: ColumnRef) -> str:
    raise AssertionError(f"{column.name} is not constant")


def _from_wire(expr: Expr, value: Any) -> Any:
    if value is None:
        return None
    if expr.type in (TIMESTAMP, TIMESTAMP_NTZ):
        if not isinstance(value, datetime.datetime):
            return NotImplemented  # beyond year 9999
        epoch = datetime.datetime(1970, 1, 1, tzinfo=value.tzinfo and datetime.UTC)
        delta = value - epoch
        return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
    if expr.type in (FLOAT, DOUBLE):
        return value
    if expr.type == STRING:
        return value if value.isprintable() else NotImplemented
    if expr.type == BINARY:
        return bytes(value)
    if expr.type == DATE:
        return value if isinstance(value, datetime.date) else NotImplemented
    return value if isinstance(value, bool | int | decimal.Decimal) else NotImplemented
