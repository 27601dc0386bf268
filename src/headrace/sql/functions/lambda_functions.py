"""Functions that apply a lambda to the elements of an array or map.

The text of a lambda is `lambda v_0: (body)`. `headrace.sql.bind.lambda_calls` chooses the variables, so that they fit
the lists that the lambda is applied to here.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.exec.map_entries import entries_of, made_map
from headrace.model.schema import BOOLEAN, Array, DataType, Map
from headrace.sql.functions.map_functions import checked_map
from headrace.sql.functions.nesting import kept, let, no_fraction_inside
from headrace.sql.functions.overload import Overload, same
from headrace.sql.plan.types import Function


def lists(name: str, args: Sequence[str]) -> str:
    """The list whose elements the first lambda of a call gets."""
    if name == "zip_with":
        return f"list_zip({args[0]}, {args[1]})"
    if name == "map_zip_with":
        return _pairs(args[0], args[1])
    return entries_of(args[0]) if name in ("map_filter", "transform_keys", "transform_values") else args[0]


def _pairs(first: str, second: str) -> str:
    """The keys of two maps, those of the first one first, with the values of both."""
    new = f"list_filter(map_keys({second}), lambda x_1: list_position(map_keys({first}), x_1) IS NULL)"
    packed = f"struct_pack(k := x_1, a := map_extract({first}, x_1)[1], b := map_extract({second}, x_1)[1])"
    return f"list_transform(list_concat(map_keys({first}), {new}), lambda x_1: {packed})"


def _map_zip_with(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    variable, _, body = args[2].removeprefix("lambda ").partition(": ")
    entry = f"lambda {variable}: struct_pack(key := {variable}.k, value := {body})"
    made = f"list_transform({lists('map_zip_with', args)}, {entry})"
    return made_map(f"CASE WHEN {args[0]} IS NOT NULL AND {args[1]} IS NOT NULL THEN {made} END")


def _zipped_values(kinds: Sequence[DataType]) -> DataType | None:
    return Map(kinds[0].key, _returned(kinds[2])) if isinstance(kinds[0], Map) else None


def _returned(kind: DataType) -> DataType:
    assert isinstance(kind, Function)
    return kind.result


def _any_or_all(name: str, wanted: str) -> Overload:
    """`exists` stops at the first true, `forall` at the first false. A lambda that may fail is not applied to the
    elements after it, as in Spark."""

    def sql(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
        array, function = args
        other = "FALSE" if wanted == "TRUE" else "TRUE"
        if isinstance(kinds[1], Function) and kinds[1].fails:
            variable, _, body = function.removeprefix("lambda ").partition(": ")
            step = f"CASE {body} WHEN {wanted} THEN 1 WHEN {other} THEN v_state ELSE 2 END"
            state = f"CASE WHEN v_state = 1 THEN 1 ELSE {step} END"
            reached = f"list_reduce({array}, lambda v_state, {variable}: {state}, 0)"
            return f"CASE {reached} WHEN 1 THEN {wanted} WHEN 0 THEN {other} END"

        def decide(found: str) -> str:
            null = f"len({kept(found, lambda x: f'{x} IS NULL')}) > 0"
            return (
                f"CASE WHEN {found} IS NULL THEN NULL WHEN list_contains({found}, {wanted}) THEN {wanted} "
                f"WHEN {null} THEN NULL ELSE {other} END"
            )

        return let(f"list_transform({array}, {function})", decide)

    return Overload(name, ("ARRAY", "LAMBDA"), BOOLEAN, sql)


def _aggregate(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    array, start, merge = args[0], args[1], args[2]
    reduced = f"list_reduce({array}, {merge}, {start})"
    if len(args) == 3:
        return reduced
    return f"CASE WHEN {array} IS NOT NULL THEN list_transform([{reduced}], {args[3]})[1] END"


def _zip_with(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    applied = f"list_transform({lists('zip_with', args)}, {args[2]})"
    return f"CASE WHEN {args[0]} IS NULL OR {args[1]} IS NULL THEN NULL ELSE {applied} END"


def _map_filter(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    return checked_map(f"list_filter({lists('map_filter', args)}, {args[1]})")


def _transform_keys(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    return checked_map(_each(args, "struct_pack(key := {value}, value := {entry}.value)"))


def _transform_values(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> str:
    return checked_map(_each(args, "struct_pack(key := {entry}.key, value := {value})"))


def _each(args: Sequence[str], entry: str) -> str:
    """The entries of a map, changed: `entry` over the variable of one and the value of the lambda."""
    variable, _, body = args[1].removeprefix("lambda ").partition(": ")
    return f"list_transform({entries_of(args[0])}, lambda {variable}: {entry.format(entry=variable, value=body)})"


def _new_keys(kinds: Sequence[DataType]) -> DataType | None:
    return Map(_returned(kinds[1]), kinds[0].value) if isinstance(kinds[0], Map) else None


def _new_values(kinds: Sequence[DataType]) -> DataType | None:
    return Map(kinds[0].key, _returned(kinds[1])) if isinstance(kinds[0], Map) else None


OVERLOADS: tuple[Overload, ...] = (
    Overload("transform", ("ARRAY", "LAMBDA"), lambda kinds: Array(_returned(kinds[1])), "list_transform({0}, {1})"),
    Overload("filter", ("ARRAY", "LAMBDA"), same(0), "list_filter({0}, {1})"),
    _any_or_all("exists", "TRUE"),
    _any_or_all("forall", "FALSE"),
    Overload("aggregate", ("ARRAY", "ANY", "LAMBDA"), same(1), _aggregate),
    Overload("aggregate", ("ARRAY", "ANY", "LAMBDA", "LAMBDA"), lambda kinds: _returned(kinds[3]), _aggregate),
    Overload("zip_with", ("ARRAY", "ARRAY", "LAMBDA"), lambda kinds: Array(_returned(kinds[2])), _zip_with),
    Overload("map_zip_with", ("MAP", "MAP", "LAMBDA"), _zipped_values, _map_zip_with, check=no_fraction_inside),
    Overload("map_filter", ("MAP", "LAMBDA"), same(0), _map_filter),
    Overload("transform_keys", ("MAP", "LAMBDA"), _new_keys, _transform_keys, throws=True),
    Overload("transform_values", ("MAP", "LAMBDA"), _new_values, _transform_values),
)
