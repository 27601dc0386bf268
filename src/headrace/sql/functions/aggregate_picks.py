"""Aggregates whose state is a value of the group, or a combination of bits: min, max, first, last, min_by, bit_and."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.model.schema import BIGINT, BOOLEAN, Array, DataType, Field, Map, Struct
from headrace.sql.functions.aggregate_states import (
    FLAT,
    AggregateFunction,
    Constants,
    PartialState,
    SplitAggregate,
    Splitter,
    orderable,
    ordering,
    present,
    zero_sign,
)

_NESTED = ("ARRAY", "STRUCT")


def combined(function: str) -> Splitter:
    """An aggregate of DuckDB that also merges its own results."""

    def split(args: Sequence[str], kinds: Sequence[DataType], result: DataType, constants: Constants) -> SplitAggregate:
        return SplitAggregate((PartialState(result, f"{function}({args[0]})", f"{function}({{p}})"),), "{0}")

    return split


def _extreme(function: str) -> Splitter:
    """min and max of nested values: the value whose `ordering` is the smallest or largest."""

    def split(args: Sequence[str], kinds: Sequence[DataType], result: DataType, constants: Constants) -> SplitAggregate:
        return _by_key(function=function, value=args[0], key=args[0], kind=kinds[0], key_kind=kinds[0])

    return split


def _by_value(function: str) -> Splitter:
    """min_by and max_by: the value of the row with the smallest or largest key. Rows with a NULL key are ignored. Among
    equal keys, the smallest or largest value wins."""

    def split(args: Sequence[str], kinds: Sequence[DataType], result: DataType, constants: Constants) -> SplitAggregate:
        return _by_key(function=function, value=args[0], key=args[1], kind=kinds[0], key_kind=kinds[1])

    return split


def _by_key(function: str, value: str, key: str, kind: DataType, key_kind: DataType) -> SplitAggregate:
    ordered, key_type = ordering(key, key_kind)
    sign, last = zero_sign(value, kind)
    state = Struct((Field("k", key_type), Field("v", kind), *last))
    sql = f"{function}(struct_pack(k := {ordered}, v := {value}{sign})) FILTER (WHERE {present(key)})"
    return SplitAggregate((PartialState(state, sql, f"{function}({{p}})"),), "({0}).v")


def _by_time(function: str, nulls: bool) -> Splitter:
    """first and last: the value of the row with the smallest or largest event time. Among equal times, the smallest or
    largest value wins, so the result does not depend on how rows are divided among tasks."""

    def split(args: Sequence[str], kinds: Sequence[DataType], result: DataType, constants: Constants) -> SplitAggregate:
        value, time = args
        sign, last = zero_sign(value, kinds[0])
        state = Struct((Field("t", BIGINT), Field("v", kinds[0]), *last))
        among = present(time) if nulls else present(time, value)
        sql = f"{function}(struct_pack(t := {time}, v := {value}{sign})) FILTER (WHERE {among})"
        return SplitAggregate((PartialState(state, sql, f"{function}({{p}})"),), "({0}).v")

    return split


def _any(args: Sequence[str], kinds: Sequence[DataType], result: DataType, constants: Constants) -> SplitAggregate:
    """any_value: the smallest one, so the result does not depend on how rows are divided among tasks."""
    if isinstance(kinds[0], Array | Struct | Map):
        return _by_key(function="min", value=args[0], key=args[0], kind=kinds[0], key_kind=kinds[0])
    sign, last = zero_sign(args[0], kinds[0])
    state = Struct((Field("v", kinds[0]), *last))
    sql = f"min(struct_pack(v := {args[0]}{sign})) FILTER (WHERE {present(args[0])})"
    return SplitAggregate((PartialState(state, sql, "min({p})"),), "({0}).v")


def _same(kinds: Sequence[DataType]) -> DataType | None:
    return kinds[0]


def pick_functions() -> list[AggregateFunction]:
    """Aggregates that return a value of the group, or bits of its values."""

    def ordered(kinds: Sequence[DataType]) -> DataType | None:
        return kinds[0] if orderable(kinds[-1]) else None

    found: list[AggregateFunction] = []
    for name in ("min", "max"):
        found += [AggregateFunction(name, (kind,), _same, combined(name)) for kind in FLAT]
        found += [AggregateFunction(name, (kind,), ordered, _extreme(name)) for kind in _NESTED]
        by = f"{name}_by"
        found += [AggregateFunction(by, ("ANY", key), ordered, _by_value(name)) for key in (*FLAT, *_NESTED)]
    for name, function in (("first", "min"), ("last", "max")):
        found.append(
            AggregateFunction(
                name=name, params=("ANY",), result=_same, split=_by_time(function, nulls=True), time="needed"
            )
        )
        found.append(
            AggregateFunction(
                name=f"{name} ignore nulls",
                params=("ANY",),
                result=_same,
                split=_by_time(function, nulls=False),
                time="needed",
            )
        )
    found.append(AggregateFunction("any_value", ("ANY",), _same, _any))
    for name in ("bool_and", "bool_or"):
        found.append(AggregateFunction(name, ("BOOLEAN",), BOOLEAN, combined(name)))
    for name in ("bit_and", "bit_or", "bit_xor"):
        for kind in ("TINYINT", "SMALLINT", "INT", "BIGINT"):
            found.append(AggregateFunction(name, (kind,), _same, combined(name)))
    return found
