"""Savepoints without Spark: what is copied, what restoring refuses, what rewinding removes."""

from __future__ import annotations

import errno
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import headrace
from headrace.errors import AlreadyExists, BadSavepoint, SavepointTimeout, SinkAhead, UnwritablePath
from headrace.program import PipelineDef, SinkDef, StreamDef
from headrace.restoring import read, restore
from headrace.savepoints import Cut, collect, finish, half_of, refuse_existing, take
from headrace.streams.catalog import Catalog, CatalogFile, PipelineRecord
from headrace.streams.progress import Progress
from tests.ring0.tasks import N, stateless, stream
from tests.sinks.test_delivery import Rig


def make(root: Path, pipeline: PipelineDef) -> Path:
    """A savepoint at epoch 1 of the stream `s` with one pipeline, from files as Spark leaves them."""
    source = root / "state" / "streams" / "s"
    metadata = source / "checkpoint" / "state" / "0" / "_metadata" / "v2" / "0"
    metadata.parent.mkdir(parents=True)
    old = f"file:{source}/checkpoint/state/0/_stateSchema/default/0_x"
    metadata.write_text(f'v2\n{{"stateSchemaFilePaths":["{old}"]}}')
    (metadata.parent / ".0.crc").write_text("of the old text")
    (source / "checkpoint.id").write_text("checkpoint")
    (source / "hold").write_text("7")
    other: StreamDef = stream()
    catalog = Catalog().with_stream(stream()).with_pipeline(PipelineRecord(pipeline))
    catalog = catalog.with_stream(StreamDef("other", other.schema, None, 0, "files", "json", {}))
    target = root / "elsewhere" / "monday"
    target.parent.mkdir()
    with half_of(target) as half:
        collect(half, target.name, catalog, [(source, Cut("s", "s", "checkpoint", 1))])
        return finish(half, target)


def test_a_savepoint_becomes_a_state_directory_anywhere(tmp_path: Path) -> None:
    taken = make(tmp_path, stateless(1, N))
    with pytest.raises(AlreadyExists):
        refuse_existing(taken)
    assert [c.epoch for c in read(taken).cuts] == [1]
    assert not list(taken.rglob("hold"))
    new = tmp_path / "new place"
    assert restore(taken, new).name == "monday"
    place = new / "streams" / "s"
    assert set(CatalogFile(new).read().streams) == {"s"}
    assert (place / "checkpoint.id").read_text() == "checkpoint"
    text = (place / "checkpoint" / "state" / "0" / "_metadata" / "v2" / "0").read_text()
    wanted = f"file:{place}/checkpoint/state/0/_stateSchema/default/0_x"  # not a URI: Spark escapes by itself
    assert text == f'v2\n{{"stateSchemaFilePaths":["{wanted}"]}}'
    assert not list(place.rglob(".0.crc"))
    with pytest.raises(AlreadyExists):
        restore(taken, new)


def test_output_from_behind_the_cut_is_noticed_and_removed_when_asked(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "sinks", {}, {})
    for epoch in range(4):
        rig.deliver(epoch, rig.staged(epoch, epoch))
    taken = make(tmp_path, rig.pipeline)
    with pytest.raises(SinkAhead) as caught:
        restore(taken, tmp_path / "new")
    assert caught.value.params["sinks"] == ["a", "b"] and not (tmp_path / "new").exists()
    assert rig.shown("a") == [0, 1, 2, 3]
    restore(taken, tmp_path / "new", rewind=True)
    assert rig.shown("a") == rig.shown("b") == [0, 1]
    rig.deliver(2, rig.staged(2, 22))  # another cut of the input this time
    assert rig.shown("a") == rig.shown("b") == [0, 1, 22]


def test_sinks_of_others_in_the_same_directory_are_left_alone(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "sinks", {})
    rig.deliver(5, rig.staged(5, 5))
    options = rig.pipeline.sinks[0].options
    taken = make(tmp_path, PipelineDef("q", 2, (SinkDef("a", "jsonl", options),), rig.pipeline.program, 1))
    restore(taken, tmp_path / "new", rewind=True)
    assert rig.shown("a") == [5]


class Standing:
    """A stream that comes to a stand behind `epoch`, or never."""

    running, released = True, False

    def __init__(self, root: Path, name: str, epoch: int | None) -> None:
        self.stream, self.directory, self.epoch = replace(stream(), name=name), root / name, epoch
        self.progress = Progress(epoch=7)
        self.directory.mkdir(parents=True)
        (self.directory / "progress.json").write_text("{}")

    def checkpoint_id(self) -> str:
        return "checkpoint"

    def stand_still(self, timeout: float) -> int | None:
        return self.epoch

    def release(self) -> None:
        self.released = True


def test_streams_that_stand_still_are_copied_together_and_go_on(tmp_path: Path) -> None:
    streams = {name: Standing(tmp_path / "streams", name, epoch) for name, epoch in (("s", 4), ("t", 9))}
    streams["t"].running = False  # as it was left: behind its newest committed epoch
    catalog = Catalog().with_stream(streams["s"].stream).with_stream(streams["t"].stream)
    taken = take(tmp_path / "savepoints" / "x", streams, lambda: catalog, 1.0)
    assert [(c.stream, c.epoch) for c in read(taken).cuts] == [("s", 4), ("t", 7)]
    assert all(s.released for s in streams.values())
    assert (taken / "streams" / "t" / "progress.json").exists()


def test_a_stream_that_does_not_come_to_a_stand_is_named_and_nothing_stays_held(tmp_path: Path) -> None:
    streams = {name: Standing(tmp_path, name, epoch) for name, epoch in (("s", 4), ("t", None), ("u", 1))}
    with pytest.raises(SavepointTimeout) as caught:
        take(tmp_path / "x", streams, Catalog, 0.0)
    assert caught.value.params["streams"] == ["t"] and "defect" not in caught.value.render()
    assert all(s.released for s in streams.values())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s", "t", "u"]


def test_a_copy_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = make(tmp_path, stateless(1, N))
    source = Standing(tmp_path / "streams", "s", 4)

    def full(*paths: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copy2", full)
    with pytest.raises(UnwritablePath, match="No space left"):
        take(tmp_path / "savepoints" / "x", {"s": source}, lambda: Catalog().with_stream(source.stream), 1.0)
    assert list((tmp_path / "savepoints").iterdir()) == [] and source.released
    with pytest.raises(UnwritablePath, match="No space left"):
        restore(taken, tmp_path / "again" / "new")
    assert list((tmp_path / "again").iterdir()) == []


def test_what_a_crash_left_of_a_savepoint_is_gone_when_the_hub_is_opened_again(tmp_path: Path) -> None:
    half, whole = tmp_path / "savepoints" / ".x.0123", tmp_path / "savepoints" / "y"
    for directory in (half, whole):
        (directory / "streams").mkdir(parents=True)
    headrace.connect(tmp_path).close()
    assert not half.exists() and whole.exists()


def test_a_savepoint_whose_catalog_lacks_its_stream_is_refused(tmp_path: Path) -> None:
    taken = make(tmp_path, stateless(1, N))
    CatalogFile(taken).save(Catalog())
    with pytest.raises(BadSavepoint):
        restore(taken, tmp_path / "new")


def test_what_is_no_savepoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "not").mkdir()
    with pytest.raises(BadSavepoint):
        restore(tmp_path / "not", tmp_path / "new")
    (tmp_path / "not" / "savepoint.json").write_text('{"format": 9, "name": "x", "at": 0, "cuts": []}')
    with pytest.raises(BadSavepoint):
        restore(tmp_path / "not", tmp_path / "new")
