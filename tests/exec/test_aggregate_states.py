"""Aggregates with large states: sums of long decimals, sketches, and the limit of lists."""

from __future__ import annotations

import random
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import TooManyValues
from headrace.exec import duck
from headrace.exec.aggregates import aggregate_rows, finish, merge
from headrace.model.definitions import StreamDef
from headrace.model.program import Emit, Meaning, Window
from headrace.model.schema import Field, Schema, parse_type
from headrace.sql import Select, parse_script, plan_on_shared_host
from headrace.state.catalog import Catalog
from tests.ring1.pipelines import Event, Run, make_pipeline

UTC = Meaning()


def of_values(kind: str, text: str, values: list[Any], pieces: int = 3) -> Any:
    """The aggregate `text` over a column `a` of these values, which are cut into pieces."""
    schema = Schema((Field("a", parse_type(kind)),))
    names = Catalog().with_stream(StreamDef("v", schema, None, 0, "generator", "json", {}))
    (statement,) = parse_script(f"SELECT {text} AS r FROM v")
    assert isinstance(statement, Select)
    program = plan_on_shared_host(statement, names, UTC).program
    assert program.ring1 is not None
    rows = pa.table({"c0": pa.array(values, parse_type(kind).arrow), "_t": pa.nulls(len(values), pa.int64())})
    size = -(-len(values) // pieces)
    parts = [
        aggregate_rows(program.ring0, UTC, rows.slice(i, size), None).partials for i in range(0, len(values), size)
    ]
    merged = merge(program.ring1, UTC, [merge(program.ring1, UTC, parts[:2]), *parts[2:]])
    (row,) = finish(program.ring1, UTC, merged).to_pylist()
    return row["r"]


def test_the_average_of_many_short_decimals() -> None:
    values = [Decimal("99.999999")] * 30_000
    assert of_values("DECIMAL(8,6)", "avg(a)", values) == Decimal("99.9999990000")
    assert of_values("DECIMAL(8,6)", "sum(a)", values) == Decimal("2999999.970000")


def test_a_sum_of_38_digits_is_exact_although_the_sum_of_a_part_does_not_fit() -> None:
    most, least = Decimal("9" * 38), Decimal("-" + "9" * 38)
    values = [most, most, Decimal(5), least, least]
    assert of_values("DECIMAL(38,0)", "sum(a)", values) == Decimal(5)
    assert of_values("DECIMAL(38,0)", "sum(DISTINCT a)", values) == Decimal(5)
    assert of_values("DECIMAL(38,0)", "avg(a)", values) == Decimal("1.0000")


@pytest.mark.parametrize("function", ["sum", "avg"])
def test_a_sum_of_more_than_38_digits_overflows(function: str) -> None:
    values = [Decimal("9" * 38)] * 3
    with pytest.raises(Exception, match="ARITHMETIC_OVERFLOW"):
        of_values("DECIMAL(38,0)", f"{function}(a)", values)
    assert of_values("DECIMAL(38,0)", f"try_{function}(a)", values) is None


def test_an_average_that_does_not_fit_its_type_overflows() -> None:
    with pytest.raises(Exception, match="ARITHMETIC_OVERFLOW"):
        of_values("DECIMAL(38,0)", "avg(a)", [Decimal("9" * 36)])
    assert of_values("DECIMAL(38,0)", "try_avg(a)", [Decimal("9" * 36)]) is None


@pytest.mark.parametrize(("count", "limit"), [(5, 0.0), (64, 0.0), (500, 0.15), (20_000, 0.15), (300_000, 0.15)])
def test_the_error_of_a_distinct_count_is_within_three_times_the_stated_one(count: int, limit: float) -> None:
    values = [i * 7919 for i in range(count)] * 2
    found = of_values("BIGINT", "approx_count_distinct(a)", values)
    assert abs(found - count) <= limit * count


def test_the_error_of_distinct_counts_is_the_stated_one_on_average() -> None:
    chance = np.random.default_rng(5)
    errors = []
    for count in (100, 400, 1_000, 5_000, 30_000):
        values = chance.integers(-(2**62), 2**62, (40, count))
        lists = pa.table({"x": pa.array(list(values), pa.list_(pa.int64()))})
        found = duck.run(UTC, "SELECT hr_distinct(hr_sketch_numbers(x, 9)) AS n FROM lists", {"lists": lists})
        errors += (found.column("n").to_numpy() / count - 1).tolist()
    assert float(np.sqrt(np.mean(np.square(errors)))) < 0.05
    assert abs(float(np.mean(errors))) < 0.01


@pytest.mark.parametrize("different", [3, 60, 70, 2_000])
def test_merging_sketches_gives_the_bytes_of_one_sketch(different: int) -> None:
    chance = random.Random(different)
    values = [chance.randrange(different) for _ in range(3 * different)]
    cuts = sorted(chance.randrange(len(values)) for _ in range(4))
    pieces = [values[a:b] for a, b in zip([0, *cuts], [*cuts, len(values)], strict=True)]
    lists = pa.table({"x": pa.array([values, *pieces], pa.list_(pa.int64()))})
    sql = "SELECT hr_sketch_numbers(x, 9) AS s FROM lists"
    whole, *parts = duck.run(UTC, sql, {"lists": lists}).column("s").to_pylist()
    while len(parts) > 1:
        two = pa.table({"s": pa.array([parts.pop(chance.randrange(len(parts))) for _ in range(2)], pa.binary())})
        merged = duck.run(
            UTC, "SELECT hr_merge_sketches(list(s) FILTER (WHERE s IS NOT NULL)) AS s FROM two", {"two": two}
        )
        parts += merged.column("s").to_pylist()
    assert parts == [whole]


@pytest.mark.parametrize("window", [None, Window("tumble", 1_000, 1_000)], ids=["all time", "tumble"])
def test_a_group_with_too_many_values_stops_the_pipeline(window: Window | None) -> None:
    aggregates = (("notes", "collect_list", (("c4", parse_type("STRING")),)),)
    emit: Emit = "changes" if window is None else "close"
    made = replace(make_pipeline(window, emit, keys=(0,), aggregates=aggregates), max_group_values=4)
    events = [Event(word, None, None, None, f"n{i}", i) for word in "ab" for i in range(2)]
    run = Run(made, 10)
    run.epoch([[events]])
    run.epoch([[events]])  # four values in each group
    with pytest.raises(TooManyValues):
        run.epoch([[events[:1]]], flush=True)


def test_a_task_refuses_a_list_that_is_too_long() -> None:
    aggregates = (("words", "count distinct", (("c4", parse_type("STRING")),)),)
    made = replace(make_pipeline(None, "changes", keys=(), aggregates=aggregates), max_group_values=4)
    events = [Event(None, None, None, None, f"n{i}", i) for i in range(5)]
    with pytest.raises(TooManyValues):
        Run(made, 10).epoch([[events]])
