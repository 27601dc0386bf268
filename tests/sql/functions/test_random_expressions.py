"""500 random expressions, compared with Spark. `make fuzz-expressions` compares 20,000."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.sql.functions.fuzz import compare, session_for_fuzzing
from tests.sql.functions.harness import Outcome
from tests.sql.functions.random_expressions import ZONES, Generator
from tests.sql.functions.spark_answers import KeptAnswers, RememberingSpark

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


def test_spark_is_asked_once_for_an_answer_that_is_kept(tmp_path: Path) -> None:
    asked: list[list[str]] = []

    class Stub:
        def evaluate(self, texts: list[str]) -> list[Outcome | str]:
            asked.append(texts)
            return [Outcome("INT", [text]) for text in texts]

    def start() -> Any:
        return Stub()

    for texts in (["a", "b"], ["b", "c"], ["a", "c"]):
        answers = KeptAnswers(tmp_path / "answers")
        found = RememberingSpark(answers, start, "1 UTC").evaluate(texts)
        answers.close()
        assert found == [Outcome("INT", [text]) for text in texts]
    assert asked == [["a", "b"], ["c"]]
