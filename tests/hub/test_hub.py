"""The hub without Spark: the effects of scripts, and of threads that start and stop the same stream."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.app.check import check_script
from headrace.control.signals import Barrier
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
    StateUnavailable,
    StopTimeout,
    StreamFailed,
    UnknownStream,
)
from headrace.hub.draft import Draft
from headrace.hub.hub import Hub
from headrace.hub.results import Result
from headrace.model.program import Meaning
from headrace.spark.summary import EpochSummary
from headrace.sql import parse_script
from headrace.state import savepoints
from headrace.state.catalog import Catalog, CatalogFile
from headrace.state.notices import EpochPlanned
from headrace.state.progress import Progress, write_progress
from headrace.state.restore import read, restore
from headrace.state.state_dir import FORMAT
from headrace.state.undo import take_back
from headrace.stream.runtime import StreamRuntime
from tests.e2e.support import until
from tests.shared.running import RunningQueries

STREAM = "CREATE STREAM s (id BIGINT) WITH (source = 'generator', format = 'json', rows = '{rows}')"
SINK = "CREATE SINK m WITH (type = 'memory')"


def summary(plan: int, *, ending: bool = False, rows: int, spent: dict[int, float] | None = None) -> EpochSummary:
    barrier = Barrier("epoch", 0)
    return EpochSummary(0, plan, barrier, ending, rows, 0, 0, 1, Progress(), {}, {}, spent or {}, {})


@pytest.fixture
def queries() -> RunningQueries:
    return RunningQueries()


@pytest.fixture
def hub(tmp_path: Path, queries: RunningQueries) -> Iterator[Hub]:
    with Hub(tmp_path / "state", queries) as opened:
        opened.sql(STREAM.format(rows=10) + ";" + SINK)
        yield opened
        queries.resume()


@pytest.fixture
def idle_hub(tmp_path: Path) -> Iterator[Hub]:
    """A hub that users open. No test starts Spark on it."""
    with headrace.connect(tmp_path / "state") as opened:
        opened.sql(STREAM.format(rows=10) + ";" + SINK)
        yield opened


class Beside:
    """A call in another thread."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call, self._result, self._problem = call, None, list[BaseException]()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._call()
        except BaseException as problem:
            self._problem.append(problem)

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> Any:
        """What the call returned. Raises what it raised."""
        self._thread.join(90)
        assert not self.running
        if self._problem:
            raise self._problem[0]
        return self._result


def states(hub: Hub) -> dict[str, str]:
    return {name: p.status().state for name, p in hub.pipelines.items()}


def planned(runtime: StreamRuntime, plan: int, epoch: int = 1) -> None:
    """Report that an epoch was planned, while the real planner is paused."""
    runtime.on_notice(EpochPlanned(stream=runtime.stream.name, pid=7, plan=plan, epoch=epoch, backlog=0))


def version(runtime: StreamRuntime) -> int:
    """The newest plan version; 0 while one is being published in another thread."""
    try:
        return runtime.plans.current()
    except StateDamaged:
        return 0


def exhausted(runtime: StreamRuntime) -> None:
    until(lambda: runtime.wait_exhausted(0.1), "the source has ended")


def test_a_pipeline_that_joins_while_the_last_one_leaves_keeps_the_query(hub: Hub, queries: RunningQueries) -> None:
    hub.sql("CREATE PIPELINE p INTO m AS SELECT id FROM s")
    runtime = hub.runtime("s")
    queries.pause()
    leaving = Beside(lambda: hub.sql("DROP PIPELINE p"))
    until(lambda: not hub.pipelines, "the drop is declared")
    joining = Beside(lambda: hub.sql("CREATE PIPELINE q INTO m AS SELECT id FROM s"))
    until(lambda: "q" in hub.pipelines, "the other one is declared")
    queries.resume()
    leaving.result()
    joining.result()
    assert runtime.running and states(hub) == {"q": "running"}
    assert queries.launched == ["s"]
    hub.sql("DROP PIPELINE q")
    assert not runtime.running


def test_waiting_ends_when_the_query_is_stopped_on_purpose(hub: Hub, queries: RunningQueries) -> None:
    runtime = hub.runtime("s")
    runtime.wait_planned(7, timeout=30)  # nothing runs, so there is nothing to wait for
    queries.pause()
    runtime.publish(())
    runtime.start()
    assert not runtime.hold(0.01)
    runtime.stop()
    assert runtime.hold(30)


