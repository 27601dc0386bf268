"""Logical plans and typed expressions as stable text, for EXPLAIN and for golden files."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

from headrace.model.schema import STRING, TIMESTAMP, TIMESTAMP_NTZ
from headrace.sql.parse.intervals import show_interval
from headrace.sql.plan.expr import (
    AggCall,
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
    RankCall,
    walk,
)
from headrace.sql.plan.logical import Aggregate, AssignWindow, Filter, Generate, Plan, Project, Rank, StreamScan, Union
from headrace.sql.plan.physical import show_view, show_window
from headrace.sql.plan.types import INTERVAL_MICROS, INTERVAL_MONTHS

_INFIX = (
    "+", "-", "*", "/", "%", "div", "=", "!=", "<", "<=", ">", ">=", "<=>", "and", "or", "||", "&", "|", "^", "like",
    "rlike", "ilike",
)  # fmt: skip
_EPOCH = datetime.datetime(1970, 1, 1)
_MANY = 12


def show_expr(expr: Expr) -> str:
    """An expression with the user's column names and Spark's function names."""
    if isinstance(expr, ColumnRef):
        return expr.name
    if isinstance(expr, Literal):
        return _literal(expr)
    if isinstance(expr, Cast):
        return f"{'try_cast' if expr.attempt else 'cast'}({show_expr(expr.input)} as {expr.type})"
    if isinstance(expr, FieldOf):
        return f"{show_expr(expr.input)}.{expr.name}"
    if isinstance(expr, CaseWhen):
        branches = "".join(f" when {show_expr(c)} then {show_expr(v)}" for c, v in expr.branches)
        return f"case{branches}" + (f" else {show_expr(expr.otherwise)}" if expr.otherwise else "") + " end"
    if isinstance(expr, FailingConstant):
        return show_expr(expr.cause)
    if isinstance(expr, AggCall):
        return _aggregate(expr)
    if isinstance(expr, RankCall):
        return _rank(expr)
    if isinstance(expr, LambdaVariable):
        return expr.name
    if isinstance(expr, Lambda):
        return _lambda(expr)
    assert isinstance(expr, Call)
    args = [show_expr(a) for a in expr.args]
    if expr.name in _INFIX and len(args) == 2:
        return f"({args[0]} {expr.name} {args[1]})"
    if expr.name == "in":
        return f"({args[0]} in ({', '.join(args[1:])}))"
    if expr.name == "not":
        return f"(not {args[0]})"
    return f"{expr.name}({', '.join(args)})"


def _aggregate(call: AggCall) -> str:
    name, _, modifier = call.name.partition(" ")
    inner = ", ".join([*(show_expr(a) for a in call.args), *map(_constant, call.constants)]) or "*"
    tail = f" filter (where {show_expr(call.where)})" if call.where is not None else ""
    return f"{name}({modifier + ' ' if modifier else ''}{inner}){tail}"


def _rank(call: RankCall) -> str:
    keys = []
    for key, (descending, first) in zip(call.order, call.directions, strict=True):
        nulls = f" nulls {'first' if first else 'last'}" if first == descending else ""
        keys.append(show_expr(key) + (" desc" if descending else "") + nulls)
    return f"{call.name}() over (partition by {', '.join(map(show_expr, call.partition))} order by {', '.join(keys)})"


def _lambda(function: Lambda) -> str:
    names = dict.fromkeys(e.name for e in walk(function.body) if isinstance(e, LambdaVariable))
    return f"({', '.join(names)}) -> {show_expr(function.body)}"


def _constant(value: object) -> str:
    if isinstance(value, tuple):
        return f"array({', '.join(map(_constant, value))})"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


def _literal(literal: Literal) -> str:
    value = literal.value
    if value is None:
        return "null"
    if literal.type == STRING:
        return "'" + str(value).replace("'", "''") + "'"
    if literal.type in (TIMESTAMP, TIMESTAMP_NTZ):
        moment = _EPOCH + datetime.timedelta(microseconds=value)
        return f"timestamp '{moment}{'Z' if literal.type == TIMESTAMP else ''}'"
    if literal.type == INTERVAL_MICROS:
        return f"interval {show_interval(value)}"
    if literal.type == INTERVAL_MONTHS:
        return f"interval {value} months"
    return str(value).lower() if isinstance(value, bool) else str(value)


def show_plan(plan: Plan) -> str:
    """A logical plan, one node per line, inputs indented below."""
    return "\n".join(_lines(plan, 0))


def _lines(plan: Plan, depth: int) -> Iterator[str]:
    yield "  " * depth + show_node(plan)
    for child in plan.inputs:
        yield from _lines(child, depth + 1)


def show_node(plan: Plan) -> str:
    """One node without its inputs."""
    if isinstance(plan, StreamScan):
        return f"StreamScan {plan.stream.name} shared_required_schema={show_view(plan.view, plan.schema)}"
    if isinstance(plan, Filter):
        return f"Filter {show_expr(plan.predicate)}"
    if isinstance(plan, Project):
        outputs = [_named(o.name, show_expr(o.expr)) for o in plan.outputs[:_MANY]]
        rest = f", ... {len(plan.outputs) - _MANY} more" if len(plan.outputs) > _MANY else ""
        return f"Project {', '.join(outputs)}{rest}"
    if isinstance(plan, Generate):
        lists = ", ".join(f"{n.name} := each of {show_expr(n.expr)}" for n in plan.lists)
        return f"Generate {'outer ' if plan.outer else ''}{lists}"
    if isinstance(plan, AssignWindow):
        return f"AssignWindow {show_window(plan.window)} on {plan.input.schema[plan.time].name}"
    if isinstance(plan, Aggregate):
        keys = ", ".join(_named(k.name, show_expr(k.expr)) for k in plan.keys)
        if plan.distinct:
            return f"Distinct [{keys}]"
        calls = ", ".join(f"agg{i} := {show_expr(c)}" for i, c in enumerate(plan.calls))
        return f"Aggregate by [{keys}] compute [{calls}]"
    if isinstance(plan, Rank):
        return "Rank " + ", ".join(f"rank{i} := {show_expr(c)}" for i, c in enumerate(plan.calls))
    assert isinstance(plan, Union)
    return f"UnionAll of {len(plan.parts)}"


def _named(name: str, text: str) -> str:
    return name if name == text else f"{name} := {text}"
