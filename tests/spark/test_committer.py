"""The commit of epochs, without Spark: what is committed of a pipeline that failed, and when it counts again."""

from __future__ import annotations

import contextlib
import errno
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.bridge.messages import Row
from headrace.bridge.reports import PlannedEpoch
from headrace.bridge.spark_rows import rows_in_messages
from headrace.control.signals import Barrier
from headrace.errors import DiskFull, MissingInput, SinkFailed, SinkUnavailable, StreamFailed
from headrace.model.definitions import PipelineDef, SinkDef
from headrace.model.plan_version import PipelineExit, PlanVersion
from headrace.model.program import SparkQuery
from headrace.ring0.task import run_task
from headrace.ring0.task_input import TaskInput
from headrace.sinks.delivery import stage
from headrace.sinks.file_sink import FileSink
from headrace.sinks.sink_kind import SinkKey, Staged
from headrace.spark import committer as committer_module
from headrace.spark.committer import CommitGivenUp, EpochCommitter
from headrace.spark.epoch_query import EpochQuery, QueryOutcome, QueryRunner
from headrace.spark.epochs import NothingPlanned, read_partition
from headrace.spark.summary import EpochSummary
from headrace.state.plans import PlanStore
from headrace.state.progress import Debt, Progress, read_progress, write_progress
from tests.ring0.tasks import WORD, Chunks, lines, stateless, stream

CASTS = stateless(1, sql=f"CAST(c{WORD} AS INT)")
NEIGHBOUR = stateless(2, WORD)