def test_waiting_too_long_for_the_first_epoch_names_the_pipelines_and_has_no_effect(tmp_path: Path) -> None:
    queries = RunningQueries()
    queries.pause()
    with Hub(tmp_path / "state", queries, start_timeout=0.05) as hub:
        hub.sql(SINK + ";" + STREAM.format(rows=10).replace("id BIGINT", "id BIGINT, v INT"))
        runtime = hub.runtime("s")
        with pytest.raises(StartTimeout) as failure:
            hub.sql("CREATE PIPELINE p INTO m AS SELECT v FROM s")
        assert failure.value.params["pipelines"] == ["p"]
        assert failure.value.params["columns"] == ["v"]
        assert failure.value.params["planned_epoch"] is None
        assert hub.pipelines == {}
        assert not runtime.started
        runtime.start()
        planned(runtime, plan=1, epoch=7)
        with pytest.raises(StartTimeout) as failure:
            runtime.wait_planned(runtime.plans.current(), 0.01)
        assert failure.value.params["planned_epoch"] == 7
        runtime.stop()


def test_waiting_for_the_end_again_and_again_plans_it_once(hub: Hub, queries: RunningQueries) -> None:
    hub.sql("CREATE PIPELINE p INTO m AS SELECT id FROM s")
    runtime = hub.runtime("s")
    plan = runtime.plans.current()
    exhausted(runtime)
    queries.pause()
    for _ in range(3):
        assert not hub.wait_until_end(0.01)
        assert runtime.plans.current() == plan + 1
    assert runtime.plans.load(plan + 1).ending
    queries.resume()
    assert hub.wait_until_end(60)
    assert runtime.plans.current() == plan + 1
    assert states(hub) == {"p": "finished"}
    assert not runtime.running


def test_input_that_comes_after_the_windows_were_closed_needs_another_end(hub: Hub, queries: RunningQueries) -> None:
    hub.sql("CREATE PIPELINE p INTO m AS SELECT id FROM s")
    queries.pause()
    runtime, pipelines = hub.runtime("s"), hub.catalog.running("s")
    first = runtime.end(pipelines)
    assert runtime.end(pipelines) == first
    runtime.epoch_committed(summary(first, ending=True, rows=3))
    assert runtime.end(pipelines) == first
    runtime.epoch_committed(summary(first, ending=False, rows=3))
    assert runtime.end(pipelines) == first + 1
    runtime.stop()


def test_a_pipeline_over_its_budget_is_measured_alone_and_stopped_with_its_reason(
    tmp_path: Path, queries: RunningQueries
) -> None:
    budget = STREAM.format(rows=9).replace("rows =", "pipeline_time_budget = '10ms', rows =")
    with Hub(tmp_path / "state", queries) as hub:
        hub.sql(f"{budget}; {SINK}")
        queries.pause()  # the test reports what epochs cost
        runtime = hub.runtime("s")
        names = ("p", "q")
        script = ";".join(f"CREATE PIPELINE {n} INTO m AS SELECT id, count(*) AS n FROM s GROUP BY id" for n in names)
        creating = Beside(lambda: hub.sql(script))
        until(lambda: version(runtime) == 1, "the plan is published")
        planned(runtime, plan=1)
        creating.result()
        p, q = (hub.record(n).definition.instance for n in names)
        runtime.epoch_committed(summary(runtime.plans.current(), rows=1, spent={p: 50.0, q: 50.0}))
        until(lambda: runtime.plans.load(version(runtime) or 1).alone == (p, q), "both are measured alone")
        runtime.epoch_committed(summary(runtime.plans.current(), rows=1, spent={p: 99.0, q: 1.0}))
        until(lambda: hub.pipelines["p"].status().state == "failed", "the slow one is stopped")
        assert "[OVER_BUDGET]" in hub.pipelines["p"].status().error
        assert hub.pipelines["q"].status().state == "running"
        runtime.stop()


def test_a_pipeline_that_joins_while_another_thread_waits_for_the_end_is_waited_for_too(
    hub: Hub, queries: RunningQueries
) -> None:
    hub.sql("CREATE PIPELINE p INTO m AS SELECT id FROM s")
    runtime = hub.runtime("s")
    exhausted(runtime)
    queries.pause()
    waiting = Beside(lambda: hub.wait_until_end(60))
    until(lambda: runtime.plans.load(version(runtime) or 1).ending, "the end is planned")
    joining = Beside(lambda: hub.sql("CREATE PIPELINE q INTO m AS SELECT id FROM s"))
    until(lambda: "q" in hub.pipelines, "another pipeline joins")
    queries.resume()
    joining.result()
    assert waiting.result()
    assert states(hub) == {"p": "finished", "q": "finished"}
    assert not runtime.running


