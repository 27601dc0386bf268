"""500 random expressions, compared with Spark. `make fuzz-expressions` compares 20,000."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sql.functions.fuzz import compare, session_for_fuzzing
from tests.sql.functions.random_expressions import ZONES, Generator

SEED = 15


@pytest.mark.spark
@pytest.mark.slow
def test_random_expressions_agree_with_spark(spark_of_the_run: Any) -> None:
    session, generator = session_for_fuzzing(spark_of_the_run), Generator()
    compared, different = 0, []
    for i, zone in enumerate(ZONES):
        found = compare(lambda: session, generator.some(125, SEED + i), generator, SEED + i, zone)
        compared += found.compared
        different += [f"{zone}: {expression.text}\n    {problem}" for expression, problem in found.different]
    assert compared > 400
    assert not different, "\n".join(different)


def test_the_same_seed_makes_the_same_expressions() -> None:
    one, other = Generator().some(50, 3), Generator().some(50, 3)
    assert one == other
    assert len(set(one)) > 40
