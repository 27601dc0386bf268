"""Compares aggregates with Spark: groups of edge values, which our side divides and merges at random."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headrace.model.definitions import StreamDef
from headrace.model.schema import INT, TIMESTAMP, Field, Schema, parse_type
from headrace.sql import Select, parse_script, plan_on_shared_host
from headrace.sql.functions.aggregate_functions import AGGREGATES
from headrace.sql.functions.aggregate_states import AggregateFunction
from headrace.state.catalog import Catalog
from tests.sql.execute import plain, run_program
from tests.sql.functions.edges import NAN, values_of
from tests.sql.functions.harness import MEANING

# Sums of the extremes overflow in both engines; that has a test of its own.
_MODEST: dict[str, list[Any]] = {
    "INT": [None, 0, 1, -1, 3, -7, 1000, 2_000_000_000],
    "BIGINT": [None, 0, 1, -1, 10**12, -(10**12) - 7, 2**50],
    "DOUBLE": [None, 0.0, 0.5, 1.5, -2.5, 2.5, 0.1, 1e6, 123456.789],
    "FLOAT": [None, 0.0, 1.5, -2.5, 2.5, 1000.25],
    "DECIMAL(10,2)": [None, *map(Decimal, ("0.00", "0.01", "-0.01", "1.25", "99999999.99", "-99999999.99", "2.55"))],
    "DECIMAL(8,6)": [None, *map(Decimal, ("0.000001", "-0.000001", "99.999999", "-99.999999", "12.345678"))],
    "DECIMAL(38,10)": [None, *map(Decimal, ("12345678901234567890.0123456789", "-0.0000000001", "98765432109876.5"))],
    "DECIMAL(38,37)": [None, *map(Decimal, ("0." + "1234567" * 5 + "89", "-0." + "0" * 36 + "1", "0.5", "-0.05"))],
    "DECIMAL(29,0)": [None, *map(Decimal, ("9" * 24, "-" + "1" * 24, "7", "0"))],
}
_GROUPS, _ROWS = 8, 6
_DECIMALS = tuple(kind for kind in _MODEST if kind.startswith("DECIMAL"))
_NESTED = ("ARRAY<STRING>", "STRUCT<x: INT, y: STRING>", "MAP<STRING, INT>")
_OF_LONG_DECIMALS = ("sum", "avg", "try_sum", "try_avg", "min", "max")
_WITHOUT_MAPS = ("count distinct", "any_value")
_FLAT = ("BOOLEAN", "SMALLINT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10,2)", "STRING", "BINARY", "TIMESTAMP")
_EXAMPLES = {"DECIMAL": "DECIMAL(10,2)", "ARRAY": _NESTED[0], "STRUCT": _NESTED[1], "MAP": _NESTED[2]}
_COUNTED = {
    "TINYINT": "CAST(b % 3 + 2 AS TINYINT)", "SMALLINT": "CAST(b % 3 + 2 AS SMALLINT)", "INT": "b % 3 + 2",
    "BIGINT": "CAST(b % 3 + 2 AS BIGINT)",
}  # fmt: skip
_FRACTIONS = ("0.5", "0", "1", "0.3", "array(0.1, 0.5, 0.99)")


@dataclass(frozen=True)
class AggregateCase:
    """`text` is our SQL over a stream (g, t, a, b); `spark` is what Spark must compute of the same rows. `error` is the
    relative error that an approximation may have."""

    key: str
    kind: str
    text: str
    spark: str
    error: float = 0.0


def kinds_of(function: AggregateFunction) -> tuple[str, ...]:
    """The column types that an entry's values are tried on."""
    name, param = function.name, function.params[0]
    if name in ("min_by", "max_by"):
        key = function.params[1]
        return (*_FLAT, *_NESTED) if key == "INT" else (_EXAMPLES.get(key, key),)
    if name in ("listagg asc", "listagg desc"):
        return ("INT",)
    if name == "collect_set":
        return (*_FLAT, _NESTED[0])  # sort_array, which makes Spark's set comparable, puts NULL fields of structs first
    if param == "ANY":
        return (*_FLAT, *(_NESTED[:2] if name in _WITHOUT_MAPS else _NESTED))
    if param == "DECIMAL":
        return _DECIMALS if name.partition(" ")[0] in _OF_LONG_DECIMALS else _DECIMALS[:1]
    return (_EXAMPLES.get(param, param),)


