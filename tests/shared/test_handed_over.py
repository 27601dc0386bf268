"""A hub that was restored elsewhere owns the file sinks: the hub that took the savepoint is refused beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import HeadraceError, SinkTakenOver, SinkUnavailable, StateDamaged
from headrace.model.definitions import SinkDef
from headrace.model.stored import store
from headrace.sinks.outputs import LocalOutput
from headrace.sinks.owner_mark import Owner, OwnerMark
from headrace.sinks.sink_paths import SinkPaths
from headrace.spark.driver_sinks import DriverSinks
from headrace.state.checkpoint import checkpoint_id
from headrace.state.restore import restore
from tests.e2e.support import put
from tests.shared.chain import Chain, record
from tests.shared.test_restored_sinks import STREAM, written


def taken(chain: Chain, base: Path) -> Path:
    put(base / "in" / "0.json", [record(1, k="a", v=1)])
    chain.sql(STREAM.format(path=base, options=""))
    chain.drain()
    return chain.hub.savepoint("monday")


def marks(base: Path) -> list[Path]:
    return sorted((base / "out" / "_headrace").glob("owners/*"))


def refused(chain: Chain, statement: str = "") -> HeadraceError:
    with pytest.raises(HeadraceError) as caught:
        if statement:
            chain.sql(statement)
        chain.drain()
    return caught.value


@pytest.mark.parametrize("rewind", [False, True])
@pytest.mark.parametrize("statement", ["", "CREATE OR REPLACE PIPELINE p INTO f AS SELECT k, v + 0 AS v FROM raw"])
def test_the_old_hub_writes_no_row_beside_the_restored_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rewind: bool, statement: str
) -> None:
    old = Chain(tmp_path / "state", monkeypatch)
    savepoint = taken(old, tmp_path)
    saved = old.copied()
    old.hub.close()
    restore(savepoint, tmp_path / "restored", rewind=rewind)
    put(tmp_path / "in" / "1.json", [record(2, k="b", v=2)])
    mine = old.checkpoints
    old.checkpoints = saved[0]
    new = Chain(tmp_path / "restored", monkeypatch, like=old)
    old.checkpoints = mine
    new.drain()
    new.hub.close()
    assert written(tmp_path) == [("a", 1), ("b", 2)]

    old.open()
    problem = refused(old, statement)
    assert problem.code == SinkTakenOver.code
    assert str(tmp_path / "restored") in problem.message
    assert problem.params["path"] == str(marks(tmp_path)[0])
    assert str(marks(tmp_path)[0]) in problem.advice
    old.hub.close(drain=False)
    assert written(tmp_path) == [("a", 1), ("b", 2)]


def test_a_rewound_sink_is_closed_to_the_old_hub_before_the_restored_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Chain(tmp_path / "state", monkeypatch)
    savepoint = taken(old, tmp_path)
    put(tmp_path / "in" / "1.json", [record(2, k="b", v=2)])
    old.drain()
    old.hub.close()
    restore(savepoint, tmp_path / "restored", rewind=True)
    assert written(tmp_path) == [("a", 1)]
    put(tmp_path / "in" / "2.json", [record(3, k="c", v=3)])
    old.open()
    assert refused(old).code == SinkTakenOver.code
    old.hub.close(drain=False)
    assert written(tmp_path) == [("a", 1)]


def test_a_restore_that_is_never_started_takes_nothing_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = Chain(tmp_path / "state", monkeypatch)
    savepoint = taken(old, tmp_path)
    old.hub.close()
    restore(savepoint, tmp_path / "restored")
    assert marks(tmp_path) == []
    put(tmp_path / "in" / "1.json", [record(2, k="b", v=2)])
    old.open()
    old.drain()
    old.hub.close()
    assert written(tmp_path) == [("a", 1), ("b", 2)]


def test_a_hub_that_is_restored_again_and_again_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = Chain(tmp_path / "state0", monkeypatch)
    savepoint = taken(chain, tmp_path)
    for i in range(1, 4):
        chain.hub.close()
        restore(savepoint, tmp_path / f"state{i}", rewind=i == 2)
        put(tmp_path / "in" / f"{i}.json", [record(i + 1, k="b", v=i)])
        chain = Chain(tmp_path / f"state{i}", monkeypatch, like=chain)
        chain.drain()
        savepoint = chain.hub.savepoint("again")
    chain.hub.close()
    assert written(tmp_path) == [("a", 1), ("b", 1), ("b", 2), ("b", 3)]
    assert len(marks(tmp_path)) == 1


def test_without_the_mark_the_old_hub_may_write_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = Chain(tmp_path / "state", monkeypatch)
    savepoint = taken(old, tmp_path)
    old.hub.close()
    restore(savepoint, tmp_path / "restored", rewind=True)
    put(tmp_path / "in" / "1.json", [record(2, k="b", v=2)])
    (mark,) = marks(tmp_path)
    good = mark.read_bytes()
    mark.write_bytes(good[:-5])
    old.open()
    problem = refused(old)
    assert (problem.code, problem.params["path"]) == (StateDamaged.code, str(mark))
    mark.unlink()
    old.drain()
    old.hub.close()
    assert written(tmp_path) == [("a", 1), ("b", 2)]


@pytest.mark.parametrize("feeds", [False, True])
def test_dead_letters_and_queries_on_the_dedicated_host_have_the_owner_of_their_stream(
    tmp_path: Path, feeds: bool
) -> None:
    stream = tmp_path / "streams" / "s"
    stream.mkdir(parents=True)
    checkpoint = checkpoint_id(stream, "s")
    letters = SinkDef("l", "jsonl", {"path": str(tmp_path / "letters")}, "")
    OwnerMark(SinkPaths(LocalOutput(tmp_path / "letters"), "l")).write(checkpoint, Owner("1" * 32, "elsewhere"))
    own = "2" * 32 if feeds else checkpoint
    sinks = DriverSinks(own, stream / "dedicated" / "1-0" if feeds else stream, feeds=stream if feeds else None)
    with pytest.raises(SinkTakenOver):
        sinks.letters(letters)
    store(stream / "owner.json", Owner("1" * 32, "here"))
    sinks.letters(letters).close()


def test_a_mark_that_cannot_be_read_holds_up_only_pipelines_with_rows_for_the_sink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, asked = OwnerMark.read, list[str]()

    def unreachable(mark: OwnerMark, checkpoint: str) -> Owner | None:
        asked.append(mark.place(checkpoint))
        if asked[-1].startswith(str(tmp_path / "far")):
            raise SinkUnavailable("the object store does not answer")
        return read(mark, checkpoint)

    monkeypatch.setattr(OwnerMark, "read", unreachable)
    chain = Chain(tmp_path / "state", monkeypatch)
    far = f"""
        CREATE SINK far WITH (type = 'jsonl', path = '{tmp_path}/far');
        CREATE PIPELINE q INTO far AS SELECT k, v FROM raw WHERE k = 'none'
    """
    (tmp_path / "in").mkdir()
    chain.sql(STREAM.format(path=tmp_path, options="") + ";" + far)
    put(tmp_path / "in" / "0.json", [record(1, k="a", v=1)])
    chain.drain()
    assert written(tmp_path) == [("a", 1)]
    assert any(place.startswith(str(tmp_path / "far")) for place in asked)
    chain.hub.close(drain=False)


def test_a_sink_without_its_directory_has_no_mark(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert OwnerMark(SinkPaths(LocalOutput(tmp_path / "file"), "f")).read("1" * 32) is None
