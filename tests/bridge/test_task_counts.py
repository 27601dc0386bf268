"""The counters of tasks for each pipeline: encoded as numbers, and added in the driver."""

from __future__ import annotations

import time

import pytest

from headrace.bridge.reports import PlannedEpoch, TaskReport
from headrace.bridge.task_counts import CountsSum, PipelineCounts, decode_report, encode_report
from headrace.errors import InternalError


def report(task: int) -> TaskReport:
    return TaskReport(
        task=task, planned=PlannedEpoch(7, 2, "checkpoint"), plan=1, ending=False, leaving=(3,), rows=4, bytes=5,
        values=6, rejected=0, nulled=0, future=0, bad={"a\0b": 1}, max_time=None, read_ms=0.5, ring0_ms=1.5,
        unreadable=(),
    )  # fmt: skip


def counts(instance: int, timed: int = 1) -> PipelineCounts:
    return PipelineCounts._make((instance, 1, 2, timed, 250 * timed, 3, 2**40, 5, 5, 0, 1))


@pytest.mark.parametrize("instances", [(), (1,), (1, 2, 3)])
def test_a_report_comes_back_with_its_counters(instances: tuple[int, ...]) -> None:
    given = [counts(i) for i in instances]
    found, numbers = decode_report(encode_report(report(1), given))
    assert found == report(1)
    assert [PipelineCounts._make(row) for row in numbers.tolist()] == given


def test_counters_of_all_tasks_are_added_also_if_some_have_fewer_pipelines() -> None:
    summed = CountsSum()
    for given in ([counts(1), counts(2)], [counts(1), counts(2)], [counts(2), counts(3, timed=0)], []):
        summed.add(decode_report(encode_report(report(0), given))[1])
    found = summed.by_instance()
    assert {i: (c.late, c.bad, c.timed, c.us, c.rows) for i, c in found.items()} == {
        1: (2, 4, 2, 500, 2**41),
        2: (3, 6, 3, 750, 3 * 2**40),
        3: (1, 2, 0, 0, 2**40),
    }
    assert found[2].sent == (9, 3 * 2**40, 15, 15, 0, 3)
    summed.add(decode_report(encode_report(report(0), [counts(3)]))[1])
    assert summed.by_instance()[3].timed == 1


def test_other_bytes_are_refused() -> None:
    with pytest.raises(InternalError):
        decode_report(encode_report(report(0), [counts(1)])[:-1])


def test_the_driver_adds_many_tasks_and_pipelines_quickly() -> None:
    """As JSON, these 200,000 counters took more than half a second."""
    payload = encode_report(report(0), [counts(i) for i in range(1000)])
    began = time.process_time()
    summed = CountsSum()
    for _ in range(200):
        summed.add(decode_report(payload)[1])
    assert summed.by_instance()[999].bad == 400
    assert time.process_time() - began < 0.25
