"""The supervisor without Spark: it finds the pipeline that kills workers, and blames no other."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import AddressInUse, DiskFull, EpochTimeout
from headrace.model.plan_version import PlanVersion
from headrace.state.plans import PlanStore
from headrace.state.progress import Applied, Progress, write_applied, write_progress
from headrace.state.quarantine import read_quarantine
from headrace.stream.culprit import Search
from headrace.stream.elimination import worker_died
from headrace.stream.inflight import InFlight, too_long
from headrace.stream.retries import RetryPolicy
from headrace.stream.supervisor import QuerySupervisor
from tests.ring0.tasks import WORD, stateless, stream
from tests.strategies import examples

DEATH = "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"


class FakeClock:
    """Time that passes only in `run`. `waits` are the waits that were requested."""

    def __init__(self) -> None:
        self.time, self.waits = 1000.0, list[float]()
        self.due: list[tuple[float, Callable[[], None]]] = []

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    def later(self, seconds: float, act: Callable[[], None]) -> Callable[[], None]:
        entry = (self.time + seconds, act)
        self.waits.append(seconds)
        self.due.append(entry)
        return lambda: self.due.remove(entry) if entry in self.due else None

    def run(self) -> bool:
        """Move on to the next call that is due. False if there is none."""
        if not self.due:
            return False
        self.due.sort(key=lambda entry: entry[0])
        at, act = self.due.pop(0)
        self.time = max(self.time, at)
        act()
        return True


class Machine:
    """Runs one epoch again and again, as Spark does. The epoch dies if `dies` is true for the instances in it, and is
    committed unless it is a probe."""

    def __init__(self, directory: Path, count: int, dies: Callable[[set[int]], bool]) -> None:
        self.directory, self.dies = directory, dies
        self.plan = PlanVersion(3, stream(), tuple(stateless(i, WORD) for i in range(1, count + 1)))
        plans = PlanStore(directory)
        plans.publish(self.plan)
        self.ends: list[Callable[[str | None], None]] = []
        self.failed: dict[str, str] = {}
        self.runs = 0
        self.committed: set[int] | None = None
        self.clock = FakeClock()
        self.refusal: Exception | None = None  # raised instead of launching a query
        self.supervisor = QuerySupervisor(directory, plans, self, self.clock, RetryPolicy(limit=4))

    def launch_query(self, on_end: Callable[[str | None], None]) -> Machine:
        if self.refusal is not None:
            raise self.refusal
        self.ends.append(on_end)
        return self

    def blame(self, guilty: dict[str, str]) -> None:
        self.failed.update(guilty)

    def query_changed(self) -> None:
        """Tests look at the supervisor."""

    def stop(self) -> None:
        """Nothing runs here."""

    def last_epoch(self) -> None:
        return None

    def state(self) -> str:
        return self.supervisor.state

    def run(self) -> None:
        self.supervisor.start()
        while self.committed is None and self.supervisor.problem is None:
            self.clock.run()
            self.runs += 1
            assert self.runs < 500
            quarantine = read_quarantine(self.directory)
            present = {p.instance for p in quarantine.apply(self.plan).pipelines}
            if quarantine.probe is None:
                write_applied(self.directory, Applied(3, 7, ()))
            if self.dies(present):
                self.ends[-1](DEATH)
            elif quarantine.probe is not None:
                self.supervisor.probe_lived()
                self.ends[-1]("ProbeLived")
            else:
                self.committed = present


@settings(max_examples=examples(15))
@given(st.integers(1, 40), st.data())
def test_exactly_the_guilty_are_left_out(count: int, data: st.DataObject) -> None:
    guilty = data.draw(st.sets(st.integers(1, count), max_size=3))
    with tempfile.TemporaryDirectory() as directory:
        machine = Machine(Path(directory), count, lambda present: bool(present & guilty))
        machine.run()
        assert set(machine.failed) == {f"{i}/0" for i in guilty}
        assert machine.committed == set(range(1, count + 1)) - guilty
        assert all("[WORKER_DIED]" in reason for reason in machine.failed.values())
        assert machine.runs <= 2 + len(guilty) * (count.bit_length() + 2)
        assert read_quarantine(Path(directory)).probe is None


def test_a_death_that_does_not_happen_again_blames_no_pipeline(tmp_path: Path) -> None:
    deaths = iter([True, False])
    machine = Machine(tmp_path, 5, lambda present: next(deaths))
    machine.run()
    assert (machine.failed, machine.runs, machine.committed) == ({}, 2, {1, 2, 3, 4, 5})


def test_pipelines_that_die_only_together_are_reduced(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 6, lambda present: len(present) > 4)
    machine.run()
    assert machine.committed is not None
    assert (len(machine.committed), len(machine.failed)) == (4, 2)


def test_an_epoch_that_dies_without_any_pipeline_is_the_stream_s_failure(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 4, lambda present: True)
    machine.run()
    assert machine.supervisor.problem == DEATH
    assert (machine.failed, machine.committed) == ({}, None)
    assert not machine.supervisor.running
    assert read_quarantine(tmp_path).out == ()


def test_a_failure_that_cannot_pass_ends_the_query_at_once_without_a_search(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 4, lambda present: False)
    write_applied(tmp_path, Applied(3, 7, ()))
    machine.supervisor.start()
    machine.ends[-1]("[FILE_CHANGED] a.json was replaced")
    assert machine.supervisor.problem == "[FILE_CHANGED] a.json was replaced"
    assert (machine.state(), machine.supervisor.running) == ("dead", False)
    assert len(machine.ends) == 1
    assert not worker_died("java.io.IOException: No space left on device")


def test_any_other_failure_is_tried_again_with_growing_waits_and_a_limit(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1, lambda present: False)
    supervisor, clock = machine.supervisor, machine.clock
    supervisor.start()
    began = clock.now()
    for attempt in range(1, 5):
        machine.ends[-1]("java.io.IOException: the planner is gone")
        assert machine.state() == "retrying" and supervisor.retrying is not None
        assert (supervisor.retrying.attempt, supervisor.retrying.since) == (attempt, began)
        assert supervisor.retrying.next_try > clock.now()
        assert supervisor.running, "those who wait for it go on waiting"
        clock.run()
        assert len(machine.ends) == attempt + 1
    assert clock.waits == [0.5, 1.0, 2.0, 4.0]
    machine.ends[-1]("java.io.IOException: the planner is gone")
    assert (machine.state(), supervisor.problem) == ("dead", "java.io.IOException: the planner is gone")
    assert not clock.run()
    assert supervisor.start() and machine.state() == "running"


def test_the_row_of_failures_begins_again_after_a_committed_epoch_and_after_a_long_calm(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1, lambda present: False)
    machine.supervisor.start()
    for epoch in range(8):
        write_progress(tmp_path, Progress(epoch=epoch))
        machine.ends[-1]("it broke")
        machine.clock.run()
    assert set(machine.clock.waits) == {0.5}
    for _ in range(8):
        machine.clock.time += 1000
        machine.ends[-1]("it broke")
        machine.clock.run()
    assert set(machine.clock.waits) == {0.5}


def test_a_full_disk_is_waited_for_without_a_limit(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1, lambda present: False)
    machine.supervisor.start()
    for _ in range(50):
        machine.ends[-1](DiskFull("no room").render())
        assert machine.state() == "retrying"
        machine.clock.run()
    assert max(machine.clock.waits) == 30.0


def test_a_query_that_cannot_be_started_again_is_tried_again_too(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1, lambda present: False)
    machine.supervisor.start()
    machine.refusal = OSError(28, "No space")
    machine.ends[-1]("it broke")
    machine.clock.run()
    assert machine.supervisor.retrying is not None and "[DISK_FULL]" in machine.supervisor.retrying.problem
    machine.refusal = None
    machine.clock.run()
    assert len(machine.ends) == 2
    assert machine.state() == "retrying"
    machine.supervisor.well()
    assert machine.state() == "running"


def test_a_first_start_that_fails_is_raised_unless_it_is_patient(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1, lambda present: False)
    machine.refusal = AddressInUse("port 80")
    with pytest.raises(AddressInUse):
        machine.supervisor.start()
    assert machine.state() == "stopped"
    assert machine.supervisor.start(patient=True)
    assert machine.state() == "retrying"
    machine.refusal = None
    machine.supervisor.try_now()
    assert len(machine.ends) == 1 and not machine.clock.due


def test_a_stop_while_it_waits_for_the_next_try_ends_that(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1, lambda present: False)
    machine.supervisor.start()
    machine.ends[-1]("it broke")
    machine.supervisor.stop()
    assert not machine.clock.run()
    assert machine.state() == "stopped"


def test_another_failure_in_the_middle_of_a_search_does_not_end_the_search(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 4, lambda present: 3 in present)
    machine.supervisor.start()
    write_applied(tmp_path, Applied(3, 7, ()))
    machine.ends[-1](DEATH)
    machine.ends[-1](DEATH)
    probe = read_quarantine(tmp_path).probe
    assert probe is not None
    machine.ends[-1]("java.io.IOException: the planner is gone")
    machine.clock.run()
    assert read_quarantine(tmp_path).probe == probe


def test_a_worker_that_is_killed_twice_from_outside_blames_no_pipeline(tmp_path: Path) -> None:
    deaths = iter([True, True])
    machine = Machine(tmp_path, 6, lambda present: next(deaths, False))
    machine.run()
    assert (machine.failed, machine.committed) == ({}, {1, 2, 3, 4, 5, 6})


def test_an_epoch_that_never_ends_is_aborted_and_its_pipeline_is_found_like_one_that_kills(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 4, lambda present: False)
    machine.supervisor.start()
    write_applied(tmp_path, Applied(3, 7, ()))
    for _ in range(20):
        quarantine = read_quarantine(tmp_path)
        present = {p.instance for p in quarantine.apply(machine.plan).pipelines}
        if 2 in present:
            ends = len(machine.ends)
            machine.supervisor.abort(EpochTimeout("epoch 7 takes too long").render())
            assert len(machine.ends) == ends + 1, "the query that was stopped is not counted a second time"
        elif quarantine.probe is not None:
            machine.supervisor.probe_lived()
            machine.ends[-1]("ProbeLived")
        else:
            break
    assert list(machine.failed) == ["2/0"]
    assert "[EPOCH_TIMEOUT]" in machine.failed["2/0"]


def test_an_epoch_that_is_not_planned_in_time_blames_no_pipeline(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 3, lambda present: False)
    machine.supervisor.start()
    write_applied(tmp_path, Applied(3, 7, ()))
    problem = too_long("s", InFlight(8, 31.0, "planning"), 30.0)
    for attempt in range(1, 6):
        machine.supervisor.abort(problem.render())
        assert read_quarantine(tmp_path).probe is None
        assert machine.state() == ("retrying" if attempt < 5 else "dead")
        machine.clock.run()
    assert machine.failed == {}
    assert "pipeline" not in problem.advice


def test_a_damaged_progress_is_the_reason_that_is_shown(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1, lambda present: False)
    machine.supervisor.start()
    (tmp_path / "progress.json").write_text("{")
    machine.ends[-1]("java.io.IOException: whatever Spark makes of it")
    assert machine.state() == "dead"
    assert "[STATE_DAMAGED]" in str(machine.supervisor.problem) and "progress.json" in str(machine.supervisor.problem)


def test_the_end_of_a_query_that_was_stopped_on_purpose_means_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 4, lambda present: False)
    machine.supervisor.start()
    machine.supervisor.stop()
    machine.ends[-1](DEATH)
    assert len(machine.ends) == 1
    assert machine.supervisor.problem is None
    assert machine.supervisor.start()


def test_one_that_is_started_again_is_left_out_of_older_plans_only(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 3, lambda present: 2 in present)
    machine.run()
    found = read_quarantine(tmp_path).without({2}, 3)
    assert set(found.reasons(3)) == {2}
    assert found.reasons(4) == {}


@given(st.integers(0, 64), st.data())
def test_the_search_ends_with_a_pipeline_whose_presence_kills(count: int, data: st.DataObject) -> None:
    guilty = data.draw(st.sets(st.integers(0, count - 1), min_size=1) if count else st.just(set()))
    search, probes = Search(range(count)), 0
    while (probe := search.probe) is not None:
        probes += 1
        (search.died if guilty & set(probe) else search.lived)()
    assert search.guilty == (min(guilty) if guilty else None)
    assert probes <= count.bit_length() + 1
