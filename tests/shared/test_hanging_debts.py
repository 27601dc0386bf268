"""A sink that hangs while it writes an epoch that it owes holds up its own pipeline only, and forgets nothing."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import HeadraceError, SinkFailed
from headrace.hub import rollout
from headrace.hub.hub import Hub
from headrace.model.definitions import PipelineDef
from headrace.sinks.file_sink import FileTask
from headrace.sinks.sink_kind import SinkKey, Staged
from headrace.spark import committer, driver_sinks
from headrace.spark.driver_sinks import DriverSinks
from headrace.state.progress import read_progress
from headrace.stream import managed_query
from tests.e2e.support import put
from tests.shared.chain import record
from tests.shared.hanging import Queries, Sink, lines, until

SCRIPT = """
CREATE STREAM raw (ts TIMESTAMP, k STRING, v BIGINT) WITH (source = 'files', format = 'json', path = '{path}/in');
CREATE SINK f WITH (type = 'jsonl', path = '{path}/out');
CREATE SINK g WITH (type = 'jsonl', path = '{path}/good');
CREATE SINK h WITH (type = 'jsonl', path = '{path}/hangs', retries = '0');
CREATE SINK m WITH (type = 'memory');
CREATE PIPELINE first INTO f AS SELECT k, v FROM raw;
CREATE PIPELINE bad INTO {sinks} AS SELECT k, v FROM raw;
CREATE PIPELINE last INTO m AS SELECT k, v FROM raw
"""


class Rig:
    """A hub whose sink `h` can hang in `method`. `add` puts a row into the source."""

    def __init__(self, path: Path, patch: pytest.MonkeyPatch, method: str = "commit") -> None:
        self.path, self.queries, self.rows = path, Queries(), list[tuple[str, int]]()
        self.sink = Sink(patch, method)
        self.hub = self.open()

    def open(self) -> Hub:
        self.hub = Hub(self.path / "state", self.queries, buckets=2, start_timeout=60.0)
        return self.hub

    def kill(self) -> None:
        """Kill the hub, and open it again. The sink answers then."""
        self.sink.kill()
        self.hub.close(drain=False)
        self.open()

    def start(self, sinks: str, options: str = "") -> None:
        script = SCRIPT.format(path=self.path, sinks=sinks)
        self.hub.sql(script.replace("'json',", f"'json', {options}") if options else script)

    def add(self, key: str) -> None:
        self.rows.append((key, len(self.rows)))
        put(self.path / "in" / f"{key}.json", [record(len(self.rows), k=key, v=self.rows[-1][1])])

    def neighbours_have_all(self) -> None:
        until(lambda: lines(self.path / "out") == self.rows)
        until(lambda: self.hub.pipelines["last"].results().num_rows == len(self.rows))

    def owed(self) -> list[tuple[str, str, int]]:
        progress = read_progress(self.path / "state" / "streams" / "raw")
        return [(debt.pipeline.name, debt.sink, debt.epoch) for debt in progress.debts]

    def owe_one(self, sinks: str = "g, h", options: str = "") -> None:
        """The sink owes the epoch with the row `a`. It hangs when it is asked for it."""
        self.sink.refuses.set()
        self.add("a")
        self.start(sinks, options)
        until(lambda: len(self.owed()) == 1)
        self.sink.refuses.clear()


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setattr(rollout, "STUCK_SECONDS", 0.5)
    monkeypatch.setattr(managed_query, "STUCK_SECONDS", 1.0)
    monkeypatch.setattr(driver_sinks, "SETTLE_SECONDS", 0.3)
    made = Rig(tmp_path, monkeypatch)
    yield made
    made.sink.answers.set()
    made.hub.close(drain=False)


@pytest.mark.parametrize("how", ["failed", "dropped", "detached"])
def test_nobody_waits_for_what_a_pipeline_owes_that_has_failed_was_dropped_or_has_detached_the_sink(
    rig: Rig, how: str
) -> None:
    if how == "detached":
        rig.hub.sql(
            f"CREATE SINK h WITH (type = 'jsonl', path = '{rig.path}/hangs', retries = '0', on_failure = 'detach')"
        )
    rig.sink.refuses.set()
    rig.add("a")
    script = SCRIPT.format(path=rig.path, sinks="g, h")
    if how == "detached":
        script = "\n".join(line for line in script.splitlines() if "SINK h" not in line)
    rig.hub.sql(script)
    until(lambda: len(rig.owed()) == 1)
    if how == "dropped":
        until(lambda: rig.hub.pipelines["bad"].status().state == "failed")
        rig.hub.sql("DROP PIPELINE bad")
    rig.sink.refuses.clear()
    for key in "bcd":
        rig.add(key)
        rig.neighbours_have_all()
    assert rig.sink.entered.wait(30)
    assert rig.owed() == [("bad", "h", 0)]
    if how == "detached":
        until(lambda: lines(rig.path / "good") == rig.rows)
        assert rig.hub.pipelines["bad"].status().state == "running"
    assert {rig.hub.pipelines[name].status().state for name in ("first", "last")} == {"running"}
    rig.sink.answers.set()
    until(lambda: lines(rig.path / "hangs") == [("a", 0)])
    rig.add("e")
    until(lambda: rig.owed() == [])
    rig.neighbours_have_all()
    assert lines(rig.path / "hangs") == [("a", 0)]


@pytest.mark.parametrize("statement", ["DROP PIPELINE bad", "STOP PIPELINE bad NOW"])
def test_a_pipeline_that_is_started_again_waits_for_what_it_owes_until_it_is_dropped_or_stopped(
    rig: Rig, statement: str
) -> None:
    rig.owe_one()
    until(lambda: rig.hub.pipelines["bad"].status().state == "failed")
    rig.hub.sql("START PIPELINE bad")
    rig.add("b")
    until(lambda: "sink h of pipeline bad" in rig.hub.streams["raw"].status().waiting_for)
    rig.hub.sql(statement)
    rig.neighbours_have_all()
    rig.add("c")
    rig.neighbours_have_all()
    assert ("bad", "h", 0) in rig.owed()
    rig.sink.answers.set()
    until(lambda: ("a", 0) in lines(rig.path / "hangs"))
    rig.add("d")
    until(lambda: rig.owed() == [])
    rig.neighbours_have_all()
    assert lines(rig.path / "hangs") == lines(rig.path / "good")


def test_a_time_limit_stops_a_pipeline_that_waits_for_what_it_owes_and_no_other(rig: Rig) -> None:
    rig.owe_one(options="max_epoch_time = '1s',")
    until(lambda: rig.hub.pipelines["bad"].status().state == "failed")
    rig.hub.sql("START PIPELINE bad")
    rig.add("b")
    until(lambda: "EPOCH_TIMEOUT" in rig.hub.pipelines["bad"].status().changes[-1].reason)
    rig.neighbours_have_all()
    assert ("bad", "h", 0) in rig.owed()
    assert {rig.hub.pipelines[name].status().state for name in ("first", "last")} == {"running"}
    rig.sink.answers.set()
    until(lambda: ("a", 0) in lines(rig.path / "hangs"))
    rig.add("c")
    until(lambda: rig.owed() == [])
    rig.hub.sql("START PIPELINE bad")
    rig.add("d")
    until(lambda: ("d", 3) in lines(rig.path / "hangs"))
    rig.neighbours_have_all()
    assert lines(rig.path / "hangs") == lines(rig.path / "good")


def test_a_flush_or_a_sync_that_asks_a_sink_that_hangs_holds_up_no_epoch(rig: Rig) -> None:
    rig.owe_one()
    with pytest.raises(HeadraceError) as refused:
        rig.hub.streams["raw"].flush(timeout=20)
    assert refused.value.code == "SINK_FAILED"
    rig.add("b")
    rig.neighbours_have_all()
    with pytest.raises(TimeoutError):
        rig.hub.streams["raw"].sync(timeout=3)
    rig.add("c")
    rig.neighbours_have_all()
    rig.sink.answers.set()
    assert rig.hub.streams["raw"].sync(timeout=20) > 0
    assert lines(rig.path / "hangs") == [("a", 0)]


def test_a_sink_that_hangs_in_what_it_owes_does_not_hold_up_the_drop_of_its_stream(
    rig: Rig, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.owe_one()
    rig.hub.sql("DROP PIPELINE bad; DROP PIPELINE first; DROP PIPELINE last")
    began = time.monotonic()
    with caplog.at_level(logging.WARNING):
        rig.hub.sql("DROP STREAM raw")
    assert time.monotonic() - began < 10
    assert any("[SINK_FAILED]" in text and "epoch 0" in text and "sink h" in text for text in caplog.messages)


def test_a_sink_that_begins_to_hang_when_its_stream_is_dropped_keeps_no_other_from_being_cleared_nor_a_new_stream(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_sinks, "SETTLE_SECONDS", 3.0)
    monkeypatch.setattr(committer, "FORGET_SECONDS", 1.0)
    cleared, forget = list[set[str]](), DriverSinks.forget_stream

    def forgets(sinks: DriverSinks, pipelines: Iterable[PipelineDef], *rest: Any) -> None:
        known = list(pipelines)
        cleared.append({p.name for p in known})
        forget(sinks, known, *rest)

    monkeypatch.setattr(DriverSinks, "forget_stream", forgets)
    rig.sink.refuses.set()
    rig.add("a")
    rig.start("g, h")
    until(lambda: len(rig.owed()) == 1)
    manifests = rig.path / "out" / "_headrace" / "manifests"
    assert list(manifests.iterdir())
    rig.hub.sql("DROP PIPELINE bad; DROP PIPELINE first; DROP PIPELINE last")
    rig.sink.refuses.clear()
    rig.hub.sql("DROP STREAM raw")
    assert rig.sink.entered.wait(30)
    script = SCRIPT.format(path=rig.path, sinks="m").replace("CREATE SINK", "-- CREATE SINK")
    rig.hub.sql(script.replace("PIPELINE first", "PIPELINE other").replace("INTO f", "INTO m"))
    until(lambda: bool(cleared))
    assert "other" not in cleared[0]
    assert "first" in cleared[0]
    until(lambda: not list(manifests.iterdir()))


# --- an epoch that is in one sink of a pipeline, while the commit hangs in the other --------------------------------


def hang_in_second_epoch(rig: Rig, sinks: str) -> None:
    rig.sink.answers.set()
    rig.add("a")
    rig.start(sinks)
    until(lambda: lines(rig.path / "hangs") == lines(rig.path / "good") == rig.rows)
    rig.sink.answers.clear()
    rig.add("b")
    assert rig.sink.entered.wait(30)


@pytest.mark.parametrize("sinks", ["g, h", "h, g"])
@pytest.mark.parametrize("statement", ["DROP PIPELINE bad", "STOP PIPELINE bad NOW"])
@pytest.mark.parametrize("method", ["commit", "_roll_forward"])
def test_both_sinks_have_an_epoch_that_was_decided_when_the_commit_hung_although_the_hub_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sinks: str, statement: str, method: str
) -> None:
    monkeypatch.setattr(rollout, "STUCK_SECONDS", 0.5)
    rig = Rig(tmp_path, monkeypatch, method)
    hang_in_second_epoch(rig, sinks)
    rig.hub.sql(statement)
    rig.add("c")
    rig.neighbours_have_all()
    assert ("bad", "h", 1) in rig.owed()
    rig.kill()
    rig.add("d")
    until(lambda: rig.owed() == [])
    until(lambda: lines(rig.path / "out") == rig.rows)
    assert lines(rig.path / "hangs") == lines(rig.path / "good") == rig.rows[:2]
    rig.hub.close(drain=False)


@pytest.mark.parametrize("sinks", ["g, h", "h, g"])
def test_both_sinks_have_an_epoch_that_was_decided_when_the_sink_answers(rig: Rig, sinks: str) -> None:
    hang_in_second_epoch(rig, sinks)
    rig.hub.sql("DROP PIPELINE bad")
    rig.add("c")
    rig.neighbours_have_all()
    rig.sink.answers.set()
    rig.add("d")
    until(lambda: rig.owed() == [])
    rig.neighbours_have_all()
    assert lines(rig.path / "hangs") == lines(rig.path / "good") == rig.rows[:2]


@pytest.mark.parametrize("sinks", ["g, h", "h, g"])
def test_no_sink_has_an_epoch_whose_promise_hung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sinks: str) -> None:
    monkeypatch.setattr(rollout, "STUCK_SECONDS", 0.5)
    rig = Rig(tmp_path, monkeypatch, "promise")
    hang_in_second_epoch(rig, sinks)
    rig.hub.sql("DROP PIPELINE bad")
    rig.add("c")
    rig.neighbours_have_all()
    assert rig.owed() == []
    rig.kill()
    rig.add("d")
    until(lambda: lines(rig.path / "out") == rig.rows)
    assert lines(rig.path / "hangs") == lines(rig.path / "good") == rig.rows[:1]
    rig.hub.close(drain=False)


@pytest.mark.parametrize("sinks", ["g, h", "h, g"])
def test_a_sink_owes_no_promise_that_it_never_gave_because_the_other_one_was_detached(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, sinks: str
) -> None:
    stage, refuses = FileTask.stage, threading.Event()

    def staging(task: FileTask, table: pa.Table, key: SinkKey) -> Staged:
        if task.paths.sink == "g" and refuses.is_set():
            raise SinkFailed("it refuses")
        return stage(task, table, key)

    monkeypatch.setattr(FileTask, "stage", staging)
    rig.sink.answers.set()
    rig.add("a")
    script = SCRIPT.format(path=rig.path, sinks=sinks)
    rig.hub.sql(script.replace("/good'", "/good', retries = '0', on_failure = 'detach'"))
    until(lambda: lines(rig.path / "hangs") == lines(rig.path / "good") == rig.rows)
    rig.sink.answers.clear()
    refuses.set()
    rig.add("b")
    assert rig.sink.entered.wait(30)
    rig.hub.sql("STOP PIPELINE bad NOW")
    rig.neighbours_have_all()
    until(lambda: rig.owed() == [("bad", "h", 1)])
    rig.kill()
    rig.add("c")
    until(lambda: lines(rig.path / "out") == rig.rows)
    until(lambda: rig.owed() == [])  # it cannot be told that a promise is missing
    assert lines(rig.path / "hangs") == lines(rig.path / "good") == rig.rows[:1]


def test_a_sink_that_still_hangs_when_the_hub_is_opened_again_holds_up_no_other_pipeline(rig: Rig) -> None:
    """It was dropped, and its debt was durable, before the hub was killed."""
    hang_in_second_epoch(rig, "g, h")
    rig.hub.sql("DROP PIPELINE bad")
    rig.neighbours_have_all()
    until(lambda: ("bad", "h", 1) in rig.owed())  # the progress is written after the sinks have the rows
    rig.sink.kill()
    rig.sink.entered.clear()
    rig.sink.answers.clear()
    rig.hub.close(drain=False)
    rig.open()
    rig.add("c")
    until(lambda: lines(rig.path / "out") == rig.rows)
    assert rig.sink.entered.wait(30)
    assert rig.owed() == [("bad", "h", 1)]
    rig.sink.answers.set()
    rig.add("d")
    until(lambda: rig.owed() == [])
    assert lines(rig.path / "hangs") == lines(rig.path / "good") == rig.rows[:2]


def test_a_sink_that_hangs_again_after_its_pipeline_was_dropped_and_the_hub_killed_is_given_up(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The epoch in flight still names the pipeline, and no statement about it can come any more."""
    monkeypatch.setattr(rollout, "STUCK_SECONDS", 600.0)
    hang_in_second_epoch(rig, "g, h")
    drop = threading.Thread(target=_quietly, args=(rig.hub, "DROP PIPELINE bad"), daemon=True)
    drop.start()
    until(lambda: "bad" not in rig.hub.pipelines)
    rig.sink.kill()
    rig.sink.entered.clear()
    rig.sink.answers.clear()
    rig.hub.close(drain=False)
    drop.join(30)
    rig.open()
    rig.add("c")
    assert rig.sink.entered.wait(30)
    until(lambda: lines(rig.path / "out") == rig.rows)
    assert rig.owed() == [("bad", "h", 1)]
    rig.sink.answers.set()
    rig.add("d")
    until(lambda: rig.owed() == [])
    assert lines(rig.path / "hangs") == lines(rig.path / "good") == rig.rows[:2]


def _quietly(hub: Hub, statement: str) -> None:
    with contextlib.suppress(HeadraceError):  # the hub is closed meanwhile
        hub.sql(statement)
