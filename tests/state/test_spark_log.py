"""Spark's epoch logs are durable before the first commit, and are repaired after a power loss."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from headrace.errors import EpochMismatch, StateDamaged
from headrace.state import checkpoint_sync, spark_log
from headrace.state.checkpoint_sync import CheckpointSync
from headrace.state.spark_log import mend_logs, sync_epoch

OFFSETS = 'v1\n{"batchWatermarkMs":0}\n{"epoch":%d}'
COMMITS = 'v1\n{"nextBatchWatermarkMs":0}'


def make(root: Path, planned: int, done: int) -> Path:
    """A checkpoint with the epochs up to `planned`, of which those up to `done` are done."""
    for name, last in (("offsets", planned), ("commits", done)):
        (root / name).mkdir(parents=True)
        for n in range(last + 1):
            (root / name / str(n)).write_text(OFFSETS % n if name == "offsets" else COMMITS)
            (root / name / f".{n}.crc").write_text("crc")
    for part in ("0", "1"):
        (root / "state" / "0" / part).mkdir(parents=True)
        (root / "state" / "0" / part / f"{planned}.changelog").write_text("x")
    return root


def entries(root: Path) -> tuple[list[int], list[int]]:
    found = [sorted(int(p.name) for p in (root / n).iterdir() if p.name.isdigit()) for n in ("offsets", "commits")]
    return found[0], found[1]


def test_all_that_a_rerun_needs_is_synced_with_its_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []

    def fsync(path: Path) -> None:
        synced.append(str(path.relative_to(tmp_path)))

    monkeypatch.setattr(spark_log, "fsync", fsync)
    monkeypatch.setattr(checkpoint_sync, "fsync", fsync)
    root = make(tmp_path / "c", 2, 1)
    others = ["metadata", "state/0/_metadata/v2/0", "state/0/0/SSTs/000008.sst", "state/0/0/.2.changelog.crc"]
    for name in [*others, "state/0/0/.3.changelog.tmp"]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    sync_epoch(root, 2)
    assert set(synced) == {"c/offsets/2", "c/offsets", "c/commits/1", "c/commits"}
    assert synced.index("c/offsets/2") < synced.index("c/offsets")  # the file, then its name
    synced.clear()
    sync = CheckpointSync(root)
    sync.sync()
    state = {"state/0/0/2.changelog", "state/0/1/2.changelog", *others}
    logged = {f"{name}/{n}" for name, n in product(("offsets", "commits"), ("0", "1", ".0.crc", ".1.crc"))}
    files = {f"c/{name}" for name in {"offsets/2", "offsets/.2.crc", *logged, *state}}
    assert set(synced) == files | {str(Path(file).parents[i]) for file in files for i in range(file.count("/"))} | {"."}
    done = min(synced.index(file) for file in files if "commits" in file)
    assert done > max(synced.index(file) for file in files if "commits" not in file)  # and all of its state is there
    synced.clear()
    sync.sync()
    assert synced == []
    (root / "commits" / "2").write_text(COMMITS)
    sync.sync()
    assert synced == ["c/commits/2", ".", "c", "c/commits"]
    with pytest.raises(StateDamaged):
        sync_epoch(root, 3)


@pytest.mark.parametrize("torn", ["", "v", "v1\n", 'v1\n{"batchWat', OFFSETS % 2 + "x", "\0\0\0"])
def test_torn_offsets_are_removed_with_their_commit(tmp_path: Path, torn: str) -> None:
    make(tmp_path, 2, 2)
    (tmp_path / "offsets" / "2").write_text(torn)
    mend_logs(tmp_path, 1)
    assert entries(tmp_path) == ([0, 1], [0, 1])
    assert not list(tmp_path.rglob(".2.crc"))


@pytest.mark.parametrize("torn", ["", "v1", "v1\n{"])
def test_a_torn_commit_is_removed_alone(tmp_path: Path, torn: str) -> None:
    make(tmp_path, 2, 2)
    (tmp_path / "commits" / "2").write_text(torn)
    mend_logs(tmp_path, 1)
    assert entries(tmp_path) == ([0, 1, 2], [0, 1])


def test_intact_logs_stay_and_a_commit_without_offsets_is_removed(tmp_path: Path) -> None:
    mend_logs(tmp_path / "none yet", -1)
    make(tmp_path, 2, 1)
    mend_logs(tmp_path, 1)
    assert entries(tmp_path) == ([0, 1, 2], [0, 1])
    for n in (1, 2):
        (tmp_path / "offsets" / str(n)).unlink()
    mend_logs(tmp_path, 1)
    assert entries(tmp_path) == ([0], [0])
    with pytest.raises(EpochMismatch):
        mend_logs(tmp_path, 2)
    assert (tmp_path / "state").is_dir()


def test_the_first_epoch_begins_without_state_when_its_offsets_are_torn(tmp_path: Path) -> None:
    make(tmp_path, 0, -1)
    (tmp_path / "offsets" / "0").write_text("")
    mend_logs(tmp_path, 0)
    assert entries(tmp_path) == ([], []) and not (tmp_path / "state").exists()
