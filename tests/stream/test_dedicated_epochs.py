"""What sinks hold of a pipeline on the dedicated host, when its query begins again without its state."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from headrace.base.durable import fsync, private_directory
from headrace.errors import SinkFailed, StateDamaged, StateUnavailable
from headrace.model.definitions import PipelineDef, SinkDef
from headrace.model.stored import store, store_text, stored
from headrace.sinks import SINKS
from headrace.sinks.delivery import stage
from headrace.sinks.file_sink import FileSink
from headrace.sinks.sink_kind import KnowsWriters, SinkKey, Staged
from headrace.spark import dedicated_committer
from headrace.state import checkpoint_sync, spark_log
from headrace.state.checkpoint import checkpoint_id, own_checkpoint_id
from headrace.state.dedicated_state import BEGIN, Begin, newest_turn, sink_epochs
from headrace.state.restore import newer_ids
from headrace.stream import dedicated_runtime
from headrace.stream.dedicated_runtime import DedicatedRuntime
from tests.ring0.tasks import N, stateless
from tests.stream.test_dedicated_damage import Host

OFFSETS = 'v1\n{{}}\n{{"stream": "s", "position": {}, "closed": {}}}\n'


@pytest.fixture(autouse=True)
def rows_without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a batch are a list of numbers."""

    def write(
        rows: list[int], pipeline: PipelineDef, key: SinkKey, lost: dict[str, str], in_tasks: bool
    ) -> dict[str, list[Staged]]:
        table = pa.table({"n": pa.array(rows, pa.int32())})
        return {name: [receipt] for name, receipt in stage(pipeline.sinks, table, key, lost)}

    monkeypatch.setattr(dedicated_committer, "write_output", write)


class Rig:
    """A pipeline with the sinks `a` and `b`, and the runtime that its declaration has now."""

    def __init__(self, root: Path) -> None:
        self.root = root
        sinks = tuple(SinkDef(n, "jsonl", {"path": str(root / n), "retries": "0"}) for n in ("a", "b"))
        self.pipeline = PipelineDef("p", 1, sinks, stateless(1, N).program, 1)
        self.runtime = self._made()

    def _made(self) -> DedicatedRuntime:
        runtime = DedicatedRuntime(self.pipeline, lambda stream: self.root / "streams" / stream, Host())
        runtime.start()
        return runtime

    def lose_state(self) -> None:
        """As STOP PIPELINE ... NOW and START do."""
        self.runtime.close()
        self.pipeline = replace(self.pipeline, fresh=self.pipeline.fresh + 1)
        self.runtime = self._made()

    def running(self) -> Any:
        """The query that runs a batch."""
        return SimpleNamespace(current=lambda: True, late=lambda: 0, pipeline=self.pipeline)

    def batch(self, number: int, *rows: int, closed: bool = False) -> None:
        """A batch as Spark runs it."""
        checkpoint = self.runtime.directory / "checkpoint"
        for log in ("offsets", "commits"):
            private_directory(checkpoint / log)
        (checkpoint / "offsets" / str(number)).write_text(OFFSETS.format(0, str(closed).lower()))
        given: Any = list(rows)
        self.runtime.committer.commit(given, number, self.pipeline, self.running())
        (checkpoint / "commits" / str(number)).write_text("v1\n{}")

    def shown(self, name: str) -> list[int]:
        parts = (self.root / name).glob("part-*")
        return sorted(int(line[5:-1]) for part in parts for line in part.read_text().splitlines())

    def saved(self) -> SinkKey:
        """What a savepoint that is taken now knows of the sinks."""
        known = sink_epochs(self.runtime.directory, "p")
        return SinkKey(known.checkpoint, 1, known.newest)

    def ahead(self, saved: SinkKey) -> int:
        """As restoring a savepoint asks, before it allows to write the same rows again."""
        return SINKS["jsonl"].driver(self.pipeline.sinks[0], self.pipeline.program.output).ahead(saved)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    found = Rig(tmp_path)
    yield found
    found.runtime.close()


def test_a_savepoint_sees_what_a_later_turn_has_written(rig: Rig) -> None:
    rig.batch(0, 1)
    rig.batch(1, 2, closed=True)
    saved = rig.saved()
    assert rig.ahead(saved) == 0
    rig.runtime.supervisor.bounce()
    assert newest_turn(rig.runtime.home) == 1
    rig.batch(0, 3)
    assert rig.shown("a") == rig.shown("b") == [1, 2, 3]
    assert rig.ahead(saved) > 0