def test_a_drop_that_a_crash_kept_from_the_plan_is_planned_when_the_hub_is_opened_again(
    tmp_path: Path, queries: RunningQueries
) -> None:
    with Hub(tmp_path / "state", queries) as first:
        first.sql(STREAM.format(rows=10) + ";" + SINK + ";CREATE PIPELINE p INTO m AS SELECT count(*) AS n FROM s")
        first.sql("STOP PIPELINE p")
        instance = first.record("p").definition.instance
        draft = Draft(first.catalog, Meaning(), buckets=1)
    draft.apply(parse_script("DROP PIPELINE p")[0])
    file = CatalogFile(tmp_path / "state")
    file.read()
    file.save(draft.catalog)  # the process dies here, before the plan is published
    for _ in range(2):  # the second time it dies between publishing the plan and saving that
        saved = CatalogFile(tmp_path / "state").read()
        with Hub(tmp_path / "state", queries) as again:
            plans = again.runtime("s").plans
            left = plans.load(plans.current()).left
            assert [ended.pipeline.instance for ended in left if ended.drop] == [instance]
            assert again.catalog.ended == ()
        CatalogFile(tmp_path / "state").save(saved)


def test_a_script_whose_stream_dies_has_no_effect(hub: Hub, queries: RunningQueries) -> None:
    hub.sql("CREATE PIPELINE p INTO m AS SELECT count(*) AS n FROM s")
    until(lambda: states(hub) == {"p": "running"}, "the pipeline runs")
    before, runtime = hub.catalog, hub.runtime("s")
    queries.pause()
    script = Beside(
        lambda: hub.sql(
            "CREATE SINK other WITH (type = 'memory'); DROP PIPELINE p;"
            "CREATE PIPELINE q INTO other AS SELECT id FROM s;"
            + STREAM.format(rows=5).replace("STREAM s", "STREAM t")
            + "; CREATE PIPELINE r INTO m AS SELECT id FROM t"
        )
    )
    until(lambda: queries.launched == ["s", "t"], "the other stream is started")
    for stream in ("t", "s"):
        queries.fail(stream, "[FILE_CHANGED] a.json was replaced")
    with pytest.raises(StreamFailed):
        script.result()
    assert hub.catalog.pipelines == before.pipelines
    assert (hub.catalog.sinks, hub.catalog.streams) == (before.sinks, before.streams)
    plan = runtime.plans.load(runtime.plans.current())
    assert [p.name for p in plan.pipelines] == ["p"]
    # The exit of p is withdrawn. That of q, which no epoch can have known before, does no harm.
    assert [left.pipeline.name for left in plan.left] == ["q"]


def test_changes_of_other_scripts_stay_when_a_script_is_rolled_back(hub: Hub) -> None:
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
        hub.check("SELECT id FROM s")
    for kind in ("STREAM", "SINK", "PIPELINE"):
        with pytest.raises(BadName):
            hub.sql(f"CREATE {kind} `{'é' * 128}` WITH (type = 'memory')")
    name = "/" * 255  # three bytes each on disk
    hub.sql(STREAM.format(rows=1).replace("STREAM s", f"STREAM `{name}`"))
    directory = hub.runtime(name).directory
    (directory / "checkpoint").mkdir(parents=True)
    assert directory.parent == hub.runtime("s").directory.parent