class Stream:
    """Commits epochs of one task each, one after the other."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.plans, self.epoch = directory, PlanStore(directory), -1
        self.summaries: list[EpochSummary] = []
        self.declared = {1, 2}
        self.committer = EpochCommitter(
            directory, "checkpoint", self.plans, self.summaries.append, self.declared.copy, lambda: None
        )
        self.before: tuple[PipelineExit, ...] = ()

    def publish(self, version: int, *pipelines: PipelineDef, left: tuple[PipelineExit, ...] = ()) -> PlanVersion:
        plan = PlanVersion(version, stream(event_time=None), pipelines, False, left)
        self.plans.publish(plan)
        return plan

    def commit(self, plan: PlanVersion, word: str, queries: QueryRunner | None = None) -> dict[int, str]:
        """An epoch with one row; the failures that are new in it."""
        self.epoch += 1
        split = Chunks((lines({"word": word}),))
        leaving = tuple(left for left in plan.left if left not in self.before)
        self.before = plan.left
        given = TaskInput(plan, split, 0, PlannedEpoch(self.epoch, 1, "checkpoint"), leaving)
        self.committer.commit([row for rows in run_task(given) for row in rows], queries=queries)
        return self.summaries[-1].failures

    def held(self, pipeline: PipelineDef) -> list[Any]:
        sink: Any = self.committer.sink(pipeline, pipeline.sinks[0].name)
        return list(sink.read().column(0).to_pylist())


def test_nothing_of_a_failed_pipeline_is_committed_until_it_is_started_again(tmp_path: Path) -> None:
    running = Stream(tmp_path)
    first = running.publish(1, CASTS, NEIGHBOUR)
    assert running.commit(first, "1") == {}
    assert list(running.commit(first, "x")) == [1]
    # Planned before the failure was known: it would have a hole now.
    assert running.commit(first, "2") == {}
    assert list(read_progress(tmp_path).failures) == ["1/0"]
    assert running.held(CASTS) == [1]
    # Started again before any epoch went without it.
    again = replace(CASTS, generation=1)
    second = running.publish(2, again, NEIGHBOUR, left=(PipelineExit(CASTS, flush=False),))
    assert running.commit(second, "3") == {}
    assert read_progress(tmp_path).failures == {}
    assert running.held(CASTS) == [1, 3]
    # The plan still names it as one that left; that was long ago when it fails once more.
    assert list(running.commit(second, "y")) == [1]
    assert running.commit(second, "4") == {}
    assert running.held(CASTS) == [1, 3]
    assert running.held(NEIGHBOUR) == ["1", "x", "2", "3", "y", "4"]


def test_epochs_that_a_pipeline_missed_are_a_gap_in_its_status(tmp_path: Path) -> None:
    running = Stream(tmp_path)
    both, one = running.publish(1, CASTS, NEIGHBOUR), running.publish(2, NEIGHBOUR)
    running.commit(both, "1")
    running.commit(one, "2")
    running.commit(one, "3")
    away = read_progress(tmp_path)
    assert away.rows - away.pipelines["1"].seen_rows == 2
    running.commit(running.publish(3, CASTS, NEIGHBOUR), "4")
    found = read_progress(tmp_path).pipelines
    assert [(g.first, g.last, g.rows) for g in found["1"].gaps] == [(1, 2, 2)]
    assert (found["1"].missed_rows, found["2"].missed_rows, found["2"].gaps) == (2, 0, ())
    # It comes back a second time, after a failure: the epoch in which it failed is missed too.
    again = running.publish(4, CASTS, NEIGHBOUR)
    running.commit(again, "x")
    back = running.publish(
        5, replace(CASTS, generation=1), NEIGHBOUR, left=(PipelineExit(CASTS, flush=False, number=9),)
    )
    running.commit(back, "5")
    found = read_progress(tmp_path).pipelines
    assert [(g.first, g.last, g.rows) for g in found["1"].gaps] == [(1, 2, 2), (4, 4, 1)]
    assert (found["1"].missed_rows, found["1"].rows_out, found["2"].rows_out) == (3, 3, 6)


def test_the_epochs_before_a_pipeline_s_first_are_no_gap(tmp_path: Path) -> None:
    running = Stream(tmp_path)
    running.commit(running.publish(1, NEIGHBOUR), "1")
    running.commit(running.publish(2, CASTS, NEIGHBOUR), "2")
    assert read_progress(tmp_path).pipelines["1"].missed_rows == 0


def test_the_counters_of_a_dropped_pipeline_are_deleted_after_its_last_epoch_and_those_of_a_stopped_one_are_not(
    tmp_path: Path,
) -> None:
    running = Stream(tmp_path)
    both, one = running.publish(1, CASTS, NEIGHBOUR), running.publish(2, NEIGHBOUR)
    running.commit(both, "1")
    running.commit(one, "2")
    assert set(read_progress(tmp_path).pipelines) == {"1", "2"}
    running.declared.remove(1)
    running.commit(both, "3")  # was planned when the drop came
    assert set(read_progress(tmp_path).pipelines) == {"1", "2"}
    running.commit(one, "4")
    assert set(read_progress(tmp_path).pipelines) == {"2"}


def test_an_epoch_of_which_no_task_reports_is_an_error_and_one_that_was_never_planned_is_not(tmp_path: Path) -> None:
    running = Stream(tmp_path)
    plan = running.publish(1, NEIGHBOUR)
    with pytest.raises(MissingInput):
        running.committer.commit([])
    assert read_progress(tmp_path).epoch == -1
    (batch,) = read_partition(NothingPlanned())
    running.committer.commit([Row(*values.values()) for values in batch.to_pylist()])
    assert (read_progress(tmp_path).epoch, running.summaries) == (-1, [])
    running.commit(plan, "1")
    assert read_progress(tmp_path).epoch == 0


def test_a_commit_whose_query_was_stopped_while_it_hung_stores_nothing(tmp_path: Path) -> None:
    running = Stream(tmp_path)
    plan = running.publish(1, NEIGHBOUR)
    given = TaskInput(plan, Chunks((lines({"word": "x"}),)), 0, PlannedEpoch(0, 1, "checkpoint"))
    rows = [row for rows in run_task(given) for row in rows]
    asked: list[str] = []

    def stopped_meanwhile() -> None:
        asked.append(running.committer.doing)
        if "sink" in running.committer.doing:
            raise StreamFailed("the query was stopped")

    with pytest.raises(StreamFailed):
        running.committer.commit(rows, stopped_meanwhile)
    assert asked[0] == "the commit"
    assert asked[-1] == f"the commit of sink {NEIGHBOUR.sinks[0].name} of pipeline {NEIGHBOUR.name}"
    assert running.committer.doing == ""
    assert read_progress(tmp_path).epoch == -1


def test_a_sink_that_owes_an_epoch_is_retried_between_epochs(tmp_path: Path) -> None:
    running = Stream(tmp_path)
    both = tuple(SinkDef(name, "memory", {"retries": "0", "on_failure": "detach"}) for name in ("one", "two"))
    pipeline = replace(NEIGHBOUR, sinks=both)
    slow: Any = running.committer.sink(pipeline, "two")
    real, slow.commit = slow.commit, _refuse
    running.commit(running.publish(1, pipeline), "x")
    assert [(debt.sink, debt.epoch) for debt in running.summaries[-1].progress.debts] == [("two", 0)]
    assert len(running.committer.settle()) == 1
    slow.commit = real
    assert running.committer.settle() == ()
    assert read_progress(tmp_path).debts == ()


def test_nobody_waits_for_a_commit_that_was_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever still waited would go on when it returns, beside another commit, and overwrite its progress."""
    monkeypatch.setattr(committer_module, "LOOK_SECONDS", 0.05)
    running = Stream(tmp_path)
    plan = running.publish(1, CASTS, NEIGHBOUR)
    entered, answers = threading.Event(), threading.Event()
    slow: Any = running.committer.sink(CASTS, CASTS.sinks[0].name)
    real = slow.commit

    def hanging(key: SinkKey, staged: list[Staged]) -> int:
        entered.set()
        answers.wait(60)
        rows: int = real(key, staged)
        return rows

    def commit() -> None:
        with contextlib.suppress(CommitGivenUp):
            running.commit(plan, "1")

    slow.commit = hanging
    commits, settles = threading.Thread(target=commit), threading.Thread(target=running.committer.settle, daemon=True)
    commits.start()
    assert entered.wait(30)
    settles.start()
    time.sleep(0.2)
    assert settles.is_alive()
    running.committer.give_up({1})
    settles.join(30)
    assert not settles.is_alive()
    assert running.committer.sinks.hanging.instances == {1}
    answers.set()
    commits.join(30)
    assert running.committer.sinks.hanging.instances == set()
    assert read_progress(tmp_path).epoch == -1
    assert running.committer.sink(CASTS, CASTS.sinks[0].name) is slow


