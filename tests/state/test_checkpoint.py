"""The location of a stream's checkpoint, also of one that an earlier version wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.base.durable import write_atomic
from headrace.errors import StateDamaged
from headrace.state.checkpoint import checkpoint_id, location, misplaced, relocate, settle_checkpoint
from headrace.state.progress import Progress, write_progress
from headrace.state.state_dir import StateDir

ODD = ["a b", "100%41", "h#x?y", "c:d", "größe", "back\\slash", "quo'te\"s", "{a}[b]*"]


def metadata(checkpoint: Path, place: str) -> Path:
    """A file as Spark writes it, which names another one by its full path."""
    path = checkpoint / "state" / "0" / "_metadata" / "v2" / "0"
    path.parent.mkdir(parents=True)
    named = {"stateStoreInfo": [{"stateSchemaFilePaths": [f"{place}/state/0/_stateSchema/default/0_x"]}]}
    path.write_text("v2\n" + json.dumps(named))
    (path.parent / ".0.crc").write_text("of the old text")
    return path


def named_in(path: Path) -> str:
    version, _, body = path.read_text().partition("\n")
    assert version == "v2"
    return str(json.loads(body)["stateStoreInfo"][0]["stateSchemaFilePaths"][0])


@pytest.mark.parametrize("odd", ODD)
def test_spark_is_given_the_path_and_not_a_uri(odd: str) -> None:
    assert location(Path("/data") / odd / "checkpoint") == f"file:/data/{odd}/checkpoint"


def test_two_slashes_do_not_make_a_host() -> None:
    assert location(Path("//data/checkpoint")) == "file:/data/checkpoint"


@pytest.mark.parametrize("odd", ODD)
def test_a_checkpoint_that_was_escaped_twice_is_found_and_moved(tmp_path: Path, odd: str) -> None:
    """As an earlier version left it: everything in place but the checkpoint, with Spark's own paths in it."""
    state = tmp_path / odd
    own = StateDir.open(state).stream("größe") if odd == "a b" else state / "streams" / "s"
    own.mkdir(parents=True)
    (own / "checkpoint.id").write_text("c" * 32)
    write_progress(own, Progress(epoch=4))
    old = misplaced(own / "checkpoint")
    assert old != own / "checkpoint"
    metadata(old, f"file:{old}")
    (old / "offsets").mkdir()
    settle_checkpoint(own)
    settle_checkpoint(own)
    assert checkpoint_id(own, "s") == "c" * 32 and (own / "checkpoint" / "offsets").is_dir() and not old.exists()
    found = own / "checkpoint" / "state" / "0" / "_metadata" / "v2"
    assert named_in(found / "0") == f"file:{own}/checkpoint/state/0/_stateSchema/default/0_x"
    assert not (found / ".0.crc").exists()


def test_the_checkpoint_of_a_stream_is_not_swept_from_where_an_earlier_version_put_it(tmp_path: Path) -> None:
    state = StateDir.open(tmp_path / "state")
    own = state.stream("größe")
    own.mkdir(parents=True)
    (own / "checkpoint.id").write_text("c")
    old = misplaced(own / "checkpoint")
    assert old.parent.parent == own.parent  # it lies among the streams
    (old / "offsets").mkdir(parents=True)
    state.sweep(["größe"])
    assert [p.name for p in own.parent.iterdir()] == [own.name]
    assert (own / "checkpoint" / "offsets").is_dir()
    state.close()


def test_the_checkpoint_of_another_state_directory_is_not_used(tmp_path: Path) -> None:
    own, other = tmp_path / "a b" / "streams" / "s", tmp_path / "a%20b" / "streams" / "s"
    own.mkdir(parents=True)
    (other / "checkpoint").mkdir(parents=True)
    (other / "checkpoint.id").write_text("another")
    assert misplaced(own / "checkpoint") == other / "checkpoint"
    settle_checkpoint(own)
    assert (other / "checkpoint").is_dir() and not (own / "checkpoint").exists()
    write_progress(own, Progress(epoch=1))
    write_atomic(own / "checkpoint.id", b"c")
    with pytest.raises(StateDamaged):
        checkpoint_id(own, "s")


def test_checkpoints_of_a_state_directory_that_was_moved_name_their_files_where_they_are(tmp_path: Path) -> None:
    state = StateDir.open(tmp_path / "a state")
    own = state.stream("s")
    checkpoints = [own / "checkpoint", own / "dedicated" / "7-0" / "0" / "checkpoint"]
    files = [metadata(checkpoint, "file:/before/streams/s/checkpoint") for checkpoint in checkpoints]
    state.sweep(["s"])
    state.close()
    for checkpoint, path in zip(checkpoints, files, strict=True):
        assert named_in(path) == f"file:{checkpoint}/state/0/_stateSchema/default/0_x"


def test_metadata_with_right_paths_or_torn_metadata_is_not_changed(tmp_path: Path) -> None:
    path = metadata(tmp_path, location(tmp_path))
    relocate(tmp_path, tmp_path)
    assert (path.parent / ".0.crc").exists()
    for damage in (b"v2\n{", b"\xff\x00"):
        path.write_bytes(damage)
        relocate(tmp_path, tmp_path / "elsewhere")
        assert path.read_bytes() == damage
