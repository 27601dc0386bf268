"""Sinks that stage rows in the state directory, when a query on the dedicated host begins again without its state: they
still deliver what they have promised."""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.errors import SinkFailed
from headrace.hub.dedicated_pipelines import DedicatedPipelines
from headrace.model.definitions import SinkDef
from headrace.model.plan_version import PipelineExit
from headrace.model.program import DedicatedQuery, FeedInput
from headrace.sinks.file_sink import FileSink
from headrace.sinks.http_sink import HttpTarget
from headrace.sinks.rolling import RollingSink
from headrace.sinks.sink_kind import SinkKey, Staged
from headrace.sinks.staged_sink import StagedRows
from headrace.spark import dedicated_committer
from headrace.state.dedicated_state import left_behind
from headrace.stream import dedicated_runtime
from headrace.stream.dedicated_runtime import DedicatedRuntime
from tests.stream.test_dedicated_damage import Host
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


def _owes_one_and_dies_in_the_next(staged: StagedRig, patch: pytest.MonkeyPatch) -> None:
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
    _owes_one_and_dies_in_the_next(staged, monkeypatch)
    staged.lose_state()
    staged.batch(0, 4)
    assert [(d.sink, d.epoch) for d in staged.runtime.progress.debts] == [("b", 1)]
    staged.broken.clear()
    staged.lose_state()
    staged.batch(0, 5)
    assert staged.shown("a") == [1, 2, 3, 4, 5]
    assert staged.arrived == [1, 2, 5], "it was detached in the batches between"


