"""The keeper without Spark: who is found guilty of a worker's death, and that nobody else is."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.keeper import QueryKeeper, worker_died
from headrace.program import PlanVersion
from headrace.streams.culprit import Search
from headrace.streams.plans import PlanStore
from headrace.streams.progress import Applied, write_applied
from headrace.streams.quarantine import read_quarantine
from tests.ring0.tasks import WORD, stateless, stream
from tests.strategies import examples

DEATH = "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"


class Machine:
    """Runs one epoch over and over, as Spark would: it dies when `dies` says so of those who run, and is committed when
    it is no probe."""

    def __init__(self, directory: Path, count: int, dies: Callable[[set[int]], bool]) -> None:
        self.directory, self.dies = directory, dies
        self.plan = PlanVersion(3, stream(), tuple(stateless(i, WORD) for i in range(1, count + 1)))
        plans = PlanStore(directory)
        plans.publish(self.plan)
        self.ends: list[Callable[[str | None], None]] = []
        self.failed: dict[str, str] = {}
        self.runs = 0
        self.committed: set[int] | None = None
        self.keeper = QueryKeeper(directory, plans, self.launch, self.failed.update, lambda: None)

    def launch(self, on_end: Callable[[str | None], None]) -> Machine:
        self.ends.append(on_end)
        return self

    def stop(self) -> None:
        """Nothing runs here."""

    def run(self) -> None:
        self.keeper.start()
        while self.committed is None and self.keeper.problem is None:
            self.runs += 1
            assert self.runs < 500
            quarantine = read_quarantine(self.directory)
            present = {p.instance for p in quarantine.apply(self.plan).pipelines}
            if quarantine.probe is None:
                write_applied(self.directory, Applied(3, 7, ()))
            if self.dies(present):
                self.ends[-1](DEATH)
            elif quarantine.probe is not None:
                self.keeper.probe_lived()
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


def test_a_death_that_does_not_come_again_is_nobody_s_fault(tmp_path: Path) -> None:
    deaths = iter([True, False])
    machine = Machine(tmp_path, 5, lambda present: next(deaths))
    machine.run()
    assert (machine.failed, machine.runs, machine.committed) == ({}, 2, {1, 2, 3, 4, 5})


def test_those_who_are_too_many_together_are_made_fewer(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 6, lambda present: len(present) > 4)
    machine.run()
    assert machine.committed is not None
    assert (len(machine.committed), len(machine.failed)) == (4, 2)


def test_an_epoch_that_dies_without_any_pipeline_is_the_stream_s_failure(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 4, lambda present: True)
    machine.run()
    assert machine.keeper.problem == DEATH
    assert (machine.failed, machine.committed) == ({}, None)
    assert not machine.keeper.running
    assert read_quarantine(tmp_path).out == ()


def test_another_failure_is_told_and_nobody_is_looked_for(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 4, lambda present: False)
    write_applied(tmp_path, Applied(3, 7, ()))
    machine.keeper.start()
    machine.ends[-1]("[FILE_CHANGED] a.json was replaced")
    assert machine.keeper.problem == "[FILE_CHANGED] a.json was replaced"
    assert len(machine.ends) == 1
    assert not worker_died("java.io.IOException: No space left on device")


def test_the_end_of_a_query_that_was_stopped_on_purpose_means_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 4, lambda present: False)
    machine.keeper.start()
    machine.keeper.stop()
    machine.ends[-1](DEATH)
    assert len(machine.ends) == 1
    assert machine.keeper.problem is None
    assert machine.keeper.start()


def test_one_that_is_started_again_is_left_out_of_older_plans_only(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 3, lambda present: 2 in present)
    machine.run()
    found = read_quarantine(tmp_path).without({2}, 3)
    assert set(found.reasons(3)) == {2}
    assert found.reasons(4) == {}


@given(st.integers(0, 64), st.data())
def test_the_search_ends_with_one_whose_presence_kills(count: int, data: st.DataObject) -> None:
    guilty = data.draw(st.sets(st.integers(0, count - 1), min_size=1) if count else st.just(set()))
    search, probes = Search(range(count)), 0
    while (probe := search.probe) is not None:
        probes += 1
        (search.died if guilty & set(probe) else search.lived)()
    assert search.guilty == (min(guilty) if guilty else None)
    assert probes <= count.bit_length() + 1
