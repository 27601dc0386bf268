"""Aggregates as partial states: Ring 0 computes states, both rings merge them, Ring 1 computes the result.

Every merge is associative and may be repeated. Sums of whole numbers are exact (DECIMAL(38,0)), and checked against
BIGINT at the end. Sums of DOUBLE are compensated (`fsum`). A plain sum beside it is right for NaN and infinities.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.model.schema import BIGINT, BOOLEAN, DOUBLE, Array, DataType, Decimal, Field, Struct
from headrace.sql.functions.operator_functions import from_whole_digits, whole_digits
from headrace.sql.plan.types import FRACTIONAL, INTEGRAL, type_class

_EXACT = Decimal(38, 0)
_ORDERED = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "STRING", "DATE", "TIMESTAMP",
    "TIMESTAMP_NTZ",
)  # fmt: skip
_NUMBERS = _ORDERED[1:8]


@dataclass(frozen=True, slots=True)
class PartialState:
    """One partial state. `sql` computes it from rows. `merge` has `{p}` in place of the state's column."""

    type: DataType
    sql: str
    merge: str


@dataclass(frozen=True, slots=True)
class SplitAggregate:
    """An aggregate as states. `result` is a template over the merged states {0}, {1}, ..."""

    states: tuple[PartialState, ...]
    result: str


Splitter = Callable[[Sequence[str], Sequence[DataType], DataType], SplitAggregate]


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """An aggregate on given argument types. An `ordered` one also gets the event time as its last argument."""

    name: str
    params: tuple[str, ...]
    result: DataType | Callable[[Sequence[DataType]], DataType | None]
    split: Splitter
    ordered: bool = False

    @property
    def key(self) -> str:
        """The entry in the verified list."""
        return f"{self.name}({', '.join(self.params) or '*'})"

    def result_type(self, kinds: Sequence[DataType]) -> DataType | None:
        """The type of the result. None when the argument types are out of range."""
        return self.result if isinstance(self.result, DataType) else self.result(kinds)


