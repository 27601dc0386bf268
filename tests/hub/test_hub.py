"""The hub without Spark: what scripts leave behind, and who stops a query when two threads disagree about it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import headrace
from headrace.app.check import check_script
from headrace.control.acks import Ack
from headrace.control.signals import Barrier, SignalKind
from headrace.errors import (
    BadName,
    BadOption,
    ExternalError,
    HeadraceError,
    IllegalTransition,
    MissingJava,
    NoSink,
    SavepointTimeout,
    SessionMismatch,
    StartTimeout,
    StateDamaged,
    StateInUse,
    StateTooNew,
    StopTimeout,
    StreamFailed,
    UnknownStream,
)
from headrace.hub.hub import Hub
from headrace.hub.reconciler import Reconciler
from headrace.spark.summary import EpochSummary
from headrace.state import savepoints
from headrace.state.catalog import Catalog, CatalogFile
from headrace.state.notices import EpochPlanned, PlanningHeld, SourceIdle
from headrace.state.progress import HOLD, Progress, write_progress
from headrace.state.restore import read, restore
from headrace.state.state_dir import FORMAT
from headrace.state.undo import take_back
from headrace.stream.runtime import StreamRuntime
from tests.e2e.support import until

STREAM = "CREATE STREAM s (id BIGINT) WITH (source = 'generator', format = 'json', rows = '{rows}')"
SINK = "CREATE SINK m WITH (type = 'memory')"


def summary(plan: int, *, ending: bool = False, rows: int, spent: dict[int, float] | None = None) -> EpochSummary:
    barrier = Barrier("epoch", 0)
    return EpochSummary(0, plan, barrier, ending, rows, 0, 0, 1, Progress(), {}, {}, spent or {}, {})


class Query:
    """A query that runs until it is stopped, and plans nothing."""

    def stop(self) -> None:
        """It is gone."""

    def last_epoch(self) -> None:
        """There was none."""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with headrace.connect(tmp_path / "state") as opened:
        opened.sql(STREAM.format(rows=10) + ";" + SINK)
        yield opened


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries start at once, and every plan is planned at once."""

    def start(self: StreamRuntime, patient: bool = False) -> None:
        if not self.running:
            self.supervisor.query = Query()

    def planned(self: StreamRuntime, version: int, timeout: float = 0) -> None:
        assert self.started

    monkeypatch.setattr(Hub, "_start_engine", lambda self: None)
    monkeypatch.setattr(StreamRuntime, "start", start)
    monkeypatch.setattr(StreamRuntime, "wait_planned", planned)

    def seen(self: StreamRuntime, kind: SignalKind, plan: int = 0) -> Future[Ack]:
        ack: Future[Ack] = Future()
        ack.set_result(Ack(self.signals.emit_data(kind, plan), 0))
        return ack

    monkeypatch.setattr(StreamRuntime, "barrier", seen)
    monkeypatch.setattr(StreamRuntime, "hold", lambda self, timeout: True)