def cases() -> list[AggregateCase]:
    """Cases for each aggregate of the list."""
    found = [AggregateCase("count(*)", "INT", "count(*)", "count(*)")]
    for function in AGGREGATES:
        for kind in kinds_of(function):
            error = 0.05 if function.name == "approx_count_distinct" else 0.0
            found += [AggregateCase(function.key, kind, text, spark, error) for text, spark in _texts(function, kind)]
    return found


def _texts(function: AggregateFunction, kind: str) -> list[tuple[str, str]]:
    """Our SQL of a call, and Spark's."""
    name, _, suffix = function.name.partition(" ")
    if name in ("first", "last"):
        by = f"{'min' if name == 'first' else 'max'}_by(a, t)"
        if suffix:
            spark = f"{by} FILTER (WHERE a IS NOT NULL)"
            return [(f"{name}(a) IGNORE NULLS", spark), (f"{name}(a, true)", spark)]
        return [(f"{name}(a)", by)]
    if name == "any_value":
        return [("any_value(a)", "min(a)"), ("any_value(a) IGNORE NULLS", "min(a)")]
    if name == "collect_list":
        # sort_array puts the structs in the order of time, which is different in all rows
        spark = "transform(sort_array(collect_list(CASE WHEN a IS NOT NULL THEN struct(t, a) END)), e -> e.a)"
        if kind.startswith("MAP"):
            pairs = "collect_list(CASE WHEN a IS NOT NULL THEN struct(t, a) END)"
            spark = f"transform(array_sort({pairs}, (x, y) -> int(unix_seconds(x.t) - unix_seconds(y.t))), e -> e.a)"
        return [("collect_list(a)", spark), ("array_agg(a)", spark)]
    if name == "collect_set":
        return [(text, f"sort_array({text})") for text in ("collect_set(a)", "collect_list(DISTINCT a)")]
    if name == "listagg" and not suffix:
        spark = "listagg(a, '{0}, ') WITHIN GROUP (ORDER BY t)"
        return [("listagg(a, '{0}, ')", spark), ("string_agg(a, '{0}, ')", spark)]
    if function.name == "listagg distinct":
        return [("listagg(DISTINCT a, ',')", "listagg(DISTINCT a, ',') WITHIN GROUP (ORDER BY a)")]
    if name == "mode":
        # of several modes Spark returns the smallest only if it is asked to
        return [(f"mode() WITHIN GROUP (ORDER BY a {suffix})",) * 2] + (
            [] if suffix else [("mode(a)", "mode(a, true)")]
        )
    return [(text, text) for text in _same_texts(function, name, suffix)]


def _same_texts(function: AggregateFunction, name: str, suffix: str) -> list[str]:
    """Calls that Spark takes as they are."""
    if name in ("min_by", "max_by"):
        # the keys of a group are all different or the value itself, so that ties make no difference
        return [f"{name}(a, b)"] if function.params[1] == "INT" else [f"{name}(a, a)"]
    if name == "listagg":
        if suffix.startswith("distinct"):
            return [f"listagg(DISTINCT a, ',') WITHIN GROUP (ORDER BY a {suffix.removeprefix('distinct ')})"]
        return [f"listagg({v}, ',') WITHIN GROUP (ORDER BY {key} {suffix})" for v, key in _keyed(function.params[1])]
    if name in ("percentile_cont", "percentile_disc"):
        return [f"{name}({f}) WITHIN GROUP (ORDER BY a {suffix})" for f in _FRACTIONS]
    if name == "percentile":
        return (
            [f"percentile(a, {f}, {_COUNTED[function.params[1]]})" for f in _FRACTIONS[:2]]
            if len(function.params) == 2
            else [*(f"percentile(a, {f})" for f in _FRACTIONS), "median(a)"]
        )
    if name == "percentile_approx":
        return [*(f"percentile_approx(a, {f})" for f in _FRACTIONS), "approx_percentile(a, 0.7, 100)"]
    if name == "approx_count_distinct":
        return ["approx_count_distinct(a)", "approx_count_distinct(a, 0.01)"]
    if name == "histogram_numeric":  # so many bins that no two become one
        return ["histogram_numeric(a, 50) FILTER (WHERE g NOT IN (90, 91, 92))"]
    if name == "bitmap_construct_agg":
        return ["bitmap_construct_agg(bitmap_bit_position(a))", "bitmap_construct_agg(abs(b)) FILTER (WHERE b > 20)"]
    if function.params[1:] == ("ANY...",):
        return ["count(DISTINCT a, b)", "count(DISTINCT a, b % 2, g)"]
    if len(function.params) == 2:
        # with an infinity Spark's result depends on the order of rows; the intercept of (a, a) is a rounding error
        pairs = ("a, b", "b, a") if name == "regr_intercept" else ("a, b", "b, a", "a, a")
        return [f"{name}({pair}) FILTER (WHERE g NOT IN (91, 92))" for pair in pairs]
    if suffix == "distinct":
        return [f"{name}(DISTINCT a)"]
    return [f"{name}(a)", f"{name}(a) FILTER (WHERE b > 20)"]


