"""Streams that fail, hang or have no room, without Spark: their states, and how they recover."""

from __future__ import annotations

import errno
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.base import durable
from headrace.base.background import BackgroundQueue
from headrace.control.acks import Acks
from headrace.control.signals import SYNC_TEST, Barrier
from headrace.errors import AddressInUse, DiskFull, StartTimeout, StateDamaged, StateUnavailable, StreamFailed
from headrace.hub.hub import Hub
from headrace.model.program import Meaning
from headrace.model.stream_options import StreamSettings
from headrace.state.catalog import Catalog, CatalogFile
from headrace.state.notices import EpochPlanned, SourceIdle
from headrace.state.plans import PlanStore
from headrace.state.progress import Debt
from headrace.state.quarantine import Quarantine, Quarantined, change_quarantine, read_quarantine
from headrace.state.state_dir import StateDir
from headrace.stream.dedicated_runtime import DedicatedRequest, DedicatedRun
from headrace.stream.host import QueryRequest
from headrace.stream.inflight import InFlight, epoch_limit
from headrace.stream.intake import Intake
from headrace.stream.managed_query import ManagedQuery
from headrace.stream.owed_acks import OwedBarriers
from headrace.stream.planner_watch import PlannerWatch
from headrace.stream.retries import RetryPolicy
from headrace.stream.stream_status import StoredStream
from headrace.stream.waiting import QueryWaits
from tests.e2e.support import until
from tests.ring0.tasks import WORD, stateless

STREAM = "CREATE STREAM {name} (id BIGINT) WITH (source = 'generator', format = 'json', rows = '10')"
TWO = f"{STREAM.format(name='s')}; {STREAM.format(name='t')}; CREATE SINK m WITH (type = 'memory')"
PIPELINES = "CREATE PIPELINE p INTO m AS SELECT id FROM s; CREATE PIPELINE q INTO m AS SELECT id FROM t"


