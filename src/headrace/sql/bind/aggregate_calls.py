"""Binds aggregate calls. Checks where they stand and which of them run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.errors import MisplacedAggregate, WrongArguments
from headrace.model.schema import BIGINT, DOUBLE, STRING, TIMESTAMP, Array, DataType, Map, Struct
from headrace.sql.bind.aggregate_constants import SplitCall, split_constants
from headrace.sql.functions.aggregate_functions import find_aggregate
from headrace.sql.functions.aggregate_moments import OF_DOUBLES, OF_TWO
from headrace.sql.parse.syntax import Apply
from headrace.sql.plan.expr import AggCall, Expr, Literal
from headrace.sql.plan.types import INTEGRAL, VOID, is_numeric

if TYPE_CHECKING:
    from headrace.sql.bind.expression_binder import ExprBinder

# Equal values make no difference to these.
_SAME_IF_DISTINCT = frozenset(
    {"min", "max", "bool_and", "bool_or", "bit_and", "bit_or", "any_value", "collect_set", "approx_count_distinct"}
)
_WITH_DISTINCT = frozenset({"count", "sum", "avg", "listagg"})
# Spark casts strings to DOUBLE for these.
_CASTS_TEXT = frozenset({"sum", "avg", "percentile", "percentile_cont", "percentile_disc"})
_SUMS = frozenset({"sum", "avg", "try_sum", "try_avg"})  # of a TIMESTAMP, Spark adds the seconds since 1970
_NUMERIC = frozenset({"sum", "avg", "try_sum", "try_avg", "bool_and", "bool_or", "bit_and", "bit_or", "bit_xor"})


def bind_aggregate(binder: ExprBinder, node: Apply, name: str) -> Expr:
    """The call of the aggregate `name`. Its arguments cannot contain aggregates."""
    at = node.at
    if not binder.aggregates:
        raise MisplacedAggregate(
            f"the aggregate {node.name} is not allowed {binder.place}",
            advice="Use aggregates in the select list and in HAVING.",
            span=binder.span(at),
        )
    binder.aggregates = False
    place, binder.place = binder.place, "inside another aggregate"
    call = split_constants(binder, node, name)
    args = [binder.bind(a) for a in call.args]
    where = binder.predicate(node.where, "FILTER") if node.where is not None else None
    binder.aggregates, binder.place = True, place
    if name == "count_if" and len(args) == 1 and not node.distinct:
        condition = binder.boolean(args[0], "count_if")
        if where is not None:
            condition = binder.call("and", (where, condition), at)
        return AggCall(BIGINT, "count", (), condition, at=at)
    if node.star and node.ignore_nulls:
        raise WrongArguments(
            f"{node.name}(*) does not take IGNORE NULLS",
            advice="Leave it out.",
            span=binder.span(at),
            fails_always=True,
        )
    if node.star and node.distinct:
        binder.unsupported(f"{node.name}(DISTINCT *) here", "Name the columns.", at)
    if name == "count" and (node.star or (len(args) == 1 and isinstance(args[0], Literal) and not node.distinct)):
        if args and isinstance(args[0], Literal) and args[0].value is None:
            binder.unsupported("count(NULL)", "It is always 0.", at)
        return AggCall(BIGINT, "count", (), where, at=at)
    if node.star:
        raise WrongArguments(
            f"{node.name} does not take *", advice="Only count takes *. Name a column.", span=binder.span(at)
        )
    if name == "count" and len(args) > 1 and not node.distinct:  # the rows in which none of them is NULL
        for arg in reversed(args):
            known = binder.call("isnotnull", (arg,), arg.at)
            where = known if where is None else binder.call("and", (where, known), at)
        return AggCall(BIGINT, "count", (), where, at=at)
    return _aggregate_call(binder=binder, node=node, call=call, args=args, where=where)


def _aggregate_call(binder: ExprBinder, node: Apply, call: SplitCall, args: list[Expr], where: Expr | None) -> Expr:
    at, name = node.at, call.name.partition(" ")[0]
    looked_up = _distinct_name(binder, node, call.name) if node.distinct else call.name
    # any_value never returns NULL if there is another value
    if node.ignore_nulls and name != "any_value" and not looked_up.endswith("ignore nulls"):
        binder.unsupported(f"IGNORE NULLS after {node.name}", "Only first, last and any_value take it.", at)
    if node.order and not call.ordered:
        binder.unsupported(f"WITHIN GROUP after {node.name}", "Leave it out.", at)
    if name in OF_DOUBLES and all(is_numeric(a.type) or a.type == STRING for a in args):
        args = [binder.coerce(a, DOUBLE) for a in args]
    if name in _CASTS_TEXT and args and args[0].type == STRING:
        args[0] = binder.coerce(args[0], DOUBLE)
    if name == "bitmap_construct_agg" and args and args[0].type in INTEGRAL:
        args[0] = binder.coerce(args[0], BIGINT)
    if name == "listagg" and args:
        if isinstance(args[0].type, Array | Map | Struct):
            binder.mismatch(f"{node.name} does not take {args[0].type}", "Use collect_list, or explode it first.", at)
        args[0] = binder.coerce(args[0], STRING)
    wanted = call.wanted or (2 if name in ("min_by", "max_by") or name in OF_TWO else 1)
    if name in ("min_by", "max_by") and len(args) == 3:
        binder.unsupported(f"{node.name} with a number of values", "Use collect_list and slice(sort_array(...)).", at)
    if len(args) != wanted and not (looked_up == "count distinct" and args):
        raise WrongArguments(
            f"{node.name} takes {wanted} argument(s)", advice=f"{len(args)} given.", span=binder.span(at)
        )
    kinds = [a.type for a in args]
    function = find_aggregate(looked_up, kinds)
    if function is None:
        shown = f"{node.name}({', '.join(k.ddl for k in kinds)})"
        if name in _NUMERIC and kinds[0] not in (STRING, VOID) and not (kinds[0] == TIMESTAMP and name in _SUMS):
            binder.mismatch(
                f"{node.name} does not take {kinds[0]}",
                "Cast the argument to a type that it takes; see docs/functions.md.",
                at,
            )
        binder.unsupported(shown, "See docs/functions.md for the list of functions.", at)
    binder.require(function.key, at)
    result = function.result_type(kinds)
    if result is None:
        shown = ", ".join(map(str, kinds))
        binder.unsupported(f"{node.name} of {shown}", "See docs/functions.md for the types that it takes.", at)
    return AggCall(
        type=_in_array(result, call.constants),
        name=looked_up,
        args=tuple(args),
        where=where,
        constants=call.constants,
        at=at,
    )


def _in_array(result: DataType, constants: tuple[Any, ...]) -> DataType:
    """percentile with an array of fractions returns an array."""
    return Array(result) if constants and isinstance(constants[0], tuple) else result


def _distinct_name(binder: ExprBinder, node: Apply, name: str) -> str:
    """The name under which the aggregate of distinct values is listed."""
    base, _, suffix = name.partition(" ")
    if base in _SAME_IF_DISTINCT:
        return name
    if base == "collect_list":
        return "collect_set"
    if base not in _WITH_DISTINCT:
        binder.unsupported(
            f"{node.name}(DISTINCT ...)", "count, sum, avg, min, max, collect_list and listagg take DISTINCT.", node.at
        )
    return " ".join(filter(None, (base, "distinct", suffix)))