def test_a_restore_can_compute_who_has_written_to_the_sinks_of_a_newer_pipeline(rig: Rig) -> None:
    rig.batch(0, 1)
    stream = checkpoint_id(rig.root / "streams" / "s", "s")
    wanted = (own_checkpoint_id(stream, 1), 1)
    driver = SINKS["jsonl"].driver(rig.pipeline.sinks[0], rig.pipeline.program.output)
    assert isinstance(driver, KnowsWriters)
    assert driver.writers(partial(newer_ids, stream, 1)) == {wanted}
    assert driver.writers(partial(newer_ids, stream, 2)) == set(), "the savepoint knows it"
    assert driver.ahead(SinkKey(*wanted, -1)) > 0
    driver.rewind(SinkKey(*wanted, -1))
    assert rig.shown("a") == []


def test_a_state_that_begins_anew_because_the_old_one_is_damaged_writes_under_another_id(rig: Rig) -> None:
    rig.batch(0, 1)
    before = rig.saved().checkpoint
    (rig.runtime.directory / "progress.json").write_text("damaged")
    rig.lose_state()
    assert rig.saved().checkpoint != before
    rig.batch(0, 2)
    assert rig.shown("a") == [1, 2]


def test_a_savepoint_sees_what_was_written_after_the_state_was_dropped(rig: Rig) -> None:
    rig.batch(0, 1)
    saved = rig.saved()
    rig.lose_state()
    assert rig.ahead(saved) == 0
    rig.batch(0, 2)
    rig.batch(1, 3)
    assert rig.shown("a") == rig.shown("b") == [1, 2, 3]
    assert rig.ahead(saved) > 0


