"""Several sinks of one pipeline show the same epochs, whatever fails, and nothing twice after recovery."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import SinkFailed, SinkUnavailable, StateDamaged
from headrace.model.definitions import PipelineDef, SinkDef
from headrace.sinks import SINKS
from headrace.sinks.delivery import Delivered, Delivery, retried, stage
from headrace.sinks.sink_kind import DriverSink, SinkKey, Staged
from tests.ring0.tasks import N, stateless


class Rig:
    """A pipeline with file sinks `a`, `b`, ... below a directory, whose steps fail on request."""

    def __init__(self, root: Path, *options: dict[str, str]) -> None:
        self.root = root
        names = "abcdef"[: len(options)]
        sinks = tuple(
            SinkDef(name, "jsonl", {"path": str(root / name), "retries": "0", **given})
            for name, given in zip(names, options, strict=True)
        )
        plain = stateless(1, N)
        self.pipeline = PipelineDef("p", 1, sinks, plain.program, 1)
        self.open: dict[str, DriverSink] = {
            s.name: SINKS["jsonl"].driver(s, plain.program.output) for s in self.pipeline.sinks
        }
        self.debts: dict[str, list[SinkKey]] = {}
        self.waits: list[float] = []

    def key(self, epoch: int) -> SinkKey:
        return SinkKey("checkpoint", 1, epoch)

    def staged(self, epoch: int, *values: int) -> dict[str, list[Staged]]:
        table = pa.table({"n": pa.array(values, pa.int32())})
        receipts = stage(self.pipeline.sinks, table, self.key(epoch), {})
        return {name: [receipt] for name, receipt in receipts}

    def deliver(self, epoch: int, receipts: dict[str, list[Staged]], failure: str = "", **lost: str) -> Delivered:
        delivery = Delivery(self.pipeline, self.open.__getitem__, self.key(epoch), self.debts, self.waits.append)
        result = delivery.deliver(receipts, failure, lost, {})
        self.debts = {name: [replace(self.key(epoch), promised=name in result.promised)] for name in result.owed}
        return result

    def fail(self, name: str, step: str, times: int, problem: type[Exception] = SinkFailed) -> None:
        """The next `times` calls of a step of a sink only raise."""
        real: Callable[..., Any] = getattr(self.open[name], step)
        left = [times]

        def broken(*arguments: Any) -> Any:
            if left[0]:
                left[0] -= 1
                raise problem(f"{name} cannot {step}")
            return real(*arguments)

        setattr(self.open[name], step, broken)

    def shown(self, name: str) -> list[int]:
        parts = (self.root / name).glob("part-*")
        return sorted(int(line[5:-1]) for part in parts for line in part.read_text().splitlines())


def _promises(root: Path, name: str) -> list[Path]:
    return list((root / name / "_headrace" / "manifests").glob("*.promise"))


def test_a_promise_that_was_removed_is_an_error_and_not_an_epoch_without_rows(tmp_path: Path) -> None:
    rig = Rig(tmp_path, {}, {})
    rig.fail("b", "commit", 1)
    assert rig.deliver(0, rig.staged(0, 1, 2)).owed == ["b"]
    (promise,) = _promises(tmp_path, "b")
    promise.unlink()
    debts = rig.debts
    result = rig.deliver(1, rig.staged(1, 3))
    assert "STATE_DAMAGED" in result.failure and str(promise) in result.failure
    assert (rig.shown("a"), rig.shown("b")) == ([1, 2], [])
    rig.debts = debts
    assert "STATE_DAMAGED" in rig.deliver(2, rig.staged(2, 4)).failure  # it stays one


@pytest.mark.parametrize("gone", [True, False])
def test_a_promise_that_was_removed_is_noticed_also_if_the_re_run_has_staged_nothing(
    tmp_path: Path, gone: bool
) -> None:
    rig = Rig(tmp_path, {}, {})
    receipts = rig.staged(0, 1, 2)
    for name in ("a", "b"):
        rig.open[name].promise(rig.key(0), receipts[name])
    rig.open["a"].commit(rig.key(0), receipts["a"])  # then the hub dies, and in the re-run b cannot be written to
    rig.fail("b", "commit", 1)
    assert rig.deliver(0, {"a": receipts["a"]}, b="cannot stage").owed == ["b"]
    if gone:
        _promises(tmp_path, "b")[0].unlink()
    result = rig.deliver(1, rig.staged(1, 3))
    assert ("STATE_DAMAGED" in result.failure) == gone
    assert rig.shown("b") == ([] if gone else [1, 2, 3])


def test_nobody_owes_an_epoch_whose_promises_are_taken_back_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sink may hang while its rows are deleted. Then no sink may owe what another one cannot show any more."""
    rig = Rig(tmp_path, {}, {})
    rig.fail("a", "commit", 1, SinkUnavailable)
    rig.fail("b", "commit", 1, SinkUnavailable)
    delivery = Delivery(rig.pipeline, rig.open.__getitem__, rig.key(0), {}, rig.waits.append)
    left = list[Any]()
    discard = rig.open["a"].discard

    def looking(key: SinkKey) -> None:
        left.append(delivery.left)
        discard(key)

    monkeypatch.setattr(rig.open["a"], "discard", looking)
    with pytest.raises(SinkUnavailable):
        delivery.deliver(rig.staged(0, 1, 2), "", {}, {})
    assert left == [{}]
    assert _promises(tmp_path, "a") == _promises(tmp_path, "b") == []


