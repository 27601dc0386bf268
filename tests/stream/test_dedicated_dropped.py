"""Pipelines on the dedicated host that are dropped: their sinks get what they owe, whatever else goes wrong."""

from __future__ import annotations

import contextlib
import errno
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import DiskFull, SinkFailed
from headrace.hub.dedicated_pipelines import DedicatedPipelines
from headrace.hub.effects import ScriptEffects
from headrace.hub.saved_scripts import SavedScripts
from headrace.model.definitions import SinkDef
from headrace.model.program import DedicatedQuery, FeedInput
from headrace.model.status import StateChange
from headrace.sinks import staged_sink
from headrace.sinks.file_sink import FileSink
from headrace.sinks.http_sink import HttpTarget
from headrace.sinks.rolling import RollingSink
from headrace.sinks.sink_kind import SinkKey, Staged
from headrace.sinks.staged_sink import StagedRows
from headrace.spark import dedicated_committer
from headrace.state.catalog import Catalog, PipelineRecord
from headrace.stream import last_attempt
from headrace.stream.dedicated_runtime import DedicatedRuntime
from headrace.stream.last_attempt import forget
from tests.stream.test_dedicated_damage import Host
from tests.stream.test_dedicated_epochs import rows_without_spark
from tests.stream.test_dedicated_staged import StagedRig, owes_one_and_dies_in_the_next, staged

__all__ = ["rows_without_spark", "staged"]


