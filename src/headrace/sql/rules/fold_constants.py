"""Rule: evaluate constant expressions, and simplify conditions that constants decide."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
from typing import Any

import duckdb

from headrace.errors import UnsupportedOnShared
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
from headrace.sql.functions.evaluation_order import evaluated, is_null_beside, stops_at_null
from headrace.sql.functions.fallibility import fails_in_spark
from headrace.sql.plan.context import PlanContext
from headrace.sql.plan.expr import (
    AggCall,
    Call,
    CaseWhen,
    Cast,
    ColumnRef,
    Expr,
    FailingConstant,
    LambdaVariable,
    Literal,
    walk,
)
from headrace.sql.plan.limits import check_time
from headrace.sql.plan.logical import Aggregate, Filter, Generate, Named, Plan, Project, rewrite
from headrace.sql.plan.types import INTEGRAL, Hidden
from headrace.sql.render.duckdb import render
from headrace.sql.render.sizes import growth_of
from headrace.sql.rules.constant_terms import constant_last
from headrace.sql.rules.known_values import (
    asked_operand,
    chosen_operand,
    condition,
    decided,
    has_one_value,
    is_written_null,
    never_null,
    taken_branches,
    taken_out,
)

# Larger values stay calls: the plan travels to every task.
FOLDED_BYTES = 8192
_ELEMENTS = ("element", "element_at", "try_element_at", "get")


def fold_constants(plan: Plan, ctx: PlanContext) -> Plan:
    """Replaces constant expressions by their values. An expression that fails stays: like in Spark, it fails at run
    time if a row reaches it. Returns `plan` itself when nothing folds."""
    return rewrite(plan, lambda node: _fold_node(node, ctx))


def _fold_node(node: Plan, ctx: PlanContext) -> Plan:
    if isinstance(node, Filter):
        predicate = fold(condition(node.predicate), ctx)
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
    known = decided(expr)
    if known is not expr:
        return known
    if (part := taken_out(expr)) is not None:
        return fold(part, ctx)
    if (operand := asked_operand(expr)) is not None:
        return fold(expr.with_children((operand,)), ctx)
    if isinstance(expr, Call) and expr.name == "<=>" and any(map(is_written_null, children)):
        other = children[1] if is_written_null(children[0]) else children[0]
        return fold(Call(BOOLEAN, "isnull", (other,), at=expr.at), ctx)
    if isinstance(expr, CaseWhen) and has_one_value(expr):
        value = expr.branches[0][1]
        return Literal(expr.type, None, at=expr.at) if is_written_null(value) else fold(value, ctx)
    if isinstance(expr, CaseWhen):
        conditions = tuple(condition(c) for c, _ in expr.branches)
        if any(new is not old for new, (old, _) in zip(conditions, expr.branches, strict=True)):
            expr = dataclasses.replace(
                expr, branches=tuple(zip(conditions, (v for _, v in expr.branches), strict=True))
            )
            children = expr.children
    split = constant_last(expr) if isinstance(expr, Call) else None
    if isinstance(expr, Call) and split is not None and split != expr.args:
        expr = expr.with_children((split[0], fold(split[1], ctx)))
        children = expr.children
    new = tuple(fold(child, ctx) for child in children)
    if isinstance(expr, Call) and expr.name in _ELEMENTS and isinstance(children[0].type, Array):
        _check_index(children[1], new[1], ctx)
    if not _same(new, children):
        expr = expr.with_children(new)
    if isinstance(expr, Cast) and _is_rounded_between(expr):
        return fold(Cast(expr.type, expr.children[0].children[0], expr.attempt, at=expr.at), ctx)
    if isinstance(expr, Call) and expr.name in ("and", "or", "not"):
        return _logic(expr)
    if isinstance(expr, CaseWhen):
        return taken_branches(expr)
    if isinstance(expr, Call) and (chosen := chosen_operand(expr)) is not None:
        return chosen
    if isinstance(expr, Call | Cast) and all(isinstance(c, Literal) for c in expr.children):
        return _evaluate(expr, ctx)
    if isinstance(expr, Call) and _is_null_for_duckdb(expr):
        return Literal(expr.type, None, at=expr.at)
    return expr


def _check_index(written: Expr, folded: Expr, ctx: PlanContext) -> None:
    """Refuses a constant index that fails, if Spark knows that it is not NULL: Spark evaluates it while it plans, to
    see whether the element may be NULL, and fails, whatever the array is."""
    parts = list(walk(folded))
    failing = any(isinstance(part, FailingConstant) for part in parts)
    if failing and never_null(written) and not any(isinstance(part, ColumnRef | LambdaVariable) for part in parts):
        raise UnsupportedOnShared(
            "an index that always fails cannot run on the shared host",
            advice="Spark refuses it, too. Correct the index.",
            span=ctx.span(written.at),
        )


def _is_null_for_duckdb(expr: Call) -> bool:
    """True if DuckDB's optimizer knows that the call is NULL, so that it drops the operands beside it. The planner must
    know it, too: `headrace.sql.render.duckdb` keeps the operands that Spark evaluates beside a literal NULL."""
    if expr.name in ("try_divide", "try_mod"):  # Spark does not evaluate the dividend
        divisor = expr.args[1]
        if isinstance(divisor, Literal) and divisor.value == 0:
            return True
    nulls = [i for i, arg in enumerate(expr.args) if isinstance(arg, Literal) and arg.value is None]
    overload = find(expr.name, [a.type for a in expr.args]) if nulls else None
    if overload is None or not is_null_beside(overload, nulls):
        return False
    operands = evaluated(overload, expr.args)
    if stops_at_null(overload):  # Spark does not evaluate the operands after the NULL either
        first = next(i for i, arg in enumerate(operands) if isinstance(arg, Literal) and arg.value is None)
        operands = operands[:first]
    return not any(map(fails_in_spark, operands))


def _is_rounded_between(expr: Cast) -> bool:
    """True for a whole number as FLOAT as DOUBLE. Spark's optimizer drops the FLOAT, and with it the rounding."""
    inner = expr.input
    return expr.type == DOUBLE and isinstance(inner, Cast) and inner.type == FLOAT and inner.input.type in INTEGRAL


def _logic(expr: Call) -> Expr:
    """Three-valued logic with a constant on one side. A side that may fail is not removed beside a constant that is
    computed; `decided` has removed it beside a literal, like Spark."""
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
    except OverflowError:  # a timestamp that the zone's clock shows in a year that Python does not have
        return expr
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