def test_a_pipeline_that_joins_while_the_last_one_leaves_keeps_the_query(
    hub: Hub, no_spark: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.sql("CREATE PIPELINE p INTO m AS SELECT id FROM s")
    runtime = hub.runtime("s")

    def join_meanwhile(self: StreamRuntime, timeout: float) -> bool:
        monkeypatch.setattr(StreamRuntime, "hold", lambda self, timeout: True)
        hub.sql("CREATE PIPELINE q INTO m AS SELECT id FROM s")
        return True

    monkeypatch.setattr(StreamRuntime, "hold", join_meanwhile)
    hub.sql("DROP PIPELINE p")
    assert runtime.running
    hub.sql("DROP PIPELINE q")
    assert not runtime.running


def test_waiting_ends_when_the_query_is_stopped_on_purpose(hub: Hub) -> None:
    runtime = hub.runtime("s")
    runtime.wait_planned(7, timeout=30)  # nothing runs: there is nothing to wait for
    runtime.supervisor.query = Query()
    runtime.publish(())
    assert not runtime.hold(0.01)
    runtime.stop()
    assert runtime.hold(30)


def idle(runtime: StreamRuntime) -> None:
    """The source has nothing more under the newest plan."""
    runtime.on_notice(SourceIdle(stream="s", pid=7, plan=runtime.plans.current(), exhausted=True))


def test_waiting_too_long_for_the_first_epoch_says_who_waited_for_what_and_leaves_nothing_behind(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(self: StreamRuntime, patient: bool = False) -> None:
        self.supervisor.query = Query()

    monkeypatch.setattr(Hub, "_start_engine", lambda self: None)
    monkeypatch.setattr(StreamRuntime, "start", start)
    hub._reconciler.start_timeout = 0.05
    hub.sql("DROP STREAM s; " + STREAM.format(rows=10).replace("id BIGINT", "id BIGINT, v INT"))
    runtime = hub.runtime("s")
    with pytest.raises(StartTimeout) as failure:
        hub.sql("CREATE PIPELINE p INTO m AS SELECT v FROM s")
    assert failure.value.params["pipelines"] == ["p"]
    assert failure.value.params["columns"] == ["v"]
    assert "planned none since it was started" in str(failure.value)
    assert hub.pipelines == {}
    assert not runtime.started
    runtime.supervisor.query = Query()
    runtime.on_notice(EpochPlanned(stream="s", pid=7, plan=1, epoch=7, backlog=0))
    with pytest.raises(StartTimeout) as failure:
        runtime.wait_planned(runtime.plans.current(), 0.01)
    assert "epoch 7, with plan version 1, was planned 0 s ago" in str(failure.value)
    runtime.stop()


def test_waiting_for_the_end_again_and_again_plans_it_once(hub: Hub, no_spark: None) -> None:
    hub.sql("CREATE PIPELINE p INTO m AS SELECT id FROM s")
    runtime = hub.runtime("s")
    plan = runtime.plans.current()
    idle(runtime)
    for _ in range(3):
        assert not hub.wait_until_end(0.01)
        assert runtime.plans.current() == plan + 1
    assert runtime.plans.load(plan + 1).ending
    idle(runtime)
    assert hub.wait_until_end(5)
    assert runtime.plans.current() == plan + 1
    assert hub.pipelines["p"].status().state == "finished"
    assert not runtime.running


def test_input_that_comes_after_the_windows_were_closed_needs_another_end(hub: Hub, no_spark: None) -> None:
    hub.sql("CREATE PIPELINE p INTO m AS SELECT id FROM s")
    runtime, pipelines = hub.runtime("s"), hub.catalog.running("s")
    first = runtime.end(pipelines)
    assert runtime.end(pipelines) == first
    runtime._epoch_done(summary(first, ending=True, rows=3))
    assert runtime.end(pipelines) == first
    runtime._epoch_done(summary(first, ending=False, rows=3))
    assert runtime.end(pipelines) == first + 1
    runtime.stop()


def test_a_pipeline_over_its_budget_is_measured_alone_and_stopped_with_its_reason(
    tmp_path: Path, no_spark: None
) -> None:
    budget = STREAM.format(rows=9).replace("rows =", "pipeline_time_budget = '10ms', rows =")
    with headrace.connect(tmp_path / "state") as hub:
        hub.sql(f"{budget}; {SINK}")
        for name in ("p", "q"):
            hub.sql(f"CREATE PIPELINE {name} INTO m AS SELECT id, count(*) AS n FROM s GROUP BY id")
        runtime, p, q = hub.runtime("s"), *(hub.record(n).definition.instance for n in ("p", "q"))
        runtime._epoch_done(summary(runtime.plans.current(), rows=1, spent={p: 50.0, q: 50.0}))
        until(lambda: runtime.plans.load(runtime.plans.current()).alone == (p, q), "both are measured alone")
        runtime._epoch_done(summary(runtime.plans.current(), rows=1, spent={p: 99.0, q: 1.0}))
        until(lambda: hub.pipelines["p"].status().state == "failed", "the slow one is stopped")
        assert "[OVER_BUDGET]" in hub.pipelines["p"].status().error
        assert hub.pipelines["q"].status().state == "running"
        runtime.stop()


def test_a_pipeline_that_joins_while_another_thread_waits_for_the_end_is_waited_for_too(
    hub: Hub, no_spark: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.sql("CREATE PIPELINE p INTO m AS SELECT id FROM s")
    runtime, waits = hub.runtime("s"), []

    def exhausted(self: StreamRuntime, timeout: float | None) -> bool:
        waits.append(self.plans.load(self.plans.current()).ending)
        if len(waits) == 2:
            hub.sql("CREATE PIPELINE q INTO m AS SELECT id FROM s")
        return True

    monkeypatch.setattr(StreamRuntime, "wait_exhausted", exhausted)
    assert hub.wait_until_end(5)
    assert waits == [False, True, True]
    assert {p.status().state for p in hub.pipelines.values()} == {"finished"}
    assert not runtime.running


def test_a_drop_that_a_crash_kept_from_the_plan_is_told_when_the_hub_is_opened_again(
    tmp_path: Path, no_spark: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with headrace.connect(tmp_path / "state") as first:
        first.sql(STREAM.format(rows=10) + ";" + SINK + ";CREATE PIPELINE p INTO m AS SELECT count(*) AS n FROM s")
        first.sql("STOP PIPELINE p")
        instance = first.record("p").definition.instance
        with monkeypatch.context() as crashing:
            # The process dies right after the catalog is saved.
            crashing.setattr(Reconciler, "reconcile", lambda *given, **more: None)
            first.sql("DROP PIPELINE p")
    for _ in range(2):  # and again, between publishing the plan and saving that it was
        saved = CatalogFile(tmp_path / "state").read()
        with headrace.connect(tmp_path / "state") as again:
            plans = again.runtime("s").plans
            left = plans.load(plans.current()).left
            assert [ended.pipeline.instance for ended in left if ended.drop] == [instance]
            assert again.catalog.ended == ()
        CatalogFile(tmp_path / "state").save(saved)


def test_a_script_whose_stream_dies_has_no_effect(hub: Hub, no_spark: None, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.sql("CREATE PIPELINE p INTO m AS SELECT count(*) AS n FROM s")
    before, runtime = hub.catalog, hub.runtime("s")

    def dies(self: StreamRuntime, version: int, timeout: float = 0) -> None:
        raise StreamFailed("no such disk")

    with monkeypatch.context() as dying:
        dying.setattr(StreamRuntime, "wait_planned", dies)
        with pytest.raises(StreamFailed):
            hub.sql(
                "CREATE SINK other WITH (type = 'memory'); DROP PIPELINE p;"
                "CREATE PIPELINE q INTO other AS SELECT id FROM s;"
                + STREAM.format(rows=5).replace("STREAM s", "STREAM t")
                + "; CREATE PIPELINE r INTO m AS SELECT id FROM t"
            )
    assert hub.catalog.pipelines == before.pipelines
    assert (hub.catalog.sinks, hub.catalog.streams) == (before.sinks, before.streams)
    plan = runtime.plans.load(runtime.plans.current())
    assert [p.name for p in plan.pipelines] == ["p"]
    # The end of p was never told; that of q, which no epoch can have known before, does no harm.
    assert [left.pipeline.name for left in plan.left] == ["q"]
    runtime.stop()


def test_what_others_did_meanwhile_stays_when_a_script_is_taken_back(hub: Hub, no_spark: None) -> None:
    before = hub.catalog
    hub.sql("CREATE SINK a WITH (type = 'memory'); CREATE SINK b WITH (type = 'memory')")
    after = hub.catalog
    hub.sql("CREATE PIPELINE p INTO a AS SELECT id FROM s; CREATE SINK c WITH (type = 'memory')")
    taken = take_back(hub.catalog, before, after)
    assert set(taken.sinks) == {"m", "a", "c"}
    assert set(taken.pipelines) == {"p"}
    hub.runtime("s").stop()


def test_a_bare_select_and_a_name_that_is_too_long_have_codes_of_their_own(hub: Hub) -> None:
    with pytest.raises(NoSink):
        hub.sql("SELECT id FROM s")
    for kind in ("STREAM", "SINK", "PIPELINE"):
        with pytest.raises(BadName):
            hub.sql(f"CREATE {kind} `{'é' * 128}` WITH (type = 'memory')")
    name = "/" * 255  # three bytes each on disk
    hub.sql(STREAM.format(rows=1).replace("STREAM s", f"STREAM `{name}`"))
    directory = hub.runtime(name).directory
    (directory / "checkpoint").mkdir(parents=True)
    assert directory.parent == hub.runtime("s").directory.parent


def test_a_script_that_finds_no_java_has_no_effect(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*given: Any) -> None:
        raise MissingJava("none here")

    monkeypatch.setattr("headrace.spark.session.start", missing)
    for _ in range(2):
        with pytest.raises(MissingJava):
            hub.sql("CREATE SINK other WITH (type = 'memory'); CREATE PIPELINE p INTO m AS SELECT id FROM s")
    assert hub.pipelines == {}
    assert hub.catalog.sink("other") is None


def test_a_session_that_runs_in_this_process_is_not_taken_over(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", object())
    with pytest.raises(SessionMismatch):
        hub.sql("CREATE PIPELINE p INTO m AS SELECT id FROM s")


def test_a_replaced_stream_finds_nothing_of_the_old_one(hub: Hub) -> None:
    directory = hub.runtime("s").directory
    (directory / "checkpoint").mkdir(parents=True)
    hub.sql(STREAM.format(rows=20).replace("CREATE", "CREATE OR REPLACE"))
    assert not directory.exists()
    assert hub.catalog.streams["s"].options["rows"] == "20"
    assert not list(directory.parent.iterdir())


def test_what_a_crash_left_of_a_dropped_stream_is_gone_when_the_hub_is_opened_again(tmp_path: Path) -> None:
    with headrace.connect(tmp_path / "state") as first:
        first.sql(STREAM.format(rows=10))
        directory = first.runtime("s").directory
    (directory / "checkpoint").mkdir(parents=True)
    headrace.connect(tmp_path / "state").close()
    assert directory.exists()
    CatalogFile(tmp_path / "state").save(Catalog())
    headrace.connect(tmp_path / "state").close()
    assert not directory.exists()


def test_closing_lets_go_of_the_directory_also_when_spark_cannot_be_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = headrace.connect(tmp_path / "state")
    hub.sql(STREAM.format(rows=10))
    hub.runtime("s")

    def dead(self: StreamRuntime) -> None:
        raise ConnectionRefusedError

    with monkeypatch.context() as patched:
        patched.setattr(StreamRuntime, "close", dead)
        with pytest.raises(ConnectionRefusedError):
            hub.close()
    headrace.connect(tmp_path / "state").close()


def test_a_state_directory_of_a_newer_format_is_told_as_such_although_its_catalog_cannot_be_read(
    tmp_path: Path,
) -> None:
    (tmp_path / "VERSION").write_text(f"{FORMAT + 1}\n")
    (tmp_path / "catalog.json").write_text('{"version": 2, "tables": []}')
    with pytest.raises(StateTooNew):
        check_script(SINK, tmp_path)


def test_pipelines_are_spread_over_one_bucket_or_more(tmp_path: Path) -> None:
    for buckets in (0, -1):
        with pytest.raises(BadOption):
            headrace.connect(tmp_path / "state", buckets=buckets)


def test_starting_a_pipeline_again_keeps_the_state_of_a_stopped_one_and_none_of_a_failed_one(
    hub: Hub, no_spark: None
) -> None:
    hub.sql("CREATE PIPELINE p INTO m AS SELECT count(*) AS n FROM s; CREATE PIPELINE q INTO m AS SELECT id FROM s")
    runtime, instance = hub.runtime("s"), hub.record("p").definition.instance
    hub.sql("STOP PIPELINE p; START PIPELINE p")
    assert runtime.plans.load(runtime.plans.current()).left == ()
    hub._reconciler.drop_failed("s", {hub.record("p").definition.run: "why"})
    write_progress(runtime.directory, replace(runtime.progress, plan=runtime.plans.current()))
    hub.sql("START PIPELINE p")
    plan = runtime.plans.load(runtime.plans.current())
    assert [left.pipeline.instance for left in plan.left] == [instance]
    assert instance in {p.instance for p in plan.pipelines}
    runtime.stop()


def test_describe_stream_names_the_indexer_what_it_skips_and_who_reads_a_file(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    hub.sql(
        f"CREATE STREAM f (a STRING) WITH (source = 'files', format = 'csv', path = '{tmp_path / 'in'}', "
        "multiline = 'true')"
    )
    (described,) = hub.sql("DESCRIBE STREAM f")
    text = described.render()
    assert "headrace.formats.kernels.scan_csv.scan_any" in text
    assert "unwanted fields are skipped" in text
    assert "each file in order, by one task (multiline" in text


def test_an_interrupted_end_of_two_streams_closes_no_window_of_the_one_that_has_not_ended(
    hub: Hub, no_spark: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C during `run --until-end`: the first stream is stopped already, which must not look like its end."""
    hub.sql(STREAM.format(rows=10).replace("STREAM s", "STREAM t"))
    hub.sql("CREATE PIPELINE p INTO m AS SELECT id FROM s; CREATE PIPELINE q INTO m AS SELECT count(*) AS n FROM t")
    ended: list[bool] = []
    waiting = threading.Thread(target=lambda: ended.append(hub.wait_until_end(20)))
    waiting.start()
    held: list[str] = []

    def hold(self: StreamRuntime, timeout: float) -> bool:
        held.append(self.stream.name)
        if len(held) == 2:  # the other one is stopped by now: those who wait see that within half a second
            waiting.join(5)
        return True

    monkeypatch.setattr(StreamRuntime, "hold", hold)
    assert hub.drain(30)
    waiting.join(10)
    assert ended == [False]
    for name in ("s", "t"):
        plans = hub.runtime(name).plans
        assert not plans.load(plans.current()).ending
        assert hub.catalog.running(name)


def test_a_savepoint_needs_a_stream(tmp_path: Path) -> None:
    with headrace.connect(tmp_path / "state") as empty, pytest.raises(UnknownStream):
        empty.sql("SAVEPOINT monday")


class Copying:
    """A savepoint of `s` whose copy is under way until `go_on`."""

    def __init__(self, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
        self._busy, self._go_on = threading.Event(), threading.Event()
        real = savepoints.copy_tree

        def slow(source: Path, target: Path) -> None:
            self._busy.set()
            assert self._go_on.wait(10)
            real(source, target)

        monkeypatch.setattr(savepoints, "copy_tree", slow)
        self._threads = [self.beside(lambda: hub.savepoint("x", "s"))]
        assert self._busy.wait(10)

    def beside(self, work: Callable[[], object]) -> threading.Thread:
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        return thread

    def waits(self, work: Callable[[], object]) -> None:
        """`work` begins now, and is not done before the copy is."""
        thread = self.beside(work)
        thread.join(0.2)
        assert thread.is_alive()
        self._threads.append(thread)

    def go_on(self) -> None:
        self._go_on.set()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()


def test_a_stopped_stream_is_not_started_while_it_is_copied(
    hub: Hub, no_spark: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.sql("CREATE PIPELINE p INTO m AS SELECT id FROM s; STOP PIPELINE p")
    copying = Copying(hub, monkeypatch)
    assert len(hub.sql("SHOW PIPELINES")) == 1  # what is not about the stream goes on
    copying.waits(lambda: hub.sql("START PIPELINE p"))
    assert not hub.runtime("s").running
    copying.go_on()
    assert hub.runtime("s").running
    hub.runtime("s").stop()


def test_a_stream_is_not_dropped_while_it_is_copied(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state" / "streams" / "s").mkdir(parents=True)
    write_progress(tmp_path / "state" / "streams" / "s", Progress())
    copying = Copying(hub, monkeypatch)
    copying.waits(lambda: hub.sql("DROP STREAM s"))
    with pytest.raises(SavepointTimeout):  # savepoints of a stream are taken one after the other
        hub.savepoint("z", "s", timeout=0.01)
    copying.go_on()
    assert not hub.streams and [c.stream for c in read(tmp_path / "state" / "savepoints" / "x").cuts] == ["s"]
    assert (tmp_path / "state" / "savepoints" / "x" / "streams" / "s" / "progress.json").exists()


def test_a_shutdown_waits_for_a_copy_and_no_longer(hub: Hub, no_spark: None, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.sql("CREATE PIPELINE p INTO m AS SELECT id FROM s")
    runtime = hub.runtime("s")
    monkeypatch.setattr(StreamRuntime, "stand_still", lambda self, timeout: 0)

    def plan() -> None:  # as the planning process: it tells of a hold when there is one
        while runtime.started:
            if (runtime.directory / HOLD).exists():
                runtime.on_notice(PlanningHeld(stream="s", pid=7))
            time.sleep(0.01)

    copying = Copying(hub, monkeypatch)
    copying.beside(plan)
    ends: list[bool] = []
    copying.waits(lambda: ends.append(hub.drain(30)))
    assert runtime.running
    copying.go_on()
    assert ends == [True] and not runtime.started


def test_a_savepoint_of_a_stream_that_never_ran_can_be_restored(hub: Hub, tmp_path: Path) -> None:
    hub.sql("SAVEPOINT early")
    hub.close()
    restore(tmp_path / "state" / "savepoints" / "early", tmp_path / "again")
    with headrace.connect(tmp_path / "again") as again:
        assert list(again.streams) == ["s"]


@pytest.mark.parametrize("gone", ["checkpoint", "checkpoint.id"])
def test_a_checkpoint_that_was_deleted_is_noticed(hub: Hub, gone: str) -> None:
    runtime = hub.runtime("s")
    place = runtime.directory / "checkpoint"
    place.mkdir(parents=True)
    known = runtime.checkpoint_id()
    write_progress(runtime.directory, Progress(epoch=3))
    assert runtime.checkpoint_id() == known
    lost = runtime.directory / gone
    lost.rename(runtime.directory / "aside")
    with pytest.raises(StateDamaged) as caught:
        runtime.checkpoint_id()
    assert caught.value.params["path"] == str(lost)
    (runtime.directory / "aside").rename(lost)
    assert runtime.checkpoint_id() == known


def test_stopping_a_stream_whose_query_is_being_mended_waits_for_no_lock_twice(
    hub: Hub,
) -> None:
    """The supervisor asks the hub for Spark under its own lock, while the hub stops the query under the hub's."""
    hub._engine = SimpleNamespace(owned=False)  # type: ignore[assignment]
    runtime = hub.runtime("s")
    relaunching, done = threading.Event(), threading.Event()

    def mend() -> None:
        with runtime.supervisor._lock:
            relaunching.set()
            time.sleep(0.1)
            hub._start_engine()
        done.set()

    thread = threading.Thread(target=mend, daemon=True)
    thread.start()
    relaunching.wait(5)
    with hub._lock:
        runtime.stop()
    assert done.wait(5)
    hub._engine = None


def test_a_pipeline_runs_when_its_first_epoch_is_planned_whoever_joins_after_it(
    hub: Hub, no_spark: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def join_meanwhile(self: StreamRuntime, version: int, timeout: float = 0) -> None:
        monkeypatch.setattr(StreamRuntime, "wait_planned", lambda self, version, timeout: time.sleep(0.5))
        threading.Thread(target=hub.sql, args=("CREATE PIPELINE q INTO m AS SELECT id FROM s",)).start()
        until(lambda: "q" in hub.pipelines, "another pipeline has joined")

    monkeypatch.setattr(StreamRuntime, "wait_planned", join_meanwhile)
    hub.sql("CREATE PIPELINE p INTO m AS SELECT id FROM s")
    assert {name: p.status().state for name, p in hub.pipelines.items()} == {"p": "running", "q": "starting"}
    until(lambda: hub.pipelines["q"].status().state == "running", "the other one runs too")
    hub.runtime("s").stop()


def test_a_chore_that_goes_wrong_is_told_and_the_next_is_done(
    hub: Hub, no_spark: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.base.background.AGAIN_SECONDS", 0.05)
    hub.sql("CREATE PIPELINE p INTO m AS SELECT id FROM s; CREATE PIPELINE q INTO m AS SELECT id FROM s")
    reconciler, runtime = hub._reconciler, hub.runtime("s")

    def illegal() -> None:
        raise IllegalTransition("from here to there")

    reconciler.background.put("s", illegal)
    until(lambda: "from here to there" in runtime.status().problem, "the defect is told")
    save, full = CatalogFile.save, threading.Event()

    def no_room(self: CatalogFile, catalog: Catalog) -> None:
        if not full.is_set():
            raise OSError(28, "No space left on device")
        save(self, catalog)

    monkeypatch.setattr(CatalogFile, "save", no_room)
    reconciler.report_failures("s", {hub.record("p").definition.run: "why"}, {})
    until(lambda: "No space left" in runtime.status().problem, "the full disk is told")
    assert hub.pipelines["p"].status().state == "running"
    full.set()
    until(lambda: hub.pipelines["p"].status().state == "failed", "it is done when there is room again")
    until(lambda: runtime.status().problem == "", "all is well")
    assert hub.pipelines["q"].status().state == "running"
    runtime.stop()


def test_an_end_that_takes_too_long_keeps_no_other_stream_from_its_plan_and_stops_the_query_when_it_comes(
    hub: Hub, no_spark: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.base.background.AGAIN_SECONDS", 0.02)
    monkeypatch.setattr("headrace.hub.reconciler.DRAIN_SECONDS", 0.05)
    hub.sql(STREAM.format(rows=10).replace("STREAM s", "STREAM t"))
    hub.sql("CREATE PIPELINE p INTO m AS SELECT id FROM s")
    hub.sql("CREATE PIPELINE q INTO m AS SELECT id FROM t; CREATE PIPELINE r INTO m AS SELECT id FROM t")
    late: Future[Ack] = Future()
    monkeypatch.setattr(StreamRuntime, "barrier", lambda self, kind, plan=0: late)
    with pytest.raises(StopTimeout):
        hub.sql("STOP PIPELINE p; DROP PIPELINE q; STOP PIPELINE r NOW")
    first, second = hub.runtime("s"), hub.runtime("t")
    assert {name: p.status().state for name, p in hub.pipelines.items()} == {"p": "stopping", "r": "stopped"}
    assert second.plans.load(second.plans.current()).pipelines == ()
    assert not second.running
    first.on_notice(EpochPlanned(stream="s", pid=7, plan=first.plans.current(), epoch=1, backlog=0))
    time.sleep(0.1)
    assert first.running, "its last epoch is not committed yet"
    late.set_result(Ack(Barrier("graceful_end", 1), 1))
    until(lambda: not first.running, "nobody needs it")
    until(lambda: hub.pipelines["p"].status().state == "stopped", "it has come to its end")


def test_a_stream_whose_last_pipeline_failed_in_a_long_epoch_is_stopped_after_it(
    hub: Hub, no_spark: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def long(self: StreamRuntime, version: int, timeout: float = 0) -> None:
        waited.set()
        raise StartTimeout("an epoch is in flight")

    monkeypatch.setattr("headrace.base.background.AGAIN_SECONDS", 0.02)
    hub.sql("CREATE PIPELINE p INTO m AS SELECT id FROM s")
    runtime, waited = hub.runtime("s"), threading.Event()
    monkeypatch.setattr(StreamRuntime, "wait_planned", long)
    hub._reconciler.report_failures("s", {hub.record("p").definition.run: "why"}, {})
    assert waited.wait(5)
    assert runtime.running
    runtime.on_notice(EpochPlanned(stream="s", pid=7, plan=runtime.plans.current(), epoch=1, backlog=0))
    until(lambda: not runtime.running, "nobody needs it")


@pytest.mark.parametrize("problem", [StateInUse("journal"), ExternalError("no DuckDB"), StateDamaged("checkpoint")])
def test_a_script_whose_stream_cannot_be_started_has_no_effect(
    hub: Hub, no_spark: None, monkeypatch: pytest.MonkeyPatch, problem: HeadraceError
) -> None:
    def refused(self: StreamRuntime, patient: bool = False) -> None:
        raise problem

    monkeypatch.setattr(StreamRuntime, "start", refused)
    with pytest.raises(type(problem)):
        hub.sql("CREATE SINK other WITH (type = 'memory'); CREATE PIPELINE p INTO other AS SELECT id FROM s")
    assert hub.pipelines == {}
    assert hub.catalog.sink("other") is None
