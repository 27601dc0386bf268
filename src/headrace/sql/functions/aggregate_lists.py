"""Aggregates whose state is a list of the group's values: collect_list, listagg, mode, percentiles.

A list is always sorted, so that the result does not depend on how rows are divided among tasks, and so that a re-run
writes the same bytes to the state. `max_group_values` limits its length.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.model.schema import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Array,
    DataType,
    Decimal,
    Field,
    Struct,
)
from headrace.sql.functions.aggregate_states import (
    FLAT,
    NUMBERS,
    AggregateFunction,
    Constants,
    PartialState,
    SplitAggregate,
    Splitter,
    literal,
    one_zero,
    orderable,
    ordering,
    present,
    zero_sign,
)
from headrace.sql.functions.aggregate_sums import distinct_state

_COUNTS = Array(Struct((Field("v", DOUBLE), Field("n", BIGINT))))
_MERGE = "list_sort(flatten(list({p}) FILTER (WHERE {p} IS NOT NULL)))"
_APPROXIMATE = (*NUMBERS, "DATE", "TIMESTAMP", "TIMESTAMP_NTZ")
_LONGEST_DECIMAL = 15  # digits that a DOUBLE keeps; Spark computes percentile_approx of decimals in DOUBLE


def _by_time(text: str, kind: DataType, time: str) -> PartialState:
    """The values in the order of event time, then of the values themselves."""
    sign, last = zero_sign(text, kind)
    element = Struct((Field("t", BIGINT), Field("v", kind), *last))
    sql = f"list_sort(list(struct_pack(t := {time}, v := {text}{sign})) FILTER (WHERE {present(text)}))"
    return PartialState(Array(element), sql, _MERGE)


def _collect(args: Sequence[str], kinds: Sequence[DataType], result: DataType, constants: Constants) -> SplitAggregate:
    values = f"coalesce(list_transform({{0}}, lambda e: e.v), []::{result.duckdb})"
    return SplitAggregate((_by_time(args[0], kinds[0], args[1]),), values)


def _collect_set(
    args: Sequence[str], kinds: Sequence[DataType], result: DataType, constants: Constants
) -> SplitAggregate:
    state = distinct_state(one_zero(args[0], kinds[0]), kinds[0], present(args[0]))
    return SplitAggregate((state,), f"coalesce({{0}}, []::{result.duckdb})")


def _joined(values: str, constants: Constants, element: int) -> tuple[str, float]:
    """The SQL of a list of strings joined by the separator, and how much longer than the list it may be: the list has
    at least `element` bytes per value besides the text."""
    return f"array_to_string({values}, {literal(constants[0])})", max(1.0, len(constants[0].encode()) / element)


def _listagg(args: Sequence[str], kinds: Sequence[DataType], result: DataType, constants: Constants) -> SplitAggregate:
    joined, growth = _joined("list_transform({0}, lambda e: e.v)", constants, 12)
    return SplitAggregate((_by_time(args[0], STRING, args[1]),), joined, growth)


def _listagg_by_key(descending: bool) -> Splitter:
    """listagg WITHIN GROUP: in the order of a key. NULL is the smallest key. Equal keys go by the text."""

    def split(args: Sequence[str], kinds: Sequence[DataType], result: DataType, constants: Constants) -> SplitAggregate:
        key, kind = ordering(args[1], kinds[1])
        element = Struct((Field("p", BOOLEAN), Field("k", kind), Field("v", STRING)))
        packed = f"struct_pack(p := {args[1]} IS NOT NULL, k := {key}, v := {args[0]})"
        state = PartialState(Array(element), f"list_sort(list({packed}) FILTER (WHERE {present(args[0])}))", _MERGE)
        texts = "list_transform({0}, lambda e: e.v)"
        joined, growth = _joined(f"list_reverse({texts})" if descending else texts, constants, 5)
        return SplitAggregate((state,), joined, growth)

    return split


def _listagg_distinct(descending: bool) -> Splitter:
    def split(args: Sequence[str], kinds: Sequence[DataType], result: DataType, constants: Constants) -> SplitAggregate:
        joined, growth = _joined("list_reverse({0})" if descending else "{0}", constants, 4)
        return SplitAggregate((distinct_state(args[0], STRING, present(args[0])),), joined, growth)

    return split


def _mode(descending: bool) -> Splitter:
    """The value that occurs most often. Of several, the smallest, or the largest if `descending`."""

    def split(args: Sequence[str], kinds: Sequence[DataType], result: DataType, constants: Constants) -> SplitAggregate:
        text = one_zero(args[0], kinds[0])
        state = PartialState(Array(kinds[0]), f"list_sort(list({text}) FILTER (WHERE {present(args[0])}))", _MERGE)
        counted = "map_entries(list_aggregate({0}, 'histogram'))"
        wins = ">=" if descending else ">"
        most = f"list_reduce({counted}, lambda a, b: CASE WHEN b.value {wins} a.value THEN b ELSE a END)"
        return SplitAggregate((state,), f"({most}).key")

    return split


def _percentile(kernel: str, descending: bool = False) -> Splitter:
    """Percentiles of counted values. A second argument is the number of times that a row counts."""

    def split(args: Sequence[str], kinds: Sequence[DataType], result: DataType, constants: Constants) -> SplitAggregate:
        x, among, n = _number(args[0], kinds[0]), present(*args), "1"
        if len(args) == 2:
            # DuckDB computes it also for the rows that FILTER excludes
            negative = f"{args[0]} IS NOT NULL AND {args[1]} < 0"
            n = f"CASE WHEN {negative} THEN error('NEGATIVE_VALUES_IN_FREQUENCY_EXPRESSION') ELSE {args[1]} END"
        counted = f"list(struct_pack(v := {x}, n := CAST({n} AS BIGINT))) FILTER (WHERE {among})"
        state = PartialState(
            _COUNTS, f"hr_counts({counted})", "hr_counts(flatten(list({p}) FILTER (WHERE {p} IS NOT NULL)))"
        )
        fractions = constants[0] if isinstance(constants[0], tuple) else (constants[0],)
        wanted = ", ".join(f"'{f!r}'::DOUBLE" for f in fractions)
        found = f"{kernel}({{0}}, [{wanted}], {descending})"
        element = result.element if isinstance(result, Array) else result
        if not isinstance(result, Array):
            return SplitAggregate((state,), _of_number(f"{found}[1]", element))
        if element == DOUBLE:
            return SplitAggregate((state,), found)
        return SplitAggregate((state,), f"list_transform({found}, lambda x: {_of_number('x', element)})")

    return split


def _histogram(
    args: Sequence[str], kinds: Sequence[DataType], result: DataType, constants: Constants
) -> SplitAggregate:
    """The centres are of the type of the values: whole numbers and times lose their fraction."""
    counted = f"list(struct_pack(v := {_number(args[0], kinds[0])}, n := 1::BIGINT)) FILTER (WHERE {present(args[0])})"
    merge = "hr_counts(flatten(list({p}) FILTER (WHERE {p} IS NOT NULL)))"
    centre = "b.x" if kinds[0] == DOUBLE else _of_number("b.x" if kinds[0] == FLOAT else "trunc(b.x)", kinds[0])
    bins = f"list_transform(hr_histogram({{0}}, {constants[0]}), lambda b: struct_pack(x := {centre}, y := b.y))"
    return SplitAggregate((PartialState(_COUNTS, f"hr_counts({counted})", merge),), bins)


def _histogram_type(kinds: Sequence[DataType]) -> DataType:
    return Array(Struct((Field("x", kinds[0]), Field("y", DOUBLE))))


def _number(text: str, kind: DataType) -> str:
    """A value as DOUBLE, in which percentiles are computed."""
    if kind == DATE:
        return f"CAST({text} - DATE '1970-01-01' AS DOUBLE)"
    if kind in (TIMESTAMP, TIMESTAMP_NTZ):
        return f"CAST(epoch_us({text}) AS DOUBLE)"
    return text if kind == DOUBLE else f"CAST({text} AS DOUBLE)"


def _of_number(text: str, kind: DataType) -> str:
    """The inverse of `_number`."""
    if kind == DATE:
        return f"(DATE '1970-01-01' + CAST({text} AS INTEGER))"
    if kind == TIMESTAMP:
        return f"make_timestamptz(CAST({text} AS BIGINT))"
    if kind == TIMESTAMP_NTZ:
        return f"make_timestamp(CAST({text} AS BIGINT))"
    return text if kind == DOUBLE else f"CAST({text} AS {kind.duckdb})"


def _approximate_type(kinds: Sequence[DataType]) -> DataType | None:
    kind = kinds[0]
    return None if isinstance(kind, Decimal) and kind.precision > _LONGEST_DECIMAL else kind


def _set_type(kinds: Sequence[DataType]) -> DataType | None:
    return Array(kinds[0]) if orderable(kinds[0]) else None


def list_functions() -> list[AggregateFunction]:
    """Aggregates over all values of a group."""
    found = [
        AggregateFunction(
            name="collect_list", params=("ANY",), result=lambda kinds: Array(kinds[0]), split=_collect, time="if any"
        ),
        AggregateFunction("collect_set", ("ANY",), _set_type, _collect_set),
        AggregateFunction(name="listagg", params=("STRING",), result=STRING, split=_listagg, time="if any"),
        AggregateFunction("listagg distinct", ("STRING",), STRING, _listagg_distinct(descending=False)),
        AggregateFunction("listagg distinct asc", ("STRING",), STRING, _listagg_distinct(descending=False)),
        AggregateFunction("listagg distinct desc", ("STRING",), STRING, _listagg_distinct(descending=True)),
    ]
    for key in FLAT:
        found.append(AggregateFunction("mode", (key,), lambda kinds: kinds[0], _mode(descending=False)))
        found.append(AggregateFunction("mode desc", (key,), lambda kinds: kinds[0], _mode(descending=True)))
        found.append(AggregateFunction("listagg asc", ("STRING", key), STRING, _listagg_by_key(descending=False)))
        found.append(AggregateFunction("listagg desc", ("STRING", key), STRING, _listagg_by_key(descending=True)))
    for kind in NUMBERS:
        found.append(AggregateFunction("percentile", (kind,), DOUBLE, _percentile("hr_percentiles")))
        for count in ("TINYINT", "SMALLINT", "INT", "BIGINT"):
            found.append(AggregateFunction("percentile", (kind, count), DOUBLE, _percentile("hr_percentiles")))
        for suffix in ("", " desc"):
            for name, kernel in (("cont", "hr_percentiles"), ("disc", "hr_discrete_percentiles")):
                split = _percentile(kernel, descending=bool(suffix))
                found.append(AggregateFunction(f"percentile_{name}{suffix}", (kind,), DOUBLE, split))
    for kind in _APPROXIMATE:
        if kind != "DECIMAL":
            found.append(AggregateFunction("histogram_numeric", (kind,), _histogram_type, _histogram))
        split = _percentile("hr_discrete_percentiles")
        found.append(AggregateFunction("percentile_approx", (kind,), _approximate_type, split))
    return found
