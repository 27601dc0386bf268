"""Dropped pipelines leave nothing in plans, in sinks or on the quarantine list."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.errors import SinkFailed
from headrace.model.definitions import SinkDef
from headrace.model.schema import BIGINT, Field, Schema
from headrace.sinks import SINKS
from headrace.sinks.file_sink import FileSink
from headrace.sinks.sink_kind import SinkKey, Staged
from headrace.spark.epochs import EpochPartition
from headrace.state.plans import PlanStore, unpack_plan
from headrace.state.progress import read_progress
from headrace.state.quarantine import read_quarantine
from headrace.stream.runtime import StreamRuntime
from tests.e2e.support import put
from tests.shared.mini import Crash, Mini, lanes_with_state
from tests.soak.growth import rise


@pytest.fixture
def mini(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mini]:
    (tmp_path / "in").mkdir()
    mini = Mini(tmp_path / "state", monkeypatch)
    mini.hub.sql(f"""
        CREATE STREAM s (id BIGINT, k STRING) WITH (source = 'files', format = 'json', path = '{tmp_path / "in"}');
        CREATE SINK kept WITH (type = 'memory'); CREATE SINK lines WITH (type = 'jsonl', path = '{tmp_path / "lines"}');
        CREATE SINK columns WITH (type = 'parquet', path = '{tmp_path / "columns"}');
        CREATE PIPELINE stays INTO kept AS SELECT id FROM s""")
    yield mini
    mini.hub.close()


def feed(mini: Mini, number: int) -> None:
    put(mini.directory.parent / "in" / f"{number:05}.json", [f'{{"id": {i}, "k": "k{i}"}}' for i in range(5)])
    mini.drain()


def runtime(mini: Mini) -> StreamRuntime:
    return mini.hub.runtime("s")


def manifests(mini: Mini) -> list[str]:
    return sorted(path.name for path in mini.directory.parent.glob("*/_headrace/*/*"))


def sinks(mini: Mini) -> set[int]:
    return {instance for instance, _ in runtime(mini).committer.sinks.opened}


def instance(mini: Mini, name: str) -> int:
    return mini.hub.record(name).definition.instance


def test_plans_do_not_grow_when_they_change_faster_than_epochs_are_committed(mini: Mini) -> None:
    """A version is published while an epoch with the one before it runs: there is always a newer one than the
    committed."""
    store, sizes = PlanStore(runtime(mini).directory), []
    assert mini.query is not None
    for n in range(12):
        publish_without_waiting(mini, f"CREATE PIPELINE p{n} INTO kept AS SELECT k, count(*) AS n FROM s GROUP BY k")
        start = mini.checkpoint.end or mini.query.planner.initial()
        mini.checkpoint.logged = (start, mini.query.planner.latest(start))
        publish_without_waiting(mini, f"DROP PIPELINE p{n}")  # the epoch with p{n} is logged and not committed
        mini.step()
        sizes.append(len(store.text(store.current())))
        assert len(store.load(store.current()).left) <= 2
    assert rise([float(size) for size in sizes]) < 200
    mini.drain()
    assert lanes_with_state(mini.checkpoint.state) <= {instance(mini, "stays")}


def publish_without_waiting(mini: Mini, text: str) -> None:
    mini.waiting = False
    mini.hub.sql(text)
    mini.waiting = True


def test_tasks_do_not_get_exits_of_long_ago(mini: Mini) -> None:
    mini.hub.sql("CREATE PIPELINE p INTO kept AS SELECT k, count(*) AS n FROM s GROUP BY k")
    feed(mini, 1)
    mini.hub.sql("DROP PIPELINE p")
    assert mini.query is not None and mini.checkpoint.end is not None
    end = mini.checkpoint.end
    (part, *_) = mini.query.planner.partitions({**end, "epoch": end["epoch"] - 1}, end)
    assert isinstance(part, EpochPartition)
    assert unpack_plan(part.plan).left == ()


@pytest.mark.parametrize("sink", ["kept", "lines", "columns", "lines, columns"])
def test_what_sinks_keep_of_a_pipeline_goes_with_it(mini: Mini, sink: str) -> None:
    mini.hub.sql(f"CREATE PIPELINE p INTO {sink} AS SELECT id, k FROM s")
    gone = instance(mini, "p")
    feed(mini, 1)
    feed(mini, 2)
    assert gone in sinks(mini)
    if "kept" not in sink:
        assert any(f"-{gone}-" in name for name in manifests(mini))
    mini.hub.sql("STOP PIPELINE p")
    feed(mini, 3)
    feed(mini, 4)
    assert gone in sinks(mini), "one that is only stopped stays"
    mini.hub.sql("DROP PIPELINE p")
    feed(mini, 5)
    feed(mini, 6)
    assert gone not in sinks(mini)
    assert not any(f"-{gone}-" in name for name in manifests(mini))
    if "lines" in sink:
        assert len(list((mini.directory.parent / "lines").glob("part-*"))) == 2, "what was committed stays"


def test_a_pipeline_that_is_stopped_at_once_and_started_again_and_again_leaves_nothing(mini: Mini) -> None:
    mini.hub.sql("CREATE PIPELINE p INTO lines AS SELECT k FROM s")
    for n in range(6):
        mini.hub.sql("STOP PIPELINE p NOW")
        feed(mini, 2 * n)
        mini.hub.sql("START PIPELINE p")
        feed(mini, 2 * n + 1)
    assert read_quarantine(runtime(mini).directory).out == ()
    assert runtime(mini).committer._quit == set()


def test_what_sinks_keep_of_a_stream_goes_with_it(mini: Mini) -> None:
    mini.hub.sql(
        "CREATE PIPELINE p INTO lines, columns AS SELECT id FROM s; CREATE PIPELINE q INTO lines AS SELECT id FROM s"
    )
    feed(mini, 1)
    feed(mini, 2)
    assert manifests(mini)
    mini.hub.sql("DROP PIPELINE p")
    mini.hub.sql("DROP PIPELINE q; DROP PIPELINE stays; DROP STREAM s")
    assert manifests(mini) == []
    assert len(list((mini.directory.parent / "lines").glob("part-*"))) == 4, "what was committed stays"


def test_what_a_dead_letter_sink_keeps_of_a_stream_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    mini = Mini(tmp_path / "state", monkeypatch)
    mini.hub.sql(f"""
        CREATE SINK bad WITH (type = 'jsonl', path = '{tmp_path / "bad"}'); CREATE SINK kept WITH (type = 'memory');
        CREATE STREAM s (id BIGINT, k STRING) WITH (source = 'files', format = 'json', path = '{tmp_path / "in"}',
            on_error = 'dead_letter', dead_letter_sink = 'bad')""")
    mini.hub.sql("CREATE PIPELINE p INTO kept AS SELECT id FROM s")
    for n in range(3):
        put(tmp_path / "in" / f"{n}.json", ["{", '{"id": 1, "k": "a"}'])
        mini.drain()
    assert mini.hub.streams["s"].status().dead_letters == 3
    assert manifests(mini)
    mini.hub.sql("DROP PIPELINE p; DROP STREAM s")
    assert manifests(mini) == []
    assert len(list((tmp_path / "bad").glob("part-*"))) == 3, "what was committed stays"
    mini.hub.close()


def test_dropping_a_stream_shows_an_epoch_whose_commit_was_cut_short(
    mini: Mini, monkeypatch: pytest.MonkeyPatch
) -> None:
    mini.hub.sql("CREATE PIPELINE p INTO lines AS SELECT id FROM s")
    feed(mini, 1)

    def die(sink: FileSink, *_: object) -> None:
        raise Crash("between the manifest and the files")

    with monkeypatch.context() as patch:
        patch.setattr(FileSink, "_roll_forward", die)
        with pytest.raises(Crash):
            feed(mini, 2)
    mini.crash()
    mini.hub.sql("DROP PIPELINE p; DROP PIPELINE stays; DROP STREAM s")
    assert len(list((mini.directory.parent / "lines").glob("part-*"))) == 2
    assert manifests(mini) == []


def test_a_replaced_pipeline_is_forgotten_as_well(mini: Mini) -> None:
    mini.hub.sql("CREATE PIPELINE p INTO lines AS SELECT id FROM s")
    old = instance(mini, "p")
    feed(mini, 1)
    mini.hub.sql("CREATE OR REPLACE PIPELINE p INTO lines AS SELECT k FROM s")
    feed(mini, 2)
    feed(mini, 3)
    assert old not in sinks(mini) and instance(mini, "p") in sinks(mini)
    assert not any(f"-{old}-" in name for name in manifests(mini))


@pytest.mark.parametrize("place", ["logged", "tasks", "lanes", "committed"])
def test_an_epoch_that_is_run_again_after_a_drop_finds_what_it_needs(mini: Mini, place: str) -> None:
    mini.hub.sql("CREATE PIPELINE p INTO lines, columns AS SELECT id FROM s")
    gone = instance(mini, "p")
    feed(mini, 1)
    mini.checkpoint.crash = place
    with pytest.raises(Crash):
        mini.hub.sql("DROP PIPELINE p")
        feed(mini, 2)
    mini.crash()
    feed(mini, 3)
    feed(mini, 4)
    feed(mini, 5)
    shown = {d: len(list((mini.directory.parent / d).glob("part-*"))) for d in ("lines", "columns")}
    assert shown == {"lines": 1, "columns": 1}, "the epoch before the drop, once"
    assert not any(f"-{gone}-" in name for name in manifests(mini))


def test_a_pipeline_whose_sink_owes_an_epoch_is_kept_until_it_is_paid(
    mini: Mini, monkeypatch: pytest.MonkeyPatch
) -> None:
    mini.hub.sql(
        "CREATE SINK late WITH (type = 'jsonl', path = '{}', retries = '0', on_failure = 'detach')".format(
            mini.directory.parent / "late"
        )
    )
    mini.hub.sql("CREATE PIPELINE p INTO columns, late AS SELECT id FROM s")
    gone, commit, broken = instance(mini, "p"), FileSink.commit, True

    def failing(sink: FileSink, key: SinkKey, staged: list[Staged]) -> int:
        if broken and sink.paths.sink == "late":
            raise SinkFailed("no room")
        return commit(sink, key, staged)

    monkeypatch.setattr(FileSink, "commit", failing)
    feed(mini, 1)
    assert [d.pipeline.instance for d in read_progress(runtime(mini).directory).debts] == [gone]
    mini.hub.sql("DROP PIPELINE p")
    for n in range(2, 6):
        feed(mini, n)
    assert any(f"-{gone}-" in name for name in manifests(mini)), "its promise must be kept"
    broken = False
    feed(mini, 6)
    assert len(list((mini.directory.parent / "late").glob("part-*"))) == 1
    feed(mini, 7)
    assert gone not in sinks(mini)
    assert not any(f"-{gone}-" in name for name in manifests(mini))


def test_the_quarantine_forgets_a_pipeline_that_is_dropped(mini: Mini) -> None:
    mini.hub.sql("CREATE PIPELINE p INTO kept AS SELECT id FROM s")
    gone = instance(mini, "p")
    mini.checkpoint.killers.add("p")
    put(mini.directory.parent / "in" / "00001.json", ['{"id": 1, "k": "a"}'])
    mini.drain()
    mini.drain()
    assert [q.instance for q in read_quarantine(runtime(mini).directory).out] == [gone]
    mini.hub.sql("DROP PIPELINE p")
    feed(mini, 2)
    feed(mini, 3)
    assert read_quarantine(runtime(mini).directory).out == ()


def test_a_file_sink_forgets_one_instance_and_keeps_what_is_visible(tmp_path: Path) -> None:
    definition = SinkDef("x", "jsonl", {"path": str(tmp_path)})
    kind = SINKS["jsonl"]
    driver = kind.driver(definition, Schema((Field("x", BIGINT),)))
    mine, other = SinkKey("c", 1, 5), SinkKey("c", 2, 5)
    for key in (mine, other):
        driver.commit(key, [kind.task(definition).stage(pa.table({"x": [1]}), key)])
    driver.forget(mine)
    assert driver.committed(other) and not driver.committed(mine)
    assert len(list(tmp_path.glob("part-*"))) == 2


def test_nothing_grows_while_pipelines_come_and_go(mini: Mini) -> None:
    """The short version of `make soak-growth`, without Spark."""
    files: list[float] = []
    sizes: list[float] = []
    known: list[float] = []
    queries = ("SELECT id, k FROM s", "SELECT k, count(*) AS n FROM s GROUP BY k")
    for n in range(11):
        sink = ("kept", "lines", "columns")[n % 3]
        mini.hub.sql(f"CREATE PIPELINE p{n} INTO {sink} AS {queries[n % 2]}")
        feed(mini, n)
        if n % 4 == 1:
            mini.hub.sql(f"STOP PIPELINE p{n - 1}")
        if n % 4 == 3:
            mini.hub.sql(f"START PIPELINE p{n - 3}")
        if n >= 4:
            mini.hub.sql(f"DROP PIPELINE p{n - 4}")
        kept = [p for p in mini.directory.rglob("*") if p.is_file() and "source" not in p.parts]
        files.append(float(len(kept) + len(manifests(mini))))
        sizes.append(float(sum(p.stat().st_size for p in kept)))
        known.append(float(len(sinks(mini)) + len(runtime(mini).progress.pipelines)))
    assert rise(files) < 3
    assert rise(sizes) < 3000, "bytes: not one more pipeline in catalog and plans"
    assert rise(known) < 2
    assert len(sinks(mini)) <= 9