def test_an_epoch_without_rows_that_a_sink_owes_is_no_error(tmp_path: Path) -> None:
    rig = Rig(tmp_path, {}, {})
    receipts = rig.staged(0, 1)
    rig.open["a"].promise(rig.key(0), receipts["a"])
    rig.open["a"].commit(rig.key(0), receipts["a"])  # then the hub dies, and the epoch is run again
    rig.fail("b", "commit", 1)
    assert rig.deliver(0, {"a": receipts["a"]}).owed == ["b"]
    assert rig.deliver(1, rig.staged(1, 2)).failure == ""
    assert (rig.shown("a"), rig.shown("b")) == ([1, 2], [2])


def test_an_owed_epoch_that_was_committed_long_ago_is_no_error(tmp_path: Path) -> None:
    """The commit of a later epoch deletes its manifest. The debt is asked for once more before the progress is
    stored."""
    rig = Rig(tmp_path, {}, {})
    rig.fail("b", "commit", 1)
    rig.deliver(0, rig.staged(0, 1))
    debts = rig.debts
    assert rig.deliver(50, rig.staged(50, 2)).failure == ""
    for (key,) in debts.values():
        assert key.promised
        assert rig.open["b"].commit(key, []) == 0
    assert rig.shown("a") == rig.shown("b") == [1, 2]


def test_a_second_sink_that_fails_after_the_first_committed_owes_the_epoch_and_gets_it_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path, {}, {})
    rig.fail("b", "commit", 1)
    result = rig.deliver(0, rig.staged(0, 1, 2))
    assert result.owed == ["b"] and "SINK_FAILED" in result.failure and result.rows == 2
    assert (rig.shown("a"), rig.shown("b")) == ([1, 2], [])
    assert rig.deliver(1, rig.staged(1, 3)).owed == []  # started again: what is owed comes first
    assert rig.shown("a") == rig.shown("b") == [1, 2, 3]


def test_what_is_owed_outlives_epochs_that_are_given_up(tmp_path: Path) -> None:
    rig = Rig(tmp_path, {}, {"on_failure": "detach"})
    rig.fail("b", "commit", 2)
    assert rig.deliver(0, rig.staged(0, 1)).detached.keys() == {"b"}
    owed = rig.debts
    assert rig.deliver(1, rig.staged(1, 2), failure="it failed elsewhere").failure  # discards epoch 1, not epoch 0
    rig.debts = owed
    assert rig.deliver(2, rig.staged(2, 3)).detached.keys() == {"b"}  # still cannot
    rig.debts = owed
    assert not rig.deliver(3, rig.staged(3, 4)).detached
    assert rig.shown("a") == [1, 3, 4] and rig.shown("b") == [1, 4]


def test_if_a_sink_cannot_promise_nothing_is_visible_anywhere(tmp_path: Path) -> None:
    rig = Rig(tmp_path, {}, {})
    rig.fail("b", "promise", 1)
    result = rig.deliver(0, rig.staged(0, 1))
    assert "SINK_FAILED" in result.failure and result.owed == []
    assert rig.shown("a") == rig.shown("b") == []
    assert not list((tmp_path / "a" / "_headrace").rglob("*.staged"))
    rig.deliver(1, rig.staged(1, 2))
    assert rig.shown("a") == rig.shown("b") == [2]


def test_a_sink_that_may_be_detached_does_not_block_the_others(tmp_path: Path) -> None:
    rig = Rig(tmp_path, {}, {"on_failure": "detach"}, {})
    rig.fail("b", "promise", 1)
    result = rig.deliver(0, rig.staged(0, 1))
    assert not result.failure and result.detached.keys() == {"b"}
    assert (rig.shown("a"), rig.shown("b"), rig.shown("c")) == ([1], [], [1])
    assert rig.deliver(1, rig.staged(1, 2), b="a task could not stage").detached == {"b": "a task could not stage"}
    assert (rig.shown("a"), rig.shown("b"), rig.shown("c")) == ([1, 2], [], [1, 2])


def test_a_pipeline_whose_last_sink_is_detached_stops(tmp_path: Path) -> None:
    rig = Rig(tmp_path, {"on_failure": "detach"})
    rig.fail("a", "commit", 1)
    assert rig.deliver(0, rig.staged(0, 1)).failure
    rig = Rig(tmp_path / "two", {"on_failure": "detach"}, {"on_failure": "detach"})
    rig.fail("a", "promise", 1)
    rig.fail("b", "promise", 1)
    result = rig.deliver(0, rig.staged(0, 1))
    assert set(result.detached) == {"a", "b"}
    assert result.failure.splitlines()[1:] == list(result.detached.values())