def _count(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> SplitAggregate:
    return SplitAggregate((PartialState(BIGINT, f"count({args[0]})", "sum({p})"),), "{0}")


def _exact_sum(text: str) -> PartialState:
    # DuckDB sums whole numbers in 128 bits, so only the sum is cast to the state's type, not every row.
    return PartialState(_EXACT, f"sum({text})", "sum({p})")


def _double(text: str, kind: DataType) -> str:
    return text if kind == DOUBLE else f"CAST({text} AS DOUBLE)"


def _float_sum(text: str, kind: DataType) -> tuple[PartialState, PartialState]:
    x = _double(text, kind)
    return PartialState(DOUBLE, f"fsum({x})", "fsum({p})"), PartialState(DOUBLE, f"sum({x})", "sum({p})")


# The compensation of fsum turns infinities into NaN. The plain sum keeps them.
_FLOAT_SUM = "CASE WHEN isfinite({0}) THEN {0} ELSE {1} END"


def _sum(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> SplitAggregate:
    kind = kinds[0]
    if kind in INTEGRAL:
        return SplitAggregate((_exact_sum(args[0]),), "CAST({0} AS BIGINT)")
    if isinstance(kind, Decimal):
        state = PartialState(Decimal(38, kind.scale), f"sum({args[0]})", "sum({p})")
        return SplitAggregate((state,), f"CAST({{0}} AS {result.duckdb})")
    return SplitAggregate(_float_sum(args[0], kind), _FLOAT_SUM)


def _sum_type(kinds: Sequence[DataType]) -> DataType | None:
    kind = kinds[0]
    if isinstance(kind, Decimal):
        return Decimal(min(38, kind.precision + 10), kind.scale)
    return BIGINT if kind in INTEGRAL else DOUBLE


def _avg(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> SplitAggregate:
    kind = kinds[0]
    count = PartialState(BIGINT, f"count({args[0]})", "sum({p})")
    if kind in INTEGRAL:
        return SplitAggregate((_exact_sum(args[0]), count), "CASE WHEN {1} > 0 THEN CAST({0} AS DOUBLE) / {1} END")
    if isinstance(kind, Decimal):
        assert isinstance(result, Decimal)
        held = Decimal(min(38, kind.precision + 10), kind.scale)
        state = PartialState(Decimal(38, kind.scale), f"sum({args[0]})", "sum({p})")
        above = (
            f"({whole_digits('CAST({0} AS ' + held.duckdb + ')', held)} * {10 ** (result.scale - kind.scale)}::HUGEINT)"
        )
        quotient = f"(abs({above}) // {{1}} + CASE WHEN (abs({above}) % {{1}}) * 2 >= {{1}} THEN 1 ELSE 0 END)"
        signed = f"(CASE WHEN {{0}} < 0 THEN -{quotient} ELSE {quotient} END)"
        return SplitAggregate((state, count), f"CASE WHEN {{1}} > 0 THEN {from_whole_digits(signed, result)} END")
    return SplitAggregate((*_float_sum(args[0], kind), count), f"CASE WHEN {{2}} > 0 THEN ({_FLOAT_SUM}) / {{2}} END")


def _avg_type(kinds: Sequence[DataType]) -> DataType | None:
    kind = kinds[0]
    if not isinstance(kind, Decimal):
        return DOUBLE
    # the sum's digits, shifted by four, must fit a HUGEINT for the exact quotient
    fits = kind.precision + 10 + 4 <= 37 and kind.precision + 10 + kind.scale < 38
    return Decimal(kind.precision + 4, kind.scale + 4) if fits else None


def _extreme(function: str) -> Splitter:
    def split(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> SplitAggregate:
        return SplitAggregate((PartialState(kinds[0], f"{function}({args[0]})", f"{function}({{p}})"),), "{0}")

    return split


def _moments(result: str) -> Splitter:
    """Count, mean and sum of squared distances in one state, merged pairwise (Chan et al.), as Spark does."""

    def split(args: Sequence[str], kinds: Sequence[DataType], kind: DataType) -> SplitAggregate:
        x = args[0]
        finite = f"CASE WHEN isfinite({x}) THEN {x} END"
        n = f"CAST(count({x}) AS DOUBLE)"
        odd = f"count({x}) > count({finite})"  # With NaN or an infinity every moment is NaN. DuckDB would fail.
        state = (
            f"CASE WHEN count({x}) > 0 THEN struct_pack(n := {n}, "
            f"m := CASE WHEN {odd} THEN 'nan'::DOUBLE ELSE avg({finite}) END, "
            f"s := CASE WHEN {odd} THEN 'nan'::DOUBLE ELSE var_pop({finite}) * {n} END) END"
        )
        merge = (
            "list_reduce(list({p}) FILTER (WHERE {p} IS NOT NULL), lambda a, b: struct_pack(n := a.n + b.n, "
            "m := a.m + (b.m - a.m) * b.n / (a.n + b.n), "
            "s := a.s + b.s + (b.m - a.m) * (b.m - a.m) * a.n * b.n / (a.n + b.n)))"
        )
        moments = Struct((Field("n", DOUBLE), Field("m", DOUBLE), Field("s", DOUBLE)))
        return SplitAggregate((PartialState(moments, state, merge),), result)

    return split


def _by_time(function: str) -> Splitter:
    """first and last: the value of the row with the smallest or largest event time. Among equal times, the smallest or
    largest value wins, so the result does not depend on how rows are divided among tasks."""

    def split(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> SplitAggregate:
        state = Struct((Field("t", BIGINT), Field("v", kinds[0])))
        value, time = args
        sql = f"{function}(struct_pack(t := {time}, v := {value})) FILTER (WHERE {time} IS NOT NULL)"
        return SplitAggregate((PartialState(state, sql, f"{function}({{p}})"),), "({0}).v")

    return split


def _by_value(function: str) -> Splitter:
    """min_by and max_by: the value of the row with the smallest or largest key. Rows with a NULL key are ignored. Among
    equal keys, the smallest or largest value wins."""

    def split(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> SplitAggregate:
        state = Struct((Field("k", kinds[1]), Field("v", kinds[0])))
        sql = f"{function}(struct_pack(k := {args[1]}, v := {args[0]})) FILTER (WHERE {args[1]} IS NOT NULL)"
        return SplitAggregate((PartialState(state, sql, f"{function}({{p}})"),), "({0}).v")

    return split


def _count_distinct(args: Sequence[str], kinds: Sequence[DataType], result: DataType) -> SplitAggregate:
    x = args[0]
    if kinds[0] in FRACTIONAL:
        x = f"({x} + 0)"  # -0.0 and 0.0 are one value
    # Sorted, so that a re-run writes the same bytes to the state.
    state = PartialState(
        Array(kinds[0]),
        f"list_sort(list(DISTINCT {x}) FILTER (WHERE {x} IS NOT NULL))",
        "list_sort(list_distinct(flatten(list({p}) FILTER (WHERE {p} IS NOT NULL))))",
    )
    return SplitAggregate((state,), "CAST(coalesce(len({0}), 0) AS BIGINT)")


def _functions() -> list[AggregateFunction]:
    found: list[AggregateFunction] = []
    for kind in (*_ORDERED, "BINARY"):
        found.append(AggregateFunction("count", (kind,), BIGINT, _count))
    for kind in _ORDERED:
        found.append(AggregateFunction("min", (kind,), lambda k: k[0], _extreme("min")))
        found.append(AggregateFunction("max", (kind,), lambda k: k[0], _extreme("max")))
        found.append(AggregateFunction("first", (kind,), lambda k: k[0], _by_time("min"), ordered=True))
        found.append(AggregateFunction("last", (kind,), lambda k: k[0], _by_time("max"), ordered=True))
        found.append(AggregateFunction("count distinct", (kind,), BIGINT, _count_distinct))
    for kind in _NUMBERS:
        found.append(AggregateFunction("sum", (kind,), _sum_type, _sum))
        found.append(AggregateFunction("avg", (kind,), _avg_type, _avg))
    for name, result in _MOMENTS.items():
        found.append(AggregateFunction(name, ("DOUBLE",), DOUBLE, _moments(result)))
    for function in ("bool_and", "bool_or"):
        found.append(AggregateFunction(function, ("BOOLEAN",), BOOLEAN, _extreme(function)))
    for value in _ORDERED:
        for key in ("INT", "BIGINT", "DOUBLE", "TIMESTAMP"):
            found.append(AggregateFunction("min_by", (value, key), lambda k: k[0], _by_value("min")))
            found.append(AggregateFunction("max_by", (value, key), lambda k: k[0], _by_value("max")))
    return found


_MOMENTS = {
    "var_pop": "({0}).s / ({0}).n",
    "var_samp": "CASE WHEN ({0}).n > 1 THEN ({0}).s / (({0}).n - 1) END",
    "stddev_pop": "sqrt(({0}).s / ({0}).n)",
    "stddev_samp": "CASE WHEN ({0}).n > 1 THEN sqrt(({0}).s / (({0}).n - 1)) END",
}

AGGREGATE_ALIASES = {
    "mean": "avg", "stddev": "stddev_samp", "std": "stddev_samp", "variance": "var_samp", "every": "bool_and",
    "some": "bool_or", "any": "bool_or", "first_value": "first", "last_value": "last",
}  # fmt: skip

AGGREGATES: dict[tuple[str, tuple[str, ...]], AggregateFunction] = {(f.name, f.params): f for f in _functions()}
AGGREGATE_NAMES = frozenset({*(name for name, _ in AGGREGATES), "count_if"} - {"count distinct"})


def find_aggregate(name: str, kinds: Sequence[DataType]) -> AggregateFunction | None:
    """The aggregate of `name` (`count distinct` included) for exactly these argument types."""
    return AGGREGATES.get((name, tuple(type_class(k) for k in kinds)))
