"""Bounds the size of arrays, maps and structs that functions make: see `headrace.sql.render.sizes`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.errors import UnsupportedOnShared
from headrace.model.schema import Array
from headrace.sql.functions.lambda_functions import lists
from headrace.sql.functions.sequence_functions import SHORTEST, micros_between
from headrace.sql.plan.expr import Call, ColumnRef, Expr, FieldOf, Lambda, LambdaVariable, Literal, walk
from headrace.sql.plan.types import INTEGRAL, INTERVAL_MONTHS
from headrace.sql.render.byte_bounds import Bytes, added, constant, is_variable

if TYPE_CHECKING:
    from headrace.sql.render.sizes import Sizes

# The result has all values of the arguments.
_JOINING = frozenset(
    ["array", "map", "struct", "named_struct", "array_append", "array_prepend", "array_union", "arrays_zip",
     "map_concat", "map_from_arrays"]
)  # fmt: skip
# Functions whose result may be larger than their arguments, whatever the lambda returns.
GROWING_COLLECTIONS = _JOINING | {"array_insert", "array_repeat", "array_join", "sequence"}
_DAY = 86_400_000_000
_MONTH = 28 * _DAY
_NUMBER = 16.0  # bytes of an element of fixed width, about


def lambda_grows(expr: Expr) -> bool:
    """True for a call whose lambda returns values of variable size: it may return the same column for every element."""
    if not isinstance(expr, Call) or expr.name in ("filter", "exists", "forall", "map_filter"):
        return False
    return any(isinstance(a, Lambda) and is_variable(a.body.type) and not _selects(a) for a in expr.args)


def _selects(function: Lambda) -> bool:
    """True if a lambda returns a part of its element."""
    for node in walk(function.body):
        own = isinstance(node, LambdaVariable) and node.text.partition(".")[0] in function.params
        if not (own or isinstance(node, FieldOf)):
            return False
    return True


def collection_size(sizes: Sizes, expr: Call) -> Bytes | None:
    """An upper bound of a call that makes a collection, or applies a lambda. None for other calls."""
    name, args = expr.name, expr.args
    if name in _JOINING:
        return added([sizes.size(a) for a in args])
    if name == "array_repeat":
        return sizes.multiplied(added([sizes.size(args[0]), constant(_NUMBER)]), args[1])
    if name == "array_insert":
        place = args[1]
        if isinstance(place, Literal):
            padding = constant(_NUMBER * abs(place.value or 0))
        else:
            padding = Bytes(f"(abs({sizes.known(place)}::DOUBLE) * {_NUMBER})", None, 0.0)
        return added([sizes.size(args[0]), padding, sizes.size(args[2])])
    if name == "array_join":
        array, each = sizes.size(args[0]), added([constant(1.0), *(sizes.size(a) for a in args[1:])])
        if each.columns == {}:
            return array.times(each.fixed)
        return Bytes(f"({array.sql} * {each.sql})", None, 0.0)
    if name == "sequence":
        return _sequence(sizes, expr)
    if any(isinstance(a, Lambda) for a in args):
        return _applied(sizes, expr)
    return None


def _sequence(sizes: Sizes, expr: Call) -> Bytes:
    start, stop, *step = expr.args
    if start.type not in INTEGRAL:
        each = step[0].value if step and isinstance(step[0], Literal) else _DAY
        micros = abs(each or 1) * (_MONTH if step and step[0].type == INTERVAL_MONTHS else 1)
        width = micros_between(sizes.known(start), sizes.known(stop))
        return Bytes(f"(coalesce({width} / {micros * SHORTEST} + 2, 0) * {_NUMBER})", None, 0.0)
    if all(isinstance(a, Literal) for a in expr.args):
        ends = [a.value for a in expr.args if isinstance(a, Literal)]
        if None in ends:
            return constant(0.0)
        return constant((abs(ends[1] - ends[0]) / max(1, abs(ends[2]) if step else 1) + 1) * _NUMBER)
    width = f"abs({sizes.known(stop)}::DOUBLE - {sizes.known(start)}::DOUBLE)"
    stride = f"greatest(abs({sizes.known(step[0])}::DOUBLE), 1)" if step else "1"
    return Bytes(f"(coalesce({width} / {stride} + 1, 0) * {_NUMBER})", None, 0.0)


def _applied(sizes: Sizes, expr: Call) -> Bytes:
    name, args = expr.name, expr.args
    base = [sizes.size(a) for a in args if isinstance(a.type, Array) or is_variable(a.type)]
    if name in ("filter", "map_filter"):
        return base[0]
    if not lambda_grows(expr):
        return added(base).times(8.0) if base else constant(_NUMBER)
    if name == "aggregate":  # a step that does not grow returns one of these values
        used = {e for a in args if isinstance(a, Lambda) for e in walk(a.body) if isinstance(e, ColumnRef | Literal)}
        return added([*base, *(sizes.size(e) for e in sorted(used, key=repr) if is_variable(e.type))])
    (function,) = (a for a in args if isinstance(a, Lambda))
    inner, combined = applied(sizes, expr, function)
    return added([*base, combined(inner.size(function.body))])


def applied(sizes: Sizes, expr: Call, function: Lambda) -> tuple[Sizes, Callable[[Bytes], Bytes]]:
    """The sizes inside a lambda, and how a bound there becomes one of all elements: their sum. If the collection itself
    may be large it is not computed: it has no more elements than bytes, and no element has more bytes than it."""
    if expr.name == "aggregate":
        return _stepwise(sizes, expr, function)
    collections = [a for a in expr.args if not isinstance(a, Lambda)]
    if any(sizes.opaque(a) for a in collections):
        whole = added([constant(1.0), *(sizes.size(a) for a in collections)])
        inner = sizes.inside(dict.fromkeys(function.params, whole))
        return inner, lambda bound: Bytes(f"({whole.sql} * {bound.sql})", None, 0.0)
    array, variables = lists(expr.name, [sizes.known(a) for a in collections]), ", ".join(function.params)
    return sizes.inside({}), lambda bound: Bytes(
        f"coalesce(list_sum(list_transform({array}, lambda {variables}: ({bound.sql}))), 0)", None, 0.0
    )


def _stepwise(sizes: Sizes, expr: Call, function: Lambda) -> tuple[Sizes, Callable[[Bytes], Bytes]]:
    """As `applied`, for `aggregate`. Refuses bounds that depend on its result, whose size is not known."""
    array, start, merge = expr.args[:3]
    result, *element = function.params
    steps = None
    if function is merge:
        of_element = replace(function, params=tuple(element))
        steps = applied(sizes, Call(array.type, "transform", (array, of_element)), of_element)

    def combined(bound: Bytes) -> Bytes:
        if result in bound.sql or (steps is not None and is_variable(start.type)):
            raise UnsupportedOnShared(
                "aggregate with a result that grows cannot run on the shared host",
                advice="Use array_join, concat or flatten, or make a number of each element.",
                span=sizes.span(expr.at),
            )
        return bound if steps is None else steps[1](bound)

    return sizes.inside({}) if steps is None else steps[0], combined