def test_retries_wait_twice_as_long_each_time_and_only_when_that_may_help(tmp_path: Path) -> None:
    rig = Rig(tmp_path, {"retries": "4", "retry_backoff": "3s"}, {})
    rig.fail("a", "commit", 4)
    assert not rig.deliver(0, rig.staged(0, 1)).failure
    assert rig.waits == [3.0, 6.0, 10.0, 10.0] and rig.shown("a") == rig.shown("b") == [1]
    calls = []

    def damaged() -> None:
        calls.append(1)
        raise StateDamaged("for good")

    with pytest.raises(StateDamaged):
        retried(rig.pipeline.sinks[0], damaged, rig.waits.append)
    assert len(calls) == 1


def test_an_epoch_that_was_decided_cannot_be_undone_by_its_re_run(tmp_path: Path) -> None:
    """The process dies after the first sink's commit; in the re-run the pipeline fails in a task."""
    rig = Rig(tmp_path, {}, {})
    receipts = rig.staged(0, 1, 2)
    for name in ("a", "b"):
        rig.open[name].promise(rig.key(0), receipts[name])
    rig.open["a"].commit(rig.key(0), receipts["a"])
    rig = Rig(tmp_path, {}, {})  # a new process
    assert rig.deliver(0, {}, failure="the re-run failed").failure == "the re-run failed"
    assert rig.shown("a") == rig.shown("b") == [1, 2]


@pytest.mark.parametrize("staged_in_part", [False, True])
def test_a_sink_that_is_lost_in_the_re_run_of_a_decided_epoch_keeps_its_promise_first(
    tmp_path: Path, staged_in_part: bool
) -> None:
    """The process dies after the first sink's commit; in the re-run a task cannot stage for the second."""
    options: tuple[dict[str, str], ...] = ({}, {"on_failure": "detach"})
    rig = Rig(tmp_path, *options)
    receipts = rig.staged(0, 1, 2)
    for name in ("a", "b"):
        rig.open[name].promise(rig.key(0), receipts[name])
    rig.open["a"].commit(rig.key(0), receipts["a"])
    rig = Rig(tmp_path, *options)  # a new process
    again = rig.staged(0, 1) if staged_in_part else {}
    result = rig.deliver(0, again, b="cannot stage")
    assert result.detached == {"b": "cannot stage"} and not result.failure and result.owed == []
    assert rig.shown("a") == rig.shown("b") == [1, 2]


def test_the_only_sink_that_is_lost_in_the_re_run_of_a_decided_epoch_shows_it_and_ends_the_pipeline(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path, {"on_failure": "detach"})
    rig.open["a"].commit(rig.key(0), rig.staged(0, 1)["a"])
    result = rig.deliver(0, {}, a="cannot stage")
    assert result.failure.splitlines()[1:] == ["cannot stage"] and rig.shown("a") == [1]


def test_a_sink_settles_what_it_owes_before_it_commits_an_epoch_that_is_run_again(tmp_path: Path) -> None:
    """It was detached in the first run, and the hub died before that was stored."""
    rig = Rig(tmp_path, {}, {"on_failure": "detach"})
    rig.fail("b", "commit", 1)
    assert rig.deliver(0, rig.staged(0, 1)).owed == ["b"]
    debts = rig.debts
    rig.fail("b", "commit", 1)
    assert list(rig.deliver(1, rig.staged(1, 2)).detached) == ["b"]
    rig.debts = debts
    rig.deliver(1, rig.staged(1, 2))
    rig.open["b"].commit(debts["b"][0], [])  # as the commit asks for it before the progress is stored
    assert (rig.shown("a"), rig.shown("b")) == ([1, 2], [1, 2])


@settings(max_examples=12)
@given(
    st.lists(st.tuples(st.sampled_from(["", "a", "b"]), st.sampled_from(["promise", "commit"])), max_size=8),
    st.booleans(),
)
def test_whatever_fails_both_sinks_show_the_same_epochs_in_the_end_and_each_once(
    tmp_path_factory: pytest.TempPathFactory, failures: list[tuple[str, str]], rerun: bool
) -> None:
    rig = Rig(tmp_path_factory.mktemp("rig"), {}, {})
    owed: dict[str, list[SinkKey]] = {}
    for epoch, (name, step) in enumerate(failures):
        if name:
            rig.fail(name, step, 1)
        receipts = rig.staged(epoch, epoch)
        rig.debts = owed
        result = rig.deliver(epoch, receipts)
        if rerun:  # Spark runs the newest epoch again with files of its own
            rig.debts = owed
            rig.deliver(epoch, rig.staged(epoch, epoch))
        owed = {n: [*keys] for n, keys in owed.items()} if result.failure and not result.owed else {}
        for late in result.owed:
            owed.setdefault(late, []).append(rig.key(epoch))
    rig.debts = owed
    rig.deliver(99, rig.staged(99, 99))
    assert rig.shown("a") == rig.shown("b")
    assert len(set(rig.shown("a"))) == len(rig.shown("a"))
    assert os.listdir(rig.root / "a" / "_headrace" / "staging") == []