def test_a_sink_that_was_detached_when_its_pipeline_is_dropped_owes_only_what_it_promised(
    staged: StagedRig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    owes_one_and_dies_in_the_next(staged, monkeypatch)
    forget([staged.runtime])
    assert "b epoch 1" in caplog.text
    assert "b epoch 2" not in caplog.text


@pytest.mark.parametrize("owed", ["detached", "stopped"])
def test_a_dropped_pipeline_delivers_what_its_sinks_owe(staged: StagedRig, owed: str) -> None:
    staged.redeclare("a", "b", on_failure="detach" if owed == "detached" else "stop")
    staged.batch(0, 1)
    staged.broken = {"b"}
    with contextlib.suppress(SinkFailed):
        staged.batch(1, 2)
    assert (staged.shown("a"), staged.arrived) == ([1, 2], [1])
    staged.broken.clear()
    forget([staged.runtime])
    assert staged.shown("a") == staged.arrived == [1, 2]
    assert not staged.staged()
    assert not staged.runtime.home.exists()


def test_a_dropped_pipeline_names_the_epochs_that_a_sink_never_gets(
    staged: StagedRig, caplog: pytest.LogCaptureFixture
) -> None:
    staged.owe()
    forget([staged.runtime])
    assert "may lack rows: b epoch 1" in caplog.text
    assert not staged.runtime.home.exists()


def test_a_sink_that_hangs_does_not_hold_up_the_drop_of_its_pipeline(
    staged: StagedRig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    staged.owe()
    answers = threading.Event()
    monkeypatch.setattr(HttpTarget, "deliver", lambda *given: answers.wait(60))
    monkeypatch.setattr(last_attempt, "IDLE_SECONDS", 0.2)
    forget([staged.runtime])
    answers.set()
    assert "did not answer in time" in caplog.text
    assert not staged.runtime.home.exists()


def test_a_dropped_pipeline_whose_sinks_owe_nothing_asks_none_of_them(
    staged: StagedRig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    staged.batch(0, 1)
    monkeypatch.setattr(HttpTarget, "deliver", lambda *given: pytest.fail("asked"))
    forget([staged.runtime])
    assert staged.arrived == [1]
    assert not caplog.records


def test_a_pipeline_that_was_stopped_at_once_and_then_dropped_delivers_what_its_sinks_owe(staged: StagedRig) -> None:
    staged.owe()
    staged.broken.clear()
    staged.runtime.close()
    staged.pipeline = replace(staged.pipeline, fresh=1)
    directory = staged.root / "streams"
    forget([DedicatedRuntime(staged.pipeline, lambda stream: directory / stream, Host())])
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
    forget([staged.runtime])
    assert staged.arrived == [1, 2]
    assert "a epoch 2" in caplog.text
    assert "epoch 1" not in caplog.text


def test_the_epochs_of_a_commit_that_hangs_are_named_when_its_pipeline_is_dropped(
    staged: StagedRig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    staged.owe()
    monkeypatch.setattr(dedicated_committer, "SETTLE_SECONDS", 0.1)
    with staged.runtime.committer._busy:
        forget([staged.runtime])
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
    monkeypatch.setattr(last_attempt, "IDLE_SECONDS", 0.2)
    commit = RollingSink.commit

    def hangs(sink: RollingSink, key: SinkKey, rows: list[Staged]) -> int:
        with sink._lock:
            answers.wait(30)
            return commit(sink, key, rows)

    monkeypatch.setattr(RollingSink, "commit", hangs)
    began = time.monotonic()
    forget([staged.runtime])
    answers.set()
    assert time.monotonic() - began < 10
    assert "did not answer in time" in caplog.text
    assert not staged.runtime.home.exists()


@pytest.mark.parametrize("dropped", ["stopped", "stopped at once"])
@pytest.mark.parametrize("name", ["progress.json", "checkpoint.id", "begin.json"])
def test_a_dropped_pipeline_whose_state_is_damaged_is_named(staged: StagedRig, name: str, dropped: str) -> None:
    staged.owe()
    staged.broken.clear()
    staged.runtime.close()
    path = staged.runtime.directory / name
    if name == "begin.json":
        path.unlink()
    else:
        path.write_text("{")
    if dropped == "stopped at once":
        staged.pipeline = replace(staged.pipeline, fresh=1)
    streams = staged.root / "streams"
    warnings = forget([DedicatedRuntime(staged.pipeline, lambda stream: streams / stream, Host())])
    assert len(warnings) == 1
    assert "the state is damaged" in warnings[0]
    assert not list(streams.rglob("1-*"))


def test_a_sink_that_raises_anything_keeps_no_other_from_its_rows(
    staged: StagedRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged.owe()
    staged.broken.clear()
    commit = FileSink.commit

    def raises(sink: FileSink, key: SinkKey, rows: list[Staged]) -> int:
        if sink.paths.sink == "a":
            raise OSError(errno.EIO, "Input/output error")
        return commit(sink, key, rows)

    monkeypatch.setattr(FileSink, "commit", raises)
    (warning,) = forget([staged.runtime])
    assert staged.arrived == [1, 2]
    assert warning.endswith("rows: a epoch 1")


@pytest.mark.parametrize("most", [60.0, 0.3])
def test_a_sink_may_take_as_long_as_it_takes_rows_and_a_minute_at_most(
    staged: StagedRig, monkeypatch: pytest.MonkeyPatch, most: float
) -> None:
    staged.batch(0, 1)
    staged.broken = {"b"}
    with pytest.raises(SinkFailed):
        staged.batch(1, *range(2, 14))
    staged.broken.clear()
    batches = StagedRows.batches

    def slowly(rows: StagedRows) -> Iterator[pa.RecordBatch]:
        for batch in batches(rows):
            time.sleep(0.1 * batch.num_rows)
            yield batch

    monkeypatch.setattr(StagedRows, "batches", slowly)
    monkeypatch.setattr(staged_sink, "READ_ROWS", 1)
    monkeypatch.setattr(last_attempt, "IDLE_SECONDS", 0.6)
    monkeypatch.setattr(last_attempt, "MOST_SECONDS", most)
    warnings = forget([staged.runtime])
    if most == 60.0:
        assert (warnings, staged.arrived) == ([], list(range(1, 14)))
    else:
        assert len(warnings) == 1
    assert not staged.runtime.home.exists()


def test_pipelines_that_are_dropped_together_wait_for_their_sinks_together(
    staged: StagedRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged.owe()
    other = StagedRig(tmp_path / "other", monkeypatch)
    other.owe()
    answers = threading.Event()
    monkeypatch.setattr(HttpTarget, "deliver", lambda *given: answers.wait(60))
    monkeypatch.setattr(last_attempt, "IDLE_SECONDS", 1.0)
    began = time.monotonic()
    warnings = forget([staged.runtime, other.runtime])
    took = time.monotonic() - began
    answers.set()
    assert len(warnings) == 2
    assert took < 1.8


class DroppingHub:
    """The hub of a rig's pipeline, which is dropped in it."""

    def __init__(self, staged: StagedRig) -> None:
        given = staged.pipeline.program
        inputs = (FeedInput("s", "s", given.view, given.ring0, given.output),)
        staged.runtime.close()
        staged.pipeline = replace(
            staged.pipeline, program=replace(given, dedicated=DedicatedQuery("SELECT n FROM s", inputs))
        )
        staged.runtime = staged._made()
        self.pipeline, self.streams, self.host = staged.pipeline, staged.root / "streams", Host()
        stream: Any = SimpleNamespace(name="s", fed_by=None)
        self.empty = replace(Catalog(), streams={"s": stream})
        declared: Any = SimpleNamespace(catalog=self.empty, closed=False, unsaved=False)
        self.declared = declared
        self.pipelines = DedicatedPipelines(declared, lambda stream: self.streams / stream, self.host)

    def has(self, state: Any) -> None:
        """The pipeline is declared, in this state."""
        record = PipelineRecord(self.pipeline, (StateChange(state, "", 0.0),))
        self.declared.catalog = self.empty.with_pipeline(record)
        self.pipelines.prepare()
        self.pipelines.align()


@pytest.mark.parametrize("owed", ["a debt", "an undecided epoch"])
@pytest.mark.parametrize("crash", ["before the plan is published", "after the plan is published"])
def test_a_crash_in_a_drop_keeps_no_rows_from_the_sinks(staged: StagedRig, crash: str, owed: str) -> None:
    """The hub is opened again: first it looks at what lies in the directory, then it publishes the ends."""
    staged.redeclare("a", "b", on_failure="detach" if owed == "a debt" else "stop")
    hub = DroppingHub(staged)
    staged.batch(0, 1)
    staged.broken = {"b"}
    with contextlib.suppress(SinkFailed):
        staged.batch(1, 2)
    assert bool(staged.runtime.progress.debts) == (owed == "a debt")
    staged.broken.clear()
    staged.runtime.close()
    if crash == "before the plan is published":
        hub.declared.catalog = hub.empty.with_end(hub.pipeline, flush=False)
        assert hub.declared.catalog.ended[0].pipeline.program.dedicated is None
        assert hub.pipelines.sweep() == []
        assert staged.arrived == [1]
        hub.pipelines.prepare()
        hub.declared.catalog = hub.declared.catalog.without_ends("s")
        assert hub.pipelines.align() == []
    else:
        assert hub.pipelines.sweep() == []
    assert staged.shown("a") == staged.arrived == [1, 2]
    assert not staged.runtime.home.exists()


def test_a_crash_in_a_drop_after_the_state_was_dropped_keeps_no_rows_from_the_sinks(staged: StagedRig) -> None:
    hub = DroppingHub(staged)
    staged.owe()
    staged.broken.clear()
    staged.lose_state()
    staged.runtime.close()
    assert hub.pipelines.sweep() == []
    assert staged.shown("a") == staged.arrived == [1, 2]
    assert not list(hub.streams.rglob("1-*"))


def test_a_damaged_state_that_a_crash_has_left_is_named(staged: StagedRig, caplog: pytest.LogCaptureFixture) -> None:
    hub = DroppingHub(staged)
    staged.owe()
    (staged.runtime.directory / "pipeline.json").write_text("{")
    staged.runtime.close()
    hub.pipelines.sweep()
    assert "may lack rows" in caplog.text
    assert not staged.runtime.home.exists()


def test_the_sinks_are_asked_before_the_stream_of_their_pipeline_is_deleted(staged: StagedRig) -> None:
    hub = DroppingHub(staged)
    staged.owe()
    staged.broken.clear()
    staged.runtime.close()
    hub.has("stopped")
    assert hub.pipelines.deliver_last(["S"]) == []
    assert staged.shown("a") == staged.arrived == [1, 2]
    shutil.rmtree(hub.streams / "s")
    hub.declared.catalog = Catalog()
    assert hub.pipelines.align() == []


def test_a_query_runs_again_when_the_drop_of_its_stream_cannot_be_saved(staged: StagedRig) -> None:
    hub = DroppingHub(staged)
    staged.runtime.close()
    hub.has("running")
    assert len(hub.host.launched) == 1

    def full(streams: object) -> None:
        raise DiskFull("no space left")

    given: Any = SimpleNamespace(forget=full, with_room=lambda act, needed=True: act(), clear=lambda streams: None)
    scripts = SavedScripts(
        given, hub.declared, given, given, dedicated=hub.pipelines, reservations=given, reserve=given
    )
    with pytest.raises(DiskFull):
        scripts.save(ScriptEffects(Catalog(), dropped=frozenset({"s"})))
    assert len(hub.host.launched) == 2