def _keyed(key: str) -> list[tuple[str, str]]:
    """Texts and keys of a type to order them by. Rows with equal keys have equal texts."""
    if key == "BOOLEAN":
        return [("CAST(b > 20 AS STRING)", "b > 20")]
    if key == "INT":
        return [("CASE WHEN b > 20 THEN CAST(b AS STRING) ELSE 'none' END", "CASE WHEN b > 20 THEN b END")]
    special = {
        "TINYINT": "CAST(b - 40 AS TINYINT)", "DECIMAL": "CAST(b AS DECIMAL(6,2))", "TIMESTAMP": "t",
        "DATE": "date_add(DATE '2024-01-01', b)", "TIMESTAMP_NTZ": "CAST(t AS TIMESTAMP_NTZ)",
        "BINARY": "CAST(CAST(b AS STRING) AS BINARY)",
    }  # fmt: skip
    return [("CAST(b AS STRING)", special.get(key, f"CAST(b AS {key})"))]


def table(kind: str) -> pa.Table:
    """Rows (g, t, a, b): a group of NULLs, one of one row, and random groups; t and b differ in every row."""
    chance = random.Random(11)
    values = _MODEST.get(kind) or values_of(kind)
    start = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    rows: list[tuple[int, Any]] = [(0, None), (0, None), (1, next(v for v in values if v is not None))]
    rows += [(2 + g, chance.choice(values)) for g in range(_GROUPS) for _ in range(_ROWS)]
    if kind in ("DOUBLE", "FLOAT"):
        rows += [(90, v) for v in (1.0, NAN, -math.inf)] + [(91, v) for v in (math.inf, 1.0, 2.0)]
        rows += [(92, v) for v in (math.inf, 3.0, -math.inf)] + [(93, v) for v in (0.1, 0.1, 0.1)]
    chance.shuffle(rows)
    order = chance.sample(range(len(rows)), len(rows))
    return pa.table(
        {
            "g": pa.array([g for g, _ in rows], pa.int32()),
            "t": pa.array([start + dt.timedelta(seconds=i) for i in order], pa.timestamp("us", "UTC")),
            "a": pa.array([v for _, v in rows], parse_type(kind).arrow),
            "b": pa.array([o * 3 - 50 for o in order], pa.int32()),
        }
    )


def ours(kind: str, texts: Sequence[str], rows: pa.Table, seed: int) -> list[tuple[str, dict[int, Any]]]:
    """For each aggregate our result type, and the value per group, of rows cut and merged at random."""
    fields = (Field("g", INT), Field("t", TIMESTAMP), Field("a", parse_type(kind)), Field("b", INT))
    names = Catalog().with_stream(StreamDef("v", Schema(fields), 1, 0, "generator", "json", {}))
    selected = ", ".join(f"{text} AS r{i}" for i, text in enumerate(texts))
    (statement,) = parse_script(f"SELECT g, {selected} FROM v GROUP BY g")
    assert isinstance(statement, Select)
    program = plan_on_shared_host(statement, names, MEANING).program
    relation = rows.rename_columns([f"c{i}" for i in range(rows.num_columns)])
    relation = relation.append_column("_t", rows.column(1).cast(pa.int64()))
    found = run_program(program, relation, random.Random(seed))
    kinds = [field.type.ddl for field in program.output.fields[1:]]
    return [(kind, {row[0]: row[1 + i] for row in found}) for i, kind in enumerate(kinds)]


def close(ours_value: Any, theirs: Any, error: float = 0.0) -> bool:
    """Equal; numbers that are not exact within a billionth, and approximations within their relative error."""
    if error and isinstance(theirs, int):
        return isinstance(ours_value, int) and abs(ours_value - theirs) <= max(1, error * theirs)
    if isinstance(theirs, float):
        if math.isnan(theirs):
            return bool(ours_value == "nan")
        return isinstance(ours_value, float) and math.isclose(ours_value, theirs, rel_tol=1e-8, abs_tol=1e-12)
    return bool(ours_value == plain(theirs))
