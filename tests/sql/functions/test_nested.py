"""Nested values without Spark: keys that no map can have, and how large a result may be."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.errors import HeadraceError
from tests.sql.functions.harness import FAILED, Duck, plan_expressions

ROW = pa.table({"a": pa.array([1], pa.int32())})


def evaluate(text: str) -> object:
    """The value of an expression over a column `a` that is 1, or FAILED."""
    (planned,) = plan_expressions(("INT",), [text])
    assert not isinstance(planned, HeadraceError), planned
    (value,) = Duck(ROW).evaluate(*planned).values
    return value


@pytest.mark.parametrize(
    "text",
    [
        "map(a, 1, 1, 2)",
        "map(nullif(a, 1), 1)",
        "map(0D, 1, -0D, 2)",
        "map(double('NaN'), 1, double('NaN'), 2)",
        "map_from_arrays(array(a, 2), array(1))",
        "map_from_arrays(array(a, 1), array(1, 2))",
        "map_from_entries(array(struct(a, 1), struct(1 AS a, 2)))",
        "map_concat(map(a, 2), map(1, 3))",
        "transform_keys(map(a, 2, 5, 3), (k, v) -> 0)",
        "transform_keys(map(a, 2), (k, v) -> nullif(k, 1))",
        "str_to_map(concat('a:', a, ',a:2'))",
    ],
)
def test_a_map_with_a_null_or_equal_key_fails(text: str) -> None:
    assert evaluate(text) == FAILED


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CASE WHEN a > 1 THEN map(a, 1, 1, 2) END", None),
        ("transform(array(a, 0), x -> CASE WHEN x = 0 THEN 7 ELSE 10 DIV x END)", [10, 7]),
        ("exists(array(a, 0), x -> 10 DIV x = 10)", True),
        ("forall(array(a, 0), x -> 10 DIV x = 3)", False),
        ("exists(array(0, a), x -> 10 DIV x = 10)", FAILED),
        ("aggregate(array(a, 5), 0, (s, x) -> s + size(array(x, a)))", 4),
        ("aggregate(array(a, 5), 0, (s, x) -> s + x, s -> concat('is ', s))", "is 6"),
    ],
)
def test_a_lambda_that_may_fail_runs_only_on_the_elements_that_spark_reaches(text: str, expected: object) -> None:
    assert evaluate(text) == expected