def test_a_question_that_the_disk_keeps_from_its_answer_has_a_code(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(runtime: StreamRuntime) -> None:
        raise OSError(errno.EIO, "Input/output error", str(runtime.directory))

    monkeypatch.setattr(StreamRuntime, "status", unreadable)
    with pytest.raises(StateUnavailable):
        hub.sql("DESCRIBE STREAM s")


def test_only_pipelines_that_fail_now_are_logged_and_by_their_names(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    hub.sql("CREATE PIPELINE p INTO m AS SELECT id FROM s")
    run = hub.record("p").definition.run
    hub.runtime("s").blame({run: "[X] now", "99/0": "[X] long ago"})
    until(lambda: states(hub) == {"p": "failed"}, "the pipeline has failed")
    hub.close()
    failed = [r.getMessage() for r in caplog.records if " failed: " in r.getMessage()]
    assert failed == ["pipeline p failed: [X] now"]


def test_a_script_that_finds_no_java_has_no_effect(idle_hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*given: Any) -> None:
        raise MissingJava("none here")

    monkeypatch.setattr("headrace.spark.session.start", missing)
    for _ in range(2):
        with pytest.raises(MissingJava):
            idle_hub.sql("CREATE SINK other WITH (type = 'memory'); CREATE PIPELINE p INTO m AS SELECT id FROM s")
    assert idle_hub.pipelines == {}
    assert idle_hub.catalog.sink("other") is None


def test_a_session_that_runs_in_this_process_is_not_taken_over(idle_hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", object())
    with pytest.raises(SessionMismatch):
        idle_hub.sql("CREATE PIPELINE p INTO m AS SELECT id FROM s")


def test_a_hub_plans_in_the_time_zone_that_it_was_opened_with(tmp_path: Path) -> None:
    for zone, hour in ((None, "00"), ("Europe/Berlin", "02"), ("Asia/Kolkata", "05")):
        with headrace.connect(tmp_path / str(hour), time_zone=zone) as opened:
            opened.sql(STREAM.format(rows=10))
            query = "EXPLAIN SELECT date_format(TIMESTAMP '2024-07-01 00:00:00Z', 'HH') AS h FROM s"
            (answer,) = opened.sql(query)
            assert f"'{hour}'" in str(answer)


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


class Stubborn(RunningQueries):
    """An engine that cannot be stopped."""

    def stop(self) -> None:
        raise ConnectionRefusedError


def test_closing_releases_the_directory_also_when_the_engine_cannot_be_stopped(tmp_path: Path) -> None:
    hub = Hub(tmp_path / "state", Stubborn())
    hub.sql(STREAM.format(rows=10))
    with pytest.raises(ConnectionRefusedError):
        hub.close()
    headrace.connect(tmp_path / "state").close()


def test_a_state_directory_of_a_newer_format_is_reported_although_its_catalog_cannot_be_read(
    tmp_path: Path,
) -> None:
    (tmp_path / "VERSION").write_text(f"{FORMAT + 1}\n")
    (tmp_path / "catalog.json").write_text('{"version": 2, "tables": []}')
    with pytest.raises(StateTooNew):
        check_script(SINK, tmp_path)


def test_pipelines_are_spread_over_one_bucket_or_more(tmp_path: Path) -> None:
    for buckets in (0, -1, 65_537):
        with pytest.raises(BadOption):
            headrace.connect(tmp_path / "state", buckets=buckets)


def test_starting_a_pipeline_again_keeps_the_state_of_a_stopped_one_and_none_of_a_failed_one(hub: Hub) -> None:
    hub.sql("CREATE PIPELINE p INTO m AS SELECT count(*) AS n FROM s; CREATE PIPELINE q INTO m AS SELECT id FROM s")
    runtime, instance = hub.runtime("s"), hub.record("p").definition.instance
    hub.sql("STOP PIPELINE p; START PIPELINE p")
    assert runtime.plans.load(runtime.plans.current()).left == ()
    runtime.blame({hub.record("p").definition.run: "why"})
    until(lambda: states(hub)["p"] == "failed", "it is dropped")
    until(lambda: runtime.progress.plan == version(runtime), "its exit is committed")
    hub.sql("START PIPELINE p")
    plan = runtime.plans.load(runtime.plans.current())
    assert [left.pipeline.instance for left in plan.left] == [instance]
    assert instance in {p.instance for p in plan.pipelines}


def test_describe_stream_names_the_indexer_what_it_skips_and_who_reads_a_file(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    hub.sql(
        f"CREATE STREAM f (a STRING) WITH (source = 'files', format = 'csv', path = '{tmp_path / 'in'}', "
        "multiline = 'true')"
    )
    (described,) = hub.sql("DESCRIBE STREAM f")
    text = described.render()
    assert "headrace.formats.kernels.scan_csv.scan_any" in text
    assert "multiline" in text, "the option that makes one task read a file in order"


def test_describe_names_the_sinks_and_typed_columns_of_a_pipeline_and_the_options_in_force_of_a_sink(hub: Hub) -> None:
    hub.sql("CREATE SINK kept WITH (type = 'memory', max_rows = '7')")
    hub.sql("CREATE PIPELINE p INTO kept AS SELECT id, id * 1.5D AS more FROM s")
    (pipeline,), (sink,) = hub.sql("DESCRIBE PIPELINE p"), hub.sql("DESCRIBE SINK kept")
    facts = _facts(pipeline)
    assert (facts["sinks"], facts["column 0"], facts["column 1"]) == ("kept", "id BIGINT", "more DOUBLE")
    assert facts["reason"]
    facts = _facts(sink)
    assert facts["option max_rows"] == "7"
    assert (facts["option retries"], facts["option on_failure"]) == ("3 (by default)", "stop (by default)")


def _facts(result: Result) -> dict[str, str]:
    assert result.table is not None
    return dict(zip(*(result.table.column(i).to_pylist() for i in (0, 1)), strict=True))


def test_an_interrupted_end_of_two_streams_closes_no_window_of_the_one_that_has_not_ended(
    tmp_path: Path, queries: RunningQueries
) -> None:
    """Ctrl-C during `run --until-end`: the first stream is stopped already, which must not look like its end."""
    endless = STREAM.replace("rows = '{rows}'", "rate = '100'")
    with Hub(tmp_path / "state", queries) as hub:
        hub.sql(f"{endless}; {endless.replace('STREAM s', 'STREAM t')}; {SINK}")
        hub.sql("CREATE PIPELINE p INTO m AS SELECT id FROM s; CREATE PIPELINE q INTO m AS SELECT count(*) AS n FROM t")
        waiting = Beside(lambda: hub.wait_until_end(60))
        queries.pause("t")  # its epoch takes long, so the drain waits for it
        draining = Beside(lambda: hub.drain(60))
        until(lambda: not hub.runtime("s").started, "the first stream is stopped")
        time.sleep(0.6)  # a thread that waits looks again within half a second
        queries.resume()
        assert draining.result()
        assert waiting.result() is False
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


def test_a_stopped_stream_is_not_started_while_it_is_copied(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_shutdown_waits_for_a_copy_and_no_longer(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.sql("CREATE PIPELINE p INTO m AS SELECT id FROM s")
    runtime = hub.runtime("s")
    copying = Copying(hub, monkeypatch)
    ends: list[bool] = []
    copying.waits(lambda: ends.append(hub.drain(60)))
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


def test_a_stream_can_be_stopped_while_its_query_is_being_restarted(hub: Hub, queries: RunningQueries) -> None:
    """The supervisor launches a query under its own lock, while the hub stops that query under the hub's lock."""
    hub.sql("CREATE PIPELINE p INTO m AS SELECT id FROM s")
    restarting, stopping = threading.Event(), threading.Event()

    def slow(stream: str) -> None:
        restarting.set()
        stopping.wait(60)
        time.sleep(0.2)  # the statement has the hub's lock by now, and waits for this launch

    queries.on_launch = slow
    failing = Beside(lambda: queries.fail("s", "java.io.IOException: the planner is gone"))
    assert restarting.wait(60)
    script = Beside(lambda: hub.sql("STOP PIPELINE p NOW"))
    stopping.set()
    script.result()
    failing.result()
    assert not hub.runtime("s").started
    assert states(hub) == {"p": "stopped"}


def test_a_pipeline_runs_when_its_first_epoch_is_planned_whichever_pipeline_joins_after_it(
    hub: Hub, queries: RunningQueries
) -> None:
    queries.pause()
    first = Beside(lambda: hub.sql("CREATE PIPELINE p INTO m AS SELECT id FROM s"))
    until(lambda: "s" in queries.launched, "the stream is started")
    second = Beside(lambda: hub.sql("CREATE PIPELINE q INTO m AS SELECT id FROM s"))
    runtime = hub.runtime("s")
    until(lambda: version(runtime) == 2, "another pipeline has joined")
    planned(runtime, plan=1)
    first.result()
    assert states(hub) == {"p": "running", "q": "starting"}
    queries.resume()
    second.result()
    assert states(hub) == {"p": "running", "q": "running"}


def test_a_background_task_that_fails_is_shown_in_the_status_and_the_next_one_runs(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.base.background.AGAIN_SECONDS", 0.05)
    hub.sql("CREATE PIPELINE p INTO m AS SELECT id FROM s; CREATE PIPELINE q INTO m AS SELECT id FROM s")
    runtime, save, problem = hub.runtime("s"), CatalogFile.save, list[Exception]()
    failed = {hub.record("p").definition.run: "why"}

    def refusing(self: CatalogFile, catalog: Catalog) -> None:
        if problem:
            raise problem[0]
        save(self, catalog)

    monkeypatch.setattr(CatalogFile, "save", refusing)
    problem.append(IllegalTransition("from here to there"))
    runtime.blame(failed)
    until(lambda: "from here to there" in runtime.status().problem, "the defect is shown")
    problem[0] = OSError(28, "No space left on device")
    runtime.blame(failed)
    until(lambda: "No space left" in runtime.status().problem, "the full disk is shown")
    assert states(hub)["p"] == "running"
    problem.clear()
    until(lambda: states(hub)["p"] == "failed", "the task runs when there is room again")
    until(lambda: runtime.status().problem == "", "all is well")
    assert states(hub)["q"] == "running"


def test_an_end_that_takes_too_long_keeps_no_other_stream_from_its_plan_and_stops_the_query_later(
    hub: Hub, queries: RunningQueries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.base.background.AGAIN_SECONDS", 0.02)
    monkeypatch.setattr("headrace.hub.rollout.DRAIN_SECONDS", 0.05)
    hub.sql(STREAM.format(rows=10).replace("STREAM s", "STREAM t"))
    hub.sql("CREATE PIPELINE p INTO m AS SELECT id FROM s")
    hub.sql("CREATE PIPELINE q INTO m AS SELECT id FROM t; CREATE PIPELINE r INTO m AS SELECT id FROM t")
    first, second = hub.runtime("s"), hub.runtime("t")
    plan = first.plans.current()
    queries.pause()
    script = Beside(lambda: hub.sql("STOP PIPELINE p; DROP PIPELINE q; STOP PIPELINE r NOW"))
    until(lambda: version(first) == plan + 1, "the end is published")
    planned(first, plan + 1)
    with pytest.raises(StopTimeout):
        script.result()
    assert states(hub) == {"p": "stopping", "r": "stopped"}
    assert second.plans.load(second.plans.current()).pipelines == ()
    assert not second.running
    time.sleep(0.1)
    assert first.running, "its last epoch is not committed yet"
    queries.resume()
    until(lambda: not first.running, "no pipeline needs it")
    until(lambda: states(hub)["p"] == "stopped", "it has ended")


def test_a_stream_whose_last_pipeline_failed_in_a_long_epoch_is_stopped_after_it(
    hub: Hub, tmp_path: Path, queries: RunningQueries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.base.background.AGAIN_SECONDS", 0.02)
    hub.sql("CREATE PIPELINE p INTO m AS SELECT id FROM s")
    hub.close()
    queries.pause()
    with Hub(tmp_path / "state", queries, start_timeout=0.05) as again:
        runtime = again.runtime("s")
        plan = runtime.plans.current()
        runtime.blame({again.record("p").definition.run: "why"})
        until(lambda: version(runtime) == plan + 1, "the pipeline is dropped")
        time.sleep(0.2)
        assert runtime.running, "its epoch is in flight"
        queries.resume()
        until(lambda: not runtime.running, "no pipeline needs it")


@pytest.mark.parametrize("problem", [StateInUse("journal"), ExternalError("no DuckDB"), StateDamaged("checkpoint")])
def test_a_script_whose_stream_cannot_be_started_has_no_effect(
    hub: Hub, queries: RunningQueries, problem: HeadraceError
) -> None:
    queries.refusal = problem
    with pytest.raises(type(problem)):
        hub.sql("CREATE SINK other WITH (type = 'memory'); CREATE PIPELINE p INTO other AS SELECT id FROM s")
    assert hub.pipelines == {}
    assert hub.catalog.sink("other") is None


def test_a_drop_tells_which_rows_sinks_may_lack(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    dedicated = hub._reconciler.dedicated
    hub.sql("CREATE PIPELINE p INTO m AS SELECT id FROM s")
    monkeypatch.setattr(dedicated, "align", lambda: ["b epoch 1"])
    assert hub.sql("SHOW STREAMS; DROP PIPELINE p")[-1].warnings == ("b epoch 1",)
    monkeypatch.setattr(dedicated, "deliver_last", lambda streams: [f"b epoch 2 of {', '.join(streams)}"])
    (result,) = hub.sql("DROP STREAM s")
    assert result.warnings[-1] == "b epoch 2 of s"