class Queries:
    """Replaces Spark: queries that plan every version at once, and end when the test ends them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.ends: dict[str, Callable[[str | None], None]] = {}
        self.launched: list[str] = []
        self.stuck: set[str] = set()
        self.refusal: Exception | None = None  # raised instead of launching a query
        self.patient = False  # statements wait as they do with Spark
        self.gives_up = False  # statements wait for no retry
        patch.setattr("headrace.stream.supervisor.RetryPolicy", lambda: RetryPolicy(first=0.02, longest=0.05, limit=3))

    def bind(self, state: StateDir, catalog: Catalog) -> Meaning:
        return Meaning()

    def ready(self) -> None:
        """There is no engine to start."""

    def launch(self, request: QueryRequest) -> Queries:
        if self.refusal is not None:
            raise self.refusal
        self.launched.append(request.stream)
        self.ends[request.stream] = request.on_end
        return self

    def launch_dedicated(self, request: DedicatedRequest) -> DedicatedRun:
        raise AssertionError("there is no Spark here")

    def waits(self, query: ManagedQuery, plans: PlanStore) -> QueryWaits:
        return Waits(self, query, plans)

    def checker(self, start: bool) -> None:
        return None

    def session(self) -> SparkSession:
        raise AssertionError("there is no Spark here")

    def stop(self) -> None:
        """Nothing runs here."""

    def last_epoch(self) -> None:
        return None

    def fail(self, stream: str, problem: str) -> None:
        self.ends[stream](problem)


class Waits(QueryWaits):
    """Every plan is planned at once, unless the query is stuck or has failed."""

    def __init__(self, queries: Queries, query: ManagedQuery, plans: PlanStore) -> None:
        super().__init__(query, plans)
        self._queries, self._supervised = queries, query

    def until_planned(self, version: int, timeout: float, stored: StoredStream) -> None:
        if self._queries.patient:
            super().until_planned(version, timeout, stored)
            return
        self._supervised.raise_failure()
        if self._supervised.stream.name in self._queries.stuck:
            raise StartTimeout("an epoch is in flight")
        if self._queries.gives_up and self._supervised.supervisor.state == "retrying":
            raise StreamFailed("it failed too often")

    def until_held(self, timeout: float) -> bool:
        return True


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> Queries:
    return Queries(monkeypatch)


@pytest.fixture
def hub(tmp_path: Path, queries: Queries) -> Iterator[Hub]:
    with Hub(tmp_path / "state", queries) as opened:
        opened.sql(TWO)
        opened.sql(PIPELINES)
        yield opened


def states(hub: Hub) -> dict[str, str]:
    return {name: p.status().state for name, p in hub.pipelines.items()}


def test_the_pipelines_of_a_dead_stream_do_not_run_and_start_revives_it_and_says_so(hub: Hub, queries: Queries) -> None:
    queries.fail("s", "[FILE_CHANGED] a.json was replaced")
    status = hub.streams["s"].status()
    assert (status.state, status.running, status.problem) == ("dead", False, "[FILE_CHANGED] a.json was replaced")
    assert states(hub) == {"p": "dead", "q": "running"}
    assert hub.pipelines["p"].status().error == status.problem
    (shown,) = hub.sql("SHOW STREAMS")
    assert "dead" in shown.render()
    with pytest.raises(StreamFailed):
        hub.pipelines["p"].wait(5)
    (result,) = hub.sql("START PIPELINE p")
    assert {"p", "s", "dead"} <= set(re.findall(r"\w+", result.render()))
    assert states(hub) == {"p": "running", "q": "running"}
    assert queries.launched == ["s", "t", "s"]
    catalog, plan = hub.catalog, hub.runtime("s").plans.current()
    hub.sql("START PIPELINE p")
    assert (hub.catalog, hub.runtime("s").plans.current()) == (catalog, plan), "it runs already"
    assert queries.launched == ["s", "t", "s"]


def test_a_failure_that_may_pass_is_shown_as_retrying_until_the_stream_does_something_again(
    hub: Hub, queries: Queries
) -> None:
    queries.fail("s", "java.io.IOException: the planner is gone")
    status = hub.streams["s"].status()
    assert (status.state, status.attempt, status.running) == ("retrying", 1, False)
    assert status.since is not None and status.next_try is not None and status.next_try > status.since
    assert states(hub) == {"p": "retrying", "q": "running"}
    until(lambda: queries.launched == ["s", "t", "s"], "it is started again")
    hub.runtime("s").on_notice(SourceIdle(stream="s", pid=7, plan=1, exhausted=False))
    assert states(hub) == {"p": "running", "q": "running"}
    assert hub.streams["s"].status().problem == ""


def test_a_dead_stream_that_no_pipeline_needs_is_stopped(hub: Hub, queries: Queries) -> None:
    for stream in ("s", "t"):
        queries.fail(stream, "[FILE_CHANGED] a.json was replaced")
    hub.sql("STOP PIPELINE p")
    hub.sql("DROP PIPELINE q")
    assert [hub.streams[name].status().state for name in ("s", "t")] == ["stopped", "stopped"]
    assert states(hub) == {"p": "stopped"}
    hub.sql("START PIPELINE p")
    assert states(hub) == {"p": "running"}


def test_start_does_not_wait_for_the_next_attempt(hub: Hub, queries: Queries) -> None:
    runtime = hub.runtime("s")
    runtime.supervisor.retries.policy = RetryPolicy(first=600)
    queries.fail("s", "it broke")
    (result,) = hub.sql("START PIPELINE p")
    assert {"p", "s", "retrying"} <= set(re.findall(r"\w+", result.render()))
    assert queries.launched == ["s", "t", "s"]


def test_a_statement_that_waits_for_a_plan_fails_after_some_failures_in_a_row(hub: Hub, queries: Queries) -> None:
    runtime = hub.runtime("s")
    runtime.supervisor.retries.policy = RetryPolicy(first=0.0, longest=0.0, limit=50)
    queries.patient = True
    for _ in range(3):
        queries.fail("s", "it broke")
    with pytest.raises(StreamFailed) as caught:
        runtime.wait_planned(runtime.plans.current() + 1, 30)
    assert "it broke" in caught.value.message
    assert hub.streams["s"].status().state == "retrying", "the other pipelines still wait for it"


def test_a_statement_that_revives_a_stream_waits_for_the_new_attempt(hub: Hub, queries: Queries) -> None:
    runtime = hub.runtime("s")
    runtime.supervisor.retries.policy = RetryPolicy(first=0.0, longest=0.0, limit=50)
    for _ in range(3):
        queries.fail("s", "it broke")
    queries.patient = True
    runtime.revive()
    with pytest.raises(StartTimeout):
        runtime.wait_planned(runtime.plans.current(), 0.01)
    for _ in range(3):
        queries.fail("s", "it broke")
    with pytest.raises(StreamFailed):
        runtime.wait_planned(runtime.plans.current() + 1, 30)


# --- damaged streams --------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["progress.json", "quarantine.json", "current", "plans/00000001.json"])
def test_one_damaged_stream_opens_dead_and_the_others_run(hub: Hub, queries: Queries, file: str) -> None:
    state = hub.directory
    hub.runtime("s").quick_end(hub.catalog.running("s"))  # so that there is a quarantine list
    durable.write_atomic(state / "streams" / "s" / "progress.json", b'{"plan":1}\n{"format": 1, "crc": 0}')
    hub.close()
    path = state / "streams" / "s" / file
    whole = path.read_bytes()
    if file != "progress.json":
        (state / "streams" / "s" / "progress.json").unlink()
        path.write_bytes(whole[:-7])
    with Hub(state, queries) as again:
        assert (states(again)["p"], again.streams["t"].status().state) == ("dead", "running")
        assert "[STATE_DAMAGED]" in again.streams["s"].status().problem
        assert path.name in again.streams["s"].status().problem
        with pytest.raises(StateDamaged):
            again.sql("START PIPELINE p")
        with pytest.raises(StateDamaged):
            again.sql("CREATE PIPELINE r INTO m AS SELECT id FROM s")
        assert (set(again.pipelines), states(again)["p"]) == ({"p", "q"}, "dead")
        again.sql("CREATE PIPELINE r INTO m AS SELECT id FROM t")
        if file == "progress.json":
            path.unlink()
        else:
            path.write_bytes(whole)
        (result,) = again.sql("START PIPELINE p")
        assert {"p", "s", "dead"} <= set(re.findall(r"\w+", result.render()))
        assert states(again) == {"p": "running", "q": "running", "r": "running"}


def test_a_port_in_use_is_waited_for(hub: Hub, queries: Queries, monkeypatch: pytest.MonkeyPatch) -> None:
    state, taken = hub.directory, threading.Event()
    hub.close()

    def opens(intake: Intake, end: object) -> None:
        if intake._stream.name == "s" and not taken.is_set():
            raise AddressInUse("port 80 is taken")

    monkeypatch.setattr(Intake, "open", opens)
    monkeypatch.setattr(
        "headrace.stream.supervisor.RetryPolicy", lambda: RetryPolicy(first=0.02, longest=0.05, limit=500)
    )
    with Hub(state, queries) as again:
        assert again.streams["s"].status().state == "retrying"
        assert "[ADDRESS_IN_USE]" in again.streams["s"].status().problem
        assert again.streams["t"].status().state == "running"
        taken.set()
        until(lambda: queries.launched == ["s", "t", "t", "s"], "it is started")


# --- full disks -------------------------------------------------------------------------------------


class Disk:
    """A disk that takes some more small files, and then is full while the reserve is there."""

    def __init__(self, state: Path, patch: pytest.MonkeyPatch) -> None:
        self.room: float = float("inf")
        self.reserve = state / "reserve"
        real = durable.write_atomic

        def write(path: Path, data: bytes) -> None:
            if self.reserve.exists() and self.room <= 0:
                raise OSError(errno.ENOSPC, "No space left on device", str(path))
            self.room -= 1
            real(path, data)

        for user in ("headrace.model.stored", "headrace.state.catalog", "headrace.stream.hold"):
            patch.setattr(f"{user}.write_atomic", write)


def test_a_script_on_a_full_disk_has_no_effect_wherever_it_ran_out_of_room(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(hub.directory, monkeypatch)
    script = (
        "CREATE SINK other WITH (type = 'memory'); CREATE OR REPLACE PIPELINE p INTO other AS SELECT id + 1 AS n FROM s"
    )
    for room in range(50):
        disk.reserve.touch()
        before, disk.room = hub.catalog, room
        runtime = hub.runtime("s")
        try:
            hub.sql(script)
        except DiskFull as problem:
            assert "path" in problem.params
        else:
            break
        assert set(hub.catalog.sinks) == set(before.sinks)
        assert hub.catalog.pipelines["p"].definition == before.pipelines["p"].definition
        assert CatalogFile(hub.directory).read().pipelines.keys() == before.pipelines.keys()
        plan = runtime.plans.load(runtime.plans.current())
        assert [p.instance for p in plan.pipelines] == [before.pipelines["p"].definition.instance]
    assert 2 < room < 49
    assert hub.catalog.sink("other") is not None


def test_stopping_works_on_a_full_disk_and_the_reserve_comes_back_when_there_is_room(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.base.background.AGAIN_SECONDS", 0.05)
    disk = Disk(hub.directory, monkeypatch)
    assert disk.reserve.stat().st_blocks * 512 >= 1 << 20
    disk.room = 0
    with monkeypatch.context() as full:
        full.setattr("os.posix_fallocate", lambda *given: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        with pytest.raises(DiskFull):
            hub.sql("CREATE SINK other WITH (type = 'memory')")
        assert disk.reserve.exists()
        hub.sql("STOP PIPELINE p NOW")
        assert states(hub)["p"] == "stopped"
        assert not disk.reserve.exists()
        disk.room = float("inf")
    until(disk.reserve.exists, "the reserve is kept again")


@pytest.mark.parametrize("file", ["catalog.json", "catalog.previous.json"])
def test_any_refusal_of_the_operating_system_is_coded(hub: Hub, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    def refused(path: Path, data: bytes) -> None:
        if path.name == file:
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        durable.write_atomic(path, data)

    monkeypatch.setattr("headrace.model.stored.write_atomic", refused)
    before = hub.catalog
    with pytest.raises(StateUnavailable) as caught:
        hub.sql("CREATE SINK other WITH (type = 'memory')")
    assert caught.value.params["path"] == str(hub.directory / file)
    assert hub.catalog == before == CatalogFile(hub.directory).read()


def test_a_stream_that_finds_no_room_when_the_hub_is_opened_continues_when_there_is_some(
    hub: Hub, queries: Queries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.base.background.AGAIN_SECONDS", 0.05)
    state, full = hub.directory, threading.Event()
    hub.close()
    real = durable.write_atomic

    def write(path: Path, data: bytes) -> None:
        if not full.is_set() and path.parent.name == "plans" and path.parent.parent.name == "s":
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        real(path, data)

    monkeypatch.setattr("headrace.model.stored.write_atomic", write)
    with Hub(state, queries) as again:
        # It tries again all the time, and is `starting` for a moment each time.
        until(lambda: states(again)["p"] == "dead", "it is dead between two attempts")
        until(lambda: "[DISK_FULL]" in again.streams["s"].status().problem, "it says why")
        full.set()
        until(lambda: states(again)["p"] in ("starting", "running"), "it goes on by itself")
        assert queries.launched[-1] == "s"


def test_one_that_killed_a_worker_again_after_a_start_stays_out_when_another_joins(hub: Hub) -> None:
    hub.sql("STOP PIPELINE p NOW")
    hub.sql("START PIPELINE p")
    again, runtime = hub.record("p").definition, hub.runtime("s")
    first = Quarantined(again.instance, "it killed a worker", until=1, generation=again.generation - 1)
    second = Quarantined(again.instance, "it killed a worker again", generation=again.generation)
    change_quarantine(runtime.directory, lambda found: Quarantine((first, second)))
    hub.sql("CREATE PIPELINE r INTO m AS SELECT id FROM s")
    assert set(read_quarantine(runtime.directory).reasons(runtime.plans.current())) == {again.instance}


# --- epochs that do not end --------------------------------------------------------------------------


def test_dropping_a_pipeline_gets_through_an_epoch_that_does_not_end(
    hub: Hub, queries: Queries, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.sql("CREATE PIPELINE r INTO m AS SELECT id FROM s")
    runtime, dropped = hub.runtime("s"), hub.record("r").definition
    monkeypatch.setattr("headrace.hub.rollout.STUCK_SECONDS", 0.01)
    queries.stuck.add("s")
    real = runtime.supervisor.bounce

    def bounce() -> None:
        queries.stuck.clear()
        real()

    monkeypatch.setattr(runtime.supervisor, "bounce", bounce)
    hub.sql("DROP PIPELINE r")
    assert queries.launched == ["s", "t", "s"]
    left_out = read_quarantine(runtime.directory)
    before = runtime.plans.current() - 1
    assert left_out.ended(before) == {dropped.run} and left_out.ended(before + 1) == set()
    assert set(left_out.reasons(before)) == {dropped.instance}


@pytest.mark.parametrize(("name", "stream"), [("r", "s"), ("R", "s"), ("r", "t")])
def test_replacing_a_pipeline_waits_for_an_epoch_that_is_slow_and_keeps_its_rows(
    hub: Hub, queries: Queries, monkeypatch: pytest.MonkeyPatch, name: str, stream: str
) -> None:
    """The successor is not in the epoch in flight, so the rows of that epoch must come from its predecessor."""
    hub.sql("CREATE PIPELINE r INTO m AS SELECT id FROM s")
    runtime = hub.runtime("s")
    monkeypatch.setattr("headrace.hub.rollout.STUCK_SECONDS", 0.01)
    queries.stuck.add("s")
    with pytest.raises(StartTimeout):
        hub.sql(f"CREATE OR REPLACE PIPELINE {name} INTO m AS SELECT id + 1 AS id FROM {stream}")
    assert queries.launched == ["s", "t"]
    assert read_quarantine(runtime.directory).out == ()


@pytest.mark.parametrize("end", ["DROP PIPELINE r", "STOP PIPELINE r NOW"])
def test_a_script_that_may_be_rolled_back_leaves_no_pipeline_out_of_a_slow_epoch(
    hub: Hub, queries: Queries, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    hub.sql("CREATE PIPELINE r INTO m AS SELECT id FROM s")
    monkeypatch.setattr("headrace.hub.rollout.STUCK_SECONDS", 0.01)
    queries.stuck.add("s")
    with pytest.raises(StartTimeout):
        hub.sql(f"{end}; CREATE PIPELINE z INTO m AS SELECT id + 1 AS id FROM s")
    assert queries.launched == ["s", "t"]
    assert read_quarantine(hub.runtime("s").directory).out == ()
    assert states(hub) == {"p": "running", "q": "running", "r": "running"}


def test_a_rolled_back_script_starts_the_query_again_that_it_has_stopped(hub: Hub, queries: Queries) -> None:
    queries.stuck.add("t")
    with pytest.raises(StartTimeout):
        hub.sql("DROP PIPELINE p; STOP PIPELINE q")
    assert queries.launched == ["s", "t", "s"]
    assert hub.runtime("s").running
    assert set(states(hub)) == {"p", "q"}


def test_a_rolled_back_stop_now_does_not_give_up_the_epoch_later(
    hub: Hub, queries: Queries, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.sql("CREATE PIPELINE r INTO m AS SELECT id FROM s")
    delayed: list[Callable[[], None]] = []
    monkeypatch.setattr(BackgroundQueue, "later", lambda queue, stream, task, *seconds: delayed.append(task))
    queries.stuck.add("t")
    with pytest.raises(StartTimeout):
        hub.sql("STOP PIPELINE r NOW; STOP PIPELINE q")
    for task in tuple(delayed):
        task()
    assert delayed and queries.launched == ["s", "t"]
    assert read_quarantine(hub.runtime("s").directory).out == ()
    assert states(hub)["r"] == "running"


@pytest.mark.parametrize("problem", ["[FILE_CHANGED] a.json was replaced", "[SINK_UNAVAILABLE] sink m has no room"])
def test_a_pipeline_of_a_stream_that_cannot_run_can_be_dropped_and_its_neighbour_stays(
    hub: Hub, queries: Queries, monkeypatch: pytest.MonkeyPatch, problem: str
) -> None:
    """Epochs that are already planned run without it. If they fail again, it stays dropped."""
    hub.sql("CREATE PIPELINE r INTO m AS SELECT id FROM s")
    runtime, dropped = hub.runtime("s"), hub.record("r").definition
    runtime.supervisor.retries.policy = RetryPolicy(first=600)
    queries.refusal = StreamFailed("it breaks at once")
    queries.gives_up = True
    queries.fail("s", problem)
    hub.sql("DROP PIPELINE r")
    assert set(hub.pipelines) == {"p", "q"}
    assert hub.streams["s"].status().state in ("dead", "retrying")
    before = runtime.plans.current() - 1
    assert read_quarantine(runtime.directory).ended(before) == {dropped.run}
    queries.refusal, queries.gives_up = None, False
    hub.sql("START PIPELINE p")
    runtime.on_notice(SourceIdle(stream="s", pid=7, plan=1, exhausted=False))
    assert states(hub)["p"] == "running"


def test_a_graceful_stop_on_a_dead_stream_ends_and_leaves_the_neighbour_as_it_is(hub: Hub, queries: Queries) -> None:
    hub.sql("CREATE PIPELINE r INTO m AS SELECT id FROM s")
    queries.fail("s", "[FILE_CHANGED] a.json was replaced")
    hub.sql("STOP PIPELINE r")
    assert states(hub) == {"p": "dead", "q": "running", "r": "stopped"}
    assert queries.launched == ["s", "t"]


def test_the_last_pipeline_is_stopped_now_and_dropped_without_waiting_for_its_epoch(
    hub: Hub, queries: Queries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.hub.rollout.STUCK_SECONDS", 0.01)
    queries.stuck |= {"s", "t"}
    hub.sql("STOP PIPELINE p NOW")
    assert (states(hub)["p"], hub.streams["s"].status().state) == ("stopped", "stopped")
    hub.sql("DROP PIPELINE q")
    assert hub.streams["t"].status().state == "stopped"


def test_a_savepoint_of_a_stream_that_is_stopped_meanwhile_is_taken_at_its_last_epoch(hub: Hub, tmp_path: Path) -> None:
    runtime = hub.runtime("s")
    (runtime.directory / "checkpoint").mkdir()
    taking = threading.Thread(target=lambda: hub.savepoint("x", "s", timeout=20))
    taking.start()
    until(lambda: runtime.acks._open, "it waits for its barrier")
    runtime.stop()
    taking.join(20)
    assert (hub.directory / "savepoints" / "x" / "savepoint.json").exists()


def test_the_age_of_an_epoch_and_what_it_waits_for_are_known() -> None:
    now = [100.0]
    watch = PlannerWatch(lambda: now[0])
    watch.on_notice(SourceIdle(stream="s", pid=7, plan=1, exhausted=False))
    now[0] += 5
    assert watch.in_flight("", patience=0.0) is None
    now[0] += 20
    assert watch.in_flight("", patience=0.0) == InFlight(0, 25.0, "planning")
    assert watch.in_flight("", patience=60.0) is None
    watch.on_notice(EpochPlanned(stream="s", pid=7, plan=1, epoch=0, backlog=0))
    now[0] += 3
    assert watch.in_flight("", 0.0) == InFlight(0, 3.0, "tasks")
    assert watch.in_flight("the commit of sink m", 0.0) == InFlight(0, 3.0, "the commit of sink m")
    with watch.changed:
        watch.epoch_committed()
    assert (watch.in_flight("", 0.0), watch.planner) == (None, 7)


def test_a_time_budget_limits_an_epoch_that_never_reports() -> None:
    assert epoch_limit(StreamSettings(), 3) is None
    assert epoch_limit(StreamSettings(pipeline_time_budget=1_000_000), 3) == 60 + 8 * 3
    assert epoch_limit(StreamSettings(pipeline_time_budget=1_000_000, max_epoch_time=5_000_000), 3) == 5


# --- acknowledgements --------------------------------------------------------------------------------


def test_a_barrier_is_acknowledged_when_no_sink_owes_an_epoch_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.stream.owed_acks.AGAIN_SECONDS", 0.02)
    acks, owed = Acks(), [Debt(stateless(1, WORD), "slow", 4)]
    barriers = OwedBarriers(acks, lambda: owed)
    early, late = Barrier(SYNC_TEST.name, 1), Barrier(SYNC_TEST.name, 2)
    first, second = acks.expect(early), acks.expect(late)
    barriers.seen(early, 3, owed)
    barriers.seen(late, 4, owed)
    assert first.result(1).epoch == 3
    with pytest.raises(TimeoutError):
        second.result(0.1)
    owed.clear()
    assert second.result(5).epoch == 4


def test_a_barrier_is_acknowledged_although_the_disk_was_full_when_a_sink_was_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headrace.stream.owed_acks.AGAIN_SECONDS", 0.02)
    acks, debt, asked = Acks(), Debt(stateless(1, WORD), "slow", 4), list[int]()

    def settle() -> list[Debt]:
        asked.append(1)
        if len(asked) < 3:
            raise DiskFull("no room")
        return []

    barriers, barrier = OwedBarriers(acks, settle), Barrier(SYNC_TEST.name, 1)
    waiting = acks.expect(barrier)
    barriers.seen(barrier, 4, [debt])
    assert waiting.result(5).epoch == 4
