"""Sinks that stage rows in the state directory, when a query on the dedicated host begins again without its state: they
still deliver what they have promised."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import SinkFailed
from headrace.model.definitions import SinkDef
from headrace.sinks.file_sink import FileSink
from headrace.sinks.http_sink import HttpTarget
from headrace.sinks.sink_kind import SinkKey, Staged
from headrace.sinks.staged_sink import StagedRows
from headrace.spark import dedicated_committer
from headrace.state.dedicated_state import left_behind
from headrace.stream import dedicated_runtime
from tests.stream.test_dedicated_epochs import Rig, rows_without_spark

__all__ = ["rows_without_spark"]


class StagedRig(Rig):
    """A pipeline with the file sink `a` and the HTTP sink `b`, whose server is a list. `broken` sinks cannot commit."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        super().__init__(root)
        self.runtime.close()
        self.sent: dict[SinkKey, list[int]] = {}
        self.broken: set[str] = set()
        self._sinks("a", "b")
        commit = FileSink.commit

        def deliver(target: HttpTarget, key: SinkKey, rows: StagedRows, count: int) -> None:
            if "b" in self.broken:
                raise SinkFailed("b cannot deliver")
            if key not in self.sent or rows.gone is None:
                values: list[Any] = [v for batch in rows.batches() for v in batch.column("value").to_pylist()]
                self.sent[key] = [json.loads(value)["n"] for value in values]

        def committed(sink: FileSink, key: SinkKey, staged: list[Staged]) -> int:
            if sink.paths.sink == "a" and "a" in self.broken:
                raise SinkFailed("a cannot commit")
            return commit(sink, key, staged)

        patch.setattr(HttpTarget, "deliver", deliver)
        patch.setattr(FileSink, "commit", committed)

    def _sinks(self, *order: str, **options: str) -> None:
        """Declare the sinks in this order, with these options of `b`."""
        given = {
            "a": self.pipeline.sinks[0],
            "b": SinkDef("b", "http", {"url": "http://127.0.0.1:9/x", "retries": "0", **options}),
        }
        self.runtime.close()
        self.pipeline = replace(self.pipeline, sinks=tuple(given[name] for name in order))
        self.runtime = self._made()

    def redeclare(self, *order: str, **options: str) -> None:
        self._sinks(*order, **options)

    @property
    def arrived(self) -> list[int]:
        """The rows that the server of `b` has."""
        return sorted(n for rows in self.sent.values() for n in rows)

    def owe(self) -> None:
        """Two batches, of which `b` cannot commit the second one."""
        self.batch(0, 1)
        self.broken = {"b"}
        with pytest.raises(SinkFailed):
            self.batch(1, 2)

    def staged(self) -> list[Path]:
        """What is staged or promised anywhere."""
        found = [p for p in (self.root / "streams").rglob("_headrace/*/*") if p.suffix != ".json"]
        return [p for p in found if p.suffix == ".promise" or p.is_dir()]


@pytest.fixture
def staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StagedRig]:
    found = StagedRig(tmp_path, monkeypatch)
    yield found
    found.runtime.close()


def test_a_detached_sink_delivers_what_it_owes_after_the_state_is_dropped(staged: StagedRig) -> None:
    staged.redeclare("a", "b", on_failure="detach")
    staged.batch(0, 1)
    staged.broken = {"b"}
    staged.batch(1, 2)
    assert [(d.sink, d.epoch, d.promised) for d in staged.runtime.progress.debts] == [("b", 1, True)]
    staged.lose_state()
    staged.batch(0, 3)
    assert [(d.sink, d.epoch) for d in staged.runtime.progress.debts] == [("b", 1)]
    staged.lose_state()
    staged.broken.clear()
    staged.batch(0, 4)
    assert (staged.runtime.progress.debts, staged.runtime.progress.detached) == ((), {})
    staged.batch(1, 5)
    assert staged.shown("a") == [1, 2, 3, 4, 5]
    assert staged.arrived == [1, 2, 4, 5], "it was detached in one batch"
    assert not staged.staged()


def owes_one_and_dies_in_the_next(staged: StagedRig, patch: pytest.MonkeyPatch) -> None:
    """`b` is detached and owes epoch 1. The process dies when `a` has committed epoch 2."""
    staged.redeclare("a", "b", on_failure="detach")
    staged.batch(0, 1)
    staged.broken = {"b"}
    staged.batch(1, 2)

    def die(place: str) -> None:
        if place == "after-dedicated-commit":
            raise KeyboardInterrupt

    with patch.context() as dies, pytest.raises(KeyboardInterrupt):
        dies.setattr(dedicated_committer, "fault_point", die)
        staged.batch(2, 3)


