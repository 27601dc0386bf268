"""When a failed query is started again, and when it is given up."""

from __future__ import annotations

import pytest

from headrace.errors import BadOption, DiskFailed, DiskFull, OutOfMemory, SinkUnavailable, WorkerDied
from headrace.stream.retries import Retries, RetryPolicy

DEATH = WorkerDied("a worker died").render()


def attempts(problem: str, most: int = 50) -> int:
    """How often a query that fails with `problem`, without progress, is started again."""
    retries = Retries(RetryPolicy())
    tried = 0
    while tried < most and retries.failed(problem, epoch=3, up=1.0, now=float(tried)) is not None:
        tried += 1
    return tried


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (DEATH, 3),
        (OutOfMemory("Java heap space").render(), 3),
        ("Py4JJavaError: something of Spark", 10),
        (DiskFailed("Input/output error").render(), 10),
        (DiskFull("no room").render(), 50),
        (BadOption("not an option").render(), 0),
    ],
)
def test_each_kind_of_failure_has_its_limit(problem: str, expected: int) -> None:
    assert attempts(problem) == expected


def test_progress_between_two_deaths_starts_the_count_again() -> None:
    retries = Retries(RetryPolicy())
    for epoch in range(20):
        found = retries.failed(DEATH, epoch=epoch, up=1.0, now=0.0)
        assert found is not None and found.attempt == 1


@pytest.mark.parametrize("problem", [DEATH, "Py4JJavaError: something of Spark"])
def test_failures_without_limit_use_up_no_attempts_of_others(problem: str) -> None:
    retries, away = Retries(RetryPolicy()), SinkUnavailable("the broker is away", sink="k").render()
    for _ in range(20):
        assert retries.failed(away, epoch=3, up=1.0, now=0.0) is not None
    assert retries.failed(problem, epoch=3, up=1.0, now=0.0) is not None


def test_deaths_count_beside_other_failures() -> None:
    retries = Retries(RetryPolicy())
    given = ["Py4JJavaError: something of Spark", DEATH] * 3
    assert all(retries.failed(problem, epoch=3, up=1.0, now=0.0) is not None for problem in given)
    assert retries.failed(DEATH, epoch=3, up=1.0, now=0.0) is None