def test_the_last_rows_of_a_replaced_pipeline_wait_for_a_commit_that_hangs(tmp_path: Path) -> None:
    running = Stream(tmp_path)
    running.commit(running.publish(1, CASTS, NEIGHBOUR), "1")
    replaced = running.publish(2, NEIGHBOUR, left=(PipelineExit(CASTS, flush=True),))
    running.committer.sinks.hanging.hold("hangs", 1, CASTS.sinks[0].name, whole=True)
    with pytest.raises(SinkUnavailable):
        running.commit(replaced, "2")
    assert read_progress(tmp_path).epoch == 0
    running.committer.sinks.hanging.release("hangs")
    running.epoch, running.before = 0, ()
    assert running.commit(replaced, "2") == {}
    assert read_progress(tmp_path).epoch == 1
    assert running.held(NEIGHBOUR) == ["1", "2"]


class Doubling:
    """Takes the place of Spark: writes every staged row twice, and fails on the word `bad`."""

    def __init__(self) -> None:
        self.asked: list[EpochQuery] = []

    def run(
        self, asked: Sequence[EpochQuery], limit: float | None, quit_now: Callable[[PipelineDef], bool]
    ) -> dict[int, QueryOutcome]:
        self.asked += asked
        return {query.pipeline.instance: self._outcome(query) for query in asked}

    def _outcome(self, query: EpochQuery) -> QueryOutcome:
        spark = query.pipeline.program.spark
        assert spark is not None
        rows = rows_in_messages(query.staged, spark.staged.arrow)
        if rows.column(0).to_pylist() == ["bad"]:
            return QueryOutcome(failure="[EVALUATION_FAILED] bad", ms=1.0)
        lost: dict[str, str] = {}
        staged = stage(query.pipeline.sinks, pa.concat_tables([rows, rows]), query.key, lost)
        return QueryOutcome({sink: [receipt] for sink, receipt in staged}, lost, ms=7.0)

    def forget(self, instances: set[int]) -> None:
        raise AssertionError("nothing is dropped here")


def test_the_spark_query_of_a_pipeline_runs_in_the_commit_and_its_failure_is_its_own(tmp_path: Path) -> None:
    running, spark = Stream(tmp_path), Doubling()
    program = replace(NEIGHBOUR.program, spark=SparkQuery("SELECT ...", "s", NEIGHBOUR.program.output))
    hosted = replace(NEIGHBOUR, instance=1, name="hosted", program=program)
    plan = running.publish(1, hosted, NEIGHBOUR)
    assert running.commit(plan, "x", spark) == {}
    assert running.held(hosted) == ["x", "x"] and running.held(NEIGHBOUR) == ["x"]
    assert running.summaries[-1].pipeline_ms[1] >= 7.0, "the time of the query counts for the pipeline"
    assert running.commit(plan, "bad", spark) == {1: "[EVALUATION_FAILED] bad"}
    assert running.held(hosted) == ["x", "x"] and running.held(NEIGHBOUR) == ["x", "bad"]
    assert running.commit(plan, "y", spark) == {}
    assert [q.key.epoch for q in spark.asked] == [0, 1], "an epoch planned before the failure was known runs no query"
    assert running.held(hosted) == ["x", "x"]