def test_a_sink_that_was_detached_does_not_owe_the_epoch_in_which_the_process_died(
    staged: StagedRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    owes_one_and_dies_in_the_next(staged, monkeypatch)
    staged.lose_state()
    staged.batch(0, 4)
    assert [(d.sink, d.epoch) for d in staged.runtime.progress.debts] == [("b", 1)]
    staged.broken.clear()
    staged.lose_state()
    staged.batch(0, 5)
    assert staged.shown("a") == [1, 2, 3, 4, 5]
    assert staged.arrived == [1, 2, 5], "it was detached in the batches between"


@pytest.mark.parametrize("how", ["without a batch", "with a batch", "in the drop"])
def test_a_sink_that_owes_two_epochs_gets_the_older_one_first(
    staged: StagedRig, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """It fails in passing: the newer epoch must not be committed then, since that deletes the rows of the older one."""
    owes_one_and_dies_in_the_next(staged, monkeypatch)
    (staged.runtime.directory / "pipeline.json").unlink(missing_ok=True)  # as after a batch of an earlier version
    staged.lose_state()
    staged.batch(0, 4)
    assert [(d.sink, d.epoch) for d in staged.runtime.progress.debts] == [("b", 1), ("b", 2)]
    attempts: list[int] = []
    deliver = HttpTarget.deliver

    def once(target: HttpTarget, key: SinkKey, rows: StagedRows, count: int) -> None:
        attempts.append(key.epoch)
        if len(attempts) == 1:
            raise SinkFailed("b fails in passing")
        deliver(target, key, rows, count)

    monkeypatch.setattr(HttpTarget, "deliver", once)
    staged.broken.clear()
    if how == "without a batch":
        assert len(staged.runtime.committer.settle()) == 2
        assert staged.runtime.committer.settle() == ()
    elif how == "with a batch":
        staged.batch(1, 5)
        staged.batch(2, 6)
        assert staged.runtime.progress.debts == ()
    else:
        left = left_behind([staged.runtime.home], "p")
        assert left is not None
        assert len(staged.runtime.committer.settle_last(staged.pipeline, left)) == 2
        assert staged.runtime.committer.settle_last(staged.pipeline, left) == ()
    assert staged.arrived == [1, 2]


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_an_epoch_that_one_of_two_sinks_has_reaches_the_other_one_after_the_state_is_dropped(
    staged: StagedRig, order: str
) -> None:
    staged.redeclare(*order)
    staged.batch(0, 1)
    staged.broken = {order[-1]}
    with pytest.raises(SinkFailed):
        staged.batch(1, 2)
    staged.broken.clear()
    staged.lose_state()
    staged.batch(0, 3)
    assert staged.shown("a") == staged.arrived == [1, 2, 3]
    assert not staged.staged()


@pytest.mark.parametrize("again", ["opened", "started"])
@pytest.mark.parametrize("place", ["before the move", "before the begin", "before the deletion"])
def test_a_crash_while_a_state_is_dropped_loses_nothing_that_a_sink_owes(
    staged: StagedRig, monkeypatch: pytest.MonkeyPatch, place: str, again: str
) -> None:
    staged.batch(0, 1)
    staged.broken = {"b"}
    with pytest.raises(SinkFailed):
        staged.batch(1, 2)
    staged.broken.clear()

    def die(*given: object) -> None:
        raise KeyboardInterrupt

    steps: dict[str, tuple[Any, str, Any]] = {
        "before the move": (dedicated_runtime, "take_staging", die),
        "before the begin": (dedicated_runtime, "store", die),
        "before the deletion": (dedicated_runtime, "shutil", Dying()),
    }
    with monkeypatch.context() as dies, pytest.raises(KeyboardInterrupt):
        dies.setattr(*steps[place])
        staged.lose_state()
    if again == "started":
        staged.lose_state()
    else:
        staged.runtime = staged._made()
    staged.batch(0, 3)
    assert staged.shown("a") == staged.arrived == [1, 2, 3]
    assert not staged.staged()


class Dying:
    """`shutil` for a process that dies when it deletes a state."""

    def rmtree(self, directory: Path, ignore_errors: bool = False) -> None:
        if directory.parent.name == "dedicated":
            raise KeyboardInterrupt
        shutil.rmtree(directory, ignore_errors=ignore_errors)


def test_a_state_whose_begin_is_lost_is_not_taken_for_one_that_never_began(staged: StagedRig) -> None:
    """Its epochs are not known, and those of an older one that is left must not be counted again."""
    staged.batch(0, 1)
    old = staged.runtime.home
    shutil.copytree(old, staged.root / "left")
    staged.lose_state()
    staged.batch(0, 2)
    (staged.runtime.directory / "begin.json").unlink()
    shutil.copytree(staged.root / "left", old)
    staged.lose_state()
    staged.batch(0, 3)
    assert staged.shown("a") == staged.arrived == [1, 2, 3]


@pytest.mark.parametrize("harm", ["removed", "damaged"])
@pytest.mark.parametrize("name", ["begin.json", "progress.json", "checkpoint.id"])
def test_a_damaged_state_that_is_dropped_is_named_with_the_epochs_that_sinks_may_lack(
    staged: StagedRig, monkeypatch: pytest.MonkeyPatch, harm: str, name: str
) -> None:
    owes_one_and_dies_in_the_next(staged, monkeypatch)
    path = staged.runtime.directory / name
    path.write_bytes(path.read_bytes()[:-3]) if harm == "damaged" else path.unlink()
    staged.runtime.close()
    staged.pipeline = replace(staged.pipeline, fresh=staged.pipeline.fresh + 1)
    staged.runtime = staged._made()
    staged.runtime.prepare()
    (warning,) = staged.runtime.take_warnings()
    assert name in warning
    if name == "progress.json":
        assert "any epoch up to 2" in warning
    else:
        assert "b epoch 1; epoch 2" in warning
    assert staged.runtime.take_warnings() == []


def test_a_state_that_is_dropped_and_not_damaged_needs_no_warning(
    staged: StagedRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    owes_one_and_dies_in_the_next(staged, monkeypatch)
    staged.lose_state()
    assert staged.runtime.take_warnings() == []