def test_an_epoch_that_one_sink_has_reaches_the_other_sink_even_if_the_state_is_dropped(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.batch(0, 1)
    real = type(rig.runtime.committer.sinks.of(rig.pipeline, "b")).commit

    def broken(sink: Any, key: SinkKey, staged: list[Staged]) -> int:
        if sink.paths.sink == "b":
            raise SinkFailed("b cannot commit")
        return real(sink, key, staged)

    owner = next(k for k in type(rig.runtime.committer.sinks.of(rig.pipeline, "b")).__mro__ if "commit" in vars(k))
    monkeypatch.setattr(owner, "commit", broken)
    with pytest.raises(SinkFailed):
        rig.batch(1, 2)
    monkeypatch.setattr(owner, "commit", real)
    assert (rig.shown("a"), rig.shown("b")) == ([1, 2], [1])
    rig.lose_state()
    rig.batch(0, 3)
    assert rig.shown("a") == rig.shown("b") == [1, 2, 3]


@pytest.fixture
def broken(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The sinks that cannot commit now."""
    found: set[str] = set()
    commit = FileSink.commit

    def committed(sink: FileSink, key: SinkKey, staged: list[Staged]) -> int:
        if sink.paths.sink in found:
            raise SinkFailed(f"{sink.paths.sink} cannot commit")
        return commit(sink, key, staged)

    monkeypatch.setattr(FileSink, "commit", committed)
    return found


@pytest.mark.parametrize("failing", ["no batch", "a batch", "batches"])
def test_an_epoch_that_one_sink_has_is_not_forgotten_while_the_other_one_stays_broken(
    rig: Rig, broken: set[str], failing: str
) -> None:
    rig.batch(0, 1)
    broken.add("b")
    with pytest.raises(SinkFailed):
        rig.batch(1, 2)
    for attempt in range({"no batch": 1, "a batch": 1, "batches": 3}[failing]):
        rig.lose_state()
        if failing != "no batch":
            with pytest.raises(SinkFailed):
                rig.batch(0, 10 + attempt)
    broken.clear()
    rig.lose_state()
    rig.batch(0, 4)
    rig.batch(1, 5)
    assert rig.shown("a") == rig.shown("b") == [1, 2, 4, 5]
    assert rig.runtime.progress.debts == ()


def test_epochs_that_fail_one_after_the_other_in_a_later_sink_all_reach_it(rig: Rig, broken: set[str]) -> None:
    """It settles the older ones each time, and then breaks."""
    for number in range(4):
        owner: Any = rig.runtime.committer.sinks.of(rig.pipeline, "b")
        real, key = owner.commit, rig.saved()

        def commit(found: SinkKey, staged: list[Staged], real: Any = real, last: int = key.epoch) -> int:
            if found.epoch > last:
                raise SinkFailed("b cannot commit")
            return int(real(found, staged))

        owner.commit = commit
        with pytest.raises(SinkFailed):
            rig.batch(0, number)
        rig.lose_state()
    rig.batch(0, 4)
    assert rig.shown("a") == rig.shown("b") == [0, 1, 2, 3, 4]


def test_a_query_that_fails_before_its_first_commit_passes_on_what_is_undecided(
    rig: Rig, broken: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.batch(0, 1)
    broken.add("b")
    with pytest.raises(SinkFailed):
        rig.batch(1, 2)
    broken.clear()
    for _ in range(3):
        rig.lose_state()
        with monkeypatch.context() as fails, pytest.raises(ZeroDivisionError):  # Spark has logged the batch by then
            fails.setattr(rig.runtime.committer, "commit", lambda *given: 1 // 0)
            rig.batch(0, 3)
    rig.lose_state()
    rig.batch(0, 4)
    assert rig.shown("a") == rig.shown("b") == [1, 2, 4]


def test_an_undecided_epoch_that_a_detached_sink_did_not_take_stays_owed(rig: Rig, broken: set[str]) -> None:
    options = {"path": str(rig.root / "b"), "retries": "0", "on_failure": "detach"}
    rig.batch(0, 1)
    broken.add("b")
    with pytest.raises(SinkFailed):
        rig.batch(1, 2)
    rig.pipeline = replace(rig.pipeline, sinks=(rig.pipeline.sinks[0], SinkDef("b", "jsonl", options)))
    rig.lose_state()
    rig.batch(0, 3)
    rig.batch(1, 4)
    assert [(debt.sink, debt.epoch) for debt in rig.runtime.progress.debts] == [("b", 1)]
    broken.clear()
    rig.lose_state()
    rig.batch(0, 5)
    assert (rig.shown("a"), rig.shown("b")) == ([1, 2, 3, 4, 5], [1, 2, 5])
    assert rig.runtime.progress.debts == ()


def test_an_undecided_epoch_is_not_forgotten_although_the_hub_dies_again_and_again(
    rig: Rig, broken: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sink that has it forgets its manifest after two more epochs."""
    options = {"path": str(rig.root / "b"), "retries": "0", "on_failure": "detach"}
    rig.batch(0, 1)
    broken.add("b")
    with pytest.raises(SinkFailed):
        rig.batch(1, 2)
    rig.pipeline = replace(rig.pipeline, sinks=(rig.pipeline.sinks[0], SinkDef("b", "jsonl", options)))

    def die(place: str) -> None:
        if place == "after-dedicated-commit":
            raise KeyboardInterrupt

    for number in (3, 4, 5):
        rig.lose_state()
        with monkeypatch.context() as dies, pytest.raises(KeyboardInterrupt):
            dies.setattr(dedicated_committer, "fault_point", die)
            rig.batch(0, number)
    broken.clear()
    rig.lose_state()
    rig.batch(0, 6)
    assert (rig.shown("a"), rig.shown("b")) == ([1, 2, 3, 4, 5, 6], [1, 2, 6])


@pytest.mark.parametrize("kept", [(), (7,)])
def test_a_begin_of_an_earlier_version_has_one_undecided_epoch(tmp_path: Path, kept: tuple[int, ...]) -> None:
    path = tmp_path / "begin.json"
    store(path, Begin({"s": 3}, 0, 9, 8, kept))
    if not kept:
        stored_before = '{"first":9,"positions":{"s":3},"skipped":0,"undecided":8}'
        store_text(path, stored_before)
    begin = stored(Begin, path)
    assert begin is not None
    assert begin.all_undecided == (*kept, 8)


def test_what_a_sink_owes_is_written_without_another_batch(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """`Stream.sync` waits for it."""
    options = {"path": str(rig.root / "b"), "retries": "0", "on_failure": "detach"}
    rig.pipeline = replace(rig.pipeline, sinks=(rig.pipeline.sinks[0], SinkDef("b", "jsonl", options)))
    sink: Any = rig.runtime.committer.sinks.of(rig.pipeline, "b")

    def broken(key: SinkKey, staged: list[Staged]) -> int:
        raise SinkFailed("b cannot commit")

    monkeypatch.setattr(sink, "commit", broken)
    rig.batch(0, 1)
    assert [debt.promised for debt in rig.runtime.progress.debts] == [True]
    assert not rig.runtime.settle(0.1)
    monkeypatch.undo()
    assert rig.runtime.settle(0.1)
    assert rig.runtime.progress.debts == ()
    assert rig.shown("a") == rig.shown("b") == [1]


def test_an_epoch_that_no_sink_has_is_dropped_with_the_state(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    owner: Any = next(
        k for k in type(rig.runtime.committer.sinks.of(rig.pipeline, "b")).__mro__ if "promise" in vars(k)
    )
    real = owner.promise

    def broken(sink: Any, key: SinkKey, staged: list[Staged]) -> None:
        if sink.paths.sink == "b":
            raise KeyboardInterrupt
        real(sink, key, staged)

    monkeypatch.setattr(owner, "promise", broken)
    with pytest.raises(KeyboardInterrupt):  # the hub dies when one sink has promised
        rig.batch(0, 1)
    monkeypatch.setattr(owner, "promise", real)
    rig.lose_state()
    rig.batch(0, 2)
    rig.batch(1, 3)
    rig.batch(2, 4)
    assert rig.shown("a") == rig.shown("b") == [2, 3, 4]
    assert not list((rig.root / "a" / "_headrace" / "manifests").glob("*.promise"))


def test_a_lost_begin_stops_the_commit(rig: Rig) -> None:
    rig.batch(0, 1)
    (rig.runtime.directory / BEGIN).unlink()
    directory = rig.runtime.home / "0"
    (directory / "checkpoint" / "offsets" / "1").write_text(OFFSETS.format(0, "false"))
    given: Any = [2]
    with pytest.raises(StateDamaged, match=r"begin\.json"):
        rig.runtime.committer.commit(given, 1, rig.pipeline, rig.running())
    assert rig.shown("a") == [1]


@pytest.mark.parametrize("log", ["the state", "the log of batches"])
def test_a_disk_that_fails_for_a_moment_fails_a_batch_with_a_code(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, log: str
) -> None:
    """Such a batch is run again until the disk works. A failure without a code is counted, and ends the pipeline."""
    rig.batch(0, 1)

    def failing(path: Path) -> None:
        raise OSError(errno.EIO, "Input/output error", str(path))

    with monkeypatch.context() as fails, pytest.raises(StateUnavailable):
        fails.setattr(checkpoint_sync if log == "the state" else spark_log, "fsync", failing)
        rig.batch(1, 2)
    assert rig.shown("a") == [1]
    rig.batch(1, 2)
    assert rig.shown("a") == rig.shown("b") == [1, 2]


def test_the_state_that_a_batch_starts_from_is_durable_before_its_rows_are_committed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    commit = FileSink.commit

    def recorded(path: Path) -> None:
        synced.append(path)
        fsync(path)

    def committed(sink: FileSink, key: SinkKey, staged: list[Staged]) -> int:
        assert state in synced
        return commit(sink, key, staged)

    rig.batch(0, 1)
    state = rig.runtime.directory / "checkpoint" / "state" / "0" / "0" / "1.delta"
    private_directory(state.parent)
    state.write_bytes(b"state")
    monkeypatch.setattr(checkpoint_sync, "fsync", recorded)
    monkeypatch.setattr(FileSink, "commit", committed)
    rig.batch(1, 2)
    assert rig.shown("a") == rig.shown("b") == [1, 2]


def test_a_disk_that_fails_for_a_moment_does_not_end_the_care_for_feeds(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that releases what is read and committed lives on after a coded error, and after no other."""
    rig.batch(0, 1, 2)
    fails = True

    def failing(path: Path) -> None:
        if fails:
            raise OSError(errno.EIO, "Input/output error", str(path))
        fsync(path)

    monkeypatch.setattr(checkpoint_sync, "fsync", failing)
    with pytest.raises(StateUnavailable):
        rig.runtime.committer.release()
    fails = False
    rig.runtime.committer.release()

    def unreadable(checkpoint: Path) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", str(checkpoint))

    monkeypatch.setattr(dedicated_runtime, "newest_commit", unreadable)
    with pytest.raises(StateUnavailable):
        rig.runtime.tend()
