"""Compares aggregates with Spark: groups of edge values, which our side divides and merges at random."""

from __future__ import annotations

import datetime as dt
import math
import random
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headrace.model.program import StreamDef
from headrace.model.schema import INT, TIMESTAMP, Field, Schema, parse_type
from headrace.sql import Select, parse_script, plan_pipeline
from headrace.sql.functions.aggregate_functions import AGGREGATES, AggregateFunction
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
}
_GROUPS, _ROWS = 8, 6
_KEY_KINDS = ("INT", "BIGINT", "DOUBLE", "TIMESTAMP")


@dataclass(frozen=True)
class AggregateCase:
    """`text` is our SQL over a stream (g, t, a, b); `spark` is what Spark must compute of the same rows."""

    key: str
    kind: str
    text: str
    spark: str


def kind_of(function: AggregateFunction) -> str:
    """The column type that an entry's values are tried on."""
    return "DECIMAL(10,2)" if function.params[0] == "DECIMAL" else function.params[0]


def cases() -> list[AggregateCase]:
    """One case per aggregate of the list."""
    found = [AggregateCase("count(*)", "INT", "count(*)", "count(*)")]
    for function in AGGREGATES.values():
        name, kind = function.name, kind_of(function)
        if name == "count distinct":
            text = spark = "count(DISTINCT a)"
        elif name in ("min_by", "max_by"):
            # the keys of a group are all different, so that there are no ties
            text = spark = f"{name}(a, {_key_text(function.params[1])})"
        else:
            text = spark = f"{name}(a)"
        if name in ("first", "last"):
            spark = f"{'min' if name == 'first' else 'max'}_by(a, t)"
        found.append(AggregateCase(function.key, kind, text, spark))
    return found


def _key_text(kind: str) -> str:
    return {"INT": "b", "BIGINT": "CAST(b AS BIGINT)", "DOUBLE": "CAST(b AS DOUBLE)", "TIMESTAMP": "t"}[kind]


def table(kind: str) -> pa.Table:
    """Rows (g, t, a, b): a group of NULLs, one of one row, and random groups; t and b differ in every row."""
    chance = random.Random(11)
    values = _MODEST.get(kind) or values_of(kind)
    start = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    rows: list[tuple[int, Any]] = [(0, None), (0, None), (1, next(v for v in values if v is not None))]
    rows += [(2 + g, chance.choice(values)) for g in range(_GROUPS) for _ in range(_ROWS)]
    if kind in ("DOUBLE", "FLOAT"):
        rows += [(90, v) for v in (1.0, NAN, -math.inf)] + [(91, v) for v in (math.inf, 1.0, 2.0)]
        rows += [(92, v) for v in (math.inf, 3.0, -math.inf)]
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


def ours(kind: str, text: str, rows: pa.Table, seed: int) -> tuple[str, dict[int, Any]]:
    """Our result type, and the value per group, of rows cut and merged at random."""
    fields = (Field("g", INT), Field("t", TIMESTAMP), Field("a", parse_type(kind)), Field("b", INT))
    names = Catalog().with_stream(StreamDef("v", Schema(fields), 1, 0, "generator", "json", {}))
    (statement,) = parse_script(f"SELECT g, {text} AS r FROM v GROUP BY g")
    assert isinstance(statement, Select)
    program = plan_pipeline(statement, names, MEANING).program
    relation = rows.rename_columns([f"c{i}" for i in range(rows.num_columns)])
    relation = relation.append_column("_t", rows.column(1).cast(pa.int64()))
    found = run_program(program, relation, random.Random(seed))
    return program.output[1].type.ddl, dict(found)


def close(ours_value: Any, theirs: Any) -> bool:
    """Equal; numbers that are not exact within a billionth."""
    if isinstance(theirs, float):
        if math.isnan(theirs):
            return bool(ours_value == "nan")
        return isinstance(ours_value, float) and math.isclose(ours_value, theirs, rel_tol=1e-8, abs_tol=1e-12)
    return bool(ours_value == plain(theirs))
