"""Fan-ins inside an epoch: tasks into a lane, tasks into the epoch, buckets into a pipeline's sinks.

A lost barrier row is an error that names the sender; nothing is folded or committed. These tests
fail when the alignment is taken out of the lane or of the committer.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.base import faults
from headrace.bridge.messages import MessageKind, Row
from headrace.control.signals import FLUSH, PING, QUICK_END, Barrier
from headrace.errors import BarrierOverlap, DuplicateBarrier, HeadraceError, MissingInput, SinkFailed, UnknownInput
from headrace.model.plan_version import PlanVersion
from headrace.spark.committer import EpochCommitter
from headrace.spark.state_host import LaneProcessor
from headrace.spark.summary import EpochSummary
from headrace.state.plans import PlanStore
from headrace.state.progress import Debt, read_progress, write_progress
from tests.ring0.tasks import WORD, at, counting, lines, stream, task
from tests.ring1.memory_store import MemoryStore

PIPELINE = counting(5, WORD, buckets=2)
TASKS = 3


def sent(barriers: tuple[Barrier | None, ...] = (None,) * TASKS) -> list[Row]:
    """What three tasks of one epoch send, with rows for both buckets."""
    rows: list[Row] = []
    for number, barrier in enumerate(barriers):
        chunk = lines(*({"word": f"w{i}", "ts": at(i)} for i in range(10)))
        rows += task([PIPELINE], chunk, number=number, tasks=TASKS, barrier=barrier).messages
    return rows


def through_lanes(rows: list[Row]) -> list[Row]:
    """The messages after Ring 1, as the driver gets them."""
    out: list[Row] = []
    for key in sorted({(r.instance, r.bucket) for r in rows}):
        lane: Any = LaneProcessor()
        lane.store = MemoryStore()
        mine = [tuple(r) for r in rows if (r.instance, r.bucket) == key]
        out += [Row(*r) for r in lane.handleInputRows(key, iter(mine), None)]
    return out


def is_barrier_of(row: Row, number: int) -> bool:
    return row.kind == MessageKind.BARRIER and row.task == number


@pytest.mark.parametrize("number", range(TASKS))
def test_a_lane_names_the_task_whose_barrier_row_was_dropped(number: int) -> None:
    rows = [r for r in sent() if not is_barrier_of(r, number)]
    with pytest.raises(MissingInput) as caught:
        through_lanes(rows)
    assert caught.value.params["missing"] == [f"task {number}"]
    assert caught.value.params["where"] == "lane 5/0"


def test_the_fault_hook_drops_a_barrier_row_and_the_lane_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "_hits", {})
    monkeypatch.setenv("HEADRACE_FAULT", "drop-barrier-row@4")  # task 1's row to its second lane
    rows = sent()
    monkeypatch.delenv("HEADRACE_FAULT")
    with pytest.raises(MissingInput) as caught:
        through_lanes(rows)
    assert (caught.value.params["where"], caught.value.params["missing"]) == ("lane 5/1", ["task 1"])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda rows: [*rows, *(r for r in rows if is_barrier_of(r, 1))], DuplicateBarrier),
        (lambda rows: [*rows, *(r._replace(task=7) for r in rows if is_barrier_of(r, 1))], None),
        (lambda rows: [r for r in rows if r.kind != MessageKind.WATERMARK or r.task != 2], MissingInput),
        (lambda rows: [r._replace(task=r.task + 1) if r.kind in (2, 3) else r for r in rows], UnknownInput),
    ],
)
def test_every_other_error_in_barrier_rows_is_reported(change: Any, problem: type[HeadraceError] | None) -> None:
    rows = change(sent())
    if problem is None:  # a barrier of a task that has sent no watermark does not count as an arrival
        through_lanes(rows)
        return
    with pytest.raises(problem):
        through_lanes(rows)


def test_tasks_with_different_barriers_overlap() -> None:
    with pytest.raises(BarrierOverlap):
        through_lanes(sent((None, Barrier("savepoint", 3), None)))


class Driver:
    """A committer with the plan that `task` uses."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        plans = PlanStore(directory)
        plans.publish(PlanVersion(3, stream(), (PIPELINE,)))
        self.summaries: list[EpochSummary] = []
        self.committer = EpochCommitter(directory, "checkpoint", plans, self.summaries.append, set, lambda: None)


@pytest.mark.parametrize(
    ("lost", "missing"),
    [
        (lambda r: r.instance == 0 and r.kind == MessageKind.REPORT and r.bucket == 2, ["task 2"]),
        (lambda r: r.instance == 5 and r.bucket == 1, ["bucket 1"]),
        (lambda r: r.instance == 5, ["bucket 0", "bucket 1"]),
    ],
)
def test_the_driver_commits_nothing_of_an_epoch_in_which_a_task_or_bucket_is_missing(
    tmp_path: Path, lost: Any, missing: list[str]
) -> None:
    driver, rows = Driver(tmp_path), through_lanes(sent())
    with pytest.raises(MissingInput) as caught:
        driver.committer.commit([r for r in rows if not lost(r)])
    assert caught.value.params["missing"] == missing
    assert driver.summaries == [] and read_progress(tmp_path).epoch == -1
    sink: Any = driver.committer.sink(PIPELINE, "out")
    assert sink.read().num_rows == 0
    driver.committer.commit(rows)  # the epoch is run again, whole
    assert sink.read().num_rows == 10
    assert driver.summaries[0].barrier == Barrier("epoch", 7)


def test_a_barrier_of_the_data_channel_comes_out_at_the_tail_with_its_epoch(tmp_path: Path) -> None:
    driver, cut = Driver(tmp_path), Barrier("sync_test", 12)
    driver.committer.commit(through_lanes(sent((cut,) * TASKS)))
    assert [s.barrier for s in driver.summaries] == [cut]


def test_the_committer_acts_on_the_control_channel_past_the_rows(tmp_path: Path) -> None:
    driver, rows = Driver(tmp_path), through_lanes(sent())
    driver.committer.control(PING.with_id(1), ())
    driver.committer.control(FLUSH.with_id(2), ())  # nothing is open yet
    driver.committer.control(QUICK_END.with_id(3), [PIPELINE])
    driver.committer.commit(rows)
    sink: Any = driver.committer.sink(PIPELINE, "out")
    assert sink.read().num_rows == 0  # the epoch in flight is lost to it, and that is no failure
    assert driver.summaries[0].failures == {} and read_progress(tmp_path).failures == {}
    driver.committer.control(FLUSH.with_id(4), ())


def test_a_flush_names_the_sinks_that_still_owe_an_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(tmp_path)
    driver.committer.commit(through_lanes(sent()))
    progress = read_progress(tmp_path)
    write_progress(tmp_path, replace(progress, debts=(Debt(replace(PIPELINE, instance=9), "out", 3),)))
    owing: Any = driver.committer.sink(replace(PIPELINE, instance=9), "out")

    def broken(key: object, staged: object) -> int:
        raise SinkFailed("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(owing, "commit", broken)
        with pytest.raises(SinkFailed, match="the disk is full") as caught:
            driver.committer.control(FLUSH.with_id(1), ())
        assert caught.value.params["sinks"] == ["sink out of instance 9"]
    driver.committer.control(FLUSH.with_id(2), ())
