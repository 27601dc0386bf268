"""Binds lambdas: their parameters get the types of the elements that they are applied to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.errors import WrongArguments
from headrace.model.schema import BOOLEAN, INT, Array, DataType, Map
from headrace.sql.bind.literals import is_untyped_null
from headrace.sql.bind.overload_choice import refuse_unknown
from headrace.sql.functions import spark_functions
from headrace.sql.parse.syntax import Aliased, Apply, LambdaFunction
from headrace.sql.plan.expr import Expr, Lambda, LambdaVariable
from headrace.sql.plan.types import VOID, function_type, has_hidden

if TYPE_CHECKING:
    from headrace.sql.bind.expression_binder import ExprBinder

LAMBDA_FUNCTIONS = frozenset(
    ["transform", "filter", "exists", "forall", "aggregate", "zip_with", "map_filter", "transform_keys",
     "transform_values", "map_zip_with"]
)  # fmt: skip

_CONDITIONS = ("filter", "exists", "forall", "map_filter")

# A parameter: its type, and its DuckDB SQL over the variables {0} and {1} of the lambda.
Param = tuple[DataType, str]


def bind_lambda_call(binder: ExprBinder, name: str, node: Apply) -> Expr:
    """The call of a function that takes lambdas. Raises WrongArguments and TypeMismatch."""
    if name not in LAMBDA_FUNCTIONS:
        if name not in spark_functions():
            refuse_unknown(binder, node)
        what = next(a for a in node.args if isinstance(a, LambdaFunction))
        binder.unsupported(
            f"{name} with a lambda", "See docs/functions.md for the functions that take lambdas.", what.at
        )
    plain = [a for a in node.args if not isinstance(a, LambdaFunction | Aliased)]
    lambdas = [a for a in node.args if isinstance(a, LambdaFunction)]
    values, functions = _COUNTS[name]
    if len(lambdas) < len(node.args) - values and len(node.args) - values in functions:
        advice = f"It takes {_FORMS[name]}."
        binder.unsupported(f"{node.name} with a value in place of a lambda", advice, node.at)
    if len(plain) != values or len(lambdas) not in functions or tuple(node.args) != (*plain, *lambdas):
        raise WrongArguments(
            f"{node.name} takes {_FORMS[name]}", advice="Write it in this form.", span=binder.span(node.at)
        )
    args = [binder.bind(a) for a in plain]
    if name == "aggregate":
        return _aggregate(binder, args, lambdas, node)
    if name in ("map_filter", "transform_keys", "transform_values"):
        kind = args[0].type
        if not isinstance(kind, Map):
            binder.mismatch(f"{node.name} needs a MAP, this is {kind}", "Pass a map.", args[0].at)
        params: list[Param] = [(kind.key, "{0}.key"), (kind.value, "{0}.value")]
        found = _lambda(binder, lambdas[0], params, 1, condition=name in _CONDITIONS)
    elif name == "map_zip_with":
        found = _lambda(binder, lambdas[0], _map_pairs(binder, args, node), 1)
    elif name == "zip_with":
        found = _lambda(
            binder, lambdas[0], [(_element(binder, a, node), f"{{0}}[{i + 1}]") for i, a in enumerate(args)], 1
        )
    else:
        params = [(_element(binder, args[0], node), "{0}")]
        if len(lambdas[0].params) == 2 and name in ("transform", "filter"):
            params.append((INT, "CAST({1} - 1 AS INTEGER)"))
        found = _lambda(binder, lambdas[0], params, len(params), condition=name in _CONDITIONS)
    if name in _CONDITIONS:
        found = _condition(binder, found, node.name)
    return binder.call(name, (*args, found), node.at)


def _element(binder: ExprBinder, array: Expr, node: Apply) -> DataType:
    if not isinstance(array.type, Array):
        binder.mismatch(f"{node.name} needs an ARRAY, this is {array.type}", "Pass an array.", array.at)
    return array.type.element


def _map_pairs(binder: ExprBinder, args: list[Expr], node: Apply) -> list[Param]:
    """The parameters of map_zip_with: a key, and its values in both maps."""
    first, second = (a.type for a in args)
    if not isinstance(first, Map) or not isinstance(second, Map) or first.key != second.key:
        binder.mismatch(
            f"{node.name} needs two maps with the same type of keys, not {first} and {second}", "Cast one.", node.at
        )
    return [(first.key, "{0}.k"), (first.value, "{0}.a"), (second.value, "{0}.b")]


def _aggregate(binder: ExprBinder, args: list[Expr], lambdas: Sequence[LambdaFunction], node: Apply) -> Expr:
    array, start = args
    if start.type == VOID:
        advice = "Write CAST(NULL AS ...) with the type."
        binder.unsupported("aggregate with a start without a type", advice, start.at)
    merge = _lambda(binder, lambdas[0], [(start.type, "{0}"), (_element(binder, array, node), "{1}")], 2)
    if merge.body.type != start.type:
        binder.mismatch(
            f"the lambda of {node.name} returns {merge.body.type}, but the start is {start.type}",
            f"Cast the start to {merge.body.type}, or the result of the lambda to {start.type}.",
            merge.at,
        )
    finish = [_lambda(binder, one, [(start.type, "{0}")], 1) for one in lambdas[1:]]
    return binder.call("aggregate", (array, start, merge, *finish), node.at)


def _lambda(
    binder: ExprBinder, node: LambdaFunction, params: Sequence[Param], count: int, condition: bool = False
) -> Lambda:
    """The lambda over `count` DuckDB variables. Names of parameters hide columns and outer parameters. A `condition`
    may be NULL without a type."""
    names = [p.lower() for p in node.params]
    if len(names) != len(params) or len(set(names)) < len(names):
        raise WrongArguments(
            f"this lambda needs {len(params)} parameters with different names",
            advice=f"Write ({', '.join('xyz'[: len(params)])}) -> ...",
            span=binder.span(node.at),
        )
    depth = binder.lambda_depth
    variables = tuple(f"v_{depth}_{i}" for i in range(count))
    outer, aggregates, place = binder.variables, binder.aggregates, binder.place
    inner = {
        name: LambdaVariable(kind, text.format(*variables), shown)
        for name, shown, (kind, text) in zip(names, node.params, params, strict=True)
    }
    binder.variables, binder.aggregates, binder.place = {**outer, **inner}, False, "inside a lambda"
    binder.lambda_depth += 1
    try:
        body = binder.bind(node.body)
    finally:
        binder.variables, binder.aggregates, binder.place = outer, aggregates, place
        binder.lambda_depth = depth
    if condition and is_untyped_null(body):
        body = binder.coerce(body, BOOLEAN)
    if has_hidden(body.type):
        advice = "Cast its result, as in CAST(NULL AS STRING)."
        binder.unsupported(f"a lambda that returns {body.type}", advice, node.at)
    return Lambda(function_type(body.type), variables, body, at=node.at)


def _condition(binder: ExprBinder, found: Lambda, name: str) -> Lambda:
    if found.body.type != BOOLEAN:
        binder.mismatch(f"the lambda of {name} needs a condition, this is {found.body.type}", "Compare it.", found.at)
    return found


# the number of values before the lambdas, and of lambdas
_COUNTS: dict[str, tuple[int, tuple[int, ...]]] = {
    "transform": (1, (1,)), "filter": (1, (1,)), "exists": (1, (1,)), "forall": (1, (1,)), "aggregate": (2, (1, 2)),
    "zip_with": (2, (1,)), "map_filter": (1, (1,)), "transform_keys": (1, (1,)), "transform_values": (1, (1,)),
    "map_zip_with": (2, (1,)),
}  # fmt: skip
_FORMS = {
    "transform": "an array and x -> value or (x, i) -> value",
    "filter": "an array and x -> condition or (x, i) -> condition",
    "exists": "an array and x -> condition",
    "forall": "an array and x -> condition",
    "aggregate": "an array, a start, (result, x) -> result, and perhaps result -> value",
    "zip_with": "two arrays and (x, y) -> value",
    "map_filter": "a map and (key, value) -> condition",
    "transform_keys": "a map and (key, value) -> key",
    "transform_values": "a map and (key, value) -> value",
    "map_zip_with": "two maps and (key, value1, value2) -> value",
}