class OnlyStaging(Doubling):
    """Stages rows as the tasks of a query do, and fails then: there is no server to commit to."""

    def _outcome(self, query: EpochQuery) -> QueryOutcome:
        assert super()._outcome(query).lost == {}
        return QueryOutcome(failure="no server")


def test_a_spark_query_stages_the_rows_of_sinks_without_a_directory_in_that_of_the_stream(tmp_path: Path) -> None:
    running, spark = Stream(tmp_path / "stream"), OnlyStaging()
    sinks = (
        SinkDef("table", "postgres", {"url": "postgresql://nobody@127.0.0.1:1/no", "table": "t"}),
        SinkDef("topic", "kafka", {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}),
    )
    program = replace(NEIGHBOUR.program, spark=SparkQuery("SELECT ...", "s", NEIGHBOUR.program.output))
    hosted = replace(NEIGHBOUR, instance=1, name="hosted", program=program, sinks=sinks)
    seen: list[Path] = []
    staging = tmp_path / "stream" / "staging"
    outcome = OnlyStaging._outcome

    def look(self: OnlyStaging, query: EpochQuery) -> QueryOutcome:
        try:
            return outcome(self, query)
        finally:
            seen.extend(p for p in staging.rglob("*") if p.is_file())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OnlyStaging, "_outcome", look)
        assert running.commit(running.publish(1, hosted, NEIGHBOUR), "x", spark) == {1: "no server"}
    assert len(seen) >= 2, "one file for each sink"
    assert running.held(NEIGHBOUR) == ["x"]


def test_a_disk_without_room_for_staged_rows_is_no_failure_of_the_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object, **more: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("headrace.bridge.spark_rows.INLINE_BYTES", 0)
    monkeypatch.setattr("headrace.bridge.spark_rows.pq.write_table", full)
    program = replace(NEIGHBOUR.program, spark=SparkQuery("SELECT ...", "s", NEIGHBOUR.program.output))
    running = Stream(tmp_path)
    plan = running.publish(1, replace(NEIGHBOUR, program=program))
    split = Chunks((lines({"word": "x"}),))
    given = TaskInput(plan, split, 0, PlannedEpoch(0, 1, "checkpoint", staging=str(tmp_path)))
    rows = [row for rows in run_task(given) for row in rows]
    with pytest.raises(DiskFull):  # the epoch is run again when there is room
        running.committer.commit(rows, queries=Doubling())
    assert read_progress(tmp_path).failures == {} and not running.summaries


def _refuse(*given: object) -> int:
    raise SinkFailed("not now")


@pytest.mark.parametrize("how", ["settle", "flush", "an epoch"])
def test_a_sink_that_owes_two_epochs_gets_the_older_one_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The newer one must wait when the older one fails in passing: its commit deletes the staged rows of the older."""
    running = Stream(tmp_path)
    sink = SinkDef("out", "jsonl", {"path": str(tmp_path / "out"), "retries": "0"})
    pipeline = replace(NEIGHBOUR, sinks=(sink,))
    for epoch in (1, 2):
        key = SinkKey("checkpoint", 2, epoch)
        receipts = stage([sink], pa.table({"word": [f"row {epoch}"]}), key, {})
        running.committer.sink(pipeline, "out").promise(key, [receipt for _, receipt in receipts])
    debts = tuple(Debt(pipeline, "out", epoch, promised=True) for epoch in (2, 1))  # as earlier versions stored them
    write_progress(tmp_path, Progress(epoch=2, debts=debts))
    commit, failed = FileSink.commit, list[int]()

    def once(found: FileSink, key: SinkKey, staged: list[Staged]) -> int:
        if key.epoch == 1 and not failed:
            failed.append(1)
            raise SinkFailed("it fails in passing")
        return commit(found, key, staged)

    monkeypatch.setattr(FileSink, "commit", once)
    if how == "settle":
        assert [debt.epoch for debt in running.committer.settle()] == [1, 2]
    elif how == "flush":
        with pytest.raises(SinkFailed):
            running.committer.control(Barrier("flush", 1), [])
    else:
        running.epoch = 2
        running.commit(running.publish(1, CASTS), "1")
        assert [debt.epoch for debt in read_progress(tmp_path).debts] == [1, 2]
    assert running.committer.settle() == ()
    shown = sorted(path.read_text().strip() for path in (tmp_path / "out").glob("part-*"))
    assert shown == ['{"word":"row 1"}', '{"word":"row 2"}']
