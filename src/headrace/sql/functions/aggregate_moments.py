"""Variances, correlation, regression, skewness and kurtosis: central moments, merged pairwise (Chan et al.).

A state is the number of rows, their means, and sums of powers and products of distances from the means. States are
computed in two passes over a batch, so they are at least as exact as Spark's, which are updated row by row. A constant
column has moments of exactly zero, as in Spark.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.model.schema import BIGINT, DOUBLE, DataType, Field, Struct
from headrace.sql.functions.aggregate_states import (
    AggregateFunction,
    Constants,
    PartialState,
    SplitAggregate,
    Splitter,
    present,
)
from headrace.sql.functions.aggregate_sums import AVERAGE

_POWERS = Struct(tuple(Field(name, DOUBLE) for name in ("n", "m", "s", "c", "q")))
_PAIRS = Struct(tuple(Field(name, DOUBLE) for name in ("n", "x", "y", "xx", "yy", "xy")))
_VARIANCE = Struct(tuple(Field(name, DOUBLE) for name in ("n", "m", "s")))


def _variance(result: str) -> Splitter:
    """Count, mean and sum of squared distances, as DuckDB computes them."""

    def split(args: Sequence[str], kinds: Sequence[DataType], kind: DataType, constants: Constants) -> SplitAggregate:
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
        return SplitAggregate((PartialState(_VARIANCE, state, merge),), result)

    return split


def _powers(result: str) -> Splitter:
    """Moments up to the fourth."""

    def split(args: Sequence[str], kinds: Sequence[DataType], kind: DataType, constants: Constants) -> SplitAggregate:
        state = f"hr_moments(list({args[0]}) FILTER (WHERE {present(args[0])}))"
        merge = "hr_merge_moments(list({p}) FILTER (WHERE {p} IS NOT NULL))"
        return SplitAggregate((PartialState(_POWERS, state, merge),), result)

    return split


def _pairs(result: str) -> Splitter:
    """Moments of the pairs (y, x) in which neither is NULL. The first argument is y, as in regr_slope(y, x)."""

    def split(args: Sequence[str], kinds: Sequence[DataType], kind: DataType, constants: Constants) -> SplitAggregate:
        y, x = args
        state = f"hr_pairs(list(struct_pack(x := {x}, y := {y})) FILTER (WHERE {present(y, x)}))"
        merge = "hr_merge_pairs(list({p}) FILTER (WHERE {p} IS NOT NULL))"
        return SplitAggregate((PartialState(_PAIRS, state, merge),), result)

    return split


def _average(position: int) -> Splitter:
    """regr_avgx and regr_avgy: the average of one argument over the pairs in which neither is NULL."""

    def split(args: Sequence[str], kinds: Sequence[DataType], kind: DataType, constants: Constants) -> SplitAggregate:
        return AVERAGE([f"CASE WHEN {present(*args)} THEN {args[position]} END"], [DOUBLE], DOUBLE, ())

    return split


def _count_pairs(
    args: Sequence[str], kinds: Sequence[DataType], kind: DataType, constants: Constants
) -> SplitAggregate:
    state = PartialState(BIGINT, f"count(CASE WHEN {present(*args)} THEN 1 END)", "sum({p})")
    return SplitAggregate((state,), "{0}")


_VARIANCES = {
    "var_pop": "({0}).s / ({0}).n",
    "var_samp": "CASE WHEN ({0}).n > 1 THEN ({0}).s / (({0}).n - 1) END",
    "stddev_pop": "sqrt(({0}).s / ({0}).n)",
    "stddev_samp": "CASE WHEN ({0}).n > 1 THEN sqrt(({0}).s / (({0}).n - 1)) END",
}
_SHAPES = {
    "skewness": "CASE WHEN ({0}).s <> 0 THEN sqrt(({0}).n) * ({0}).c / sqrt(({0}).s * ({0}).s * ({0}).s) END",
    "kurtosis": "CASE WHEN ({0}).s <> 0 THEN ({0}).n * ({0}).q / (({0}).s * ({0}).s) - 3 END",
}
_SLOPE = "({0}).xy / ({0}).xx"
_OF_PAIRS = {
    "covar_pop": "({0}).xy / ({0}).n",
    "covar_samp": "CASE WHEN ({0}).n > 1 THEN ({0}).xy / (({0}).n - 1) END",
    "corr": "CASE WHEN ({0}).n > 1 AND ({0}).xx <> 0 AND ({0}).yy <> 0 THEN ({0}).xy / sqrt(({0}).xx * ({0}).yy) END",
    "regr_sxx": "({0}).xx",
    "regr_syy": "({0}).yy",
    "regr_sxy": "({0}).xy",
    "regr_slope": f"CASE WHEN ({{0}}).n > 1 AND ({{0}}).xx <> 0 THEN {_SLOPE} END",
    "regr_intercept": f"CASE WHEN ({{0}}).n > 1 AND ({{0}}).xx <> 0 THEN ({{0}}).y - {_SLOPE} * ({{0}}).x END",
    "regr_r2": "CASE WHEN ({0}).n < 2 OR ({0}).xx = 0 THEN NULL WHEN ({0}).yy = 0 THEN 1.0::DOUBLE "
    "ELSE ({0}).xy * ({0}).xy / (({0}).xx * ({0}).yy) END",
}
# Aggregates whose numeric arguments are cast to DOUBLE.
OF_TWO = frozenset({*_OF_PAIRS, "regr_avgx", "regr_avgy", "regr_count"})
OF_DOUBLES = frozenset({*_VARIANCES, *_SHAPES, *OF_TWO})


def moment_functions() -> list[AggregateFunction]:
    """The statistical aggregates. All take DOUBLE."""
    one, two = ("DOUBLE",), ("DOUBLE", "DOUBLE")
    found = [AggregateFunction(name, one, DOUBLE, _variance(result)) for name, result in _VARIANCES.items()]
    found += [AggregateFunction(name, one, DOUBLE, _powers(result)) for name, result in _SHAPES.items()]
    found += [AggregateFunction(name, two, DOUBLE, _pairs(result)) for name, result in _OF_PAIRS.items()]
    found += [AggregateFunction(f"regr_avg{'yx'[i]}", two, DOUBLE, _average(i)) for i in range(2)]
    return [*found, AggregateFunction("regr_count", two, BIGINT, _count_pairs)]
