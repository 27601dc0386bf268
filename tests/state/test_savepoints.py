"""Savepoints without Spark: what is copied, what restoring refuses, what rewinding removes."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import headrace
from headrace.errors import (
    AlreadyExists,
    BadSavepoint,
    EpochMismatch,
    SavepointTimeout,
    SinkAhead,
    StateDamaged,
    UnwritablePath,
)
from headrace.model.definitions import PipelineDef, SinkDef, StreamDef
from headrace.sinks import SINKS, SinkKey
from headrace.state.catalog import Catalog, CatalogFile, PipelineRecord
from headrace.state.progress import Progress
from headrace.state.restore import NEXT_INSTANCES, read, restore
from headrace.state.savepoints import Cut, collect, finish, half_of, refuse_existing, take
from headrace.state.state_dir import StateDir
from tests.ring0.tasks import N, stateless, stream
from tests.sinks.crashes import Crash
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


def test_output_written_after_the_savepoint_is_refused_or_deleted_on_request(tmp_path: Path) -> None:
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


def test_output_of_other_hubs_in_the_same_directory_is_not_touched(tmp_path: Path) -> None:
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

    def pause_at_barrier(self, timeout: float) -> int | None:
        return self.epoch

    def release(self) -> None:
        self.released = True


def test_paused_streams_are_copied_together_and_resume(tmp_path: Path) -> None:
    streams = {name: Standing(tmp_path / "streams", name, epoch) for name, epoch in (("s", 4), ("t", 9))}
    streams["t"].running = False  # as it was left: behind its newest committed epoch
    catalog = Catalog().with_stream(streams["s"].stream).with_stream(streams["t"].stream)
    taken = take(tmp_path / "savepoints" / "x", streams, lambda: catalog, 1.0)
    assert [(c.stream, c.epoch) for c in read(taken).cuts] == [("s", 4), ("t", 7)]
    assert all(s.released for s in streams.values())
    assert (taken / "streams" / "t" / "progress.json").exists()


def test_a_stream_that_does_not_pause_is_named_and_no_stream_stays_paused(tmp_path: Path) -> None:
    streams = {name: Standing(tmp_path, name, epoch) for name, epoch in (("s", 4), ("t", None), ("u", 1))}
    with pytest.raises(SavepointTimeout) as caught:
        take(tmp_path / "x", streams, Catalog, 0.0)
    assert caught.value.params["streams"] == ["t"] and "defect" not in caught.value.render()
    assert all(s.released for s in streams.values())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s", "t", "u"]


def test_a_failed_copy_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = make(tmp_path, stateless(1, N))
    source = Standing(tmp_path / "streams", "s", 4)

    def full(*paths: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copy2", full)
    with pytest.raises(UnwritablePath) as refused:
        take(tmp_path / "savepoints" / "x", {"s": source}, lambda: Catalog().with_stream(source.stream), 1.0)
    assert isinstance(refused.value.__cause__, OSError) and refused.value.__cause__.errno == errno.ENOSPC
    assert list((tmp_path / "savepoints").iterdir()) == [] and source.released
    with pytest.raises(UnwritablePath) as refused:
        restore(taken, tmp_path / "again" / "new")
    assert isinstance(refused.value.__cause__, OSError) and refused.value.__cause__.errno == errno.ENOSPC
    assert list((tmp_path / "again").iterdir()) == []


def test_an_unfinished_savepoint_is_removed_when_the_hub_is_reopened(tmp_path: Path) -> None:
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


def test_a_directory_that_is_no_savepoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "not").mkdir()
    with pytest.raises(BadSavepoint):
        restore(tmp_path / "not", tmp_path / "new")
    (tmp_path / "not" / "savepoint.json").write_text('{"format": 9, "name": "x", "at": 0, "cuts": []}')
    with pytest.raises(BadSavepoint):
        restore(tmp_path / "not", tmp_path / "new")


# --- sinks that are ahead of the cut ----------------------------------------------------------------


def interrupted(rig: Rig, epoch: int, value: int, place: str) -> None:
    """The hub dies in the commit of an epoch, at a named place of the file sinks."""

    def die(name: str) -> None:
        if name == place:
            raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.sinks.file_sink.fault_point", die)
        patch.setattr("headrace.sinks.delivery.fault_point", die)
        with pytest.raises(Crash):
            rig.deliver(epoch, rig.staged(epoch, value))


@pytest.mark.parametrize("sinks", [1, 2])
@pytest.mark.parametrize("place", ["between-manifest-and-rename", "between-renames", "between-sinks"])
def test_staged_output_of_an_uncommitted_epoch_counts_as_written_after_the_savepoint(
    tmp_path: Path, sinks: int, place: str
) -> None:
    rig = Rig(tmp_path / "sinks", *({},) * sinks)
    for epoch in range(2):
        rig.deliver(epoch, rig.staged(epoch, epoch))
    taken = make(tmp_path, rig.pipeline)
    interrupted(rig, 2, 2, place)
    with pytest.raises(SinkAhead) as caught:
        restore(taken, tmp_path / "new")
    # With two sinks, one has committed and the other has only promised.
    assert caught.value.params["sinks"] == ["a", "b"][:sinks]
    restore(taken, tmp_path / "new", rewind=True)
    rig.deliver(2, rig.staged(2, 22))  # another cut of the input this time
    assert all(rig.shown(s.name) == [0, 1, 22] for s in rig.pipeline.sinks)


KILLED = """
import sys
from pathlib import Path
from headrace.state.restore import restore
restore(Path(sys.argv[1]), Path(sys.argv[2]), rewind=True)
"""
PLACES = (
    "restore-copied", "restore-handed-over", "rewind-between-files@1", "rewind-between-files@3",
    "rewind-between-files@5", "restore-between-sinks@1", "restore-between-sinks@2", "restore-before-rename",
    "restore-finished",
)  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_a_restore_that_is_killed_anywhere_succeeds_when_it_runs_again(tmp_path: Path, place: str) -> None:
    rig = Rig(tmp_path / "sinks", {}, {})
    for epoch in range(4):
        rig.deliver(epoch, rig.staged(epoch, epoch))
    taken, new = make(tmp_path, rig.pipeline), tmp_path / "new"
    command = [sys.executable, "-c", KILLED, str(taken), str(new)]
    assert subprocess.run(command, env=os.environ | {"HEADRACE_FAULT": place}).returncode == -signal.SIGKILL
    if place == "restore-finished":
        assert new.is_dir()
    else:
        with contextlib.suppress(SinkAhead):  # refused as long as anything is left, and right when it is not
            restore(taken, new)
        if not new.exists():
            restore(taken, new, rewind=True)
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
    assert rig.shown("a") == rig.shown("b") == [0, 1]
    rig.deliver(2, rig.staged(2, 22))
    assert rig.shown("a") == rig.shown("b") == [0, 1, 22]
    StateDir.open(new).close()
    assert set(CatalogFile(new).read().streams) == {"s"}


@pytest.mark.parametrize("directory", ["../elsewhere", "..", "", ".", "/etc", "a/b"])
def test_a_savepoint_that_names_a_directory_elsewhere_is_refused(tmp_path: Path, directory: str) -> None:
    taken = make(tmp_path, stateless(1, N))
    facts = json.loads((taken / "savepoint.json").read_text().splitlines()[0])
    facts["cuts"][0]["directory"] = directory
    (taken / "savepoint.json").write_text(json.dumps(facts))
    with pytest.raises(BadSavepoint):
        restore(taken, tmp_path / "new")


@pytest.mark.parametrize("name", ["savepoint.json", "catalog.json"])
def test_a_savepoint_with_any_bit_of_its_facts_flipped_is_refused(tmp_path: Path, name: str) -> None:
    taken = make(tmp_path, stateless(1, N))
    whole = (taken / name).read_bytes()
    for place in range(0, whole.index(b"\n"), 7):
        (taken / name).write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises((BadSavepoint, StateDamaged)):
            restore(taken, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_savepoint_of_an_earlier_version_can_be_restored(tmp_path: Path) -> None:
    taken = make(tmp_path, stateless(1, N))
    for name, change in (("savepoint.json", {"format": 1}), ("catalog.json", {"version": 1})):
        facts = json.loads((taken / name).read_text().splitlines()[0])  # without a checksum
        (taken / name).write_text(json.dumps(facts | change))
    (taken / "catalog.previous.json").unlink()
    restore(taken, tmp_path / "new")
    assert set(CatalogFile(tmp_path / "new").read().streams) == {"s"}


# --- who may write under which number ---------------------------------------------------------------


@dataclass
class Branch:
    """One hub of several that come from one: its catalog, and the epoch it has come to."""

    catalog: Catalog
    epoch: int = -1


class Branches:
    """Hubs that go on, are cut, and are restored from cuts; all of their pipelines write into one directory. `wanted`
    is what must be there: every row that was committed and not rewound, by (instance, epoch, value)."""

    def __init__(self, root: Path) -> None:
        self.root, self.wanted, self.values = root, set[tuple[int, int, int]](), count()
        self.branches = [Branch(Catalog().with_stream(stream()))]
        self.now, self.cuts = self.branches[0], list[Path]()
        self.sink = SinkDef("out", "jsonl", {"path": str(root / "out")})

    def create(self) -> None:
        instance = self.now.catalog.next_instance
        pipeline = PipelineDef(f"p{instance}", instance, (self.sink,), stateless(1, N).program, 1)
        self.now.catalog = self.now.catalog.with_pipeline(PipelineRecord(pipeline))

    def drop(self) -> None:
        if names := self.now.catalog.pipeline_names():
            self.now.catalog = self.now.catalog.without("pipeline", names[0])

    def run(self) -> None:
        """An epoch of the current hub: a row from every pipeline, or an error that says it cannot be."""
        self.now.epoch += 1
        for record in self.now.catalog.pipelines.values():
            value, instance = next(self.values), record.definition.instance
            key = SinkKey("checkpoint", instance, self.now.epoch, f"{value:032}")
            driver = SINKS["jsonl"].driver(self.sink, stateless(1, N).program.output)
            staged = SINKS["jsonl"].task(self.sink).stage(pa.table({"n": pa.array([value], pa.int32())}), key)
            with contextlib.suppress(EpochMismatch):
                driver.verify(key)
                assert driver.commit(key, [staged]) == 1
                self.wanted.add((instance, self.now.epoch, value))

    def save(self) -> None:
        target = self.root / f"cut{len(self.cuts)}"
        source = self.root / "stream"
        source.mkdir(exist_ok=True)
        with half_of(target) as half:
            collect(half, target.name, self.now.catalog, [(source, Cut("s", "s", "checkpoint", self.now.epoch))])
            self.cuts.append(finish(half, target))

    def restore(self, number: int) -> None:
        """A new hub from a cut goes on instead of the current one."""
        if not self.cuts:
            return
        taken, new = self.cuts[number % len(self.cuts)], self.root / f"hub{len(self.branches)}"
        restore(taken, new, rewind=True)
        cut, catalog = read(taken).cuts[0], CatalogFile(new).read()
        known = {r.definition.instance for r in catalog.pipelines.values()}
        first = CatalogFile(taken).read().next_instance
        # What the same hub created since, if the savepoint has a pipeline that writes into the directory.
        newer = range(first, first + NEXT_INSTANCES if known else first)
        gone = {row for row in self.wanted if (row[0] in known or row[0] in newer) and row[1] > cut.epoch}
        self.wanted -= gone
        self.now = Branch(catalog, cut.epoch)
        self.branches.append(self.now)

    def go_back(self, number: int) -> None:
        """Somebody starts an older hub again, although it must not be."""
        self.now = self.branches[number % len(self.branches)]

    def shown(self) -> list[int]:
        parts = (self.root / "out").glob("part-*")
        return sorted(json.loads(line)["n"] for part in parts for line in part.read_text().splitlines())


@settings(max_examples=40)
@given(
    st.lists(
        st.one_of(
            st.sampled_from([("create", 0), ("drop", 0), ("run", 0), ("run", 0), ("save", 0)]),
            st.tuples(st.sampled_from(["restore", "go_back"]), st.integers(0, 3)),
        ),
        max_size=14,
    )
)
@example([("create", 0), ("save", 0), ("create", 0), ("run", 0), ("restore", 0), ("create", 0), ("run", 0)])
@example([("create", 0), ("save", 0), *[("run", 0)] * 4, ("restore", 0), ("run", 0), ("go_back", 0), ("run", 0)])
@example([("create", 0), ("save", 0), ("restore", 0), *[("run", 0)] * 4, ("go_back", 0), ("run", 0)])
def test_two_hubs_from_one_savepoint_do_not_lose_rows_to_each_other(schedule: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as root:
        world = Branches(Path(root))
        for action, number in schedule:
            getattr(world, action)(*((number,) if action in ("restore", "go_back") else ()))
            assert world.shown() == sorted(value for _, _, value in world.wanted)
        numbers = [b.catalog.next_instance for b in world.branches]
        assert len(set(numbers)) == len(numbers)