def test_a_sink_that_was_detached_when_its_pipeline_is_dropped_gets_what_it_owes(
    staged: StagedRig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _owes_one_and_dies_in_the_next(staged, monkeypatch)
    staged.runtime.forget()
    assert "b epoch 1" in caplog.text
    assert "b epoch 2" not in caplog.text


@pytest.mark.parametrize("how", ["without a batch", "with a batch", "in the drop"])
def test_a_sink_that_owes_two_epochs_gets_the_older_one_first(
    staged: StagedRig, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """It fails in passing: the newer epoch must not be committed then, since that deletes the rows of the older one."""
    _owes_one_and_dies_in_the_next(staged, monkeypatch)
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


@pytest.mark.parametrize("owed", ["detached", "stopped"])
def test_a_dropped_pipeline_delivers_what_its_sinks_owe(staged: StagedRig, owed: str) -> None:
    staged.redeclare("a", "b", on_failure="detach" if owed == "detached" else "stop")
    staged.batch(0, 1)
    staged.broken = {"b"}
    with contextlib.suppress(SinkFailed):
        staged.batch(1, 2)
    assert (staged.shown("a"), staged.arrived) == ([1, 2], [1])
    staged.broken.clear()
    staged.runtime.forget()
    assert staged.shown("a") == staged.arrived == [1, 2]
    assert not staged.staged()
    assert not staged.runtime.home.exists()


def test_a_dropped_pipeline_names_the_epochs_that_a_sink_never_gets(
    staged: StagedRig, caplog: pytest.LogCaptureFixture
) -> None:
    staged.owe()
    staged.runtime.forget()
    assert "may lack rows: b epoch 1" in caplog.text
    assert not staged.runtime.home.exists()


def test_a_sink_that_hangs_does_not_hold_up_the_drop_of_its_pipeline(
    staged: StagedRig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    staged.owe()
    answers = threading.Event()
    monkeypatch.setattr(HttpTarget, "deliver", lambda *given: answers.wait(60))
    monkeypatch.setattr(dedicated_runtime, "LAST_SECONDS", 0.2)
    staged.runtime.forget()
    answers.set()
    assert "did not answer in time" in caplog.text
    assert not staged.runtime.home.exists()


def test_a_dropped_pipeline_whose_sinks_owe_nothing_asks_none_of_them(
    staged: StagedRig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    staged.batch(0, 1)
    monkeypatch.setattr(HttpTarget, "deliver", lambda *given: pytest.fail("asked"))
    staged.runtime.forget()
    assert staged.arrived == [1]
    assert not caplog.records


def test_a_pipeline_that_was_stopped_at_once_and_then_dropped_delivers_what_its_sinks_owe(staged: StagedRig) -> None:
    staged.owe()
    staged.broken.clear()
    staged.runtime.close()
    staged.pipeline = replace(staged.pipeline, fresh=1)
    directory = staged.root / "streams"
    DedicatedRuntime(staged.pipeline, lambda stream: directory / stream, Host()).forget()
    assert staged.shown("a") == staged.arrived == [1, 2]
    assert not list(directory.rglob("1-*"))


def test_a_sink_that_does_not_say_what_it_has_keeps_no_other_from_its_rows(
    staged: StagedRig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    staged.redeclare("a", "b", on_failure="detach")
    staged.batch(0, 1)
    staged.broken = {"b"}
    staged.batch(1, 2)
    staged.broken = {"a", "b"}
    with pytest.raises(SinkFailed):
        staged.batch(2, 3)
    staged.broken = {"a"}

    def unreachable(sink: FileSink, key: SinkKey) -> bool:
        raise SinkFailed("a does not answer")

    monkeypatch.setattr(FileSink, "committed", unreachable)
    staged.runtime.forget()
    assert staged.arrived == [1, 2]
    assert "a epoch 2" in caplog.text
    assert "epoch 1" not in caplog.text


def test_the_epochs_of_a_commit_that_hangs_are_named_when_its_pipeline_is_dropped(
    staged: StagedRig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    staged.owe()
    monkeypatch.setattr(dedicated_committer, "SETTLE_SECONDS", 0.1)
    with staged.runtime.committer._busy:
        staged.runtime.forget()
    assert "b epoch 1" in caplog.text


def test_a_rolling_sink_that_hangs_does_not_hold_up_the_drop_of_its_pipeline(
    staged: StagedRig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Closing it waits for the same lock as its commit."""
    rolling = SinkDef("a", "jsonl", {"path": str(staged.root / "a"), "retries": "0", "roll_size": "1MB"})
    staged.runtime.close()
    staged.pipeline = replace(staged.pipeline, sinks=(rolling, staged.pipeline.sinks[1]))
    staged.runtime = staged._made()
    staged.owe()
    answers = threading.Event()
    monkeypatch.setattr(dedicated_runtime, "LAST_SECONDS", 0.2)
    commit = RollingSink.commit

    def hangs(sink: RollingSink, key: SinkKey, rows: list[Staged]) -> int:
        with sink._lock:
            answers.wait(30)
            return commit(sink, key, rows)

    monkeypatch.setattr(RollingSink, "commit", hangs)
    began = time.monotonic()
    staged.runtime.forget()
    answers.set()
    assert time.monotonic() - began < 10
    assert "did not answer in time" in caplog.text
    assert not staged.runtime.home.exists()


@pytest.mark.parametrize("how", ["after a crash in the DROP", "before its stream is deleted"])
def test_the_hub_asks_the_sinks_of_dropped_pipelines(staged: StagedRig, how: str) -> None:
    given = staged.pipeline.program
    inputs = (FeedInput("s", "s", given.view, given.ring0, given.output),)
    staged.runtime.close()
    staged.pipeline = replace(
        staged.pipeline, program=replace(given, dedicated=DedicatedQuery("SELECT n FROM s", inputs))
    )
    staged.runtime = staged._made()
    staged.owe()
    staged.broken.clear()
    staged.runtime.close()
    ended = (PipelineExit(staged.pipeline, flush=False, number=1),)
    catalog: Any = SimpleNamespace(pipelines={}, ended=ended, streams={"s": None})
    declared: Any = SimpleNamespace(catalog=catalog, closed=False)
    pipelines = DedicatedPipelines(declared, lambda stream: staged.root / "streams" / stream, Host())
    pipelines.prepare()
    if how == "before its stream is deleted":
        pipelines.settle_last(["S"])
        assert staged.arrived == [1, 2]
        shutil.rmtree(staged.root / "streams" / "s")
    catalog.ended = ()
    pipelines.align()
    assert staged.shown("a") == staged.arrived == [1, 2]
    assert not staged.runtime.home.exists()
